"""`/metrics`: what goes on, in the text format that Prometheus scrapes (version 0.0.4)."""

from __future__ import annotations

import math
import time
from collections import Counter
from collections.abc import Iterable
from typing import TYPE_CHECKING, Any

from starlette.responses import Response

from operant._version import __version__
from operant.status import Status
from operant.tracking.reading.summary import RunSummary
from operant.web.answers import ApiRequest, NotFound
from operant.web.app_state import LOOK_SECONDS, AppState
from operant.web.runs_api import STEPS_PER_SECOND

if TYPE_CHECKING:
    from operant.schedulers.views.live import LiveSearch

MOST_RUNS = 1000
"""Runs under way that are told one by one; a label value for each of a hundred thousand would sink a Prometheus."""
_SEARCH_STATES = (Status.RUNNING, Status.PAUSED, Status.FINISHED, Status.KILLED, Status.ERROR, Status.PENDING)
_JOB_STATES = (
    Status.PENDING,
    Status.RUNNING,
    Status.PAUSED,
    Status.FINISHED,
    Status.STOPPED,
    Status.KILLED,
    Status.ERROR,
)
_OWN_STEPS = ("system/", "time/")
"""Tags whose steps are not the program's."""
_WORKERS = "workers/"


class Gauge:
    """One metric with its samples."""

    def __init__(self, name: str, text: str, kind: str = "gauge") -> None:
        self.name, self.text, self.kind = name, text, kind
        self.samples: list[tuple[dict[str, str], float]] = []

    def add(self, value: float | None, **labels: str) -> None:
        if value is not None:
            self.samples.append((labels, float(value)))


def metrics(app: AppState, request: ApiRequest) -> Response:
    app.table.refresh(LOOK_SECONDS)
    found = [*_about_searches(app), *_about_runs(app)]
    build = Gauge("operant_build_info", "The version of Operant that answers.")
    build.add(1, version=__version__)
    return Response(render([build, *found]), media_type="text/plain; version=0.0.4; charset=utf-8")


def _about_searches(app: AppState) -> list[Gauge]:
    searches = Gauge("operant_searches", "Searches by state.")
    jobs = Gauge("operant_jobs", "Jobs of a search by state.")
    best = Gauge("operant_best_reward", "The best reward of a search so far.")
    last = Gauge("operant_last_reward", "The reward of the job of a search that ended last with one.")
    tries = Gauge("operant_tries", "Configurations that a search has tried.")
    elapsed = Gauge("operant_search_seconds", "Seconds that a search has run.")
    unreadable = Gauge("operant_journal_unreadable_records", "Records of a search's journal that are damaged.")
    states: Counter[str] = Counter()
    for name in app.searches.names():
        try:
            search, lock = app.searches.open(name)
        except NotFound:
            continue
        with lock:
            states[search.status] += 1
            by_state = Counter(search.status_of(job)[0] for job in search.state.jobs.values())
            for state in _JOB_STATES:
                jobs.add(by_state[state], search=name, state=state)
            found = search.state.best
            best.add(None if found is None else found.reward, search=name)
            last.add(_last_reward(search), search=name)
            tries.add(sum(not one.filtered for one in search.state.proposals.values()), search=name)
            elapsed.add(search.elapsed, search=name)
            damage = search.state.damage
            unreadable.add(max(1, damage.total) if damage else 0, search=name)
    for state in _SEARCH_STATES:
        searches.add(states[state], state=state)
    return [searches, jobs, best, last, tries, elapsed, unreadable]


def _last_reward(search: LiveSearch) -> float | None:
    ended = [(job.ended, job.reward) for job in search.state.jobs.values() if job.ended and job.reward is not None]
    return max(ended)[1] if ended else None


def _about_runs(app: AppState) -> list[Gauge]:
    runs = Gauge("operant_runs", "Runs by state.")
    points = Gauge("operant_run_points_total", "Points that a run under way has recorded.", "counter")
    steps = Gauge("operant_run_steps_per_second", "How fast a run under way goes on, since the scrape before.")
    lag = Gauge("operant_run_writer_lag_seconds", "Age of the last point of a run under way that can be read.")
    workers = Gauge("operant_run_workers", "What a run under way says of the workers that collect for it.")
    for state, count in sorted(Counter(row.status for row in app.table.rows()).items()):
        runs.add(count, state=state)
    now = time.time()
    under_way = [one for one in app.table.under_way() if one.status == Status.RUNNING][:MOST_RUNS]
    for summary in under_way:
        points.add(sum(one.count for one in summary.series.values()), run=summary.id)
        steps.add(_steps_per_second(app, summary, now), run=summary.id)
        walls = [one.last_wall for one in summary.series.values()]
        lag.add(max(0.0, now - max(walls)) if walls else None, run=summary.id)
        for tag, one in sorted(summary.series.items()):
            if tag.startswith(_WORKERS):
                workers.add(one.last_value, run=summary.id, what=tag.removeprefix(_WORKERS))
    app.forget_rates({one.id for one in under_way})
    return [runs, points, steps, lag, workers]


def _steps_per_second(app: AppState, summary: RunSummary, now: float) -> float | None:
    """As the run itself says; otherwise its steps since the scrape before, at the first one since the run began."""
    said = summary.series.get(STEPS_PER_SECOND)
    if said is not None:
        return said.last_value
    own = [one for tag, one in summary.series.items() if not tag.startswith(_OWN_STEPS)]
    if not own or summary.started is None:
        return None
    step = max(one.last_step for one in own)
    before = app.rates.get(summary.id, (summary.started, 0))
    app.rates[summary.id] = (now, step)
    seconds = now - before[0]
    return max(0.0, (step - before[1]) / seconds) if seconds > 0 else None


def render(gauges: Iterable[Gauge]) -> str:
    lines = []
    for gauge in gauges:
        if not gauge.samples:
            continue
        lines += [f"# HELP {gauge.name} {gauge.text}", f"# TYPE {gauge.name} {gauge.kind}"]
        for labels, value in gauge.samples:
            inside = ",".join(f'{key}="{_escaped(text)}"' for key, text in labels.items())
            lines.append(f"{gauge.name}{{{inside}}} {_number(value)}" if inside else f"{gauge.name} {_number(value)}")
    return "\n".join(lines) + "\n"


def _escaped(text: str) -> str:
    clean = text.encode("utf-8", "replace").decode()
    return clean.replace("\\", "\\\\").replace('"', '\\"').replace("\n", "\\n")


def _number(value: Any) -> str:
    if math.isnan(value):
        return "NaN"
    if math.isinf(value):
        return "+Inf" if value > 0 else "-Inf"
    return repr(float(value))
