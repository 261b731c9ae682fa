"""``operant ui``: the page over one ``.operant`` folder."""

from __future__ import annotations

import os
import secrets
import socket
import tempfile
from collections.abc import AsyncIterator, Callable, Iterable
from contextlib import asynccontextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

from operant.errors import MissingExtraError
from operant.http.security import Gatekeeper, is_loopback
from operant.http.server import listen, run_server
from operant.tracking.recording.scraping import leave_target
from operant.web.address import leave_address

if TYPE_CHECKING:
    from starlette.applications import Starlette


def application(root: Path, token: str | None, host_names: Iterable[str]) -> tuple[Starlette, Gatekeeper]:
    """The application over ``root``, and the same behind its gatekeeper."""
    try:
        from starlette.applications import Starlette
    except ImportError:
        raise MissingExtraError("`operant ui`", "web") from None
    from operant.web.answers import answer
    from operant.web.app_state import AppState
    from operant.web.pages import is_page
    from operant.web.routes import api_routes
    from operant.web.streams import Hub

    state = AppState(root)
    hub = Hub(state)

    @asynccontextmanager
    async def life(_: Any) -> AsyncIterator[None]:
        state.start()
        yield
        state.close()

    async def no_such_page(request: Any, error: Any) -> Any:
        told = (
            "there is nothing at this address" if error.status_code == 404 else "this address does not take that method"
        )
        return answer({"error": told}, error.status_code)

    handlers: dict[Any, Any] = {404: no_such_page, 405: no_such_page}
    app = Starlette(routes=api_routes(state, hub), lifespan=life, exception_handlers=handlers)
    app.router.redirect_slashes = False
    app.state.hub = hub
    return app, Gatekeeper(app, token, host_names, is_page)


def run_ui(
    root: Path,
    host: str,
    port: int,
    ready: Callable[[str, str | None], None],
    names: Iterable[str] = (),
    *,
    open_page: bool = False,
) -> None:
    """Serve until interrupted; ``ready`` gets the address and the token once connections are taken.

    Only this machine can reach loopback, and then no token is needed; elsewhere one is made, for this start only.
    """
    import webbrowser

    token = None if is_loopback(host) else secrets.token_urlsafe(32)
    inner, app = application(root, token, {host, socket.gethostname(), *names})
    listener, address = listen(host, port)
    left = [leave_address(root, address)]
    if token is None:  # Prometheus finds it there (`operant monitor`)
        left.append(leave_target(root, address.removeprefix("http://"), "page"))

    def tidy() -> None:
        for file in left:
            if file is not None:
                file.unlink(missing_ok=True)

    def before_end() -> None:  # of SIGTERM, which nothing behind the server outlives
        inner.state.hub.close()  # open pages must not hold up the end
        tidy()

    try:
        ready(address, token)
        target = address
        if open_page and token is not None:
            login = _login_page(address, app.make_login())
            left.append(login)
            target = login.as_uri()
        if open_page:
            webbrowser.open(target)
        run_server(app, listener, patience=1, before_end=before_end)
    finally:
        listener.close()
        tidy()


def _login_page(address: str, word: str) -> Path:
    """A page that only its owner can read and that leads to ours, once.

    Whoever lists processes sees the command line of a browser, and on it only where this file is.
    """
    descriptor, path = tempfile.mkstemp(prefix="operant-login-", suffix=".html")  # readable by its owner alone
    with os.fdopen(descriptor, "w", encoding="utf-8") as file:
        file.write(f'<!doctype html><meta http-equiv="refresh" content="0;url={address}/?token={word}">')
    return Path(path)
