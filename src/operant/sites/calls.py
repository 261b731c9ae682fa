"""One call of a user's function in this process: what it may raise and report, and how it ended."""

from __future__ import annotations

import math
import traceback
from collections.abc import Callable
from contextvars import ContextVar
from time import perf_counter
from typing import Any, NamedTuple, Protocol

from operant.errors import UsageError
from operant.status import Status


class Skip(BaseException):
    """Raised by a function that does not want this configuration: it is not tried again and counts for nothing."""


class StopTrial(BaseException):
    """Raised by `report` inside a trial that an assessor has ended. Clean up if you must, but let it pass."""


class Pruned(BaseException):
    """The function itself has seen that this is not worth going on; its last report counts.

    What it is given is kept in the journal, as what a function returns is.
    """


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


KINDS = ("ok", "skip", "stopped", "pruned", "failed")

# How trials that did not end by themselves count, by kind of end.
_VERDICTS = {
    "skip": (Status.KILLED, "skipped"),
    "pruned": (Status.STOPPED, "pruned"),
    "stopped": (Status.STOPPED, "assessor"),
}


def ended_early(end: TrialEnd) -> dict[str, Any]:
    """What the event of a call that returned nothing says of it."""
    info: dict[str, Any] = {"code": 1, "error": end.error, "reason": None if end.kind == "failed" else end.kind}
    if end.kind in _VERDICTS:
        info["verdict"] = _VERDICTS[end.kind]
    return info


def call_trial(call: Callable[..., Any], reporter: Reporter, *arguments: Any) -> TrialEnd:
    token = current_reporter.set(reporter)
    began = perf_counter()
    try:
        value = call(*arguments)
        return TrialEnd("ok", value, perf_counter() - began)
    except Skip as skip:
        return TrialEnd("skip", skip.args, perf_counter() - began, ", ".join(map(str, skip.args)) or "skipped")
    except (StopTrial, Pruned) as stop:
        kind, value = "stopped" if isinstance(stop, StopTrial) else "pruned", stop.args[0] if stop.args else None
        return TrialEnd(kind, value, perf_counter() - began)
    except KeyboardInterrupt:
        raise  # the user wants the whole search to end
    except BaseException as error:
        text = "".join(traceback.format_exception_only(error)).strip()
        final = isinstance(error, FinalFailure)
        return TrialEnd("failed", None, perf_counter() - began, text, traceback.format_exc(), final)
    finally:
        current_reporter.reset(token)
