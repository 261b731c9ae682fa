"""From how a trial ended to what its search is told: objective, further columns, and expressions that do not fit."""

from __future__ import annotations

import json
import time
from collections.abc import Mapping, Sequence
from typing import Any

from operant.hpo.expressions import ExpressionError, R, TrialValues, evaluate, evaluate_number
from operant.hpo.shape import Shape
from operant.sites import Submission
from operant.sites.calls import TrialEnd, ended_early

# Larger results stay in memory only.
_LARGEST_RESULT = 1 << 18


class CheckedResult:
    """What a trial's end means."""

    __slots__ = ("columns", "end", "stops", "values", "wrong")

    def __init__(self, end: TrialEnd) -> None:
        self.end = end
        self.values: dict[str, float] = {}
        """The objective and those further columns that are numbers."""
        self.columns: dict[str, Any] = {}
        self.wrong: ExpressionError | None = None
        self.stops = False
        """Whether a condition of `stop_when` holds."""


class ResultCheck:
    """Says what the end of a call means, for the sites of a fluent search and for its earlier trials."""

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
        self._is_result = objective is R and not self.concerns and not self.stops
        """Whether a number that the function returns is all there is to look at."""
        self.results: dict[str, CheckedResult] = {}
        """By token, until the search has taken note of them."""

    def __call__(self, job: Submission, end: TrialEnd) -> dict[str, Any]:
        """What the `ended` event of a call tells; from any thread. What else there is to say waits in `results`."""
        now = time.time()
        info: dict[str, Any] = {"started": now - end.seconds, "ended": now}
        if end.kind == "ok":
            result = self.check(job.config, end)
            info["code"], info["values"], info["returned"] = 0, result.values, returned_fields(end)
        else:
            result = CheckedResult(end)
            info.update(ended_early(end))
            if end.kind == "pruned" and end.value is not None:
                info["returned"] = returned_fields(end)
        self.results[job.token] = result
        return info

    def check(self, flat: Mapping[str, Any], end: TrialEnd) -> CheckedResult:
        result = CheckedResult(end)
        if self._is_result and type(end.value) is float:
            result.values[self.name] = end.value
            return result
        # Built anew: the function may have changed the one it was given.
        values = TrialValues(lambda: self.shape.build(flat), end.value, metrics_of(end))
        try:
            # A function that only reports has its last report as objective.
            if end.value is not None:
                result.values[self.name] = evaluate_number(self.objective, values)
            for name, expression in self.concerns:
                found = evaluate(expression, values)
                result.columns[name] = found
                if isinstance(found, (int, float)) and not isinstance(found, bool):
                    result.values[name] = float(found)
            for condition in self.stops:
                result.stops = result.stops or bool(evaluate(condition, values))
        except ExpressionError as error:
            result.wrong = error
        return result


def metrics_of(end: TrialEnd) -> dict[str, Any]:
    return {"time": end.seconds}


def returned_fields(end: TrialEnd) -> dict[str, Any]:
    """What the journal keeps of a call that returned."""
    record = metrics_of(end)
    if type(end.value) is float:
        record["value"] = end.value
        return record
    kept, value = plain(end.value)
    if kept:
        record["value"] = value
    else:
        record["text"] = repr(end.value)[:200]
    return record


def plain(value: Any) -> tuple[bool, Any]:
    """What was returned as JSON can hold it, and whether it can."""
    if value is None or type(value) in (float, int, bool, str):
        return True, value
    try:
        text = json.dumps(value, default=_numpy_as_list)
    except (TypeError, ValueError, RecursionError):
        return False, None
    return (True, json.loads(text)) if len(text) <= _LARGEST_RESULT else (False, None)


def _numpy_as_list(value: Any) -> Any:
    if hasattr(value, "tolist"):
        return value.tolist()
    raise TypeError(f"{type(value).__name__} is not JSON")
