"""``operant serve``: receives the runs of other machines into this ``.operant`` folder.

And what every server of ours does: how long and how often a client may stand at the door, so that nobody who sends
half a request keeps others out.
"""

from __future__ import annotations

import asyncio
import errno
import logging
import math
import resource
import socket
import time
from collections import Counter
from collections.abc import Callable, Iterable, MutableMapping
from pathlib import Path
from typing import Any

from operant.errors import MissingExtraError, UsageError
from operant.http.security import Application, Receive, Scope, Send
from operant.tracking.remote.receive import Receiver

log = logging.getLogger("operant.web")

_TAKEN_AT_ONCE = 16
"""Connections that are taken in one go, before any of them is counted."""
_QUEUE = 1024
"""Connections that wait to be taken. Whoever finds the queue full hears nothing, and tries again after a second."""
_HEADER_SECONDS = 10.0
# A body may take its time, as over a slow network, but after this grace it brings so many bytes a second.
_BODY_GRACE = 20.0
_BODY_RATE = 1024
_MOST_CONNECTIONS = 512
_LOOK_SECONDS = 0.5
"""So long a scrape waits for runs that were never read."""
_Client = tuple[str, int]


def application(root: Path, token: str, host_names: set[str]) -> Any:
    """The ASGI application over ``root``, behind its gatekeeper."""
    try:
        from starlette.applications import Starlette
        from starlette.requests import Request
        from starlette.responses import JSONResponse, Response
        from starlette.routing import Route
    except ImportError:
        raise MissingExtraError("`operant serve`", "web") from None
    from operant._util.prometheus import CONTENT_TYPE, render
    from operant.http.ingest import ingest_routes
    from operant.http.security import Gatekeeper
    from operant.tracking.reading.index import RunTable
    from operant.tracking.reading.metrics import Rates, about_process, about_table

    async def health(_: Request) -> JSONResponse:
        return JSONResponse({"status": "ok"})

    table, rates = RunTable(root), Rates()

    def metrics(_: Request) -> Response:
        table.refresh(_LOOK_SECONDS)
        return Response(render([*about_process(root), *about_table(table, rates)]), media_type=CONTENT_TYPE)

    routes = [Route("/health", health), Route("/metrics", metrics), *ingest_routes(Receiver(root))]
    return Gatekeeper(Starlette(routes=routes), token, host_names)


def listen(host: str, port: int) -> tuple[socket.socket, str]:
    """A socket that takes connections, and the address to reach it by."""
    try:
        listener = socket.create_server((host, port), family=socket.AF_INET6 if ":" in host else socket.AF_INET)
    except OSError as error:
        hint = "; --port picks another" if error.errno == errno.EADDRINUSE else ""
        raise UsageError(f"cannot listen on {host}:{port}: {error.strerror}{hint}") from None
    reached = socket.gethostname() if host in ("0.0.0.0", "::") else f"[{host}]" if ":" in host else host
    return listener, f"http://{reached}:{listener.getsockname()[1]}"


def serve(
    root: Path, host: str, port: int, token: str, ready: Callable[[str], None], names: Iterable[str] = ()
) -> None:
    """Serve until interrupted; ``ready`` is called with the address once connections are taken."""
    app = application(root, token, {host, socket.gethostname(), *names})
    listener, address = listen(host, port)
    with listener:
        ready(address)
        run_server(app, listener, patience=3)


def run_server(
    app: Any, listener: socket.socket, *, patience: int, before_end: Callable[[], None] = lambda: None
) -> None:
    """Serve an application on a socket until interrupted; requests under way have ``patience`` seconds to end."""
    import uvicorn

    class Server(uvicorn.Server):
        def handle_exit(self, sig: int, frame: Any) -> None:
            before_end()
            super().handle_exit(sig, frame)

        async def startup(self, sockets: list[socket.socket] | None = None) -> None:
            await super().startup(sockets)
            listener.listen(_QUEUE)  # asyncio's own is as long as what it takes at once

    limits = Limits(app)
    config = uvicorn.Config(
        limits,
        log_level="warning",
        server_header=False,
        ws="none",
        backlog=_TAKEN_AT_ONCE,
        http=_limited_protocol(limits),
        h11_max_incomplete_event_size=65536,
        timeout_graceful_shutdown=patience,
    )
    Server(config).run(sockets=[listener])


