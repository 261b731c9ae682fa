"""Questions to another worker and their answers."""

from __future__ import annotations

import itertools
from collections.abc import Callable
from typing import Any

from operant.framework.parallel.hub import Hub
from operant.framework.parallel.link import Kind, Link


class Request:
    """A question under way."""

    __slots__ = ("answered", "error", "link", "lost", "number", "on_answer", "operation", "value")

    def __init__(
        self, number: int, link: Link, operation: str, on_answer: Callable[[Request], None] | None = None
    ) -> None:
        self.number = number
        self.link = link
        self.operation = operation
        self.on_answer = on_answer  # called in the hub's thread
        self.answered = False
        self.lost = False  # the peer is gone; no answer will come
        self.value: Any = None
        self.error: str | None = None

    @property
    def over(self) -> bool:
        return self.answered or self.lost


class Requests:
    """The questions that this process has asked."""

    def __init__(self, hub: Hub, notify: Callable[[], None]) -> None:
        self._hub = hub
        self._notify = notify
        self._numbers = itertools.count(1)
        self._open: dict[int, Request] = {}

    def ask(
        self, link: Link, operation: str, content: Any, on_answer: Callable[[Request], None] | None = None
    ) -> Request:
        request = Request(next(self._numbers), link, operation, on_answer)
        self._open[request.number] = request
        if not self._hub.send(link, Kind.REQUEST, (request.number, operation, content)):
            self._open.pop(request.number, None)
            request.lost = True
        return request

    def cancel(self, request: Request) -> None:
        """The answer is no longer wanted. The peer answers either way, so both know what became of it."""
        self._hub.send(request.link, Kind.REQUEST, (request.number, "cancel", None))

    def receive(self, message: tuple[int, bool, Any]) -> Request | None:
        number, worked, value = message
        request = self._open.pop(number, None)
        if request is not None:
            if worked:
                request.value = value
            else:
                request.error = str(value)
            if request.on_answer is not None:
                request.on_answer(request)
            request.answered = True
            self._notify()
        return request

    def remove_link(self, link: Link) -> None:
        for number, request in list(self._open.items()):
            if request.link is link:
                del self._open[number]
                request.lost = True
