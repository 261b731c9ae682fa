"""Runs: the list with its filter, one run, and notes and tags."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from operant.errors import UsageError
from operant.schedulers.views.overview import list_searches
from operant.status import Status
from operant.tracking import Run
from operant.tracking.format.blobs import BLOB_NAME
from operant.tracking.journal import post_message
from operant.tracking.reading.filters import filter_runs, mentions, sort_runs
from operant.tracking.reading.index import RunRow
from operant.tracking.reading.metrics import STEPS_PER_SECOND
from operant.tracking.reading.summary import LONGEST_TAG, MOST_TAGS, check_annotation
from operant.web.answers import ApiRequest, NotFound
from operant.web.app_state import LOOK_SECONDS, AppState
from operant.web.cache import run_folder
from operant.web.jobs_api import describe_job, job_behind, streams_of

MOST_ROWS = 20_000
MOST_ASKED = 5000


def overview(app: AppState, request: ApiRequest) -> Any:
    import time

    from operant._version import __version__

    app.table.refresh(LOOK_SECONDS)
    rows = app.table.rows()
    return {
        "project": app.project,
        "host": app.host,
        "version": __version__,
        "root_name": app.root.name,
        "now": time.time(),
        "searches": sum(1 for _ in list_searches(app.root)),
        "runs": len(rows),
        "running": sum(row.status == Status.RUNNING for row in rows),
    }


def every(app: AppState, request: ApiRequest) -> Any:
    app.table.refresh(LOOK_SECONDS)
    rows = app.table.rows()
    limit, offset = request.number("limit", 200, 0, MOST_ROWS), request.number("offset", 0, 0, 10**9)
    tags = sorted({tag for row in rows for tag in row.last})
    with_params = [(row, params_of(app, row.id, row.params)) for row in rows]
    names = sorted({name for _, params in with_params for name in params})
    chosen = filter_runs(with_params, request.query.get("filter", ""), {*tags, *names})
    words = request.query.get("search", "").lower().split()
    if words:
        chosen = [one for one in chosen if mentions(one[0], words)]
    chosen = sort_runs(chosen, request.query.get("sort", ""))
    shown = [row_as_dict(row, params) for row, params in chosen[offset : offset + limit]]
    return {
        "total": len(rows),
        "matched": len(chosen),
        "unread": app.table.unread,
        "rows": shown,
        "tags": tags,
        "params": names,
    }


def row_as_dict(row: RunRow, params: Mapping[str, Any]) -> dict[str, Any]:
    return {
        "id": row.id,
        "name": row.name,
        "status": row.status,
        "started": row.started,
        "ended": row.ended,
        "tags": row.tags,
        "note": row.note,
        "params": params,
        "last": row.last,
    }


def rows_of(app: AppState, request: ApiRequest) -> Any:
    """The rows of certain runs: by id, by name, or by the start of an id that only one has; in the order asked for."""
    asked = request.texts("ids", MOST_ASKED)
    app.table.refresh(LOOK_SECONDS)
    rows = {row.id: row for row in app.table.rows()}
    unread = {run_id for run_id, row in rows.items() if row.status == "UNREAD"}
    if unread & set(asked):
        app.table.refresh()
        rows = {row.id: row for row in app.table.rows()}
    named: dict[str, list[str]] = {}
    for row in rows.values():
        named.setdefault(row.name, []).append(row.id)
    found: dict[str, None] = {}
    missing = []
    for one in asked:
        ids = [one] if one in rows else named.get(one) or [run_id for run_id in rows if run_id.startswith(one)]
        if one not in rows and one not in named and len(ids) != 1:
            missing.append(one)
            continue
        found.update(dict.fromkeys(ids))
    shown = [row_as_dict(rows[run_id], params_of(app, run_id, rows[run_id].params)) for run_id in found]
    return {"rows": shown, "missing": missing}


def params_of(app: AppState, run_id: str, recorded: Mapping[str, Any]) -> Mapping[str, Any]:
    """The settings of a run; those of a job are its proposal's, with what its program recorded."""
    search_name, _, job_id = run_id.rpartition("/")
    if not search_name:
        return recorded
    config = app.searches.settings_of(search_name, job_id)
    return {**config, **recorded} if config else recorded


def describe(app: AppState, request: ApiRequest) -> Any:
    """A run and, of one that belongs to a search, its job; also of a job that has recorded nothing."""
    run_id = request.text("id")
    try:
        opened = app.runs.open(run_id)
    except NotFound:
        return describe_unrecorded(app, run_id)
    with opened.lock:
        opened.refresh()
        found = describe_run(app, opened.run)
    if found["search"]:
        try:
            return _with_job(found, describe_job(app, run_id))
        except NotFound:  # of a search whose journal is gone or damaged
            pass
    return found


