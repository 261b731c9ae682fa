"""Named events inside one task: listeners, one-shot listeners, and waiting without polling."""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import Any

Listener = Callable[..., Any]
Arguments = tuple[tuple[Any, ...], dict[str, Any]]


class _Entry:
    __slots__ = ("listener", "once")

    def __init__(self, listener: Listener, once: bool) -> None:
        self.listener = listener
        self.once = once


class EventBook:
    """Who listens to what. Listeners are called in the order they came, in the thread that emits."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._entries: dict[str, list[_Entry]] = {}

    def on(self, event: str, listener: Listener, *, once: bool = False) -> None:
        with self._lock:
            self._entries.setdefault(event, []).append(_Entry(listener, once))

    def off(self, event: str, listener: Listener | None = None) -> None:
        """Forget one listener of an event, or all of them."""
        with self._lock:
            kept = (
                []
                if listener is None
                else [entry for entry in self._entries.get(event, []) if entry.listener != listener]
            )
            if kept:
                self._entries[event] = kept
            else:
                self._entries.pop(event, None)

    def emit(self, event: str, args: tuple[Any, ...], kwargs: dict[str, Any]) -> None:
        if event not in self._entries:
            return
        with self._lock:
            entries = self._entries.get(event, [])
            called = list(entries)
            # A one-shot listener leaves the book before it is called, so that it cannot be called twice.
            entries[:] = [entry for entry in entries if not entry.once]
        for entry in called:
            entry.listener(*args, **kwargs)


class Waiter:
    """One thread waits here until an event comes or somebody gives up for it."""

    def __init__(self) -> None:
        self._ready = threading.Event()
        self.arguments: Arguments | None = None

    def deliver(self, *args: Any, **kwargs: Any) -> None:
        if not self._ready.is_set():
            self.arguments = (args, kwargs)
            self._ready.set()

    def give_up(self) -> None:
        self._ready.set()

    def wait(self, timeout: float | None) -> bool:
        """False when the time ran out."""
        return self._ready.wait(timeout)
