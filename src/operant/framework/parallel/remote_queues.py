"""A queue that another worker hosts, and the hosting of queues for others."""

from __future__ import annotations

import logging
from collections.abc import Callable
from dataclasses import astuple
from functools import partial
from typing import Any, Protocol

from operant.framework.errors import QueueClosed
from operant.framework.parallel.counters import Counter
from operant.framework.parallel.link import Link
from operant.framework.parallel.queues import HostedQueue, Item, QueueSettings, lost_items
from operant.framework.parallel.requests import Request, Requests

_LOG = logging.getLogger(__name__)

Answer = Callable[[Link, int, bool, Any], None]
Tell = Callable[[Link, tuple[str, int]], object]
"""Tells a worker how many of the items that it put into a queue have left it."""


class QueueRouter(Protocol):
    """The part of a router that a remote queue uses."""

    @property
    def ending(self) -> bool: ...

    def wait_until(self, predicate: Callable[[], object], timeout: float | None = None, what: str = "") -> bool: ...
    def link_to(self, node_id: int) -> Link | None: ...
    def has_left(self, node_id: int) -> bool: ...
    def counter(self, name: str) -> Counter: ...


class RemoteQueue:
    """A queue as a worker uses it that does not host it."""

    def __init__(self, name: str, settings: QueueSettings, host: int, router: QueueRouter, requests: Requests) -> None:
        self.name = name
        self.settings = settings
        self._host = host
        self._router = router
        self._requests = requests
        self._accepted = 0  # of this worker's items, by the host of now
        self._left: int | None = None  # of these, again; None: the host does not tell

    def put(self, item: Any, timeout: float | None = None) -> bool:
        request = self._ask("put", item, timeout)
        if request is None:
            _LOG.info("queue %r was closed when finish was raised: one item was not put", self.name)
            return False
        if request.value is True:
            return True
        if self._router.ending:
            _LOG.info("queue %r was full when finish was raised: one item was not put", self.name)
            return False
        raise TimeoutError(f"queue {self.name!r} stayed full ({self.settings.maxsize} items) for {timeout} s")

    def get(self, timeout: float | None = None) -> Any:
        request = self._ask("get", None, timeout)
        if request is None:
            return None
        given, item = request.value
        if given:
            return item
        if self._router.ending:
            return None
        raise TimeoutError(f"queue {self.name!r} stayed empty for {timeout} s")

    def qsize(self) -> int:
        return self._info()[0]

    @property
    def dropped(self) -> int:
        return self._info()[1]

    @property
    def lost(self) -> int:
        return int(self._router.counter(lost_items(self.name)).value)

    # -- in the hub's thread, which sees answers and the loss of a link in their order -------------
    def _answered(self, request: Request) -> None:
        self._accepted += request.value is True

    def items_left(self, name: str, count: int) -> None:
        """A host says how many of this worker's items have left a queue."""
        if name == self.name:
            self._left = count

    def link_lost(self, link: Link) -> None:
        """The link to a worker is gone; if that hosted the queue, what lay in it is gone too."""
        if link.node_id != self._host:
            return
        lost = 0 if self._left is None else self._accepted - self._left
        self._accepted, self._left = 0, None
        if lost <= 0 or link.said_bye:
            return  # whoever takes leave says itself what nobody took
        self._router.counter(lost_items(self.name)).add(lost)
        items = "1 item" if lost == 1 else f"{lost} items"
        _LOG.warning(
            "queue %r: node.%d, which hosted it, died with %s of this worker's that nobody had taken: lost",
            self.name,
            self._host,
            items,
        )

    def _info(self) -> tuple[int, int]:
        request = self._ask("queue info", None, None)
        return (0, 0) if request is None else request.value

    def _ask(self, operation: str, item: Any, timeout: float | None) -> Request | None:
        """The answered request; None when finish was raised and the host is gone."""
        what = f"queue {self.name!r}: {operation}"
        while True:
            link = self._link(what, timeout)
            if link is None:
                return None
            count = self._answered if operation == "put" else None
            request = self._requests.ask(link, operation, (self.name, astuple(self.settings), item), count)
            self._router.wait_until(lambda: request.over or self._router.ending, timeout, what)  # noqa: B023
            if not request.over:
                if operation != "queue info":
                    self._requests.cancel(request)
                self._router.wait_until(lambda: request.over, None, what)  # noqa: B023
            if request.answered:
                if request.error is not None:
                    raise QueueClosed(request.error)
                return request
            # The host was lost before it answered; when it is restarted it is asked again.

    def _link(self, what: str, timeout: float | None) -> Link | None:
        router = self._router
        if not router.wait_until(
            lambda: router.link_to(self._host) or router.has_left(self._host) or router.ending,
            timeout,
            what,
        ):
            raise TimeoutError(f"{what}: node.{self._host}, which hosts it, was not there within {timeout} s")
        link = router.link_to(self._host)
        if link is None and not router.ending:
            raise QueueClosed(f"{what}: node.{self._host}, which hosts the queue, has ended")
        return link


