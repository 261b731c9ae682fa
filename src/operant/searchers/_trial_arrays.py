"""The ended trials as arrays that grow: what numeric searchers learn from."""

from __future__ import annotations

import math

import numpy as np

from operant.searchers.base_searcher import Trial
from operant.space import Container


class TrialArrays:
    """One row for each ended trial, in the order in which they ended.

    Configurations are turned into points only when somebody looks, and then all new ones at once.
    """

    def __init__(self, space: Container) -> None:
        self._space = space
        self._row_of: dict[int, int] = {}
        self._trials: list[Trial] = []
        self._points = np.empty((16, space.dimensions))
        self._active = np.ones((16, space.dimensions), dtype=bool)
        self._scores = np.empty(16)
        self._encoded = 0
        # Counts changes of scores that were known before, which added rows do not show.
        self.revisions = 0

    def __len__(self) -> int:
        return len(self._trials)

    def __contains__(self, trial: Trial) -> bool:
        return trial.number in self._row_of

    def add(self, trial: Trial) -> int:
        """Take over an ended trial, or its new score; its row."""
        row = self._row_of.get(trial.number)
        if row is None:
            row = self._row_of[trial.number] = len(self._trials)
            self._trials.append(trial)
            if len(self._trials) > len(self._scores):
                self._grow()
        else:
            self.revisions += 1
        self._scores[row] = trial.score if trial.state == "finished" else math.nan
        return row

    @property
    def trials(self) -> list[Trial]:
        return self._trials

    @property
    def scores(self) -> np.ndarray:
        """Higher is better; NaN for trials that failed."""
        return self._scores[: len(self._trials)]

    @property
    def points(self) -> np.ndarray:
        self._encode()
        return self._points[: self._encoded]

    def first(self, count: int) -> tuple[np.ndarray, np.ndarray]:
        """The points and scores of the first trials."""
        return self.points[:count], self.scores[:count]

    @property
    def active(self) -> np.ndarray:
        """Which arguments each trial really had."""
        self._encode()
        return self._active[: self._encoded]

    def _encode(self) -> None:
        new = self._trials[self._encoded :]
        if not new:
            return
        rows = slice(self._encoded, len(self._trials))
        self._points[rows] = self._space.encode_many([trial.config for trial in new])
        if self._space.layout.conditional:
            self._active[rows] = [self._space.layout.active(trial.config) for trial in new]
        self._encoded = len(self._trials)

    def _grow(self) -> None:
        more = len(self._scores)
        self._scores = np.concatenate([self._scores, np.empty(more)])
        self._points = np.concatenate([self._points, np.empty((more, self._points.shape[1]))])
        self._active = np.concatenate([self._active, np.ones((more, self._active.shape[1]), dtype=bool)])


def filled_scores(scores: np.ndarray) -> np.ndarray:
    """Scores with the failed trials at the worst score seen: they were tried and were no good."""
    failed = np.isnan(scores)
    if not failed.any():
        return scores
    worst = 0.0 if failed.all() else float(np.nanmin(scores))
    return np.where(failed, worst, scores)
