"""``operant serve``: receives the runs of other machines into this ``.operant`` folder."""

from __future__ import annotations

import errno
import socket
from collections.abc import Callable
from pathlib import Path
from typing import Any

from operant.errors import MissingExtraError, UsageError
from operant.tracking.remote.receive import Receiver

__all__ = ["application", "listen", "run_server", "serve"]


def application(root: Path, token: str, host_names: set[str]) -> Any:
    """The ASGI application over ``root``, behind its gatekeeper."""
    try:
        from starlette.applications import Starlette
        from starlette.requests import Request
        from starlette.responses import JSONResponse
        from starlette.routing import Route
    except ImportError:
        raise MissingExtraError("`operant serve`", "web") from None
    from operant.http.ingest import ingest_routes
    from operant.http.security import Gatekeeper

    async def health(_: Request) -> JSONResponse:
        return JSONResponse({"status": "ok"})

    routes = [Route("/health", health), *ingest_routes(Receiver(root))]
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


def serve(root: Path, host: str, port: int, token: str, ready: Callable[[str], None]) -> None:
    """Serve until interrupted; ``ready`` is called with the address once connections are taken."""
    app = application(root, token, {host, socket.gethostname()})
    listener, address = listen(host, port)
    with listener:
        ready(address)
        run_server(app, listener, patience=3)


def run_server(
    app: Any, listener: socket.socket, *, patience: int, before_end: Callable[[], None] = lambda: None
) -> None:
    """Serve an application on a socket until interrupted; requests under way have ``patience`` seconds to end."""
    import uvicorn

    from operant.http.limits import BACKLOG, Limits, limited_protocol

    class Server(uvicorn.Server):
        def handle_exit(self, sig: int, frame: Any) -> None:
            before_end()
            super().handle_exit(sig, frame)

    limits = Limits(app)
    config = uvicorn.Config(
        limits,
        log_level="warning",
        server_header=False,
        ws="none",
        backlog=BACKLOG,
        http=limited_protocol(limits),
        h11_max_incomplete_event_size=65536,
        timeout_graceful_shutdown=patience,
    )
    Server(config).run(sockets=[listener])
