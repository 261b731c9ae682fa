"""Who may ask: a token for everything, and no other host's name. One gate in front of every route."""

from __future__ import annotations

import ipaddress
import os
import secrets
from collections.abc import Awaitable, Callable, MutableMapping
from pathlib import Path
from typing import Any

from operant.errors import UsageError

__all__ = ["Gatekeeper", "load_token"]

Scope = MutableMapping[str, Any]
Receive = Callable[[], Awaitable[MutableMapping[str, Any]]]
Send = Callable[[MutableMapping[str, Any]], Awaitable[None]]
Application = Callable[[Scope, Receive, Send], Awaitable[None]]

OPEN_PATHS = {"/health"}


def load_token(path: Path) -> str:
    """The token in ``path``; a new one, readable by its owner only, if there is none yet."""
    try:
        descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600)
    except FileExistsError:
        token = path.read_text(encoding="ascii").strip()
        if len(token) < 16:
            raise UsageError(
                f"the token in {path} is too short to be one: remove the file, and a new one is made"
            ) from None
        return token
    with os.fdopen(descriptor, "w", encoding="ascii") as stream:
        token = secrets.token_urlsafe(32)
        stream.write(token + "\n")
    return token


class Gatekeeper:
    """Wraps the whole application, so that no mount can be forgotten.

    A request needs the token as ``Authorization: Bearer …``, and must address this server by a name it
    was started with or by an IP address: a page elsewhere that points its own host name here
    (DNS rebinding) is turned away.
    """

    def __init__(self, application: Application, token: str, host_names: set[str]) -> None:
        self._application = application
        self._token = token.encode()
        self._host_names = {name.lower() for name in host_names} | {"localhost"}

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] == "lifespan":
            await self._application(scope, receive, send)
            return
        headers = {name.lower(): value for name, value in scope.get("headers", [])}
        if not self._addressed_here(headers.get(b"host", b"").decode("latin-1")):
            await _refuse(scope, send, 403, "this server does not go by that name")
        elif scope.get("path") not in OPEN_PATHS and not self._has_token(headers.get(b"authorization", b"")):
            await _refuse(scope, send, 401, "a token is needed: Authorization: Bearer …")
        else:
            await self._application(scope, receive, send)

    def _has_token(self, authorization: bytes) -> bool:
        kind, _, given = authorization.partition(b" ")
        return kind.lower() == b"bearer" and secrets.compare_digest(given.strip(), self._token)

    def _addressed_here(self, host: str) -> bool:
        name = host.rsplit(":", 1)[0] if host.rpartition(":")[2].isdigit() and not host.endswith("]") else host
        name = name.strip("[]").lower()
        if name in self._host_names:
            return True
        try:
            ipaddress.ip_address(name)
        except ValueError:
            return False
        return True


async def _refuse(scope: Scope, send: Send, status: int, why: str) -> None:
    if scope["type"] == "websocket":
        await send({"type": "websocket.close", "code": 4000 + status % 1000})
        return
    body = f'{{"error": "{why}"}}'.encode()
    headers = [(b"content-type", b"application/json"), (b"content-length", str(len(body)).encode())]
    await send({"type": "http.response.start", "status": status, "headers": headers})
    await send({"type": "http.response.body", "body": body})
