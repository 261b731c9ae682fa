"""What a search looks like from outside, as plain data: for the terminal, for files and for the page."""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Collection, Iterator
from pathlib import Path
from typing import Any

from operant.errors import UsageError, nearest, unknown
from operant.schedulers.engine.records import JobRecord
from operant.schedulers.engine.state import SearchState, read_state
from operant.status import UNDER_WAY, Status
from operant.tracking.journal.journal import JOURNAL_NAME

_SHOWN_NAMES = 20


def list_searches(root: Path) -> Iterator[Path]:
    """The folders of all searches."""
    store = root / "searches"
    for folder in sorted(store.iterdir()) if store.is_dir() else ():
        if not folder.name.startswith(".") and (folder / JOURNAL_NAME).exists():
            yield folder


def find_search(root: Path, name: str) -> Path:
    known = {folder.name: folder for folder in list_searches(root)}
    if name not in known:
        more = [f"{len(known) - _SHOWN_NAMES} more"] if len(known) > _SHOWN_NAMES else []
        names = ", ".join([*list(known)[:_SHOWN_NAMES], *more]) or "none"
        raise UsageError(f"unknown search {name!r}{nearest(name, known)}; there are in {root}: {names}")
    return known[name]


def describe(folder: Path, only: Collection[str] | None = None) -> dict[str, Any]:
    """`{task, status, best, jobs}`; jobs in the order of proposal."""
    state, status = read_state(folder)
    name = folder.name
    jobs = sorted(state.jobs.values(), key=lambda job: (job.is_check, job.number))
    if only is not None:
        known = {job.id: job for job in jobs} | {f"{name}-{job.id}": job for job in jobs}
        for one in only:
            if one not in known:
                raise UsageError(f"{unknown('job', one, known)} (of search {name!r})")
        chosen = {known[one].id for one in only}
        jobs = [job for job in jobs if job.id in chosen]
    for job in jobs if state.outlives_controller and status != Status.RUNNING else ():
        if job.status in UNDER_WAY and (folder / "jobs" / job.id / f"exit-{job.attempt}.json").exists():
            job.reason = "ended, and no controller has read its result"
    return {
        "task": name,
        "status": status,
        "damage": str(state.damage) if state.damage else None,
        "best": _best(state),
        "compare": state.opened.get("compare") or None,
        "reward_attribute": state.opened.get("reward"),
        "counts": dict(Counter(str(job.status) for job in jobs)),
        "tries": state.tries,
        "final_check": list(state.checks.values()) or None,
        "jobs": [_job(job, state, name) for job in jobs],
    }


def _best(state: SearchState) -> dict[str, Any] | None:
    best = state.best
    if best is None:
        return None
    jobs = [job.id for job in state.jobs.values() if job.number == best.number and not job.is_check]
    return {"number": best.number, "reward": best.reward, "arg_dict": best.settings, "jobs": jobs}


def _job(job: JobRecord, state: SearchState, search: str) -> dict[str, Any]:
    found: dict[str, Any] = {
        "id": job.id,
        "name": f"{search}-{job.id}",
        "status": str(job.status),
        "reward": job.reward,
        "arg_dict": state.proposals[job.number].settings,
        "started": job.started,
        "ended": job.ended,
        "run": f"{search}/{job.id}",
    }
    place = state.places.get(job.id)
    if place is not None:
        found["site_id"], found["node"] = place["id"], place["node"]
        if place["queue"] and job.started is None:
            found["queue"] = place["queue"]
        found["waited"] = state.waited(job, time.time())
    if job.seed is not None:
        found["seed"] = job.seed
    if job.snapshot is not None:
        found["code"] = job.snapshot
    if job.attempt > 1:
        found["attempt"] = job.attempt
    if job.reason:
        found["reason"] = job.reason
    if job.error:
        found["error"] = job.error
    return found


def job_scalars(folder: Path, job_id: str) -> dict[str, float]:
    """The last value of every scalar that a job recorded."""
    from operant.tracking.reading.summary import summarize

    run = folder / "jobs" / job_id / "run"
    if not run.is_dir():
        return {}
    summary = summarize(run, f"{folder.name}/{job_id}")
    return {tag: series.last_value for tag, series in sorted(summary.series.items())}
