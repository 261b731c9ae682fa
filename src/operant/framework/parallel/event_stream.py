"""Events from and to other workers: in order, by a thread of their own, with a limit on what piles up."""

from __future__ import annotations

import threading
from collections import deque
from typing import Any, Protocol

from operant.framework.errors import FrameworkError
from operant.framework.parallel.hub import Hub
from operant.framework.parallel.link import Frame, Kind, Link, Parcel
from operant.framework.parallel.standalone import LoopSide

# An emitter waits when a peer has this many of its events still to handle, and gives up after a while.
MAX_AHEAD = 10_000
AHEAD_TIMEOUT = 60.0
_REPORT_EVERY = 256

# The number of the emitter's task, name, arguments.
_Event = tuple[int, str, tuple[Any, ...], dict[str, Any]]


class _EventRouter(Protocol):
    changed: threading.Condition
    _task: LoopSide | None
    _ordinal: int

    def wait_until(self, predicate: Any, timeout: float | None = None, what: str = "") -> bool: ...


class EventStream:
    """Both directions, for all links of a worker."""

    def __init__(self, hub: Hub, router: _EventRouter, in_turns: bool) -> None:
        self._hub = hub
        self._router = router
        self._in_turns = in_turns
        self._inbox: deque[tuple[Link, _Event]] = deque()
        self._has_some = threading.Condition()
        self._open_for = 0
        self.idle = True  # all that came has been delivered
        self._closing = False
        self._ahead: dict[Link, int] = {}
        self._handled: dict[Link, int] = {}
        self._thread: threading.Thread | None = None
        if not in_turns:
            self._thread = threading.Thread(target=self._run, name="operant-events", daemon=True)
            self._thread.start()

    # -- out ---------------------------------------------------------------------------------------
    def send(self, links: list[Link], ordinal: int, event: str, args: Any, kwargs: Any) -> None:
        parcel = Parcel.pack(Kind.EVENT, (ordinal, event, args, kwargs))
        for link in links:
            if self._ahead.get(link, 0) >= MAX_AHEAD and threading.current_thread() is not self._thread:
                self._wait_for_room(link)
            self._ahead[link] = self._ahead.get(link, 0) + 1
        self._hub.send_all(links, parcel)

    def _wait_for_room(self, link: Link) -> None:
        if not self._router.wait_until(
            lambda: self._ahead.get(link, 0) < MAX_AHEAD or link.closed, AHEAD_TIMEOUT, "room for an event"
        ):
            raise FrameworkError(
                f"node.{link.node_id} has {MAX_AHEAD} events of this worker still to handle and handled none "
                f"for {AHEAD_TIMEOUT:.0f} s"
            )

    def done(self, link: Link, n_handled: int) -> None:
        """The peer has handled some events of this worker."""
        with self._router.changed:
            if link in self._ahead:
                self._ahead[link] -= n_handled
            self._router.changed.notify_all()

    def add_link(self, link: Link) -> None:
        self._ahead[link] = 0
        self._handled[link] = 0

    def remove_link(self, link: Link) -> None:
        self._ahead.pop(link, None)
        self._handled.pop(link, None)

    # -- in ----------------------------------------------------------------------------------------
    def receive(self, link: Link, frame: Frame) -> None:
        event: _Event = frame.value()
        with self._has_some:
            self.idle = self._in_turns
            self._inbox.append((link, event))
            self._has_some.notify()

    def open(self, ordinal: int) -> None:
        """The task has begun to run or to wait, so its listeners are there: deliver what came early."""
        if self._open_for != ordinal:
            with self._has_some:
                self._open_for = ordinal
                self._has_some.notify()
            with self._router.changed:
                self._router.changed.notify_all()
        if self._in_turns:
            self.deliver_waiting()

    @property
    def is_open(self) -> bool:
        """Whether the present task has begun."""
        return self._open_for == self._router._ordinal > 0

    def deliver_waiting(self) -> None:
        """In lockstep: hand over what came in the turns of others, in this thread."""
        while self._in_turns and self._next_is_due():
            self._deliver(*self._inbox.popleft())

    def _run(self) -> None:
        while True:
            with self._has_some:
                while not self._closing and not self._next_is_due():
                    self._has_some.wait()
                if self._closing:
                    return
                self.idle = False
                link, event = self._inbox.popleft()
            self._deliver(link, event)
            if not self._inbox:
                self.idle = True
                with self._router.changed:
                    self._router.changed.notify_all()

    def _next_is_due(self) -> bool:
        # A peer may be at its next task already; its events wait until this worker is there as well.
        ordinal = self._router._ordinal
        return bool(self._inbox) and self._open_for == ordinal >= self._inbox[0][1][0]

    def _deliver(self, link: Link, message: _Event) -> None:
        ordinal, event, args, kwargs = message
        task = self._router._task
        if task is not None and ordinal == self._router._ordinal:
            task.receive_event(event, args, kwargs)
        n_handled = self._handled.get(link, 0) + 1
        if n_handled >= _REPORT_EVERY or not self._inbox:
            self._hub.send(link, Kind.EVENTS_DONE, n_handled)
            n_handled = 0
        if link in self._handled:
            self._handled[link] = n_handled

    def close(self) -> None:
        with self._has_some:
            self._closing = True
            self._has_some.notify()
        if self._thread is not None and self._thread is not threading.current_thread():
            self._thread.join(5.0)
