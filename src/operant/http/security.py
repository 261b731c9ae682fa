"""Who may ask: one gate in front of every route, of `operant serve` and of `operant ui`."""

from __future__ import annotations

import hashlib
import hmac
import html
import ipaddress
import json
import os
import secrets
from collections.abc import Awaitable, Callable, Iterable, MutableMapping
from pathlib import Path
from typing import Any
from urllib.parse import parse_qsl, urlencode

from operant.errors import UsageError

__all__ = ["PAGE_POLICY", "Gatekeeper", "is_loopback", "load_token"]

Scope = MutableMapping[str, Any]
Receive = Callable[[], Awaitable[MutableMapping[str, Any]]]
Send = Callable[[MutableMapping[str, Any]], Awaitable[None]]
Application = Callable[[Scope, Receive, Send], Awaitable[None]]

OPEN_PATHS = frozenset({"/health", "/healthz"})
"""What a load balancer asks; it tells nothing."""

PAGE_POLICY = (
    "default-src 'self'; img-src 'self' blob: data:; media-src 'self' blob:; object-src 'none'; base-uri 'none'; "
    "form-action 'none'; frame-ancestors 'none'"
)
_HEADERS = {
    b"content-security-policy": PAGE_POLICY.encode(),
    b"x-content-type-options": b"nosniff",
    b"x-frame-options": b"DENY",
    b"referrer-policy": b"no-referrer",
    b"cross-origin-opener-policy": b"same-origin",
    b"cross-origin-resource-policy": b"same-origin",
    b"cache-control": b"no-store",
}
COOKIE_SECONDS = 30 * 24 * 3600


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


def is_loopback(host: str) -> bool:
    """Whether only this machine can reach a server that listens on ``host``."""
    try:
        return ipaddress.ip_address(host.strip("[]")).is_loopback
    except ValueError:
        return host.lower() == "localhost"


