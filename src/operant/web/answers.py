"""From a request to a plain function and back: query, body and errors are handled here, once for every route."""

from __future__ import annotations

import json
import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from starlette.concurrency import run_in_threadpool
from starlette.requests import ClientDisconnect, Request
from starlette.responses import Response

from operant.errors import OperantError, UsageError
from operant.tracking.format.blocks import valid_text
from operant.tracking.reading.filters import FilterError

if TYPE_CHECKING:
    from operant.web.app_state import AppState

MAX_BODY = 1 << 20


class NotFound(UsageError):
    """There is no such thing: 404."""


class Conflict(UsageError):
    """It cannot be done as things stand: 409."""


class TooLarge(UsageError):
    """More was sent or asked for than a request may: 413."""


_STATUS = {NotFound: 404, Conflict: 409, TooLarge: 413}


@dataclass
class ApiRequest:
    """What a request asks for."""

    path: Mapping[str, str] = field(default_factory=dict)
    query: Mapping[str, str] = field(default_factory=dict)
    body: Mapping[str, Any] = field(default_factory=dict)

    def text(self, name: str) -> str:
        """A value of the query that must be there."""
        value = self.query.get(name)
        if not value:
            raise UsageError(f"the query lacks {name!r}")
        return value

    def number(self, name: str, default: int, low: int, high: int) -> int:
        value = self.query.get(name)
        if value is None or value == "":
            return default
        if not (value.isascii() and value.isdigit() and len(value) < 20 and low <= int(value) <= high):
            raise UsageError(f"{name!r} is a whole number from {low} to {high}, not {value[:40]!r}")
        return int(value)

    def words(self, name: str) -> list[str]:
        """A list with commas between its parts."""
        return [part for part in self.query.get(name, "").split(",") if part]

    def given(self, name: str, kind: type, default: Any = None) -> Any:
        """A value of the body; without a default it must be there."""
        value = self.body.get(name)
        if value is None and default is not None:
            return default
        if not isinstance(value, kind) or isinstance(value, bool) is not (kind is bool):
            wanted = {str: "a text", list: "a list", int: "a whole number", dict: "an object"}[kind]
            raise UsageError(f"{name!r} must be {wanted}")
        return value

    def texts(self, name: str, most: int, longest: int = 400) -> list[str]:
        """A list of texts in the body; empty if it is not given."""
        found: list[str] = self.given(name, list, [])
        if len(found) > most:
            raise TooLarge(f"{name!r} may have at most {most} entries, not {len(found)}")
        for one in found:
            if not isinstance(one, str) or not one or len(one) > longest:
                raise UsageError(f"each entry of {name!r} is a text of 1 to {longest} characters")
        return found


Function = Callable[["AppState", ApiRequest], Any]


def endpoint(app: AppState, function: Function) -> Callable[[Request], Any]:
    """A route's handler: reads the body, runs the function in a thread, and turns what it gives into an answer."""

    async def handle(request: Request) -> Response:
        try:
            body = await _body(request) if request.method == "POST" else {}
        except ClientDisconnect:
            return answer({"error": "the connection ended early"}, 400)
        except UsageError as error:
            return answer({"error": str(error)}, _status(error))
        asked = ApiRequest(request.path_params, dict(request.query_params), body)
        return await run_in_threadpool(_run, function, app, asked)

    return handle


def _run(function: Function, app: AppState, asked: ApiRequest) -> Response:
    try:
        found = function(app, asked)
    except FilterError as error:
        return answer({"error": str(error), "position": error.position}, 400)
    except UsageError as error:
        return answer({"error": str(error)}, _status(error))
    except OperantError as error:
        return answer({"error": str(error)}, 422)
    return found if isinstance(found, Response) else answer(found)


def _status(error: UsageError) -> int:
    return next((status for kind, status in _STATUS.items() if isinstance(error, kind)), 400)


async def _body(request: Request) -> dict[str, Any]:
    said = request.headers.get("content-length", "0")
    if said.isdigit() and int(said) > MAX_BODY:
        raise TooLarge(f"a request may have at most {MAX_BODY} bytes")
    pieces, size = [], 0
    async for piece in request.stream():
        size += len(piece)
        if size > MAX_BODY:
            raise TooLarge(f"a request may have at most {MAX_BODY} bytes")
        pieces.append(piece)
    data = b"".join(pieces)
    if not data:
        return {}
    # A form of another site can send other types without asking first.
    if request.headers.get("content-type", "").partition(";")[0].strip().lower() != "application/json":
        raise UsageError("the body must be JSON, with the content type application/json")
    try:
        found = json.loads(valid_text(data.decode()))
    except (ValueError, RecursionError):
        raise UsageError("the body is no JSON") from None
    if not isinstance(found, dict):
        raise UsageError("the body must be a JSON object")
    return found


def answer(content: Any, status: int = 200) -> Response:
    return Response(as_json(content), status, media_type="application/json")


def as_json(content: Any) -> bytes:
    """JSON without NaN and infinities, which no browser reads: they become null."""
    try:
        return _encode(content).encode()
    except ValueError:
        return _encode(_finite(content)).encode()


_encode = json.JSONEncoder(allow_nan=False, separators=(",", ":"), default=str).encode


def _finite(value: Any) -> Any:
    if isinstance(value, float):
        return value if math.isfinite(value) else None
    if isinstance(value, dict):
        return {str(key): _finite(one) for key, one in value.items()}
    if isinstance(value, (list, tuple)):
        return [_finite(one) for one in value]
    return value
