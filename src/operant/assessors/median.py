"""MedianStopAssessor: worse than the median of the finished jobs at the same step."""

from __future__ import annotations

import itertools
import statistics
from collections.abc import Sequence
from typing import Any

from operant.assessors.base_assessor import AssessResult, BaseAssessor, Report
from operant.assessors.builder import ASSESSORS


@ASSESSORS.register_module()
class MedianStopAssessor(BaseAssessor):
    """The median stopping rule of Vizier (Golovin et al. 2017, section 3.2.2).

    A job is bad at step s when its best value up to s is strictly worse than the median, over the finished
    jobs, of the average of their values up to s.

    Args:
        optimize_mode: `maximize` or `minimize`.
        start_step: the first step at which jobs are judged.
    """

    def __init__(self, optimize_mode: str = "maximize", start_step: int = 0) -> None:
        super().__init__(optimize_mode, start_step)
        self._running: dict[Any, list[float]] = {}
        # For each finished job the average of its first s values, at place s - 1.
        self._averages: dict[Any, list[float]] = {}

    def assess_job(self, job_id: Any, history: Sequence[Report]) -> AssessResult:
        scores = self.scores(history)
        self._running[job_id] = scores
        step = len(scores)
        if step == 0 or step < self.start_step:
            return AssessResult.Good
        others = [
            averages[step - 1]
            for other, averages in self._averages.items()
            if other != job_id and len(averages) >= step
        ]
        if others and max(scores) < statistics.median(others):
            return AssessResult.Bad
        return AssessResult.Good

    def job_end(self, job_id: Any) -> None:
        scores = self._running.pop(job_id, None)
        if scores:
            sums = itertools.accumulate(scores)
            self._averages[job_id] = [total / count for count, total in enumerate(sums, start=1)]
