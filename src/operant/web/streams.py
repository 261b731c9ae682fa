"""What happens now, as server-sent events: one stream for each open page, one tailer for all of them.

While anybody listens, one task looks at everything that is listened to, in a thread, and wakes the streams that
something is new for. A stream keeps no queue: it remembers how far it has read and collects what came since, so a
slow reader costs nothing and misses nothing.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator, Iterable
from functools import partial
from itertools import pairwise
from typing import Any

import numpy as np
from starlette.concurrency import run_in_threadpool
from starlette.requests import Request
from starlette.responses import Response, StreamingResponse

from operant.errors import UsageError
from operant.schedulers.analysis.axes import axes_of
from operant.status import Status
from operant.tracking.reading.run import Points, concatenate
from operant.web.answers import NotFound, TooLarge, answer, as_json
from operant.web.app_state import LOOK_SECONDS, AppState, Cursor
from operant.web.cache import OpenRun
from operant.web.charts import AXES
from operant.web.searches_api import changed_jobs, summaries

LOOK_EVERY = 0.5
IDLE_LOOK_EVERY = 5.0
"""How often a run is looked at that has ended: somebody may resume it."""
HEARTBEAT = 10.0
MOST_STREAMS = 256
MOST_RUNS = 500
MOST_TAGS = 200
POINTS_A_LOOK = 100

_ENDED = (Status.FINISHED, Status.STOPPED, Status.ERROR, Status.KILLED)


class Stream:
    """One page that listens: what it wants, and how far it has read."""

    def __init__(self, app: AppState, query: dict[str, str], last_id: str) -> None:
        self.app = app
        self.search = query.get("search") or None
        self.runs = list(dict.fromkeys(part for part in query.get("runs", "").split(",") if part))
        self.tags = list(dict.fromkeys(part for part in query.get("tags", "").split(",") if part))
        self.wants_list = query.get("list", "") not in ("", "0")
        self.axis = query.get("x") or "step"
        if self.axis not in AXES:
            raise UsageError(f"'x' is one of {', '.join(AXES)}")
        if len(self.runs) > MOST_RUNS or len(self.tags) > MOST_TAGS:
            raise TooLarge(f"a stream follows at most {MOST_RUNS} runs and {MOST_TAGS} tags")
        if not (self.search or self.runs or self.wants_list):
            raise UsageError("say what to follow: search=NAME, runs=A,B&tags=T,U or list=1")
        self.cursor = Cursor.parse(last_id or query.get("after", ""), app.instance)
        self.wake = asyncio.Event()
        self.opened: dict[str, OpenRun] = {}
        self._told: dict[str, tuple[str, int]] = {}
        """Status and attempt of each run, as they were last sent."""
        self._list_version = -1
        self._axes: list[dict[str, Any]] = []

    def open(self) -> None:
        """Open what is wanted; in a thread."""
        if self.search is not None:
            self.app.searches.open(self.search)
        for run_id in self.runs:
            try:
                self.opened[run_id] = self.app.runs.open(run_id, self.tags)
            except NotFound:
                continue  # a job that has not recorded anything yet has no run
            self._begin(self.opened[run_id])
        if self.cursor.runs is None:
            self.cursor.runs = self.app.runs.cursor

    def _begin(self, opened: OpenRun) -> None:
        opened.readers += 1
        with opened.lock:
            opened.refresh(self.tags)
            if not self.tags:
                opened.run.want_all()

    def close(self) -> None:
        for opened in self.opened.values():
            opened.readers -= 1

    def collect(self) -> list[bytes]:
        """Everything that is new for this stream, as events; in a thread."""
        found: list[bytes] = []
        if self.search is not None:
            found += self._search_events(self.search)
        found += self._run_events()
        if self.wants_list:
            found += self._list_events()
        return found

    def _search_events(self, name: str) -> list[bytes]:
        try:
            search, lock = self.app.searches.open(name)
        except NotFound:
            return []
        with lock:
            before = -1 if self.cursor.search is None else self.cursor.search
            if search.version == before:
                return []
            self.cursor.search = search.version
            content = {"summary": search.summary(), "jobs": changed_jobs(search, before)}
            axes = [axis.as_dict() for axis in axes_of(search.state)]
            if axes != self._axes:  # of a search whose space is only seen by what it tries, they grow
                self._axes = content["axes"] = axes
        return [self._event("search", content)]

    def _run_events(self) -> list[bytes]:
        # What is numbered up to here is on its run's list by the time that run's lock is ours.
        after, until = self.cursor.runs or 0, self.app.runs.cursor
        changed: list[tuple[str, dict[str, Any]]] = []
        for run_id in self.runs:
            opened = self.opened.get(run_id)
            if opened is None:
                opened = self._appeared(run_id)
                if opened is None:
                    continue
            with opened.lock:
                status, attempt = opened.run.status, opened.run.attempt
                fresh = [one for one in opened.since(after) if one.cursor <= until]
                lost = opened.born > after or opened.forgot > after
                origin = opened.run.summary.started or 0.0
                facts = {
                    "id": run_id,
                    "name": opened.run.name,
                    "status": status,
                    "ended": opened.run.summary.ended,
                    "attempt": attempt,
                }
            told = self._told.get(run_id)
            if told != (status, attempt):
                self._told[run_id] = (status, attempt)
                changed.append(("run", facts))
            if lost or (told is not None and told[1] != attempt):
                changed.append(("reset", {"run": run_id}))
            by_tag: dict[str, list[Points]] = {}
            for one in fresh:
                if not self.tags or one.tag in self.tags:
                    by_tag.setdefault(one.tag, []).append(one.points)
            for tag, pieces in by_tag.items():
                # Streams that are in step want the same: it is thinned once for all of them.
                key = ("points", run_id, tag, after, until, self.axis)
                x, values = self.app.remembered(key, partial(_thinned, pieces, self.axis, origin))
                changed.append(("points", {"run": run_id, "tag": tag, "x": x, "value": values}))
        self.cursor.runs = until
        return [self._event(kind, content) for kind, content in changed]

    def _appeared(self, run_id: str) -> OpenRun | None:
        try:
            opened = self.opened[run_id] = self.app.runs.open(run_id)
        except (NotFound, UsageError):
            return None
        self._begin(opened)
        return opened

    def _list_events(self) -> list[bytes]:
        version = self.app.list_version
        if version == self._list_version:
            return []
        self._list_version = version
        rows = self.app.table.rows()
        runs = {"total": len(rows), "running": sum(row.status == Status.RUNNING for row in rows)}
        return [self._event("list", {"searches": summaries(self.app), "runs": runs})]

    def _event(self, kind: str, content: Any) -> bytes:
        return b"id: %s\nevent: %s\ndata: %s\n\n" % (str(self.cursor).encode(), kind.encode(), as_json(content))


class Hub:
    """All streams of one server, and the task that looks for news while there are any."""

    def __init__(self, app: AppState) -> None:
        self.app = app
        self.closed = False
        self._streams: set[Stream] = set()
        self._task: asyncio.Task[None] | None = None
        self._idle_until: dict[str, float] = {}
        self._list_due = 0.0

    async def events(self, request: Request) -> Response:
        """`GET /api/events`."""
        if len(self._streams) >= MOST_STREAMS:
            return answer({"error": f"more than {MOST_STREAMS} pages are open; close some"}, 503)
        try:
            stream = Stream(self.app, dict(request.query_params), request.headers.get("last-event-id", ""))
            await run_in_threadpool(stream.open)
        except NotFound as error:
            return answer({"error": str(error)}, 404)
        except TooLarge as error:
            return answer({"error": str(error)}, 413)
        except UsageError as error:
            return answer({"error": str(error)}, 400)
        headers = {"cache-control": "no-store", "x-accel-buffering": "no"}
        return StreamingResponse(self._follow(stream), media_type="text/event-stream", headers=headers)

    def close(self) -> None:
        """End all streams, from any thread."""
        self.closed = True
        for stream in list(self._streams):
            stream.wake.set()

    async def _follow(self, stream: Stream) -> AsyncIterator[bytes]:
        self._streams.add(stream)
        if self._task is None or self._task.done():
            self._task = asyncio.get_running_loop().create_task(self._look_regularly())
        try:
            yield b"retry: 2000\n\n"
            while not self.closed:
                for event in await run_in_threadpool(stream.collect):
                    yield event
                try:
                    await asyncio.wait_for(stream.wake.wait(), HEARTBEAT)
                except TimeoutError:
                    yield b"event: ping\ndata: {}\n\n"
                stream.wake.clear()
        finally:
            self._streams.discard(stream)
            stream.close()

    async def _look_regularly(self) -> None:
        while self._streams and not self.closed:
            for stream in await run_in_threadpool(self.look):
                stream.wake.set()
            await asyncio.sleep(LOOK_EVERY)

    def look(self) -> list[Stream]:
        """Read what was appended to whatever is listened to; give the streams that may have news."""
        streams = list(self._streams)
        now = time.monotonic()
        changed: set[str] = set()
        for name in {stream.search for stream in streams if stream.search is not None}:
            try:
                search, _ = self.app.searches.open(name)
                changed.add(f"search {name} {search.version}")
            except NotFound:
                continue
        wanted: dict[str, set[str]] = {}
        for stream in streams:
            for run_id in stream.runs:
                wanted.setdefault(run_id, set()).update(stream.tags)
        for run_id, tags in wanted.items():
            if now < self._idle_until.get(run_id, 0.0):
                continue
            if self._look_at_run(run_id, tags):
                changed.add(run_id)
        for run_id in self._idle_until.keys() - wanted.keys():
            del self._idle_until[run_id]
        if any(stream.wants_list for stream in streams) and now >= self._list_due:
            if self._look_at_list():
                changed.add("list")
            self._list_due = time.monotonic() + max(1.0, 10 * (time.monotonic() - now))
        return [stream for stream in streams if self._has_news(stream, changed)]

    def _look_at_run(self, run_id: str, tags: Iterable[str]) -> bool:
        try:
            opened = self.app.runs.open(run_id)
        except UsageError:
            self._idle_until[run_id] = time.monotonic() + 2 * LOOK_EVERY
            return False
        with opened.lock:
            before = (opened.arrived, opened.status)
            opened.refresh(tags)
            opened.status = opened.run.status
            if opened.status in _ENDED:
                self._idle_until[run_id] = time.monotonic() + IDLE_LOOK_EVERY
            return (opened.arrived, opened.status) != before

    def _look_at_list(self) -> bool:
        changed = self.app.table.refresh(LOOK_SECONDS)
        versions = []
        for name in self.app.searches.names():
            try:
                versions.append((name, self.app.searches.open(name)[0].version))
            except NotFound:
                continue
        if versions != self.app.search_versions:
            self.app.search_versions = versions
            changed = True
        if changed:
            self.app.list_version += 1
        return changed

    def _has_news(self, stream: Stream, changed: set[str]) -> bool:
        if stream.search is not None:
            version = -1 if stream.cursor.search is None else stream.cursor.search
            at = f"search {stream.search} {version}"
            if at not in changed and any(one.startswith(f"search {stream.search} ") for one in changed):
                return True
        if stream.wants_list and "list" in changed:
            return True
        return any(run_id in changed for run_id in stream.runs)


def _thinned(pieces: list[Points], axis: str, origin: float) -> tuple[list[float], list[float]]:
    return thin(concatenate(pieces), axis, origin)


def thin(points: Points, axis: str, origin: float) -> tuple[list[float], list[float]]:
    """At most ``POINTS_A_LOOK`` points: of each stretch the least and the greatest, so that no spike is lost."""
    if len(points) > POINTS_A_LOOK:
        values = points["value"]
        edges = np.linspace(0, len(points), POINTS_A_LOOK // 2 + 1).astype(int)
        kept: set[int] = {len(points) - 1}
        for start, end in pairwise(edges.tolist()):
            part = values[start:end]
            if np.isfinite(part).any():
                kept |= {start + int(np.nanargmin(part)), start + int(np.nanargmax(part))}
        points = points[sorted(kept)[-POINTS_A_LOOK:]]
    x = (
        points["step"].tolist()
        if axis == "step"
        else (points["wall"] - (origin if axis == "relative" else 0.0)).tolist()
    )
    return x, points["value"].tolist()
