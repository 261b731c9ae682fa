"""One trust region of TuRBO (Eriksson et al., NeurIPS 2019): a box around the best point that grows and shrinks."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from operant.searchers._acquisition import Maximiser
from operant.searchers._regions import Region
from operant.searchers._surrogate import Surrogate
from operant.searchers._trial_arrays import TrialArrays
from operant.searchers.base_searcher import Trial
from operant.space import Container

# The paper's: the box's side at first, at most, and when it has collapsed; successes in a row that double it.
_FIRST, _LARGEST, _SMALLEST = 0.8, 1.6, 0.5**7
_SUCCESSES = 3
_IMPROVEMENT = 1e-3
# Candidates for a Thompson sample: the paper takes up to 5,000, whose joint draw takes seconds.
_MOST_CANDIDATES = 1000
_PERTURBED = 20


class TrustRegion:
    """Learns from its own trials alone; `over` when the box has shrunk to nothing."""

    def __init__(self, space: Container, most_points: int) -> None:
        self._space = space
        self.history = TrialArrays(space)
        self._surrogate = Surrogate(space, self.history, most_points)
        self._maximiser = Maximiser(space.layout)
        self._categories = np.array([a.categorical for a in space.layout.arguments], dtype=bool)
        self._length = _FIRST
        self._successes = 0
        self._failures = 0

    @property
    def over(self) -> bool:
        return self._length < _SMALLEST

    @property
    def best(self) -> float:
        scores = self.history.scores
        return float(np.nanmax(scores)) if np.isfinite(scores).any() else -np.inf

    @property
    def usable(self) -> bool:
        """Whether there are results enough for a model."""
        return int(np.isfinite(self.history.scores).sum()) >= 2

    @property
    def fit(self) -> dict[str, Any]:
        """The model's last fit, for the notes of a proposal."""
        return self._surrogate.fit

    def recall(self, fit: Mapping[str, Any]) -> None:
        self._surrogate.recall(fit)

    def add(self, trial: Trial) -> None:
        """Take over a trial that was no step of this region, as those that it begins with, or its new score."""
        self.history.add(trial)

    def tell(self, trial: Trial) -> None:
        """Learn what came of a step: three successes in a row double the box, many failures halve it."""
        best = self.best
        better = trial.state == "finished" and (
            not np.isfinite(best) or trial.score / 2 > best / 2 + _IMPROVEMENT * abs(best) / 2
        )
        self.add(trial)
        self._successes, self._failures = (self._successes + 1, 0) if better else (0, self._failures + 1)
        if self._successes == _SUCCESSES:
            self._length, self._successes = min(2 * self._length, _LARGEST), 0
        elif self._failures >= max(4, self._space.dimensions):
            self._length, self._failures = self._length / 2, 0

    def ask(
        self, rng: np.random.Generator, pending: Sequence[Trial], seed: int, region: Region | None = None
    ) -> np.ndarray:
        """The candidates, best first by a draw from the model's posterior (Thompson sampling)."""
        model, _ = self._surrogate.model(pending, seed)
        candidates = self._candidates(rng, np.exp(-0.5 * model.parameters[:-2]))
        if region is not None:
            depths = region.depth_of(candidates)
            candidates = candidates[depths == depths.max()]
        drawn = model.draw(candidates, rng)
        ranked: np.ndarray = candidates[np.argsort(-drawn, kind="stable")]
        return ranked

    def centre(self) -> np.ndarray:
        scores = np.where(np.isnan(self.history.scores), -np.inf, self.history.scores)
        best: np.ndarray = self.history.points[int(scores.argmax())]
        return best

    def _candidates(self, rng: np.random.Generator, scales: np.ndarray) -> np.ndarray:
        centre, d = self.centre(), self._space.dimensions
        count = min(100 * d, _MOST_CANDIDATES)
        # Sides in proportion to the length scales, with the volume of the cube.
        log = np.log(scales)
        sides = np.exp(log - log.mean()) * self._length
        low, high = np.clip(centre - sides / 2, 0, 1), np.clip(centre + sides / 2, 0, 1)
        low, high = np.where(self._categories, 0.0, low), np.where(self._categories, 1.0, high)
        moved = rng.random((count, d)) < min(_PERTURBED / d, 1.0)
        still = ~moved.any(axis=1)
        moved[still, rng.integers(d, size=int(still.sum()))] = True
        anywhere = low + rng.random((count, d)) * (high - low)
        return self._maximiser.snap(np.where(moved, anywhere, centre))
