"""Named events inside one task: listeners, one-shot listeners, and waiting without polling."""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import Any

from operant.framework.errors import FrameworkError

# DI-engine's event for it. Here snapshots replace each other, so there is no moment at which each one arrives.
_CTX_ARRIVED = "sync_parallel_ctx"

Listener = Callable[..., Any]
Arguments = tuple[tuple[Any, ...], dict[str, Any]]


class _Entry:
    __slots__ = ("listener", "once")

    def __init__(self, listener: Listener, once: bool) -> None:
        self.listener = listener
        self.once = once


class EventBook:
    """Who listens to what. Listeners are called in the order they came, in the thread that emits.

    While `keeps_unheard` is set, an event without a listener waits for its first one: other workers may
    speak before this one has come to listen.
    """

    def __init__(self) -> None:
        self._lock = threading.RLock()
        self._entries: dict[str, list[_Entry]] = {}
        self._unheard: dict[str, list[Arguments]] = {}
        self.keeps_unheard = True

    def on(self, event: str, listener: Listener, *, once: bool = False) -> None:
        if event == _CTX_ARRIVED:
            raise FrameworkError(
                f"there is no event {event!r}: `task.parallel_ctx.wait_newer(timeout)` waits for the next ctx of a peer"
            )
        with self._lock:
            self._entries.setdefault(event, []).append(_Entry(listener, once))
            unheard = self._unheard.pop(event, [])
        for args, kwargs in unheard:
            self.receive(event, args, kwargs)

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

    def receive(self, event: str, args: tuple[Any, ...], kwargs: dict[str, Any]) -> None:
        """An event from elsewhere."""
        with self._lock:
            if self.keeps_unheard and not self._entries.get(event):
                self._unheard.setdefault(event, []).append((args, kwargs))
                return
        self.emit(event, args, kwargs)

    def forget_unheard(self) -> None:
        """All who want to listen do so by now."""
        with self._lock:
            self.keeps_unheard = False
            self._unheard.clear()

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
