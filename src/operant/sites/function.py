"""Jobs as calls of a Python function in this process: for cheap objectives, where a process each would be waste."""

from __future__ import annotations

import time
import traceback
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any

from operant.sites.base import SITES, Event, Found, Submission

__all__ = ["FunctionSite"]

Function = Callable[..., Any]


@SITES.register_module("function")
class FunctionSite:
    """Calls ``function(config)`` for each job, one after the other, in the thread that submits.

    The function returns the reward, or a mapping of scalars by name; an exception makes the job an ERROR.
    """

    outlives_controller = False
    takes_configs = True

    def __init__(self, function: Function, reward_attribute: str = "acc") -> None:
        self.function = function
        self.reward_attribute = reward_attribute
        self._emit: Callable[[Event], None] = lambda event: None

    def start(self, emit: Callable[[Event], None]) -> None:
        self._emit = emit

    def submit(self, jobs: Sequence[Submission]) -> list[str]:
        for job in jobs:
            self._call(job)
        return [job.token for job in jobs]

    def cancel(self, tokens: Iterable[str], reason: str = "cancelled", grace: float | None = None) -> None:
        """A call cannot be interrupted; it has always ended by the time that anyone could ask."""

    def find(self, tokens: Sequence[str]) -> dict[str, Found]:
        return dict.fromkeys(tokens, Found("unknown", {}))

    def close(self) -> None:
        """Nothing is left running."""

    def _call(self, job: Submission) -> None:
        began = time.time()
        try:
            value = self.function(job.config)
        except Exception as error:
            text = "".join(traceback.format_exception_only(error)).strip()
            self._emit(Event("ended", job.token, {"code": 1, "error": text, "started": began, "ended": time.time()}))
            return
        values = dict(value) if isinstance(value, Mapping) else {self.reward_attribute: float(value)}
        self._emit(Event("ended", job.token, {"code": 0, "values": values, "started": began, "ended": time.time()}))