def describe_unrecorded(app: AppState, run_id: str) -> dict[str, Any]:
    """The same of a job that has recorded nothing."""
    job = describe_job(app, run_id)
    folder, search, job_id = job_behind(app, run_id)
    return {
        **{key: [] for key in ("tags", "files", "media", "text", "histograms", "scalar_tags", "system_tags")},
        **{key: [] for key in ("timers", "damage")},
        **{key: {} for key in ("last", "provenance")},
        "id": run_id,
        "name": f"{search}-{job_id}",
        "recorded": False,
        "status": job["status"],
        "error": job["error"],
        "started": job["started"],
        "ended": job["ended"],
        "attempt": job["attempts"][-1]["attempt"],
        "note": "",
        "params": job["settings"],
        "git_diff": None,
        "search": search,
        "job": job_id,
        "job_facts": job,
        "streams": streams_of(folder),
    }


def _with_job(run: dict[str, Any], job: dict[str, Any]) -> dict[str, Any]:
    """A job's status is what its search says: one that an assessor stopped was not killed."""
    return run | {"job_facts": job, "status": job["status"], "error": run["error"] or job["error"]}


def describe_run(app: AppState, run: Run) -> dict[str, Any]:
    summary = run.summary
    search, _, job = run.id.rpartition("/")
    tags = run.scalar_tags
    timers = [tag for tag in tags if tag.startswith("time/") and tag != STEPS_PER_SECOND]
    run.want(timers)
    row = {one.id: one for one in app.table.rows()}.get(run.id)
    return {
        "id": run.id,
        "name": run.name,
        "status": run.status,
        "error": summary.error,
        "started": summary.started,
        "ended": summary.ended,
        "attempt": run.attempt,
        "tags": run.tags,
        "note": run.note,
        "params": params_of(app, run.id, run.params),
        "last": row.last if row is not None else {},
        "provenance": run.provenance,
        "git_diff": _git_diff(run),
        "files": [
            {"name": str(one.get("name")), "size": one["blob"].get("size"), "blob": one["blob"]["name"]}
            for one in _having_blob(run, "file")
        ],
        "media": [
            {
                "kind": one.get("media"),
                "tag": one.get("tag"),
                "step": one.get("step"),
                "wall": one.get("wall"),
                "blob": one["blob"]["name"],
                "type": Path(one["blob"]["name"]).suffix.lstrip("."),
            }
            for one in _having_blob(run, "media")
        ],
        "text": [one._asdict() for one in run.text()],
        "histograms": run.histograms(),
        "scalar_tags": [tag for tag in tags if not tag.startswith("system/")],
        "system_tags": [tag for tag in tags if tag.startswith("system/")],
        "timers": [one for tag in timers if (one := _timer(run, tag)) is not None],
        "search": search or None,
        "recorded": True,
        "job": job if search else None,
        "job_facts": None,
        "damage": run.damage,
        "streams": streams_of(run.folder.parent) if search else [],
    }


def _having_blob(run: Run, kind: str) -> list[dict[str, Any]]:
    found = []
    for one in run.records(kind):
        blob = one.get("blob")
        if isinstance(blob, dict) and BLOB_NAME.fullmatch(str(blob.get("name"))):
            found.append(one)
    return found


def _timer(run: Run, tag: str) -> dict[str, Any] | None:
    """Mean time of a middleware (they are recorded in milliseconds), and how often it was measured."""
    points = run.scalars(tag)
    if not len(points):
        return None
    return {"name": tag.removeprefix("time/"), "seconds": float(points["value"].mean()) / 1e3, "count": len(points)}


def _git_diff(run: Run) -> str | None:
    from operant.web.blobs import read_blob

    diff = (run.provenance.get("git") or {}).get("diff")
    if not isinstance(diff, dict) or not BLOB_NAME.fullmatch(str(diff.get("name"))):
        return None
    return read_blob(run.folder, diff["name"], 4 << 20)


def add_note(app: AppState, request: ApiRequest) -> Any:
    folder = run_folder(app.root, request.given("id", str))
    post_message(folder, check_annotation({"type": "note", "text": request.given("text", str)}))
    return {"asked": True}


def edit_tags(app: AppState, request: ApiRequest) -> Any:
    folder = run_folder(app.root, request.given("id", str))
    post_message(folder, tag_edit(request))
    return {"asked": True}


def tag_edit(request: ApiRequest) -> dict[str, Any]:
    add, remove = request.texts("add", MOST_TAGS, LONGEST_TAG), request.texts("remove", MOST_TAGS, LONGEST_TAG)
    return check_annotation({"type": "tags", "add": add, "remove": remove})


def stop(app: AppState, request: ApiRequest) -> Any:
    """Stop the job that a run belongs to."""
    from operant.web.searches_api import stop_job

    run_id = request.given("id", str)
    search, _, job = run_id.rpartition("/")
    if not search:
        raise UsageError(f"run {run_id[:80]!r} belongs to no search: only jobs can be stopped from here")
    return stop_job(app, ApiRequest(path={"name": search, "job": job}))