class QueueHost:
    """The queues that this worker hosts, for its peers. Called with the router's condition held."""

    def __init__(
        self, answer: Answer, hosted: Callable[[str, QueueSettings], HostedQueue], tell: Tell | None = None
    ) -> None:
        self._answer = answer
        self._hosted = hosted
        self._tell = tell
        # How many items each peer had put that have left again; told where this worker may die and come back.
        self._left: dict[tuple[Link, str], int] = {}
        # What a peer still waits for, and how to take that back.
        self._waiting: dict[tuple[Link, int], Callable[[], bool]] = {}
        # Items that were sent and not yet received: they go back if the peer dies.
        self._unreceived: dict[tuple[Link, int], tuple[HostedQueue, Item]] = {}

    def serve(self, link: Link, number: int, operation: str, content: Any) -> None:
        name, settings, item = content
        queue = self._hosted(name, QueueSettings(*settings))
        if operation == "put":
            left = None if self._tell is None else partial(self._count_left, link, name, 1)
            if left is not None and (link, name) not in self._left:
                self._count_left(link, name, 0)
            pending = queue.offer(Item(item, left), lambda accepted: self._done(link, number, accepted))
            if pending is not None:
                self._waiting[link, number] = lambda: queue.take_back(pending)
        elif operation == "get":

            def give(given: Item) -> None:
                self._unreceived[link, number] = (queue, given)
                self._done(link, number, (True, given.value))

            self._waiting[link, number] = lambda: queue.forget_getter(give)
            queue.request(give)
        else:
            self._answer(link, number, True, (len(queue.items), queue.dropped))

    def cancel(self, link: Link, number: int) -> None:
        take_back = self._waiting.pop((link, number), None)
        if take_back is not None and take_back():
            # False for a put, (False, None) for a get: both are read as "no".
            self._answer(link, number, True, _Refusal)

    def received(self, link: Link, number: int) -> None:
        taken = self._unreceived.pop((link, number), None)
        if taken is not None:
            taken[1].take()

    def remove_link(self, link: Link) -> None:
        for key in [key for key in self._waiting if key[0] is link]:
            self._waiting.pop(key)()
        lost = sorted((key[1], key) for key in self._unreceived if key[0] is link)
        for _, key in reversed(lost):
            queue, item = self._unreceived.pop(key)
            queue.return_item(item)
        for at in [at for at in self._left if at[0] is link]:
            del self._left[at]

    def _count_left(self, link: Link, name: str, one: int) -> None:
        if self._tell is not None and not link.closed:
            self._left[link, name] = count = self._left.get((link, name), 0) + one
            self._tell(link, (name, count))

    def _done(self, link: Link, number: int, value: Any) -> None:
        self._waiting.pop((link, number), None)
        self._answer(link, number, True, value)


_Refusal = (False, None)
