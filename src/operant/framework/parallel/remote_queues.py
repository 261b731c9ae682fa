"""A queue that another worker hosts, and the hosting of queues for others."""

from __future__ import annotations

import logging
from collections.abc import Callable
from dataclasses import astuple
from typing import Any, Protocol

from operant.framework.errors import QueueClosed
from operant.framework.parallel.link import Link
from operant.framework.parallel.queues import HostedQueue, QueueSettings
from operant.framework.parallel.requests import Request, Requests

_LOG = logging.getLogger(__name__)

Answer = Callable[[Link, int, bool, Any], None]


class QueueRouter(Protocol):
    """The part of a router that a remote queue uses."""

    @property
    def ending(self) -> bool: ...

    def wait_until(self, predicate: Callable[[], object], timeout: float | None = None, what: str = "") -> bool: ...
    def link_to(self, node_id: int) -> Link | None: ...
    def has_left(self, node_id: int) -> bool: ...


class RemoteQueue:
    """A queue as a worker uses it that does not host it."""

    def __init__(self, name: str, settings: QueueSettings, host: int, router: QueueRouter, requests: Requests) -> None:
        self.name = name
        self.settings = settings
        self._host = host
        self._router = router
        self._requests = requests

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
            request = self._requests.ask(link, operation, (self.name, astuple(self.settings), item))
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

    def __init__(self, answer: Answer, hosted: Callable[[str, QueueSettings], HostedQueue]) -> None:
        self._answer = answer
        self._hosted = hosted
        # What a peer still waits for, and how to take that back.
        self._waiting: dict[tuple[Link, int], Callable[[], bool]] = {}
        # Items that were sent and not yet received: they go back if the peer dies.
        self._unreceived: dict[tuple[Link, int], tuple[HostedQueue, Any]] = {}

    def serve(self, link: Link, number: int, operation: str, content: Any) -> None:
        name, settings, item = content
        queue = self._hosted(name, QueueSettings(*settings))
        if operation == "put":
            pending = queue.offer(item, lambda accepted: self._done(link, number, accepted))
            if pending is not None:
                self._waiting[link, number] = lambda: queue.take_back(pending)
        elif operation == "get":

            def give(given: Any) -> None:
                self._unreceived[link, number] = (queue, given)
                self._done(link, number, (True, given))

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
        self._unreceived.pop((link, number), None)

    def remove_link(self, link: Link) -> None:
        for key in [key for key in self._waiting if key[0] is link]:
            self._waiting.pop(key)()
        lost = sorted((key[1], key) for key in self._unreceived if key[0] is link)
        for _, key in reversed(lost):
            queue, item = self._unreceived.pop(key)
            queue.return_item(item)

    def _done(self, link: Link, number: int, value: Any) -> None:
        self._waiting.pop((link, number), None)
        self._answer(link, number, True, value)


_Refusal = (False, None)