class Gatekeeper:
    """Wraps the whole application, so that no mount and no method can be forgotten.

    A request must address this server by a name it was started with or by an IP address: a page elsewhere that
    points its own host name here (DNS rebinding) is turned away. What a browser says of where a request comes
    from (``Origin``, ``Sec-Fetch-Site``) must be this server; only following a link to a page may come from
    elsewhere. With a ``token``, the request needs it as ``Authorization: Bearer …``, or the cookie that
    ``?token=…`` was exchanged for; without one, anybody who reaches the server may ask.
    """

    def __init__(
        self,
        application: Application,
        token: str | None,
        host_names: Iterable[str],
        pages: Callable[[str], bool] = lambda path: False,
    ) -> None:
        self._application = application
        self._token = None if token is None else token.encode()
        self._host_names = {name.lower().strip("[]") for name in host_names} | {"localhost"}
        self._pages = pages
        self._login: bytes | None = None
        # Another server on this host has another cookie: browsers do not tell ports apart.
        digest = hashlib.sha256(self._token or b"").hexdigest()
        self._cookie_name = f"operant-{digest[:12]}"
        self._cookie = hmac.new(self._token or b"", b"operant cookie", "sha256").hexdigest().encode()

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] == "lifespan":
            await self._application(scope, receive, send)
            return
        send = _with_headers(send)
        headers = {name.lower(): value for name, value in scope.get("headers", [])}
        path, method = str(scope.get("path")), scope.get("method", "GET")
        host = headers.get(b"host", b"").decode("latin-1")
        follows_link = method in ("GET", "HEAD") and self._pages(path)
        if not self._addressed_here(host):
            await _refuse(scope, send, 403, "this server does not go by that name")
        elif not _comes_from_here(headers, host, follows_link):
            await _refuse(scope, send, 403, "this request comes from another site")
        elif self._token is None or path in OPEN_PATHS or self._may_enter(headers):
            await self._application(scope, receive, send)
        elif follows_link and self._given_in_query(scope):
            await self._give_cookie(scope, send, headers)
        else:
            await _refuse(scope, send, 401, "a token is needed: open the address that the server printed at its start")

    def _may_enter(self, headers: dict[bytes, bytes]) -> bool:
        kind, _, given = headers.get(b"authorization", b"").partition(b" ")
        if kind.lower() == b"bearer" and secrets.compare_digest(given.strip(), self._token or b""):
            return True
        for part in headers.get(b"cookie", b"").split(b";"):
            name, _, value = part.strip().partition(b"=")
            if name == self._cookie_name.encode() and secrets.compare_digest(value, self._cookie):
                return True
        return False

    def make_login(self) -> str:
        """A word that stands for the token once."""
        self._login = secrets.token_urlsafe(32).encode()
        return self._login.decode()

    def _given_in_query(self, scope: Scope) -> bool:
        given = dict(parse_qsl(scope.get("query_string", b"").decode("latin-1"))).get("token", "")
        offered = given.encode("utf-8", "replace")
        if self._login is not None and secrets.compare_digest(offered, self._login):
            self._login = None
            return True
        return secrets.compare_digest(offered, self._token or b"")

    async def _give_cookie(self, scope: Scope, send: Send, headers: dict[bytes, bytes]) -> None:
        """Exchange the token for a cookie and take it out of the address, which people copy and browsers remember."""
        rest = [pair for pair in parse_qsl(scope["query_string"].decode("latin-1")) if pair[0] != "token"]
        path = "/" + str(scope["path"]).lstrip("/")  # `//elsewhere` would lead to another host
        target = path + (f"?{urlencode(rest)}" if rest else "")
        secure = "; Secure" if scope.get("scheme") == "https" else ""
        cookie = (
            f"{self._cookie_name}={self._cookie.decode()}; Path=/; Max-Age={COOKIE_SECONDS}; "
            f"HttpOnly; SameSite=Strict{secure}"
        )
        answer, body, status = [(b"set-cookie", cookie.encode())], b"", 303
        if headers.get(b"sec-fetch-site") in (None, b"same-origin", b"none"):
            answer.append((b"location", _header_safe(target)))
        else:  # the cookie is not sent with what a page elsewhere leads to, but with what a page of ours does
            place = html.escape(_header_safe(target).decode()).encode()
            body, status = b'<!doctype html><meta http-equiv="refresh" content="0;url=%b">' % place, 200
            answer.append((b"content-type", b"text/html; charset=utf-8"))
        answer.append((b"content-length", str(len(body)).encode()))
        await send({"type": "http.response.start", "status": status, "headers": answer})
        await send({"type": "http.response.body", "body": body})

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


def _comes_from_here(headers: dict[bytes, bytes], host: str, follows_link: bool) -> bool:
    """What browsers say of a request's source; programs that are no browsers say nothing."""
    origin = headers.get(b"origin")
    if origin is not None:
        scheme, _, rest = origin.decode("latin-1").partition("://")
        if scheme not in ("http", "https") or rest.lower() != host.lower():
            return False
    site = headers.get(b"sec-fetch-site")
    if site in (None, b"same-origin", b"none"):
        return True
    return follows_link and headers.get(b"sec-fetch-mode") == b"navigate" and origin is None


def _header_safe(target: str) -> bytes:
    from urllib.parse import quote

    return quote(target, safe="/?&=%+:,;@!$'()*~-._").encode("ascii")


def _with_headers(send: Send) -> Send:
    async def sent(message: MutableMapping[str, Any]) -> None:
        if message["type"] == "http.response.start":
            given = list(message.get("headers", []))
            names = {name.lower() for name, _ in given}
            given += [(name, value) for name, value in _HEADERS.items() if name not in names]
            message = {**message, "headers": given}
        await send(message)

    return sent


async def _refuse(scope: Scope, send: Send, status: int, why: str) -> None:
    if scope["type"] == "websocket":
        await send({"type": "websocket.close", "code": 4000 + status % 1000})
        return
    body = json.dumps({"error": why}).encode()
    headers = [(b"content-type", b"application/json"), (b"content-length", str(len(body)).encode())]
    await send({"type": "http.response.start", "status": status, "headers": headers})
    await send({"type": "http.response.body", "body": body})
