"""The page's own files: read once at the start into a fixed table, so that no path of a client's is ever opened."""

from __future__ import annotations

import hashlib
from importlib import resources
from importlib.resources.abc import Traversable
from typing import Any

from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

PAGES = ("/", "/searches", "/searches/{name}", "/runs", "/run", "/compare", "/compare/{id}")
_TYPES = {
    "html": "text/html; charset=utf-8",
    "js": "text/javascript; charset=utf-8",
    "css": "text/css; charset=utf-8",
    "svg": "image/svg+xml",
    "png": "image/png",
    "ico": "image/x-icon",
    "json": "application/json",
    "woff2": "font/woff2",
}


def is_page(path: str) -> bool:
    """Whether a link from elsewhere may lead here."""
    parts = path.strip("/").split("/")
    return parts in ([""], ["searches"], ["runs"], ["run"], ["compare"]) or (
        len(parts) == 2 and parts[0] in ("searches", "compare")
    )


def page_routes() -> list[Route]:
    files = _read(resources.files("operant.web") / "static")
    index = files.get("index.html")
    routes = [Route(f"/static/{name}", _serve(name, data), methods=["GET"]) for name, data in files.items()]
    if index is not None:
        routes += [Route(path, _serve("index.html", index), methods=["GET"]) for path in PAGES]
    return routes


def _read(folder: Traversable, prefix: str = "") -> dict[str, bytes]:
    found = {}
    for entry in folder.iterdir():
        if entry.is_dir():
            found.update(_read(entry, f"{prefix}{entry.name}/"))
        elif entry.name.rpartition(".")[2] in _TYPES:
            found[prefix + entry.name] = entry.read_bytes()
    return found


def _serve(name: str, data: bytes) -> Any:
    kind = _TYPES[name.rpartition(".")[2]]
    mark = f'"{hashlib.sha256(data).hexdigest()[:24]}"'
    headers = {"etag": mark, "cache-control": "no-cache"}

    async def serve(request: Request) -> Response:
        if request.headers.get("if-none-match") == mark:
            return Response(status_code=304, headers=headers)
        return Response(data, media_type=kind, headers=headers)

    return serve
