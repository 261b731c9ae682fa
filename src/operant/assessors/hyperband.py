"""HyperbandAssessor: several ASHA brackets that start judging at different steps."""

from __future__ import annotations

import bisect
import itertools
import math
import zlib
from collections.abc import Iterable, Sequence
from typing import Any

from operant._util.checks import whole_number
from operant.assessors.asha import AshaAssessor
from operant.assessors.base_assessor import AssessResult, BaseAssessor, Report
from operant.assessors.builder import ASSESSORS
from operant.errors import ConfigError


@ASSESSORS.register_module()
class HyperbandAssessor(BaseAssessor):
    """Hyperband (Li et al. 2018, arXiv 1603.06560) with asynchronous brackets.

    Successive halving has to guess how early a job can be judged. Hyperband tries all guesses: bracket s
    first judges after `max_step / reduction_factor^s` steps, and gets the share of jobs that the paper gives
    it. Which bracket a job belongs to follows from its id, so it is the same after a restart.

    Args:
        max_step: steps of a whole job.
        optimize_mode: `maximize` or `minimize`.
        min_step: no job is judged before it.
        reduction_factor: how many jobs reach a rung for each that goes on.
        rest: what happens to the others: `stop` or `pause`.
        resource: what a step is: one of the `reports`, or the `iteration` that a report names.
    """

    def __init__(
        self,
        max_step: int,
        optimize_mode: str = "maximize",
        min_step: int = 1,
        reduction_factor: int = 3,
        rest: str = "stop",
        resource: str = "reports",
    ) -> None:
        super().__init__(optimize_mode, min_step)
        self.max_step = whole_number(max_step, "max_step", least=1)
        self.reduction_factor = whole_number(reduction_factor, "reduction_factor", least=2)
        if whole_number(min_step, "min_step", least=1) > self.max_step:
            raise ConfigError(f"`min_step` {min_step} is above `max_step` {max_step}", ("min_step",))
        most = 0
        while min_step * self.reduction_factor ** (most + 1) <= self.max_step:
            most += 1
        self.brackets = [
            AshaAssessor(optimize_mode, min_step * reduction_factor**early, reduction_factor, max_step, rest, resource)
            for early in range(most + 1)
        ]
        # Bracket s of the paper (s_max judges earliest) starts ceil((s_max + 1) / (s + 1) * factor^s) jobs.
        shares = [math.ceil((most + 1) / (s + 1) * reduction_factor**s) for s in range(most, -1, -1)]
        self._upper = list(itertools.accumulate(shares))

    def bracket_of(self, job_id: Any) -> int:
        """The bracket of a job; 0 judges earliest."""
        return bisect.bisect_right(self._upper, zlib.crc32(str(job_id).encode()) % self._upper[-1])

    def assess_job(self, job_id: Any, history: Sequence[Report]) -> AssessResult:
        return self.brackets[self.bracket_of(job_id)].assess_job(job_id, history)

    def job_end(self, job_id: Any) -> None:
        self.brackets[self.bracket_of(job_id)].job_end(job_id)

    def promotions(self) -> Iterable[Any]:
        return [job for bracket in self.brackets for job in bracket.promotions()]
