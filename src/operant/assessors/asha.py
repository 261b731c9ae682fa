"""AshaAssessor: at each rung only the best fraction goes on, decided at once."""

from __future__ import annotations

import bisect
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from typing import Any

from operant._util.checks import whole_number
from operant.assessors.base_assessor import AssessResult, BaseAssessor, Report
from operant.assessors.builder import ASSESSORS
from operant.errors import ConfigError, unknown

_REST = ("stop", "pause")
_RESOURCES = ("reports", "iteration")


@dataclass
class Rung:
    """The results of all jobs that got as far as `level`."""

    level: int
    scores: dict[Any, float] = field(default_factory=dict)
    in_order: list[float] = field(default_factory=list)
    promoted: set[Any] = field(default_factory=set)

    def record(self, job_id: Any, score: float) -> None:
        self.scores[job_id] = score
        bisect.insort(self.in_order, score)

    def goes_on(self, job_id: Any, factor: int) -> bool:
        """Among the best 1/factor of those seen here; while there are fewer than factor, only the best
        does.
        """
        better = len(self.in_order) - bisect.bisect_right(self.in_order, self.scores[job_id])
        return better < max(len(self.in_order) // factor, 1)


@ASSESSORS.register_module()
class AshaAssessor(BaseAssessor):
    """Asynchronous successive halving (Li et al. 2020, arXiv 1810.05934).

    Rungs are at `min_step`, `min_step * reduction_factor`, and so on. A job that reaches a rung goes on when
    its value there is among the best `1 / reduction_factor` of all that reached it so far.

    Args:
        optimize_mode: `maximize` or `minimize`.
        min_step: the first rung; no job is judged before it.
        reduction_factor: how many jobs reach a rung for each that goes on.
        max_step: steps of a whole job; there is no rung from there on.
        rest: what happens to the others: `stop`, or `pause` until they are among the best after all.
        resource: what a step is: one of the `reports`, or the `iteration` that a report names.
    """

    def __init__(
        self,
        optimize_mode: str = "maximize",
        min_step: int = 1,
        reduction_factor: int = 3,
        max_step: int | None = None,
        rest: str = "stop",
        resource: str = "reports",
    ) -> None:
        super().__init__(optimize_mode, min_step)
        self.min_step = whole_number(min_step, "min_step", least=1)
        self.reduction_factor = whole_number(reduction_factor, "reduction_factor", least=2)
        self.max_step = None if max_step is None else whole_number(max_step, "max_step", least=1)
        if rest not in _REST:
            raise ConfigError(unknown("rest", rest, _REST), ("rest",))
        if resource not in _RESOURCES:
            raise ConfigError(unknown("resource", resource, _RESOURCES), ("resource",))
        self.rest = rest
        self.resource = resource
        self._rungs: list[Rung] = []
        self._paused: dict[Any, Rung] = {}

    def assess_job(self, job_id: Any, history: Sequence[Report]) -> AssessResult:
        scores = self.scores(history)
        place = 0
        while self._has_rung(place):
            rung = self._rung(place)
            reached = self._score_at(rung.level, history, scores)
            if reached is None:
                return AssessResult.Good
            if job_id not in rung.scores:
                rung.record(job_id, reached)
                if not rung.goes_on(job_id, self.reduction_factor):
                    return self._hold(job_id, rung)
                rung.promoted.add(job_id)
            elif job_id not in rung.promoted:
                return self._hold(job_id, rung)
            place += 1
        return AssessResult.Good

    def job_end(self, job_id: Any) -> None:
        """Nothing to add: what the job showed at the rungs is there already."""
        self._paused.pop(job_id, None)

    def promotions(self) -> Iterable[Any]:
        going = [job for job, rung in self._paused.items() if rung.goes_on(job, self.reduction_factor)]
        for job in going:
            self._paused.pop(job).promoted.add(job)
        return going

    def _hold(self, job_id: Any, rung: Rung) -> AssessResult:
        if self.rest == "stop":
            return AssessResult.Bad
        self._paused[job_id] = rung
        return AssessResult.Pause

    def _has_rung(self, place: int) -> bool:
        level = self.min_step * self.reduction_factor**place
        return self.max_step is None or level < self.max_step

    def _rung(self, place: int) -> Rung:
        while len(self._rungs) <= place:
            self._rungs.append(Rung(self.min_step * self.reduction_factor ** len(self._rungs)))
        return self._rungs[place]

    def _score_at(self, level: int, history: Sequence[Report], scores: Sequence[float]) -> float | None:
        """The value at a rung, also when the job has gone past it since it was last judged."""
        if self.resource == "reports":
            return scores[level - 1] if len(scores) >= level else None
        for report, score in zip(history, scores, strict=True):
            if report["iteration"] >= level:
                return score
        return None
