"""Searches: the list, one of them, its pictures, and what may be asked of it."""

from __future__ import annotations

from typing import Any

from operant.errors import UsageError
from operant.schedulers.analysis import chart_data
from operant.schedulers.analysis.axes import axes_of
from operant.schedulers.engine.state import controller_is_alive
from operant.schedulers.views.live import LiveSearch
from operant.tracking.journal import post_message
from operant.tracking.reading.annotations import check_annotation
from operant.web.answers import Ask, Conflict, NotFound
from operant.web.cursors import Cursor
from operant.web.desk import Desk
from operant.web.runs_api import tag_edit

__all__ = [
    "add_note",
    "contour",
    "describe",
    "edit_tags",
    "every",
    "importance",
    "intermediate",
    "log",
    "pause",
    "resume",
    "scalars",
    "stop",
    "stop_job",
    "summaries",
]

CURVE_BUCKETS = 200
SPARK_VALUES = 24
MOST_LINES = 5000


def every(desk: Desk, ask: Ask) -> Any:
    return {"searches": summaries(desk)}


def summaries(desk: Desk) -> list[dict[str, Any]]:
    """The newest search first."""
    found = []
    for name in desk.searches.names():
        try:
            search, lock = desk.searches.open(name)
        except NotFound:
            continue  # removed in between
        with lock:
            found.append({**search.summary(), "spark": chart_data.spark_of(search)})
    return sorted(found, key=lambda one: one["started"] or 0.0, reverse=True)


def describe(desk: Desk, ask: Ask) -> Any:
    search, lock = desk.searches.open(ask.path["name"])
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
            "cursor": str(Cursor(desk.instance, search=search.version)),
        }


def importance(desk: Desk, ask: Ask) -> Any:
    search, lock = desk.searches.open(ask.path["name"])
    with lock:
        key = ("importance", search.name, search.journal_end)
        trials = chart_data.trials_of(search)
    return desk.remembered(key, lambda: chart_data.importance(trials))  # seconds: others must not wait for it


def contour(desk: Desk, ask: Ask) -> Any:
    search, lock = desk.searches.open(ask.path["name"])
    x, y = ask.text("x"), ask.text("y")
    with lock:
        key = ("contour", search.name, search.journal_end, x, y)
        return desk.remembered(key, lambda: chart_data.contour(search, x, y))


def slices(desk: Desk, ask: Ask) -> Any:
    search, lock = desk.searches.open(ask.path["name"])
    with lock:
        return {"slices": chart_data.slices(search)}


def intermediate(desk: Desk, ask: Ask) -> Any:
    search, lock = desk.searches.open(ask.path["name"])
    tags: set[str] = set()
    with lock:
        tag = ask.query.get("tag") or str(search.state.opened.get("reward") or "")

        def curve(job_id: str) -> tuple[list[float], list[float]] | None:
            try:
                opened = desk.runs.open(f"{search.name}/{job_id}", [tag])
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
    desk.runs.tidy()
    return {"tag": tag, "tags": sorted(tags), "jobs": jobs}


def scalars(desk: Desk, ask: Ask) -> Any:
    """The last value of chosen tags of each job, and a few values of how it came there."""
    wanted = ask.words("tags")
    search, lock = desk.searches.open(ask.path["name"])
    with lock:
        ids = [job.id for job in search.jobs()]
    last: dict[str, list[float | None]] = {tag: [] for tag in wanted}
    spark: dict[str, list[list[float]]] = {tag: [] for tag in wanted}
    rows = {row.id: row for row in desk.table.rows()}
    tags: set[str] = set()
    for job_id in ids:
        run_id = f"{search.name}/{job_id}"
        row = rows.get(run_id)
        tags.update(row.last if row is not None else ())
        for tag in wanted:
            values: list[float] = []
            try:
                opened = desk.runs.open(run_id, wanted)
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
    desk.runs.tidy()
    return {"tags": sorted(tags), "last": last, "spark": spark}


def log(desk: Desk, ask: Ask) -> Any:
    """What happened last, in words."""
    from operant.schedulers.views.chronicle import last_lines

    search, lock = desk.searches.open(ask.path["name"])
    count = ask.number("lines", 200, 1, MOST_LINES)
    with lock:
        return {"lines": [{"wall": wall, "text": text} for wall, text in last_lines(search.folder, count)]}


def stop(desk: Desk, ask: Ask) -> Any:
    return _tell(desk, ask, {"type": "stop"})


def pause(desk: Desk, ask: Ask) -> Any:
    return _tell(desk, ask, {"type": "pause"})


def resume(desk: Desk, ask: Ask) -> Any:
    return _tell(desk, ask, {"type": "resume"})


def stop_job(desk: Desk, ask: Ask) -> Any:
    search, lock = desk.searches.open(ask.path["name"])
    job_id = ask.path["job"]
    with lock:
        job = search.state.jobs.get(job_id)
        if job is None:
            raise NotFound(f"the search {search.name!r} has no job {job_id[:80]!r}")
        status, _ = search.status_of(job)
        if status not in ("PENDING", "RUNNING", "PAUSED"):
            raise Conflict(f"job {job_id} has ended already: {status}")
    return _tell(desk, ask, {"type": "stop", "jobs": [job_id]})


def add_note(desk: Desk, ask: Ask) -> Any:
    search, _ = desk.searches.open(ask.path["name"])
    post_message(search.folder, check_annotation({"type": "note", "text": ask.given("text", str)}))
    return {"asked": True}


def edit_tags(desk: Desk, ask: Ask) -> Any:
    search, _ = desk.searches.open(ask.path["name"])
    post_message(search.folder, tag_edit(ask))
    return {"asked": True}


def _tell(desk: Desk, ask: Ask, message: dict[str, Any]) -> dict[str, Any]:
    """Leave a message for the controller, if there is one: a stop that waits would hit whoever resumes the search."""
    search, lock = desk.searches.open(ask.path["name"])
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
        {**chart_data.job_row(search, job), "settings": proposals[job.number].config}
        for job in search.jobs()
        if search.changed.get(job.id, 0) > after
    ]
