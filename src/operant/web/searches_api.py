"""Searches: the list, one of them, its pictures, and what may be asked of it."""

from __future__ import annotations

from typing import Any

from operant.errors import UsageError
from operant.schedulers.analysis import chart_data
from operant.schedulers.analysis.axes import axes_of
from operant.schedulers.views.live import LiveSearch
from operant.schedulers.views.region_tree import has_tree, region_nodes
from operant.status import OPEN
from operant.tracking.journal import controller_is_alive, post_message
from operant.tracking.reading.summary import check_annotation
from operant.web.answers import ApiRequest, Conflict, NotFound
from operant.web.app_state import AppState, Cursor
from operant.web.runs_api import tag_edit

CURVE_BUCKETS = 200
SPARK_VALUES = 24
MOST_LINES = 5000


def every(app: AppState, request: ApiRequest) -> Any:
    return {"searches": summaries(app)}


def summaries(app: AppState) -> list[dict[str, Any]]:
    """The newest search first."""
    found = []
    for name in app.searches.names():
        try:
            search, lock = app.searches.open(name)
        except NotFound:
            continue  # removed in between
        with lock:
            found.append({**search.summary(), "spark": chart_data.spark_of(search)})
    return sorted(found, key=lambda one: one["started"] or 0.0, reverse=True)


def describe(app: AppState, request: ApiRequest) -> Any:
    search, lock = app.searches.open(request.path["name"])
    with lock:
        columns, settings, parents = chart_data.job_columns(search)
        try:
            text = (search.folder / "search.yaml").read_text(encoding="utf-8", errors="replace")
        except OSError:
            text = None
        return {
            "summary": search.summary(),
            "axes": [axis.as_dict() for axis in axes_of(search.state)],
            "jobs": columns,
            "settings": settings,
            "parents": parents,
            "yaml": text,
            "has_tree": has_tree(search.state),
            "cursor": str(Cursor(app.instance, search=search.version)),
        }


def importance(app: AppState, request: ApiRequest) -> Any:
    search, lock = app.searches.open(request.path["name"])
    with lock:
        key = ("importance", search.name, search.journal_end)
        trials = chart_data.trials_of(search)
    return app.remembered(key, lambda: chart_data.importance(trials))  # seconds: others must not wait for it


def contour(app: AppState, request: ApiRequest) -> Any:
    search, lock = app.searches.open(request.path["name"])
    x, y = request.text("x"), request.text("y")
    with lock:
        key = ("contour", search.name, search.journal_end, x, y)
        return app.remembered(key, lambda: chart_data.contour(search, x, y))


def tree(app: AppState, request: ApiRequest) -> Any:
    """The regions of LA-MCTS."""
    search, lock = app.searches.open(request.path["name"])
    with lock:
        key = ("tree", search.name, search.journal_end)
        return {"nodes": app.remembered(key, lambda: region_nodes(search.state, search.name))}


def slices(app: AppState, request: ApiRequest) -> Any:
    search, lock = app.searches.open(request.path["name"])
    with lock:
        return {"slices": chart_data.slices(search)}


def intermediate(app: AppState, request: ApiRequest) -> Any:
    search, lock = app.searches.open(request.path["name"])
    tags: set[str] = set()
    with lock:
        tag = request.query.get("tag") or str(search.state.opened.get("reward") or "")

        def curve(job_id: str) -> tuple[list[float], list[float]] | None:
            try:
                opened = app.runs.open(f"{search.name}/{job_id}", [tag])
            except UsageError:
                return None
            with opened.lock:
                opened.refresh([tag])
                known = opened.run.scalar_tags
                tags.update(known)
                if tag not in known:
                    return None
                chart = opened.run.chart(tag, CURVE_BUCKETS)
                return chart.last_step.tolist(), chart.mean.tolist()

        jobs = chart_data.intermediate(search, tag, curve)
    app.runs.tidy()
    return {"tag": tag, "tags": sorted(tags), "jobs": jobs}


