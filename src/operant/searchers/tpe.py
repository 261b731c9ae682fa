"""TpeSearcher: the tree-structured Parzen estimator, multivariate, with all kernels in one matrix product."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import numpy as np

from operant._util.checks import positive, whole_number
from operant.searchers._branches import EXPLORATION, Branches
from operant.searchers._parzen import Kernels, log_density
from operant.searchers._trial_arrays import TrialArrays
from operant.searchers.base_searcher import MOST_AT_ONCE, BaseSearcher, Proposal, Trial
from operant.searchers.builder import SEARCHERS
from operant.searchers.random import Design
from operant.space import Config, Container

# Up to so many trials the widths of the kernels are computed anew for each proposal; beyond, only when the
# number of trials has grown by a factor, so that features can be kept.
_SMALL = 200
_REFRESH = 1.25
# Narrow kernels around the few best trials converge fast, but to the nearest optimum; half of the proposals come from
# wide ones around three times as many. All numbers here were chosen on the problems of benchmarks/search_quality.py and
# a dozen others, with seeds below 1000.
_WIDE_CHANCE = 0.5
_WIDE_BLUR = 4.0
_NARROW_PART, _WIDE_PART = 0.5, 1.5
# The narrowest kernels, in parts of a range: of many good trials, and of all others. With 1/(n + 2) for n good trials,
# as it is elsewhere (0.08 for 10 of them), a search cannot come closer than that to an optimum.
_LEAST_GOOD = 0.03
_LEAST = 0.01
# How readily the kernels of these others take another category, and how much the prior weighs beside them.
_BLUR = 1.0
_PRIOR = 4.0
# A good trial that is no better than the best of the others weighs so much.
_LIGHTEST = 1e-6
# From so many ended trials of a branch on its densities are used.
_FEW = 4


@SEARCHERS.register_module()
class TpeSearcher(BaseSearcher):
    """Proposes where good results are likely and bad ones are not (Bergstra et al. 2011; arXiv 2304.11127).

    The best trials give a density l(x), in which each weighs as much as it is better than all others; those (pending
    ones too, so that parallel proposals spread) give a density g(x). Of `n_candidates` points drawn from l the one with
    the highest l(x)/g(x) is proposed.
    In a space with conditions a branch is chosen first, half of the time by l, otherwise at random, and the
    densities are those of its own trials.

    Args:
        n_initial_points: evenly spread points before the densities are used.
        n_candidates: points drawn for each proposal.
        good_fraction: the part of the trials that counts as good, on average: half of the proposals look at the best
            half of them, the others at half as many more.
        most_good: at most so many trials count as good.
    """

    def __init__(
        self,
        search_space: Container | Sequence[Mapping[str, Any]],
        reward_attribute: str = "acc",
        optimize_mode: str = "maximize",
        seed: int = 0,
        lag: int | None = None,
        *,
        n_initial_points: int = 10,
        n_candidates: int = 48,
        good_fraction: float = 0.1,
        most_good: int = 25,
    ) -> None:
        super().__init__(search_space, reward_attribute, optimize_mode, seed, lag)
        self.n_initial_points = whole_number(n_initial_points, "n_initial_points", least=0, most=MOST_AT_ONCE)
        self.n_candidates = whole_number(n_candidates, "n_candidates", least=1, most=MOST_AT_ONCE)
        self.good_fraction = positive(good_fraction, "good_fraction")
        self.most_good = whole_number(most_good, "most_good", least=1)
        self._history = TrialArrays(self.space)
        self._design = Design("lhs", self.space.dimensions, self.seed, max(self.n_initial_points, 2))
        self._kernels = Kernels(self.space.layout)
        self._features = np.empty((0, 0))
        self._features_count = 0
        self._features_for = 0
        self._neighbours = np.empty((0, 0))
        self._branches = Branches(self.space) if self.space.layout.conditional else None
        self._keys: list[bytes] = []

    def _learn(self, trial: Trial) -> None:
        self._history.add(trial)

    def _propose(self, number: int) -> Proposal | None:
        if self.exhausted:
            return None
        rng = self.rng(number)
        config: Config | None
        if number < self.n_initial_points or len(self._history) < 2:
            config = self.space.decode(self._design.point(number))
            if self.is_new(config):
                return Proposal(number, config)
        else:
            for config in self._candidates(rng):
                if self.is_new(config):
                    return Proposal(number, config)
        config = self.fresh(rng)
        return None if config is None else Proposal(number, config)

    def _candidates(self, rng: np.random.Generator) -> Iterator[Config]:
        """Candidates from l, best ratio l/g first."""
        everything = np.arange(len(self._history))
        if self._branches is None:
            yield from self._ranked(rng, everything, None)
            return
        key = self._choose_branch(rng, self._branches)
        own = np.array([known == key for known in self._keys], dtype=bool)
        if own.sum() >= _FEW:
            yield from self._ranked(rng, everything[own], key)
        yield from self._branches.sample(rng, key, 4)

    def _choose_branch(self, rng: np.random.Generator, branches: Branches) -> bytes:
        new = slice(len(self._keys), len(self._history))
        self._keys += branches.keys(self._history.points[new], self._history.active[new])
        good, _ = self._good(np.arange(len(self._keys)))
        # The prior is one more component of l, as it is inside a branch.
        place = int(rng.integers(len(good) + 1))
        if rng.random() < EXPLORATION or place == len(good):
            return branches.random_key(rng)
        return self._keys[int(good[place])]

    def _good(self, rows: np.ndarray, part: float = 1.0) -> tuple[np.ndarray, np.ndarray]:
        """The best of some rows, `part` of the good fraction, and how much each weighs: by how much it is better than
        the best of the others (expected improvement), divided by the average of that.
        """
        scores = self._history.scores[rows]
        ranked = np.where(np.isnan(scores), -np.inf, scores)
        count = min(max(math.ceil(part * self.good_fraction * len(rows)), 1), self.most_good)
        order = np.argpartition(-ranked, min(count, len(rows) - 1))
        good = np.sort(order[:count])
        good = good[np.isfinite(ranked[good])]
        limit = float(ranked[order[count]]) if count < len(rows) else -math.inf
        if not len(good) or math.isinf(limit):
            return rows[good], np.ones(len(good))
        # Divided before anything is subtracted: rewards of 1e308 are no reason to fail.
        scale = max(float(np.abs(ranked[good]).max()), abs(limit)) or 1.0
        gains = ranked[good] / scale - limit / scale
        average = float(gains.mean())
        return rows[good], np.maximum(gains / average, _LIGHTEST) if average > 0 else np.ones(len(good))

    def _ranked(self, rng: np.random.Generator, rows: np.ndarray, key: bytes | None) -> Iterator[Config]:
        """Candidates of a branch (`key`; None where there is only one) by the densities of its trials."""
        wide = rng.random() < _WIDE_CHANCE
        good, weights = self._good(rows, _WIDE_PART if wide else _NARROW_PART)
        # The last centre is the prior: no argument of it is active, so it is uniform everywhere.
        centres = np.full((len(good) + 1, self.space.dimensions), 0.5)
        active = np.zeros(centres.shape, dtype=bool)
        centres[:-1], active[:-1] = self._history.points[good], self._history.active[good]
        # The prior weighs as much as a trial does on average.
        weights = np.append(weights, 1.0)
        least = max(_LEAST_GOOD, (len(good) + 2) ** -2.0)
        widths = self._kernels.bandwidths(centres, self._kernels.neighbours(centres[:-1]), least)
        blur = 1.0 / (len(good) + 1)
        if wide:
            widths, blur = self._kernels.widened(widths, len(good)), _WIDE_BLUR * blur
        chosen = rng.choice(len(centres), size=self.n_candidates, p=weights / weights.sum())
        points = self._kernels.draw(rng, centres[chosen], active[chosen], widths[chosen], blur)
        if key is not None and self._branches is not None:
            points[:, self._branches.choices] = self._history.points[rows[0], self._branches.choices]
            points = self.space.layout.snap_many(points)
            present = self.space.layout.active_many(points)
            inside = [found == key for found in self._branches.keys(points, present)]
            points, present = points[inside], present[inside]
            if not len(points):
                return
        else:  # only the candidates that are looked at need become configurations
            points, present = self.space.layout.snap_many(points), np.ones(points.shape, dtype=bool)
        asked = self._kernels.points(points, present)
        log_good = log_density(asked, self._kernels.components(centres, active, widths, blur), np.log(weights))
        log_bad = self._log_bad(asked, good, rows)
        for i in np.argsort(log_bad - log_good, kind="stable"):
            yield self.space.decode(points[i])

    def _log_bad(self, asked: np.ndarray, good: np.ndarray, rows: np.ndarray) -> np.ndarray:
        """log g up to a constant: these ended trials but the good ones, the pending ones, and a flat prior."""
        n = len(self._history)
        size_class = n if n < _SMALL else int(_REFRESH ** round(math.log(n, _REFRESH)))
        points, active = self._history.points, self._history.active
        if size_class != self._features_for:
            self._features_for, self._features_count = size_class, 0
            self._neighbours = self._kernels.neighbours(points)
        if self._features_count < n:
            new = slice(self._features_count, n)
            widths = self._kernels.bandwidths(points[new], self._neighbours, self._least())
            added = self._kernels.components(points[new], active[new], widths, _BLUR)
            if self._features_count == 0:
                # Thousands of kernels: single precision is three times as fast, and they are summed anyway.
                precision = np.float64 if n < _SMALL else np.float32
                self._features = np.empty((max(2 * n, 64), added.shape[1]), dtype=precision)
            elif n > len(self._features):
                self._features = np.concatenate([self._features, np.empty_like(self._features)])
            self._features[new] = added
            self._features_count = n
        weights = np.full(n, -np.inf)
        weights[rows] = 0.0
        weights[good] = -np.inf
        # The prior is the uniform density, whose logarithm is 0 everywhere.
        log_bad = np.full(len(asked), math.log(_PRIOR))
        if len(good) < len(rows):
            features = self._features[:n]
            log_bad = np.logaddexp(
                log_bad, log_density(asked.astype(features.dtype), features, weights.astype(features.dtype))
            )
        if self.pending:
            configs = [trial.config for trial in self.pending]
            waiting, present = self.space.encode_many(configs), self._present(configs)
            widths = self._kernels.bandwidths(waiting, self._neighbours, self._least())
            features = self._kernels.components(waiting, present, widths, _BLUR)
            log_bad = np.logaddexp(log_bad, log_density(asked, features, np.zeros(len(features))))
        return log_bad

    def _least(self) -> float:
        return max(_LEAST, 1.0 / len(self._neighbours))

    def _present(self, configs: Sequence[Config]) -> np.ndarray:
        """Which arguments each configuration has."""
        if not self.space.layout.conditional:
            return np.ones((len(configs), self.space.dimensions), dtype=bool)
        return np.array([self.space.layout.active(config) for config in configs])
