"""One call of the user's function: what it may raise and report, and how it ended."""

from __future__ import annotations

import inspect
import math
import time
import traceback
from collections.abc import Callable, Mapping
from contextvars import ContextVar
from typing import Any, NamedTuple, Protocol

from operant.errors import UsageError

__all__ = [
    "FinalFailure",
    "Pruned",
    "Reporter",
    "Skip",
    "StopTrial",
    "TrialEnd",
    "call_trial",
    "report",
    "with_task_id",
]


class Skip(BaseException):
    """Raised by a function that does not want this configuration: it is not tried again and counts for nothing."""


class StopTrial(BaseException):
    """Raised by `report` inside a trial that an assessor has ended. Clean up if you must, but let it pass."""


class Pruned(BaseException):
    """The function itself has seen that this is not worth going on; its last report counts."""


class FinalFailure(Exception):
    """A failure that another try would not mend."""


class Reporter(Protocol):
    def send(self, step: int, value: float) -> bool:
        """Pass on a value; True when the trial shall end."""


current_reporter: ContextVar[Reporter | None] = ContextVar("operant_trial_reporter", default=None)


def report(step: int, value: float) -> None:
    """Say how far this trial has come: `value` is the objective at `step`, so that a bad trial can be ended early.

    Outside of a search it does nothing, so the function can be called on its own.
    """
    reporter = current_reporter.get()
    if reporter is None:
        return
    if reporter.send(*checked_report(step, value)):
        raise StopTrial


def checked_report(step: Any, value: Any) -> tuple[int, float]:
    try:
        place, number = int(step), float(value)
    except (TypeError, ValueError, OverflowError):
        raise UsageError(f"report(step, value) takes two numbers, not {step!r} and {value!r}") from None
    if math.isnan(place) or place < 0:
        raise UsageError(f"a step is a whole number from 0 on, not {step!r}")
    return place, number


class TrialEnd(NamedTuple):
    """How a call ended: `ok`, `skip`, `stopped` (by an assessor), `pruned` (by itself) or `failed`."""

    kind: str
    value: Any
    seconds: float
    error: str | None = None
    trace: str | None = None
    final: bool = False
    """A failure that is not to be tried again."""


Function = Callable[[Any, int], Any]


def call_trial(
    function: Function,
    build: Callable[[Mapping[str, Any]], Any],
    flat: Mapping[str, Any],
    task_id: int,
    reporter: Reporter,
) -> TrialEnd:
    token = current_reporter.set(reporter)
    began = time.perf_counter()
    try:
        value = function(build(flat), task_id)
        return TrialEnd("ok", value, time.perf_counter() - began)
    except Skip as skip:
        return TrialEnd("skip", skip.args, time.perf_counter() - began, ", ".join(map(str, skip.args)) or "skipped")
    except (StopTrial, Pruned) as stop:
        return TrialEnd("stopped" if isinstance(stop, StopTrial) else "pruned", None, time.perf_counter() - began)
    except KeyboardInterrupt:
        raise  # the user wants the whole search to end
    except BaseException as error:
        text = "".join(traceback.format_exception_only(error)).strip()
        final = isinstance(error, FinalFailure)
        return TrialEnd("failed", None, time.perf_counter() - began, text, traceback.format_exc(), final)
    finally:
        current_reporter.reset(token)


def with_task_id(function: Callable[..., Any]) -> Function:
    """The function as one of (config, task_id), whether it wants the second or not."""
    try:
        parameters = list(inspect.signature(function).parameters.values())
    except (TypeError, ValueError):  # some built-in functions tell nothing of themselves
        return lambda config, task_id: function(config)
    places = [one for one in parameters if one.kind in (one.POSITIONAL_ONLY, one.POSITIONAL_OR_KEYWORD)]
    any_number = any(one.kind is one.VAR_POSITIONAL for one in parameters)
    if not places and not any_number:
        raise UsageError(f"{_name_of(function)} takes no argument, but is to be called with a configuration")
    surplus = [one.name for one in places[2:] if one.default is one.empty]
    surplus += [one.name for one in parameters if one.kind is one.KEYWORD_ONLY and one.default is one.empty]
    if surplus:
        raise UsageError(
            f"{_name_of(function)} is called with (config) or (config, task_id), but also needs {', '.join(surplus)}; "
            f"functools.partial can give it that"
        )
    # A second argument with a default is the function's own affair unless it says that it is the task's id.
    wants = len(places) > 1 and (places[1].default is places[1].empty or places[1].name == "task_id")
    if wants or (any_number and len(places) < 2):
        return function
    return lambda config, task_id: function(config)


def _name_of(function: Callable[..., Any]) -> str:
    return str(getattr(function, "__qualname__", type(function).__qualname__))
