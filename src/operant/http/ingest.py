"""The receiving end over HTTP: routes that any Starlette application can take in."""

from __future__ import annotations

import asyncio
import errno
import logging
import tempfile
from collections.abc import AsyncIterator, Awaitable, Callable
from typing import IO, Any

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

log = logging.getLogger("operant.web")

_IN_MEMORY = 1 << 20
MAX_SEGMENT_BODY = MAX_PAYLOAD + (8 << 20)
MAX_MESSAGE_BODY = MAX_BYTES
MAX_BLOB = 4 << 30

Handler = Callable[[Request], Awaitable[JSONResponse]]


def ingest_routes(receiver: Receiver) -> list[Route]:
    whole = asyncio.Semaphore(2)

    async def state(request: Request) -> JSONResponse:
        return JSONResponse(await run_in_threadpool(_state, receiver, _asked(request, "run")))

    async def segment(request: Request) -> JSONResponse:
        offset = _asked(request, "offset")
        if not offset.isascii() or not offset.isdigit() or len(offset) > 18:
            raise UsageError(f"offset must be a number of bytes, got {offset[:40]!r}")
        run, name = _asked(request, "run"), _asked(request, "name")

        def store(body: IO[bytes]) -> int:
            body.seek(0)
            try:
                return receiver.append(run, name, int(offset), body.read())
            except OperantError as error:
                raise error.with_traceback(None) from None  # the frames that it came through hold the whole body

        # Half-sent segments wait on disk; only whole ones are taken into memory, a few at a time.
        with tempfile.SpooledTemporaryFile(_IN_MEMORY, dir=str(receiver.root)) as body:
            async for piece in _pieces(request, MAX_SEGMENT_BODY):
                await run_in_threadpool(body.write, piece)
            async with whole:
                length = await run_in_threadpool(store, body)
        return JSONResponse({"length": length})

    async def blob(request: Request) -> JSONResponse:
        name = _asked(request, "name")
        upload = receiver.blob(check_run_id(_asked(request, "run")), name)
        try:
            async for piece in request.stream():
                if upload.size + len(piece) > MAX_BLOB:
                    raise UsageError(f"a file of a run is at most {MAX_BLOB >> 30} GiB")
                await run_in_threadpool(upload.add, piece)
            await run_in_threadpool(upload.keep_as, name)
        finally:
            upload.close()
        return JSONResponse({"size": upload.size})

    async def message(request: Request) -> JSONResponse:
        folder = run_dir(receiver.root, _asked(request, "run"))
        data = b"".join([piece async for piece in _pieces(request, MAX_MESSAGE_BODY)])
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


async def _pieces(request: Request, most: int) -> AsyncIterator[bytes]:
    size = 0
    async for piece in request.stream():
        size += len(piece)
        if size > most:
            raise UsageError(f"a request of this kind holds at most {most} bytes")
        yield piece
