"""Bounded queues between workers: one worker hosts each of them, nothing is lost silently."""

from __future__ import annotations

import logging
import threading
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Literal, Protocol

from operant.framework.errors import FrameworkError
from operant.framework.parallel.counters import Counter

_LOG = logging.getLogger(__name__)

QueueMode = Literal["block", "drop_oldest"]


@dataclass(frozen=True)
class QueueSettings:
    """How a queue behaves; every worker that names the queue must ask for the same."""

    maxsize: int = 64
    mode: QueueMode = "block"
    host: int | None = None  # the worker that holds the items; None: the one with the lowest number

    def __post_init__(self) -> None:
        if self.maxsize < 1:
            raise ValueError(f"a queue holds at least one item; maxsize={self.maxsize}")
        if self.mode not in ("block", "drop_oldest"):
            raise ValueError(f"a full queue can 'block' or 'drop_oldest'; mode={self.mode!r}")

    def require_same(self, other: QueueSettings, name: str) -> None:
        if self != other:
            raise FrameworkError(
                f"queue {name!r} was opened as {self} before and now as {other}; use the same settings"
            )


class Waiting(Protocol):
    """The part of a router on which a queue waits."""

    @property
    def ending(self) -> bool: ...

    changed: threading.Condition
    finish_raised: bool

    def wait_until(self, predicate: Callable[[], object], timeout: float | None = None, what: str = "") -> bool: ...
    def notify(self) -> None: ...
    def counter(self, name: str) -> Counter: ...


class TaskQueue(Protocol):
    """What `task.queue(name)` gives."""

    name: str
    settings: QueueSettings

    def put(self, item: Any, timeout: float | None = None) -> bool:
        """True when the queue has the item. A full queue in 'block' mode waits; TimeoutError when that
        takes longer than `timeout`; False, with a warning in the log, when finish was raised first."""

    def get(self, timeout: float | None = None) -> Any:
        """The oldest item. An empty queue waits; TimeoutError when that takes longer than `timeout`;
        None when nothing is left and finish is raised or every other worker has left."""

    def qsize(self) -> int: ...

    @property
    def dropped(self) -> int:
        """How many items made room for newer ones, in 'drop_oldest' mode."""

    @property
    def lost(self) -> int:
        """How many items of others were in it when a worker died that hosted it, as far as these have told."""


def lost_items(name: str) -> str:
    """The counter of items that went with the host of a queue: each worker adds those that it had put."""
    return f"queue/{name}/lost"


class Item:
    """What lies in a queue, and who wants to know when it has left: its sender, should the host die before."""

    __slots__ = ("left", "value")

    def __init__(self, value: Any, left: Callable[[], None] | None = None) -> None:
        self.value = value
        self.left = left

    def take(self) -> Any:
        """The value, which somebody has now."""
        if self.left is not None:
            self.left()
        return self.value


@dataclass
class _PendingPut:
    item: Item
    accepted: Callable[[bool], None]


class HostedQueue:
    """The items of one queue in the process that hosts it. Called with the router's condition held."""

    def __init__(self, name: str, settings: QueueSettings) -> None:
        self.name = name
        self.settings = settings
        self.items: deque[Item] = deque()
        self.dropped = 0
        self._putters: deque[_PendingPut] = deque()
        self._getters: deque[Callable[[Item], None]] = deque()

    def offer(self, item: Item, accepted: Callable[[bool], None]) -> _PendingPut | None:
        """Take the item now, or hold it until there is room (the returned object can be taken back)."""
        if self._getters:
            self._getters.popleft()(item)
        elif len(self.items) < self.settings.maxsize:
            self.items.append(item)
        elif self.settings.mode == "drop_oldest":
            self.items.popleft().take()
            self.items.append(item)
            self.dropped += 1
            if self.dropped == 1:
                _LOG.warning(
                    "queue %r is full (%d items): from now on it drops the oldest and counts them",
                    self.name,
                    self.settings.maxsize,
                )
        else:
            pending = _PendingPut(item, accepted)
            self._putters.append(pending)
            return pending
        accepted(True)
        return None

    def request(self, give: Callable[[Item], None]) -> None:
        """Give the oldest item, now or when there is one."""
        if self.items:
            give(self.items.popleft())
            self._refill()
        else:
            self._getters.append(give)

    def forget_getter(self, give: Callable[[Item], None]) -> bool:
        """The getter no longer waits; False when it already has its item."""
        try:
            self._getters.remove(give)
        except ValueError:
            return False
        return True

    def take_back(self, pending: _PendingPut) -> bool:
        """The putter no longer waits; False when its item was already taken."""
        try:
            self._putters.remove(pending)
        except ValueError:
            return False
        return True

    def return_item(self, item: Item) -> None:
        """An item that was given to a worker that is gone goes back to the front."""
        if self._getters:
            self._getters.popleft()(item)
        else:
            self.items.appendleft(item)

    def _refill(self) -> None:
        while self._putters and len(self.items) < self.settings.maxsize:
            pending = self._putters.popleft()
            self.items.append(pending.item)
            pending.accepted(True)


class LocalQueue:
    """A queue as the process that hosts it uses it."""

    def __init__(self, name: str, settings: QueueSettings, router: Waiting, hosted: HostedQueue | None = None) -> None:
        self.name = name
        self.settings = settings
        self._router = router
        self.hosted = hosted or HostedQueue(name, settings)

    def put(self, item: Any, timeout: float | None = None) -> bool:
        answers: list[bool] = []
        with self._router.changed:
            pending = self.hosted.offer(Item(item), answers.append)
            if pending is None:
                self._router.notify()
                return True
        in_time = self._router.wait_until(lambda: answers or self._router.ending, timeout, f"queue {self.name!r}: put")
        with self._router.changed:
            if answers or not self.hosted.take_back(pending):
                return True
        if in_time:
            _LOG.info("queue %r was full when finish was raised: one item was not put", self.name)
            return False
        raise TimeoutError(f"queue {self.name!r} stayed full ({self.settings.maxsize} items) for {timeout} s")

    def get(self, timeout: float | None = None) -> Any:
        given: list[Item] = []
        with self._router.changed:
            self.hosted.request(given.append)
        if not given:
            in_time = self._router.wait_until(
                lambda: given or self._router.ending, timeout, f"queue {self.name!r}: get"
            )
            with self._router.changed:
                if not given and self.hosted.forget_getter(given.append):
                    if in_time:
                        return None
                    raise TimeoutError(f"queue {self.name!r} stayed empty for {timeout} s")
        with self._router.changed:
            self._router.changed.notify_all()
            return given[0].take()

    def tell_what_is_left(self) -> None:
        """At the end: items that nobody took are no longer there."""
        if self.hosted.items:
            level = logging.INFO if self._router.finish_raised else logging.WARNING
            _LOG.log(level, "queue %r ends with %d items that nobody took", self.name, len(self.hosted.items))

    def qsize(self) -> int:
        return len(self.hosted.items)

    @property
    def dropped(self) -> int:
        return self.hosted.dropped

    @property
    def lost(self) -> int:
        return int(self._router.counter(lost_items(self.name)).value)