def scalars(app: AppState, request: ApiRequest) -> Any:
    """The last value of chosen tags of each job, and a few values of how it came there."""
    wanted = request.words("tags")
    search, lock = app.searches.open(request.path["name"])
    with lock:
        ids = [job.id for job in search.jobs()]
    last: dict[str, list[float | None]] = {tag: [] for tag in wanted}
    spark: dict[str, list[list[float]]] = {tag: [] for tag in wanted}
    rows = {row.id: row for row in app.table.rows()}
    tags: set[str] = set()
    for job_id in ids:
        run_id = f"{search.name}/{job_id}"
        row = rows.get(run_id)
        tags.update(row.last if row is not None else ())
        for tag in wanted:
            values: list[float] = []
            try:
                opened = app.runs.open(run_id, wanted)
                with opened.lock:
                    opened.refresh([tag])
                    tags.update(opened.run.scalar_tags)
                    if tag in opened.run.scalar_tags:
                        values = opened.run.chart(tag, SPARK_VALUES).mean.tolist()
                        point = opened.run.latest(tag)
                        last[tag].append(None if point is None else point.value)
                    else:
                        last[tag].append(None)
            except UsageError:
                last[tag].append(None)
            spark[tag].append(values)
    app.runs.tidy()
    return {"tags": sorted(tags), "last": last, "spark": spark}


def log(app: AppState, request: ApiRequest) -> Any:
    """What happened last, in words."""
    from operant.schedulers.views.journal_text import last_lines

    search, lock = app.searches.open(request.path["name"])
    count = request.number("lines", 200, 1, MOST_LINES)
    with lock:
        return {"lines": [{"wall": wall, "text": text} for wall, text in last_lines(search.folder, count)]}


def stop(app: AppState, request: ApiRequest) -> Any:
    return _tell(app, request, {"type": "stop"})


def pause(app: AppState, request: ApiRequest) -> Any:
    return _tell(app, request, {"type": "pause"})


def resume(app: AppState, request: ApiRequest) -> Any:
    return _tell(app, request, {"type": "resume"})


def stop_job(app: AppState, request: ApiRequest) -> Any:
    search, lock = app.searches.open(request.path["name"])
    job_id = request.path["job"]
    with lock:
        job = search.state.jobs.get(job_id)
        if job is None:
            raise NotFound(f"the search {search.name!r} has no job {job_id[:80]!r}")
        status, _ = search.status_of(job)
        if status not in OPEN:
            raise Conflict(f"job {job_id} has ended already: {status}")
    return _tell(app, request, {"type": "stop", "jobs": [job_id]})


def add_note(app: AppState, request: ApiRequest) -> Any:
    search, _ = app.searches.open(request.path["name"])
    post_message(search.folder, check_annotation({"type": "note", "text": request.given("text", str)}))
    return {"asked": True}


def edit_tags(app: AppState, request: ApiRequest) -> Any:
    search, _ = app.searches.open(request.path["name"])
    post_message(search.folder, tag_edit(request))
    return {"asked": True}


def _tell(app: AppState, request: ApiRequest, message: dict[str, Any]) -> dict[str, Any]:
    """Leave a message for the controller, if there is one: a stop that waits would hit whoever resumes the search."""
    search, lock = app.searches.open(request.path["name"])
    with lock:
        status = search.status
    if not controller_is_alive(search.folder):
        raise Conflict(f"the search {search.name!r} is not running; it is {status}")
    post_message(search.folder, message)
    return {"asked": True}


def changed_jobs(search: LiveSearch, after: int) -> list[dict[str, Any]]:
    """Every job that is different since that version, with its settings."""
    proposals = search.state.proposals
    return [
        {**chart_data.job_row(search, job), "settings": proposals[job.number].settings}
        for job in search.jobs()
        if search.changed.get(job.id, 0) > after
    ]
