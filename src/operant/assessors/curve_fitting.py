"""CurveFittingAssessor: extrapolates a job's curve to its end and compares it with the best finished job."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

from operant._util.checks import is_number, whole_number
from operant.assessors._curves import extrapolate
from operant.assessors.base_assessor import AssessResult, BaseAssessor, Report
from operant.assessors.builder import ASSESSORS
from operant.errors import ConfigError


@ASSESSORS.register_module()
class CurveFittingAssessor(BaseAssessor):
    """A job is bad when its curve is expected to end clearly worse than the best finished job did.

    "Clearly" is by more than `(1 - threshold)` of that best value's size, whatever its sign: with the
    default, a best of 0.90 asks for 0.855, a best of -200 for -210, and when minimising a best of 2.0 for
    2.1.

    Args:
        epoch_num: steps of a whole job.
        optimize_mode: `maximize` or `minimize`.
        start_step: the first step at which jobs are judged.
        threshold: the part of the best value that is enough.
        gap: judge only every so many steps.
    """

    def __init__(
        self,
        epoch_num: int,
        optimize_mode: str = "maximize",
        start_step: int = 6,
        threshold: float = 0.95,
        gap: int = 1,
    ) -> None:
        super().__init__(optimize_mode, start_step)
        self.epoch_num = whole_number(epoch_num, "epoch_num", least=1)
        self.gap = whole_number(gap, "gap", least=1)
        if not is_number(threshold) or not 0 < threshold <= 1:
            raise ConfigError(f"`threshold` must lie above 0 and up to 1, not {threshold!r}", ("threshold",))
        self.threshold = float(threshold)
        self._running: dict[Any, list[float]] = {}
        self._judged_at: dict[Any, int] = {}
        self._best: float | None = None

    def assess_job(self, job_id: Any, history: Sequence[Report]) -> AssessResult:
        scores = self.scores(history)
        self._running[job_id] = scores
        step = len(scores)
        if self._best is None or step < self.start_step or not 1 <= step < self.epoch_num:
            return AssessResult.Good
        if step - self._judged_at.get(job_id, -self.gap) < self.gap:
            return AssessResult.Good
        self._judged_at[job_id] = step
        if scores[-1] == -math.inf:
            return AssessResult.Bad
        finite = [score for score in scores if math.isfinite(score)]
        expected = extrapolate(finite, self.epoch_num - (step - len(finite)))
        if expected is not None and expected < self._best - (1 - self.threshold) * abs(self._best):
            return AssessResult.Bad
        return AssessResult.Good

    def job_end(self, job_id: Any) -> None:
        scores = self._running.pop(job_id, None)
        self._judged_at.pop(job_id, None)
        if scores and math.isfinite(scores[-1]) and (self._best is None or scores[-1] > self._best):
            self._best = scores[-1]
