"""From how a trial ended to what its search is told: objective, further columns, and expressions that do not fit."""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from operant.hpo.expressions import ExpressionError, TrialValues, evaluate, evaluate_number
from operant.hpo.shape import Shape
from operant.hpo.trials import TrialEnd
from operant.sites import Event, Submission

__all__ = ["Judge", "Verdict", "metrics_of"]

# How trials that did not end by themselves count, by kind of end.
VERDICTS = {"skip": ("KILLED", "skipped"), "pruned": ("STOPPED", "pruned"), "stopped": ("STOPPED", "assessor")}


@dataclass
class Verdict:
    """What a trial's end means."""

    end: TrialEnd
    values: dict[str, float] = field(default_factory=dict)
    """The objective and those further columns that are numbers."""
    columns: dict[str, Any] = field(default_factory=dict)
    wrong: ExpressionError | None = None
    stops: bool = False
    """Whether a condition of `stop_when` holds."""


class Judge:
    def __init__(
        self,
        shape: Shape,
        name: str,
        objective: Any,
        concerns: Sequence[tuple[str, Any]] = (),
        stops: Sequence[Any] = (),
    ) -> None:
        self.shape = shape
        self.name = name
        self.objective = objective
        self.concerns = list(concerns)
        self.stops = list(stops)
        self.verdicts: dict[str, Verdict] = {}
        """By token, until the search has taken note of them."""

    def event(self, job: Submission, end: TrialEnd) -> Event:
        """The `ended` event of a call; from any thread."""
        now = time.time()
        info: dict[str, Any] = {"started": now - end.seconds, "ended": now}
        if end.kind == "ok":
            verdict = self.judge(job.config, end)
            info.update(code=0, values=verdict.values)
        else:
            verdict = Verdict(end)
            info.update(code=1, error=end.error, reason=None if end.kind == "failed" else end.kind)
            if end.kind in VERDICTS:
                info["verdict"] = VERDICTS[end.kind]
        self.verdicts[job.token] = verdict
        return Event("ended", job.token, info)

    def judge(self, flat: Mapping[str, Any], end: TrialEnd) -> Verdict:
        verdict = Verdict(end)
        # Built anew: the function may have changed the one it was given.
        values = TrialValues(self.shape.build(flat), end.value, metrics_of(end))
        try:
            # A function that only reports has its last report as objective.
            if end.value is not None:
                verdict.values[self.name] = evaluate_number(self.objective, values)
            for name, expression in self.concerns:
                found = evaluate(expression, values)
                verdict.columns[name] = found
                if isinstance(found, (int, float)) and not isinstance(found, bool):
                    verdict.values[name] = float(found)
            verdict.stops = any(bool(evaluate(one, values)) for one in self.stops)
        except ExpressionError as error:
            verdict.wrong = error
        return verdict


def metrics_of(end: TrialEnd) -> dict[str, Any]:
    return {"time": end.seconds}
