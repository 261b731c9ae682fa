"""The time a scheduler lives in, and how it waits: for real, or in simulation."""

from __future__ import annotations

import queue
import time
from typing import Any, Protocol

__all__ = ["Clock", "SystemClock"]


class Clock(Protocol):
    """Time and the mailbox in one, because waiting is what both are about."""

    def now(self) -> float:
        """Seconds that never go back; limits are measured on it."""

    def wall(self) -> float:
        """Seconds since 1970, for people."""

    def put(self, item: Any) -> None:
        """Add to the mailbox; from any thread."""

    def has_mail(self) -> bool:
        """Whether there is anything in the mailbox."""

    def wait(self, timeout: float | None) -> list[Any]:
        """All that is in the mailbox, as soon as there is anything; nothing after ``timeout`` seconds."""


class SystemClock:
    def __init__(self) -> None:
        self._items: queue.SimpleQueue[Any] = queue.SimpleQueue()

    def now(self) -> float:
        return time.monotonic()

    def wall(self) -> float:
        return time.time()

    def put(self, item: Any) -> None:
        self._items.put(item)

    def has_mail(self) -> bool:
        return not self._items.empty()

    def wait(self, timeout: float | None) -> list[Any]:
        items: list[Any] = []
        try:
            if timeout is not None and timeout <= 0:
                items.append(self._items.get_nowait())
            else:
                items.append(self._items.get(timeout=timeout))
            while True:
                items.append(self._items.get_nowait())
        except queue.Empty:
            return items
