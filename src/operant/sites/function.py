"""Jobs as calls of a Python function in this process: for cheap objectives, where a process each would be waste."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any

from operant.sites.base import SITES, Event, Found, Submission
from operant.sites.calls import TrialEnd, call_trial, ended_early

__all__ = ["FunctionSite"]


@SITES.register_module("function")
class FunctionSite:
    """Calls ``function(config)`` for each job, one after the other, in the thread that submits.

    The function returns the reward, or a mapping of scalars by name; an exception makes the job an ERROR. What it
    says with ``report(step, value)`` is heard at once, so an assessor can end it there. If it returns None, its
    reports are its result.
    """

    outlives_controller = False
    takes_configs = True

    def __init__(self, function: Callable[..., Any], reward_attribute: str = "acc") -> None:
        self.function = function
        self.reward_attribute = reward_attribute
        self.hear: Callable[[str, int, float], None] = lambda token, step, value: None
        """Gets reports (token, step, value) in the midst of a call; by default nobody does."""
        self.on_submit: Callable[[Submission], None] | None = None
        """Told of each call before it is made."""
        self._emit: Callable[[Event], None] = lambda event: None
        self._calling: str | None = None
        self._stop = False
        self._withdrawn: set[str] = set()

    def start(self, emit: Callable[[Event], None]) -> None:
        self._emit = emit

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
            end = call_trial(self.result_of, self, job)
        finally:
            self._calling = None
        return self.outcome(job, end)

    def cancel(self, tokens: Iterable[str], reason: str = "cancelled", grace: float | None = None) -> None:
        """A call ends at its next report. The others have not begun, or were ended by ctrl-C."""
        for token in tokens:
            if token == self._calling:
                self._stop = True
            else:
                self._withdrawn.add(token)
                self._emit(Event("ended", token, {"code": None, "reason": reason}))

    def find(self, tokens: Sequence[str]) -> dict[str, Found]:
        """Calls die with their process."""
        return dict.fromkeys(tokens, Found("unknown", {}))

    def close(self) -> None:
        """Nothing is left running."""

    def send(self, step: int, value: float) -> bool:
        """A report of the call under way; True when it shall end."""
        assert self._calling is not None
        self.hear(self._calling, step, value)
        return self._stop

    def result_of(self, job: Submission) -> Any:
        value = self.function(job.config)
        if type(value) is float:
            return {self.reward_attribute: value}
        if value is None:
            return {}
        if isinstance(value, Mapping):
            return {str(name): float(one) if hasattr(one, "__float__") else one for name, one in value.items()}
        return {self.reward_attribute: float(value)}

    def outcome(self, job: Submission, end: TrialEnd) -> Mapping[str, Any]:
        now = time.time()
        if end.kind == "ok":
            return {"started": now - end.seconds, "ended": now, "code": 0, "values": end.value}
        return {"started": now - end.seconds, "ended": now, **ended_early(end)}
