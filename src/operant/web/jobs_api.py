"""The job behind a run, or without one: what became of it, each attempt, where it ran, and what it printed."""

from __future__ import annotations

import json
import os
import re
import stat
from collections.abc import Iterator
from pathlib import Path
from typing import Any, BinaryIO

from operant.errors import UsageError
from operant.schedulers.analysis.chart_data import job_row
from operant.schedulers.views.journal_text import attempts_of, status_in_words
from operant.status import Status
from operant.tracking.places import check_run_id
from operant.web.answers import ApiRequest, NotFound
from operant.web.app_state import AppState

__all__ = ["console", "describe_job", "find", "harmless", "job_behind", "output", "streams_of"]

CONSOLE_BYTES = 64 << 10
FIND_BYTES = 64 << 20
"""How much of an output is looked through for one request; the page asks on from there."""
_FIND_CHUNK = 1 << 20
_MOST_MATCHES = 200
_BEFORE, _AFTER = 80, 240
_LONGEST_TEXT = 200
_SMALL_FILE = 64 << 10
STREAMS = ("stdout", "stderr")
# Colours and cursor movements (CSI), titles (OSC), and single escapes; then every control but tab and new line, and
# what turns the direction of writing, which can make a line look like another.
_ESCAPES = re.compile(r"\x1b\[[0-?]*[ -/]*[@-~]|\x1b\][^\x07\x1b]*(?:\x07|\x1b\\)?|\x1b[@-Z\\-_]")
_CONTROLS = re.compile(r"[\x00-\x08\x0b\x0c\x0e-\x1f\x7f-\x9f\u200e\u200f\u202a-\u202e\u2066-\u2069]")


def job_behind(app: AppState, run_id: str) -> tuple[Path, str, str]:
    """The folder of a job (which may not be there), its search and its own id; NotFound when the id is no job's."""
    name, _, job_id = check_run_id(run_id).rpartition("/")
    if name:
        search, lock = app.searches.open(name)
        with lock:
            known = job_id in search.state.jobs
        folder = search.folder / "jobs" / job_id
        if (known or folder.is_dir()) and not folder.is_symlink() and not folder.parent.is_symlink():
            return folder, name, job_id
    raise NotFound(f"there is no run {run_id!r}")


def describe_job(app: AppState, run_id: str) -> dict[str, Any]:
    """What its search knows of a job."""
    folder, name, job_id = job_behind(app, run_id)
    search, lock = app.searches.open(name)
    with lock:
        job = search.state.jobs.get(job_id)
        if job is None:
            raise NotFound(f"the journal of {name!r} does not tell of a job {job_id!r}")
        status, reason = search.status_of(job)
        key = ("attempts", name, search.journal_end, job_id)
        attempts = app.remembered(key, lambda: attempts_of(search.folder, job_id)) or [
            {"attempt": job.attempt, "started": job.started, "ended": job.ended, "reward": job.reward}
        ]
        opened, config = search.state.opened, search.state.opened.get("config")
        task = config.get("task") if isinstance(config, dict) else None
        found = {
            "id": job.id,
            "number": job.number,
            "seed": job.seed,
            "status": status,
            "words": status_in_words(status, reason, job.code),
            "error": job.error,
            "reward": job.reward,
            "reward_attribute": opened.get("reward"),
            "started": job.started,
            "ended": job.ended,
            "code": job.snapshot,
            "settings": job.arg_dict,
            "command": task.get("template") if isinstance(task, dict) else None,
            "where": job_row(search, job).get("where"),
            "folder": str(folder) if folder.is_dir() else None,
        }
    last = attempts[-1]
    return found | {"attempts": [_attempt(folder, one, status if one is last else None, reason) for one in attempts]}


def _attempt(folder: Path, told: dict[str, Any], status: str | None, reason: str | None) -> dict[str, Any]:
    """One attempt by the journal, with what its wrapper wrote down beside it."""
    number = told["attempt"]
    claim, end = _small_json(folder / f"claim-{number}"), _small_json(folder / f"exit-{number}.json")
    if status is not None:  # what was under way died with its controller
        told = told | {"status": status, "reason": told.get("reason") or reason}
    status = str(told.get("status", Status.PENDING))
    return {
        **told,
        "status": status,
        "words": status_in_words(status, told.get("reason"), told.get("code")),
        "host": claim.get("host"),
        "pid": claim.get("pid"),
        **{key: end.get(key) for key in ("signal", "cpu_seconds", "peak_bytes", "stdout", "stderr")},
    }


def _small_json(path: Path) -> dict[str, Any]:
    """A file that the job's wrapper wrote, or its program changed: nothing unless it is a small JSON object."""
    opened = _plain_file(path)
    if opened is None:
        return {}
    with opened:
        try:
            found = json.loads(opened.read(_SMALL_FILE))
        except (ValueError, RecursionError, OSError):
            return {}
    return found if isinstance(found, dict) else {}