class _Connection:
    """One client as far as it has come: whether a request of its is under way, and what it owes since when."""

    def __init__(self, host: str, transport: asyncio.Transport) -> None:
        self.host = host
        self.transport = transport
        self.asked = False
        self.since = time.monotonic()
        self.waiting = False
        self.received = 0
        self.waited = 0.0

    def begin(self) -> None:
        self.asked, self.waiting, self.received, self.waited = True, False, 0, 0.0

    def end(self) -> None:
        self.asked, self.since = False, time.monotonic()

    def wait(self) -> None:
        self.waiting, self.since = True, time.monotonic()

    def take(self, message: MutableMapping[str, Any]) -> None:
        self.waiting = False
        self.waited += time.monotonic() - self.since
        self.received += len(message.get("body", b""))
        if not message.get("more_body", False):
            self.waited = -math.inf  # the rest is up to us

    def is_late(self, now: float) -> bool:
        if not self.asked:
            return now - self.since > _HEADER_SECONDS
        if not self.waiting:
            return False
        waited = self.waited + now - self.since
        return waited > _BODY_GRACE + self.received / _BODY_RATE


class Limits:
    """Wraps an application and counts the connections of its server.

    Headers must come within ten seconds, and a body at a pace. Of too many connections (in all, or of one address)
    the one that has stood longest without a whole request goes; where each is being answered, the new one goes.
    """

    def __init__(self, application: Application, most: int | None = None) -> None:
        self._application = application
        self.most = most or max(16, min(_MOST_CONNECTIONS, resource.getrlimit(resource.RLIMIT_NOFILE)[0] // 2))
        self.most_of_one = max(8, self.most * 3 // 4)
        self._connections: dict[_Client, _Connection] = {}
        self._sweeping = False
        self._refused = 0
        self._told = -math.inf

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        connection = self._connections.get(scope.get("client") or ("", 0))
        if connection is None:
            await self._application(scope, receive, send)
            return

        async def received() -> MutableMapping[str, Any]:
            connection.wait()
            message = await receive()
            connection.take(message)
            return message

        connection.begin()
        try:
            await self._application(scope, received, send)
        finally:
            connection.end()

    # -- what the protocol tells ---------------------------------------------------------------------------------------
    def made(self, client: _Client, transport: asyncio.Transport) -> None:
        """A client has connected."""
        of_one = sum(one.host == client[0] for one in self._connections.values())
        if of_one >= self.most_of_one:
            self._make_room(client[0], transport)
        elif len(self._connections) >= self.most:
            self._make_room(Counter(one.host for one in self._connections.values()).most_common(1)[0][0], transport)
        if not transport.is_closing():
            self._connections[client] = _Connection(client[0], transport)
            self._sweep_soon()

    def lost(self, client: _Client) -> None:
        """A client has gone."""
        self._connections.pop(client, None)

    def _make_room(self, host: str, newcomer: asyncio.Transport) -> None:
        waiting = [(client, one) for client, one in self._connections.items() if one.host == host and not one.asked]
        client, oldest = min(waiting, key=lambda item: item[1].since, default=(None, None))
        if client is None or oldest is None:
            newcomer.abort()
        else:
            oldest.transport.abort()
            del self._connections[client]  # its end is told later than the next newcomer may come
        self._tell(f"too many connections of {host}")

    def _sweep_soon(self) -> None:
        if not self._sweeping:
            self._sweeping = True
            asyncio.get_running_loop().call_later(1.0, self._sweep)

    def _sweep(self) -> None:
        self._sweeping = False
        now = time.monotonic()
        for one in list(self._connections.values()):
            if one.is_late(now):
                one.transport.abort()
                self._tell(f"{one.host} was too slow over a request")
        if self._connections:
            self._sweep_soon()

    def _tell(self, why: str) -> None:
        """At most one line a minute: whoever floods the server must not flood its log."""
        self._refused += 1
        if time.monotonic() - self._told >= 60.0:
            log.warning("closed %d connection(s): %s", self._refused, why)
            self._told, self._refused = time.monotonic(), 0


def _limited_protocol(limits: Limits) -> Any:
    """Uvicorn's protocol, telling `limits` of connections."""
    from uvicorn.protocols.http.h11_impl import H11Protocol

    class Protocol(H11Protocol):
        _from: _Client | None = None

        def connection_made(self, transport: Any) -> None:
            super().connection_made(transport)
            if self.client is not None:
                self._from = self.client
                limits.made(self.client, transport)

        def connection_lost(self, exc: Exception | None) -> None:
            super().connection_lost(exc)
            if self._from is not None:
                limits.lost(self._from)

    return Protocol
