"""Jobs as calls of a Python function in this process: for cheap objectives, where a process each would be waste."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any

from operant.sites.base import SITES, Event, Found, Submission
from operant.sites.calls import TrialEnd, call_trial, ended_early

Call = Callable[[Submission], Any]
"""Calls the user's function for a job."""
Check = Callable[[Submission, TrialEnd], Mapping[str, Any]]
"""Says what the end of a call means: what the ``ended`` event of the job tells. From any thread."""


class CallSite:
    """What sites that call functions have in common.

    :param attribute: the name under which what a call reports is known.
    """

    outlives_controller = False
    takes_configs = True

    def __init__(self, call: Call, check: Check, attribute: str) -> None:
        self.call_job = call
        self.check = check
        self.attribute = attribute
        self.on_submit: Callable[[Submission], None] | None = None
        """Told of each call before it is made."""
        self._emit: Callable[[Event], None] = lambda event: None

    def start(self, emit: Callable[[Event], None]) -> None:
        self._emit = emit

    def judged(self, job: Submission, end: TrialEnd) -> Mapping[str, Any]:
        """What the ``ended`` event tells; whatever a function returned, it can fail its own job only."""
        try:
            return self.check(job, end)
        except Exception as error:
            text = f"what it returned cannot be judged: {type(error).__name__}: {error}"
            return self.check(job, TrialEnd("failed", None, end.seconds, text))

    def find(self, tokens: Sequence[str]) -> dict[str, Found]:
        """Calls die with their process."""
        return dict.fromkeys(tokens, Found("unknown", {}))


class WorkerSite(CallSite):
    """What sites with several workers have in common.

    :param reports_count: whether someone looks at reports while a call runs, so that it waits for the answer.
    """

    def __init__(self, call: Call, check: Check, attribute: str, *, reports_count: bool = False) -> None:
        super().__init__(call, check, attribute)
        self.reports_count = reports_count
        self._closed = threading.Event()

    def submit(self, jobs: Sequence[Submission]) -> list[str]:
        for job in jobs:
            if self.on_submit is not None:
                self.on_submit(job)
            self.run(job)
        return [job.token for job in jobs]

    def run(self, job: Submission) -> None:
        """Let a worker call the function for this job."""
        raise NotImplementedError

    def emit_report(self, token: str, step: int, value: float) -> None:
        """Pass on a report; when it counts, wait until it was looked at."""
        info: dict[str, Any] = {"tag": self.attribute, "step": step, "value": value}
        if self.reports_count:
            handled = info["handled"] = threading.Event()
        self._emit(Event("report", token, info))
        while self.reports_count and not handled.wait(0.5):
            if self._closed.is_set():  # the search is over: nobody will look any more
                return

    def emit_end(self, job: Submission, end: TrialEnd) -> None:
        self._emit(Event("ended", job.token, self.judged(job, end)))


@SITES.register_module("function")
class FunctionSite(CallSite):
    """Calls ``function(config)`` for each job, one after the other, in the thread that submits.

    The function returns the reward, or a mapping of scalars by name; an exception makes the job an ERROR. What it
    says with ``report(step, value)`` is heard at once, so an assessor can end it there. If it returns None, its
    reports are its result.
    """

    def __init__(self, function: Callable[..., Any], reward_attribute: str = "acc") -> None:
        super().__init__(lambda job: _scalars(function(job.config), reward_attribute), check_scalars, reward_attribute)
        self.hear: Callable[[str, int, float], None] = lambda token, step, value: None
        """Gets reports (token, step, value) in the midst of a call; by default nobody does."""
        self._calling: str | None = None
        self._stop = False
        self._withdrawn: set[str] = set()

    @classmethod
    def calling(cls, call: Call, check: Check, attribute: str) -> FunctionSite:
        """A site with a way of its own to call a function, and to say what its end means."""
        site = cls(call, attribute)
        site.call_job, site.check = call, check
        return site

    def submit(self, jobs: Sequence[Submission]) -> list[str]:
        for job in jobs:
            if job.token in self._withdrawn:
                self._withdrawn.discard(job.token)
            else:
                self._emit(Event("ended", job.token, self.call(job)))
        return [job.token for job in jobs]

    def call(self, job: Submission) -> Mapping[str, Any]:
        """Call the function for this job, here and now, and say how that ended: what an ``ended`` event tells."""
        if self.on_submit is not None:
            self.on_submit(job)
        self._calling, self._stop = job.token, False
        try:
            end = call_trial(self.call_job, self, job)
        finally:
            self._calling = None
        return self.judged(job, end)

    def cancel(self, tokens: Iterable[str], reason: str = "cancelled", grace: float | None = None) -> None:
        """A call ends at its next report. The others have not begun, or were ended by ctrl-C."""
        for token in tokens:
            if token == self._calling:
                self._stop = True
            else:
                self._withdrawn.add(token)
                self._emit(Event("ended", token, {"code": None, "reason": reason}))

    def close(self) -> None:
        """Nothing is left running."""

    def send(self, step: int, value: float) -> bool:
        """A report of the call under way; True when it shall end."""
        assert self._calling is not None
        self.hear(self._calling, step, value)
        return self._stop


def _scalars(value: Any, attribute: str) -> Mapping[str, Any]:
    if type(value) is float:
        return {attribute: value}
    if value is None:
        return {}
    if isinstance(value, Mapping):
        return {str(name): float(one) if hasattr(one, "__float__") else one for name, one in value.items()}
    return {attribute: float(value)}


def check_scalars(job: Submission, end: TrialEnd) -> Mapping[str, Any]:
    """What the end of a call that returned scalars by name means."""
    now = time.time()
    if end.kind == "ok":
        return {"started": now - end.seconds, "ended": now, "code": 0, "values": end.value}
    return {"started": now - end.seconds, "ended": now, **ended_early(end)}