def _plain_file(path: Path) -> BinaryIO | None:
    """A file opened for reading; None for links, pipes and whatever else a program may have put in its place."""
    try:
        descriptor = os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC)
    except OSError:
        return None
    if not stat.S_ISREG(os.fstat(descriptor).st_mode):
        os.close(descriptor)
        return None
    return os.fdopen(descriptor, "rb")


# -- what it printed -----------------------------------------------------------------------------------------------


def streams_of(folder: Path) -> list[str]:
    """Which of its outputs are there."""
    return [name for name in STREAMS if (folder / name).is_file() and not (folder / name).is_symlink()]


def _opened(app: AppState, request: ApiRequest) -> tuple[BinaryIO, int, str]:
    """The output that a request names, how long it is now, and a name to save it under."""
    run_id, stream = request.text("id"), request.query.get("stream", "stdout")
    if stream not in STREAMS:
        raise UsageError(f"'stream' is one of {', '.join(STREAMS)}")
    try:
        folder, search, job_id = job_behind(app, run_id)
        file = _plain_file(folder / STREAMS[STREAMS.index(stream)])
    except NotFound:
        file = None
    if file is None:
        raise NotFound(f"run {run_id!r} has no {stream} here")
    return file, os.fstat(file.fileno()).st_size, f"{search}-{job_id}-{stream}.txt"


def console(app: AppState, request: ApiRequest) -> Any:
    """A piece of what a job printed: the last, or the one before the byte ``end``."""
    file, size, _ = _opened(app, request)
    end = min(size, request.number("end", size, 0, 1 << 62))
    start = max(0, end - CONSOLE_BYTES)
    with file:
        file.seek(start)
        data = file.read(end - start)
    if start > 0:  # begin with a whole line where there is one
        cut = data.find(b"\n") + 1
        start, data = start + cut, data[cut:]
    return {"text": harmless(data.decode("utf-8", "replace")), "start": start, "end": end, "size": size}


def find(app: AppState, request: ApiRequest) -> Any:
    """Where a text stands in what a job printed, from the byte ``start`` on; letters of ASCII in either case.

    Some megabytes are held at most, however long the output or a line of it is. ``next`` is where to ask on, or null
    at the end.
    """
    wanted = request.text("text")[:_LONGEST_TEXT].encode().lower()
    file, size, _ = _opened(app, request)
    at = start = request.number("start", 0, 0, 1 << 62)
    matches: list[dict[str, Any]] = []
    with file:
        while at < size and at - start < FIND_BYTES and len(matches) < _MOST_MATCHES:
            file.seek(at)
            chunk = file.read(_FIND_CHUNK + len(wanted) - 1)
            place = chunk.lower().find(wanted)
            while place >= 0 and len(matches) < _MOST_MATCHES:
                matches.append({"at": at + place, **_excerpt(file, at + place, len(wanted))})
                line_end = chunk.find(b"\n", place)  # one match for each line, and for each so many bytes of a long one
                place = chunk.lower().find(wanted, min(line_end if line_end >= 0 else len(chunk), place + _AFTER))
            at = matches[-1]["at"] + _AFTER if len(matches) == _MOST_MATCHES else at + _FIND_CHUNK
    return {"matches": matches, "next": at if at < size else None, "size": size}


def _excerpt(file: BinaryIO, at: int, length: int) -> dict[str, str]:
    """The line around a match, or as much of it as a list has room for: before, the match itself, after."""
    before = min(_BEFORE, at)
    file.seek(at - before)
    data = file.read(before + length + _AFTER)
    ahead, match, behind = data[:before], data[before : before + length], data[before + length :]
    parts = ahead.rpartition(b"\n")[2], match, behind.partition(b"\n")[0]
    return dict(
        zip(("before", "match", "after"), (harmless(one.decode("utf-8", "replace")) for one in parts), strict=True)
    )


def output(app: AppState, request: ApiRequest) -> Any:
    """All that a job printed until now, as a file."""
    from starlette.responses import StreamingResponse

    file, size, name = _opened(app, request)
    shown = re.sub(r"[^A-Za-z0-9._-]", "_", name)
    headers = {"content-disposition": f'attachment; filename="{shown}"', "content-security-policy": "sandbox"}
    return StreamingResponse(_pieces(file, size), media_type="text/plain; charset=utf-8", headers=headers)


def _pieces(file: BinaryIO, size: int) -> Iterator[bytes]:
    with file:
        while size > 0 and (data := file.read(min(size, 1 << 18))):
            size -= len(data)
            yield data


def harmless(text: str) -> str:
    """Text as a page may show it: without escape codes; of a progress bar what was written last."""
    text = _ESCAPES.sub("", text).replace("\r\n", "\n")
    lines = [line.rstrip("\r").rpartition("\r")[2] for line in text.split("\n")]
    return _CONTROLS.sub("", "\n".join(lines))
