"""What is told of runs to Prometheus: by the page of all of a folder, by a program of its own."""

from __future__ import annotations

import shutil
import time
from collections import Counter
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from operant._util.prometheus import Metric
from operant._version import __version__
from operant.status import Status
from operant.tracking.reading.summary import RunSummary

if TYPE_CHECKING:
    from operant.tracking.reading.index import RunTable

STEPS_PER_SECOND = "time/steps_per_second"
"""The one scalar below `time/` that is no duration of a middleware."""
MOST_RUNS = 1000
"""Runs under way that are told one by one; a label value for each of a hundred thousand would sink a Prometheus."""
_OWN_STEPS = ("system/", "time/")
"""Tags whose steps are not the program's."""
_WORKERS, _REPLAY, _TIME, _SYSTEM, _RETURN = "workers/", "replay/", "time/", "system/", "/return"


class Rates:
    """Steps per second between two scrapes."""

    def __init__(self) -> None:
        self._before: dict[str, tuple[float, int]] = {}

    def of(self, summary: RunSummary, now: float) -> float | None:
        """As the run itself says; otherwise its steps since the scrape before, at the first since the run began."""
        said = summary.series.get(STEPS_PER_SECOND)
        if said is not None:
            return said.last_value
        own = [one for tag, one in summary.series.items() if not tag.startswith(_OWN_STEPS)]
        if not own or summary.started is None:
            return None
        step = max(one.last_step for one in own)
        before = self._before.get(summary.id, (summary.started, 0))
        self._before[summary.id] = (now, step)
        seconds = now - before[0]
        return max(0.0, (step - before[1]) / seconds) if seconds > 0 else None

    def forget_all_but(self, kept: set[str]) -> None:
        for run_id in self._before.keys() - kept:
            del self._before[run_id]


def about_runs(under_way: Sequence[RunSummary], rates: Rates, now: float) -> list[Metric]:
    """Runs under way, one by one."""
    points = Metric("operant_run_points_total", "Points that a run under way has recorded.", "counter")
    step = Metric("operant_run_step", "The step that a run under way has reached.")
    steps = Metric("operant_run_steps_per_second", "How fast a run under way goes on, since the scrape before.")
    lag = Metric("operant_run_writer_lag_seconds", "Age of the last point of a run under way that can be read.")
    returns = Metric("operant_run_return", "The newest mean return of a run under way, of what it says.")
    workers = Metric("operant_run_workers", "What a run under way says of the workers that collect for it.")
    replay = Metric("operant_run_replay", "What a run under way says of its replay: ratio, and rows of each shard.")
    times = Metric("operant_run_middleware_seconds", "Where the time of a pass of a run under way goes; `step` is all.")
    system = Metric("operant_run_system", "How busy the machine of a run under way is: percent and GiB.")
    for summary in under_way[:MOST_RUNS]:
        points.add(sum(one.count for one in summary.series.values()), run=summary.id)
        own = [one.last_step for tag, one in summary.series.items() if not tag.startswith(_OWN_STEPS)]
        step.add(max(own, default=None), run=summary.id)
        steps.add(rates.of(summary, now), run=summary.id)
        walls = [one.last_wall for one in summary.series.values()]
        lag.add(max(0.0, now - max(walls)) if walls else None, run=summary.id)
        for tag, one in sorted(summary.series.items()):
            if tag.startswith(_WORKERS):
                workers.add(one.last_value, run=summary.id, what=tag.removeprefix(_WORKERS))
            elif tag.startswith(_REPLAY):
                replay.add(one.last_value, run=summary.id, what=tag.removeprefix(_REPLAY))
            elif tag.startswith(_TIME) and tag != STEPS_PER_SECOND:
                times.add(one.last_value / 1000.0, run=summary.id, what=tag.removeprefix(_TIME))
            elif tag.startswith(_SYSTEM):
                system.add(one.last_value, run=summary.id, what=tag.removeprefix(_SYSTEM))
            elif tag.endswith(_RETURN):
                returns.add(one.last_value, run=summary.id, of=tag.removesuffix(_RETURN))
    rates.forget_all_but({one.id for one in under_way})
    return [points, step, steps, lag, returns, workers, replay, times, system]


def about_table(table: RunTable, rates: Rates) -> list[Metric]:
    """All runs of a folder by state, and those under way."""
    by_state = Metric("operant_runs", "Runs by state.")
    for state, count in sorted(Counter(row.status for row in table.rows()).items()):
        by_state.add(count, state=state)
    under_way = [one for one in table.under_way() if one.status == Status.RUNNING]
    return [by_state, *about_runs(under_way, rates, time.time())]


def about_process(root: Path) -> list[Metric]:
    """Who answers, and the disk that runs are written to."""
    build = Metric("operant_build_info", "The version of Operant that answers.")
    build.add(1, version=__version__)
    free = Metric("operant_disk_free_bytes", "Room on the disk that runs and searches are written to.")
    size = Metric("operant_disk_size_bytes", "Size of the disk that runs and searches are written to.")
    try:
        disk = shutil.disk_usage(root)
    except OSError:
        return [build]
    free.add(disk.free)
    size.add(disk.total)
    return [build, free, size]
