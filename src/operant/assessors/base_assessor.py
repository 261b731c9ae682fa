"""What every assessor has: the answer it gives, and the histories it is given."""

from __future__ import annotations

import enum
import math
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from operant._util.checks import whole_number
from operant.errors import ConfigError, unknown

_MODES = ("maximize", "minimize")

# One report of a job: {'iteration': int, 'value': float, 'created': int in ms}.
Report = Mapping[str, Any]


class AssessResult(enum.Enum):
    """Whether a job is still worth its cost."""

    Good = "good"
    Bad = "bad"
    # Not now: keep its checkpoint; `promotions` says later whether it goes on.
    Pause = "pause"


class BaseAssessor:
    """Says of jobs under way whether they go on. A step is one report of the reward.

    The controller's own thread calls it, one job at a time. On a resume it is new, and is shown the reports of
    earlier jobs again before anything else.
    """

    def __init__(self, optimize_mode: str = "maximize", start_step: int = 0) -> None:
        if optimize_mode not in _MODES:
            raise ConfigError(unknown("optimize_mode", optimize_mode, _MODES), ("optimize_mode",))
        self.optimize_mode = optimize_mode
        self.start_step = whole_number(start_step, "start_step", least=0)

    def assess_job(self, job_id: Any, history: Sequence[Report]) -> AssessResult:
        """Judge a job by all its reports so far, oldest first.

        Called when new ones have come (of files every quarter of a second, of a function's `report` at once), and once
        more when the job has finished, right before `job_end`; then the answer changes nothing.
        """
        raise NotImplementedError

    def job_end(self, job_id: Any) -> None:
        """The job has finished: others are measured against it from now on. Not called of one that failed, was
        stopped or paused."""
        raise NotImplementedError

    def promotions(self) -> Iterable[Any]:
        """Jobs that were told to pause and should go on now, each named once. Asked after each of the two above."""
        return ()

    def scores(self, history: Sequence[Report]) -> list[float]:
        """The values turned so that higher is better; what is no number counts as the worst."""
        sign = 1.0 if self.optimize_mode == "maximize" else -1.0
        scores = [sign * float(report["value"]) for report in history]
        return [-math.inf if math.isnan(score) else score for score in scores]
