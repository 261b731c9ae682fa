"""The receiving end over HTTP: routes that any Starlette application can take in."""

from __future__ import annotations

import errno
import logging
from collections.abc import Awaitable, Callable
from typing import Any

from starlette.concurrency import run_in_threadpool
from starlette.requests import ClientDisconnect, Request
from starlette.responses import JSONResponse
from starlette.routing import Route

from operant.errors import OperantError, UsageError
from operant.tracking.format.blocks import MAX_PAYLOAD
from operant.tracking.journal.inbox import MAX_BYTES
from operant.tracking.places import check_run_id, run_dir
from operant.tracking.reading.summary import summarize
from operant.tracking.remote.messages import store_message
from operant.tracking.remote.receive import OffsetError, Receiver

__all__ = ["ingest_routes"]

log = logging.getLogger("operant.web")

MAX_SEGMENT_BODY = MAX_PAYLOAD + (8 << 20)
MAX_MESSAGE_BODY = MAX_BYTES
MAX_BLOB = 4 << 30

Handler = Callable[[Request], Awaitable[JSONResponse]]


def ingest_routes(receiver: Receiver) -> list[Route]:
    async def state(request: Request) -> JSONResponse:
        return JSONResponse(await run_in_threadpool(_state, receiver, _asked(request, "run")))

    async def segment(request: Request) -> JSONResponse:
        offset = _asked(request, "offset")
        if not offset.isascii() or not offset.isdigit():
            raise UsageError(f"offset must be a number, got {offset!r}")
        data = await _body(request, MAX_SEGMENT_BODY)
        length = await run_in_threadpool(
            receiver.append, _asked(request, "run"), _asked(request, "name"), int(offset), data
        )
        return JSONResponse({"length": length})

    async def blob(request: Request) -> JSONResponse:
        upload = receiver.blob(check_run_id(_asked(request, "run")), _asked(request, "name"))
        try:
            async for piece in request.stream():
                if upload.size + len(piece) > MAX_BLOB:
                    raise UsageError(f"a file of a run is at most {MAX_BLOB >> 30} GiB")
                await run_in_threadpool(upload.add, piece)
            await run_in_threadpool(upload.finish)
        finally:
            upload.close()
        return JSONResponse({"size": upload.size})

    async def message(request: Request) -> JSONResponse:
        folder = run_dir(receiver.root, _asked(request, "run"))
        data = await _body(request, MAX_MESSAGE_BODY)
        await run_in_threadpool(store_message, folder, _asked(request, "name"), data)
        return JSONResponse({"stored": True})

    return [
        Route("/api/ingest/state", _answered(state), methods=["GET"]),
        Route("/api/ingest/segment", _answered(segment), methods=["PUT"]),
        Route("/api/ingest/blob", _answered(blob), methods=["PUT"]),
        Route("/api/ingest/message", _answered(message), methods=["PUT"]),
    ]


def _state(receiver: Receiver, run_id: str) -> dict[str, Any]:
    summary = summarize(run_dir(receiver.root, run_id), run_id)
    return {**receiver.state(run_id), "name": summary.name, "attempt": summary.attempt}


def _answered(handler: Handler) -> Handler:
    """Turn what can go wrong into an answer that tells the sender whether to try again."""

    async def call(request: Request) -> JSONResponse:
        try:
            return await handler(request)
        except OffsetError as error:
            return JSONResponse({"error": str(error), "length": error.length}, 409)
        except UsageError as error:
            return JSONResponse({"error": str(error)}, 400)
        except OperantError as error:
            return JSONResponse({"error": str(error)}, 422)
        except ClientDisconnect:
            return JSONResponse({"error": "the connection ended early"}, 400)
        except OSError as error:
            log.error("a request could not be stored: %s", error)
            return JSONResponse({"error": error.strerror}, 507 if error.errno == errno.ENOSPC else 500)

    return call


def _asked(request: Request, name: str) -> str:
    value = request.query_params.get(name)
    if value is None:
        raise UsageError(f"the query lacks {name!r}")
    return value


async def _body(request: Request, most: int) -> bytes:
    pieces, size = [], 0
    async for piece in request.stream():
        size += len(piece)
        if size > most:
            raise UsageError(f"a request of this kind holds at most {most} bytes")
        pieces.append(piece)
    return b"".join(pieces)
