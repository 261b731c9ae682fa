"""Runs that belong to no search and are under way: read on, not read anew."""

from __future__ import annotations

import re
import time
from dataclasses import dataclass
from pathlib import Path

from operant.status import RECORDING
from operant.tracking.places import iter_run_dirs
from operant.tracking.reading.index import Index
from operant.tracking.reading.summary import RunSummary, summarize

_RATE = re.compile(r"workers/\d+/steps_per_second")
_MOST_RATES = 4  # that are shown one by one
# Of all that a run records, what tells most at a glance.
_TELLING = ("evaluation/return", "episodes/return", "collector/return", "return", "reward", "acc", "loss")


@dataclass(frozen=True)
class RunUnderWay:
    id: str
    elapsed: float
    tag: str
    step: int | None
    last: float | None
    part: float | None
    """How much of it is done, where it says how long it will be (``total_steps``)."""
    workers: tuple[str, ...] = ()
    """Of a training whose data others collect, how that goes: lines."""


class RunsUnderWay:
    """Which runs are under way. Those that had ended when it began are known from the index and never read."""

    def __init__(self, root: Path) -> None:
        self._root = root
        self._ended = {row.id for row in Index(root).rows() if row.status not in RECORDING}
        self._summaries: dict[str, RunSummary] = {}
        self.rows: list[RunUnderWay] = []

    def refresh(self) -> None:
        for run_id, folder in iter_run_dirs(self._root):
            if "/" in run_id or run_id in self._ended:
                continue
            summary = self._summaries.get(run_id)
            if summary is None:
                summary = self._summaries[run_id] = summarize(folder, run_id)
            else:
                summary.update()
            if summary.status not in RECORDING:
                self._ended.add(run_id)
                del self._summaries[run_id]
        newest = sorted(self._summaries.values(), key=lambda one: one.started or 0.0, reverse=True)
        self.rows = [_row(one) for one in newest]


def _row(summary: RunSummary) -> RunUnderWay:
    series = {tag: one for tag, one in summary.series.items() if not tag.startswith("system/")}
    tag = next((one for one in _TELLING if one in series), next(iter(sorted(series)), ""))
    found = series.get(tag)
    total = summary.params.get("total_steps")
    furthest = max((one.last_step for one in series.values()), default=0)
    part = min(1.0, furthest / total) if isinstance(total, (int, float)) and total > 0 and series else None
    return RunUnderWay(
        summary.id,
        max(0.0, time.time() - summary.started) if summary.started is not None else 0.0,
        tag,
        found.last_step if found is not None else None,
        found.last_value if found is not None else None,
        part,
        _workers(summary),
    )


def _workers(summary: RunSummary) -> tuple[str, ...]:
    said = {tag: one.last_value for tag, one in summary.series.items()}
    rates = [value for tag, value in sorted(said.items()) if _RATE.fullmatch(tag)]
    if not rates or "workers/lag" not in said:
        return ()
    each = " + ".join(f"{rate:,.0f}" for rate in rates) if len(rates) <= _MOST_RATES else f"{sum(rates):,.0f}"
    line = (
        f"{len(rates)} workers, {each} steps/s, lag {said['workers/lag']:.1f}, "
        f"queue {said.get('workers/queue', 0.0):.0%}, dropped {said.get('workers/dropped', 0.0):.0f}, "
        f"restarts {said.get('workers/restarts', 0.0):.0f}"
        + (f", lost {said['workers/lost']:.0f}" if said.get("workers/lost") else "")
    )
    more = [f"replay ratio {said['replay/ratio']:.1f}"] if "replay/ratio" in said else []
    return (line, *([", ".join(more + where)] if (where := _where_time_goes(said)) or more else []))


def _where_time_goes(said: dict[str, float]) -> list[str]:
    """The three that take most of the learner's pass."""
    whole = said.get("time/step", 0.0)
    known = {tag.removeprefix("time/"): value for tag, value in said.items() if tag.startswith("time/")}
    parts = sorted((-value, name) for name, value in known.items() if name not in ("step", "steps_per_second"))
    return [f"{name} {-value / whole:.0%}" for value, name in parts[:3]] if whole > 0 else []
