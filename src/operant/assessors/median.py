"""MedianStopAssessor: worse than the median of the finished jobs at the same step."""

from __future__ import annotations

import itertools
import math
import statistics
from collections.abc import Sequence
from typing import Any

from operant._util.checks import one_of, whole_number
from operant.assessors.base_assessor import AssessResult, BaseAssessor, Report
from operant.assessors.builder import ASSESSORS

_MEASURES = ("average", "recent")
_RECENT = 5


@ASSESSORS.register_module()
class MedianStopAssessor(BaseAssessor):
    """The median stopping rule of Vizier (Golovin et al. 2017, section 3.2.2).

    A job is bad at step s when its best value up to s is strictly worse than the median, over the finished
    jobs, of the average of their values up to s.

    Args:
        optimize_mode: `maximize` or `minimize`.
        start_step: the first step at which jobs are judged.
        min_finished: jobs that must have finished before any is judged. More lose fewer good jobs to the chance of
            which finished first, and save less.
        measure: what finished jobs are measured by at step s: the `average` of their values up to s, as Vizier has it,
            or of the `recent` ones (five), and a job by the best such average so far, together with the error that the
            noise of its curve leaves in one. Curves that rise have an average far below where they are, so `recent`
            stops more jobs.
    """

    def __init__(
        self, optimize_mode: str = "maximize", start_step: int = 0, min_finished: int = 1, measure: str = "average"
    ) -> None:
        super().__init__(optimize_mode, start_step)
        self.min_finished = whole_number(min_finished, "min_finished", least=1)
        self.measure = one_of(measure, "measure", _MEASURES)
        self._running: dict[Any, list[float]] = {}
        # For each finished job the measure of its first s values, at place s - 1.
        self._measures: dict[Any, list[float]] = {}

    def assess_job(self, job_id: Any, history: Sequence[Report]) -> AssessResult:
        scores = self.scores(history)
        self._running[job_id] = scores
        step = len(scores)
        if step == 0 or step < self.start_step:
            return AssessResult.Good
        others = [
            measures[step - 1]
            for other, measures in self._measures.items()
            if other != job_id and len(measures) >= step
        ]
        best = max(_recent(scores)) + _error(scores) if self.measure == "recent" else max(scores)
        if len(others) >= self.min_finished and best < statistics.median(others):
            return AssessResult.Bad
        return AssessResult.Good

    def job_end(self, job_id: Any) -> None:
        scores = self._running.pop(job_id, None)
        if not scores:
            return
        self._measures[job_id] = _recent(scores) if self.measure == "recent" else _averages(scores)


def _averages(scores: Sequence[float]) -> list[float]:
    """The average of the first s values, at place s - 1."""
    return [total / count for count, total in enumerate(itertools.accumulate(scores), start=1)]


def _recent(scores: Sequence[float]) -> list[float]:
    """The average of the last few of the first s values, at place s - 1."""
    return [statistics.fmean(scores[max(0, s - _RECENT) : s]) for s in range(1, len(scores) + 1)]


def _error(scores: Sequence[float]) -> float:
    """The standard error of an average of recent values; a straight rise is no noise."""
    bends = [first - 2 * second + third for first, second, third in zip(scores, scores[1:], scores[2:], strict=False)]
    if len(bends) < _RECENT - 2 or not all(map(math.isfinite, bends)):
        return 0.0
    # The bends of independent noise have six times its variance.
    return math.sqrt(statistics.fmean(bend * bend for bend in bends) / 6 / _RECENT)
