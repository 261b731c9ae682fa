"""What searches inside a region of LA-MCTS: a run of CMA-ES, a trust region, or a Gaussian process of all samples.

A run begins with a record (`start`) that is JSON: from it, the notes of the run's proposals and the results in the
order in which they came, a run that was recorded goes on as it would have.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, Protocol

import numpy as np

from operant.searchers._acquisition import Acquisition, Maximiser
from operant.searchers._cma import CmaRun, Known
from operant.searchers._regions import Region
from operant.searchers._surrogate import BranchExplorer, Surrogate, best_points, promising_points
from operant.searchers._trial_arrays import TrialArrays
from operant.searchers._trust_region import TrustRegion
from operant.searchers.base_searcher import Trial
from operant.space import Container

Array = np.ndarray
Asked = Iterator[tuple[dict[str, Any], Sequence[float] | Array]]
# Points among which a trust region finds one inside.
_SPREAD = 64
_MOST_POINTS = 500
_CANDIDATES, _CLIMBS = 300, 2
# A sample stands out when it is better than what runs come to by this part of the range of all results.
STANDS_OUT = 0.2
# CMA-ES follows the middle of its results: where most neighbours of a very good sample are bad, it goes away from it.
# So many generations after it met one, and after its start, a run is left for another around that sample.
_LEFT, _SETTLED = 4, 8
# Generations that are compared to see whether a run gains anything; around a good sample it takes longer to gain.
_STAGNANT, _STAGNANT_AT_PEAK = 7, 10

# Generations whose results are looked at for a plateau; there those above the middle differ by less than this part of
# those below it.
_PLATEAU, _EVEN = 6, 0.05


class RegionSolver(Protocol):
    """A run inside a region; the region follows the samples while the run goes on."""

    @property
    def patience(self) -> int:
        """New results after which the partition is made anew."""

    def ask(self, seed: tuple[int, int], region: Region | None, pending: Sequence[Trial]) -> Asked:
        """What `learn` and `remember` want back as notes, and points, the best first."""

    def remember(self, notes: Mapping[str, Any]) -> None:
        """Take over that a proposal of this run was made."""

    def learn(self, trial: Trial, own: bool, worst: float) -> None:
        """A trial has ended: an `own` one of this run, or another."""

    def correct(self, trial: Trial) -> None:
        """A trial was run again and came to another score."""

    def middle(self) -> Array | None:
        """The point whose region the run is in; None lets the bounds choose."""

    def over(self, width: float) -> bool:
        """Whether nothing is left to find here; `width` is the range of all results."""

    def level(self) -> float:
        """What its last results reached; -inf where that does not matter."""

    def again(self, width: float) -> dict[str, Any] | None:
        """How a run that was the best so far is gone over more closely; None: not at all."""


class CmaSolver:
    """CMA-ES, which prefers draws inside the region."""

    def __init__(self, space: Container, start: Mapping[str, Any], known: Known) -> None:
        self._sigma = float(start["sigma"])
        self._population = int(start["population"])
        self._at_peak = "peak" in start
        # The best result and the generation in which it came.
        self._best = (-math.inf, 0)
        self._run = CmaRun(
            space.layout,
            sigma=start["sigma"],
            population_size=self._population,
            mean=np.array(start["mean"]),
            clip=True,
            look_at_mean=True,
            known=known,
        )

    @property
    def patience(self) -> int:
        return self._run.population_size

    def ask(self, seed: tuple[int, int], region: Region | None, pending: Sequence[Trial]) -> Asked:
        return self._run.ask(seed, region)

    def remember(self, notes: Mapping[str, Any]) -> None:
        self._run.remember(notes)

    def learn(self, trial: Trial, own: bool, worst: float) -> None:
        if own:
            assert trial.notes is not None
            if trial.state == "finished" and trial.score > self._best[0]:
                self._best = (trial.score, self._run.generation)
            self._run.tell(trial.notes, trial.score if trial.state == "finished" else math.nan, worst)

    def correct(self, trial: Trial) -> None:
        self._run.correct(trial.notes or {}, trial.score)

    def middle(self) -> Array | None:
        return self._run.middle()

    def over(self, width: float) -> bool:
        run = self._run
        return (
            run.converged()
            or run.spread() < 1e-3
            or _flat(run, width)
            or self._on_a_plateau(width)
            or _stagnates(run, width, _STAGNANT_AT_PEAK if self._at_peak else _STAGNANT)
            or (not self._at_peak and self._left_behind(width))
        )

    def _left_behind(self, width: float) -> bool:
        """Whether the run, some generations ago, met a sample far better than what it makes now."""
        run = self._run
        if run.generation < _SETTLED or run.generation - self._best[1] < _LEFT:
            return False
        return self._best[0] - self.level() > STANDS_OUT * width

    def _on_a_plateau(self, width: float) -> bool:
        """Whether most results are the same, the others far below and none above, though steps are as large as at
        first: there is nothing to follow. (On a slope results differ as much upwards as downwards.)
        """
        generations = self._run.generations[-_PLATEAU:]
        if len(generations) < _PLATEAU or self._run.spread() < 0.5 * self._sigma or np.isnan(generations).all():
            return False
        low, middle, high = np.nanquantile(generations, [0.05, 0.5, 0.9])
        return bool(high - middle < _EVEN * min(middle - low, width))

    def level(self) -> float:
        recent = [score for scores in self._run.generations[-3:] for score in scores]
        return float(np.nanmedian(recent)) if np.isfinite(recent).any() else -math.inf

    def again(self, width: float) -> dict[str, Any] | None:
        """The same place with smaller steps and more results for each, if the run did not come to rest."""
        middle = self._run.middle()
        if _flat(self._run, width) or self._on_a_plateau(width) or middle is None:
            return None
        sigma = min(max(2 * self._run.spread(), 0.02), 0.1)
        return {"mean": middle.tolist(), "sigma": sigma, "population": 2 * self._population}


class TurboSolver:
    """A trust region that begins with the samples of the region, or with new ones inside where those are few."""

    def __init__(self, space: Container, start: Mapping[str, Any], history: TrialArrays) -> None:
        self._dimensions = space.dimensions
        self._maximiser = Maximiser(space.layout)
        self._trust = TrustRegion(space, _MOST_POINTS)
        self._members = frozenset(start["members"])
        self._first = max(int(start["first"]), 0)
        self._asked = 0
        for trial in history.trials:
            self.learn(trial, False, 0.0)

    @property
    def patience(self) -> int:
        return self._dimensions

    def ask(self, seed: tuple[int, int], region: Region | None, pending: Sequence[Trial]) -> Asked:
        rng = np.random.default_rng(seed)
        if self._asked < self._first or not self._trust.usable:
            points = self._maximiser.snap(rng.random((_SPREAD, self._dimensions)))
            return (({"first": True}, point) for point in _deepest(points, region))
        points = self._trust.ask(rng, pending, seed[0], region)
        return (({"fit": self._trust.fit}, point) for point in points)

    def remember(self, notes: Mapping[str, Any]) -> None:
        self._asked += "aside" not in notes
        if "fit" in notes:
            self._trust.recall(notes["fit"])

    def learn(self, trial: Trial, own: bool, worst: float) -> None:
        if own and "first" not in (trial.notes or {}):
            self._trust.tell(trial)
        elif own or trial.number in self._members:
            self._trust.add(trial)

    def correct(self, trial: Trial) -> None:
        if trial in self._trust.history:
            self._trust.add(trial)

    def middle(self) -> Array | None:
        return self._trust.centre() if self._trust.usable else None

    def over(self, width: float) -> bool:
        return self._trust.over

    def level(self) -> float:
        return self._trust.best

    def peak(self, width: float) -> tuple[Array, float] | None:
        """The best sample and its score, unless the last ones are all as good."""
        recent = self._trust.history.scores[-max(self._dimensions, 4) :]
        if np.isnan(recent).all() or _width(recent) < 0.01 * width:
            return None
        return self._trust.centre(), self._trust.best

    def again(self, width: float) -> dict[str, Any] | None:
        return None


class GpSolver:
    """One Gaussian process of all samples; expected improvement is maximised inside the region of the highest bound."""

    patience = 4

    def __init__(self, space: Container, history: TrialArrays) -> None:
        self._history = history
        self._surrogate = Surrogate(space, history, _MOST_POINTS)
        self._maximiser = Maximiser(space.layout)
        self._explorer = BranchExplorer(space, history, self._maximiser)

    def ask(self, seed: tuple[int, int], region: Region | None, pending: Sequence[Trial]) -> Asked:
        rng = np.random.default_rng(seed)
        model, best = self._surrogate.model(pending, seed[0])
        candidates = self._maximiser.candidates(rng, _CANDIDATES, best_points(self._history, 5))
        candidates, rows, fixed = self._explorer.choose(rng, _deepest(candidates, region))
        best = best if rows is None else self._surrogate.best_of(rows)
        points = promising_points(model, Acquisition("EI", best), self._maximiser, candidates, _CLIMBS, fixed)
        return (({"fit": self._surrogate.fit}, point) for point in _deepest(np.array(points), region, also=True))

    def remember(self, notes: Mapping[str, Any]) -> None:
        if "fit" in notes:
            self._surrogate.recall(notes["fit"])

    def learn(self, trial: Trial, own: bool, worst: float) -> None:
        """The samples are those of the searcher."""

    def correct(self, trial: Trial) -> None:
        """And so are their scores."""

    def middle(self) -> Array | None:
        return None

    def over(self, width: float) -> bool:
        return False

    def level(self) -> float:
        return -math.inf

    def again(self, width: float) -> dict[str, Any] | None:
        return None


def _deepest(points: Array, region: Region | None, also: bool = False) -> Array:
    """The points inside the region, or as far inside as there are any; `also` the others, after them."""
    if region is None:
        return points
    depths = region.depth_of(points)
    return points[np.argsort(-depths, kind="stable")] if also else points[depths == depths.max()]


def _flat(run: CmaRun, width: float) -> bool:
    """Whether the last generations' results are all the same, beside all results, and no better than before."""
    if len(run.generations) < 8:
        return False
    recent = np.concatenate([np.array(one) for one in run.generations[-4:]])
    before = np.concatenate([np.array(one) for one in run.generations[-8:-4]])
    if np.isnan(recent).all() or np.isnan(before).all():
        return True
    if _width(recent) >= 0.01 * width:
        return False
    # A run that converges gains about as much as its results differ, however little that is.
    return bool(np.nanmedian(recent) - np.nanmedian(before) <= 0.2 * _width(before))


def _width(scores: Array) -> float:
    """The distance of the quartiles."""
    low, high = np.nanquantile(scores, [0.25, 0.75])
    return float(high - low)


def _stagnates(run: CmaRun, width: float, count: int) -> bool:
    """Whether the upper quartiles of the last generations are hardly better than those of as many before."""
    if len(run.generations) < 2 * count:
        return False
    recent, before = np.array(run.generations[-count:]), np.array(run.generations[-2 * count : -count])
    if np.isnan(recent).all() or np.isnan(before).all():
        return True
    gain = _mean_of_upper_quartiles(recent) - _mean_of_upper_quartiles(before)
    # A run that converges gains about as much as its results differ, however little that is.
    return bool(gain <= 0.25 * _width(before) and gain <= 0.02 * width)


def _mean_of_upper_quartiles(generations: Array) -> float:
    """Generations that failed as a whole do not count; one at least did not."""
    return float(np.mean([np.nanquantile(one, 0.75) for one in generations if np.isfinite(one).any()]))
