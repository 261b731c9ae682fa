"""The Gaussian process that follows a search, and the points it finds most promising."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from typing import Any

import numpy as np

from operant.searchers._acquisition import Acquisition, Maximiser, Model
from operant.searchers._branches import EXPLORATION, Branches
from operant.searchers._gp_model import GaussianProcess
from operant.searchers._outputs import Outputs, choose_rows
from operant.searchers._trial_arrays import TrialArrays
from operant.searchers.base_searcher import Trial
from operant.space import Container

# Up to this many results each proposal has a fit of its own; beyond, when there are 3 % more of them.
_ALWAYS_FIT = 60
_GROWTH = 1.03
# Candidates that are kept in case the best ones have been tried before.
_SPARE = 50
# A point so near to a trial that has ended only refines it; one that is `_AWAY` from there is taken every second time.
_FINE = 0.01
_AWAY = 0.1


class Surrogate:
    """The Gaussian process of a history, fitted when that is due and extended otherwise."""

    def __init__(self, space: Container, history: TrialArrays, most_points: int) -> None:
        self._space = space
        self._history = history
        self._most_points = most_points
        self._process = GaussianProcess(space.layout)
        self._outputs = Outputs()
        self._fitted_at = 0
        self._fitted_revision = 0
        self._rows = np.empty(0, dtype=int)
        self._used = 0

    def model(self, pending: Sequence[Trial], seed: int) -> tuple[GaussianProcess, float]:
        """The model with pending trials put in at their expected values, and the best value it knows of."""
        n = len(self._history)
        if self._due(n) or self._history.revisions != self._fitted_revision or n > self._most_points:
            self._fit(seed)
        elif not self._used:
            self._condition(min(self._fitted_at, n), seed)
        if n > self._used:
            new = np.arange(self._used, n)
            self._rows = np.concatenate([self._rows, new])
            self._process.extend(self._history.points[new], self._outputs(self._history.scores[new]))
            self._used = n
        # Not the best result: with noise that is mostly luck, and little seems to improve on it but the unknown.
        best = float(self._process.smoothed().max())
        if not pending:
            return self._process, best
        points = self._space.encode_many([trial.config for trial in pending])
        process = self._process.copy()
        for point in points:
            expected = process.predict(point[None])[0]
            process.extend(point[None], expected)
            # Without this, what is expected of a pending trial would still look like an improvement to come.
            best = max(best, float(expected[0]))
        return process, best

    @property
    def fit(self) -> dict[str, Any]:
        """The last fit as JSON. With it a restored search makes the same model: a fit begins where the last ended."""
        return {"at": self._fitted_at, "parameters": self._process.parameters.tolist()}

    def recall(self, fit: Mapping[str, Any]) -> None:
        """Take over the last fit of a recorded search; of the search itself, which knows it, nothing."""
        if fit["at"] == self._fitted_at:
            return
        self._process.parameters = np.array(fit["parameters"])
        self._fitted_at, self._used = int(fit["at"]), 0

    def best_of(self, rows: np.ndarray) -> float:
        """The best value among some rows of the history, in the units of the model."""
        return float(self._outputs(self._history.scores[rows]).max())

    def _fit(self, seed: int) -> None:
        n = len(self._history)
        if self._due(n):
            self._process.fit(*self._data(n, seed))
            self._fitted_at, self._used = n, n
        else:
            self._condition(n, seed)
        self._fitted_revision = self._history.revisions

    def _condition(self, n: int, seed: int) -> None:
        self._process.condition(*self._data(n, seed))
        self._used = n

    def _data(self, n: int, seed: int) -> tuple[np.ndarray, np.ndarray]:
        """The points and outputs of the first n results that the model learns from."""
        scores = self._history.scores[:n]
        self._outputs.learn(scores)
        self._rows = choose_rows(scores, self._most_points, np.random.default_rng([seed, 0x6B, n]))
        return self._history.points[self._rows], self._outputs(scores[self._rows])

    def _due(self, n: int) -> bool:
        return n > self._fitted_at and (n <= _ALWAYS_FIT or n >= int(self._fitted_at * _GROWTH) + 1)


class BranchExplorer:
    """In a space with conditions, half of the proposals improve a random branch instead of the whole.

    Expected improvement over the best of all branches hardly ever leaves the one whose results were good first: of the
    others the model knows only bad results, and the one good place in them may be narrow.
    """

    def __init__(self, space: Container, history: TrialArrays, maximiser: Maximiser) -> None:
        self._branches = Branches(space) if space.layout.conditional else None
        self._history = history
        self._maximiser = maximiser
        self._keys: list[bytes] = []

    def choose(
        self, rng: np.random.Generator, candidates: np.ndarray
    ) -> tuple[np.ndarray, np.ndarray | None, Collection[int]]:
        """The candidates to look at, the rows to improve on (None: all), and the choices that must stay."""
        branches = self._branches
        if branches is None or rng.random() >= EXPLORATION:
            return candidates, None, ()
        new = slice(len(self._keys), len(self._history))
        self._keys += branches.keys(self._history.points[new], self._history.active[new])
        key = branches.random_key(rng)
        inside = [one == key for one in branches.keys(candidates, self._maximiser.active(candidates))]
        rows = np.flatnonzero([one == key for one in self._keys])
        usable = any(inside) and np.isfinite(self._history.scores[rows]).any()
        return (candidates[inside], rows, branches.choices.tolist()) if usable else (candidates, None, ())


def spread(candidates: np.ndarray, order: np.ndarray, count: int, apart: float = 0.05) -> list[int]:
    """The first of `order` that are not next to one another: local searches from neighbours end in one
    place.
    """
    chosen: list[int] = []
    for i in order[: 40 * count]:
        if all(np.abs(candidates[i] - candidates[j]).max() > apart for j in chosen):
            chosen.append(int(i))
            if len(chosen) == count:
                break
    return chosen


def best_points(history: TrialArrays, count: int) -> np.ndarray:
    scores = np.where(np.isnan(history.scores), -np.inf, history.scores)
    best: np.ndarray = history.points[np.argsort(-scores, kind="stable")[:count]]
    return best


def promising_points(
    model: Model,
    acquisition: Acquisition,
    maximiser: Maximiser,
    candidates: np.ndarray,
    n_starts: int,
    fixed: Collection[int] = (),
    known: np.ndarray | None = None,
) -> list[np.ndarray]:
    """Points by falling acquisition: those found by local search (with a Gaussian process) that leaves the fixed
    choices alone, then candidates. With `known` trials, candidates away from the best point come first where that would
    only refine one of them: a search that has come to the bottom of a valley looks for others, too.
    """

    def value(points: np.ndarray) -> np.ndarray:
        return acquisition(*model.predict(points))[0]

    values = value(candidates)
    order = np.argsort(-values, kind="stable")
    spare = [candidates[i] for i in order[:_SPARE]]
    if not isinstance(model, GaussianProcess) or n_starts == 0:
        return spare

    def gradient(point: np.ndarray, columns: np.ndarray) -> tuple[float, np.ndarray]:
        mean, deviation, by_mean, by_deviation = model.predict_gradient(point, columns)
        found, d_mean, d_deviation = acquisition(np.array([mean]), np.array([deviation]))
        return float(found[0]), d_mean[0] * by_mean + d_deviation[0] * by_deviation

    starts = spread(candidates, order, n_starts)
    improved = [maximiser.improve(candidates[i], value, gradient, fixed=fixed) for i in starts]
    improved.sort(key=lambda one: -one[1])
    if known is not None and improved and maximiser.distances(known, improved[0][0]).min() < _FINE:
        away = maximiser.distances(candidates[order], improved[0][0]) > _AWAY
        spare = [candidates[i] for i in order[away][:_SPARE]] + spare
        return spare + [point for point, _ in improved]
    return [point for point, _ in improved] + spare
