"""Runs that belong to no search and are under way: read on, not read anew."""

from __future__ import annotations

import time
from dataclasses import dataclass
from pathlib import Path

from operant.status import RECORDING
from operant.tracking.places import iter_run_dirs
from operant.tracking.reading.index import Index
from operant.tracking.reading.summary import RunSummary, summarize

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
    workers: str = ""
    """Of a training whose data others collect, how that goes."""


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


def _workers(summary: RunSummary) -> str:
    said = {tag: one.last_value for tag, one in summary.series.items() if tag.startswith("workers/")}
    rates = [value for tag, value in said.items() if tag.endswith("/steps_per_second")]
    if not rates or "workers/lag" not in said:
        return ""
    return (
        f"{len(rates)} workers, {sum(rates):,.0f} steps/s, lag {said['workers/lag']:.1f}, "
        f"queue {said.get('workers/queue', 0.0):.0%}, dropped {said.get('workers/dropped', 0.0):.0f}, "
        f"restarts {said.get('workers/restarts', 0.0):.0f}"
        + (f", lost {said['workers/lost']:.0f}" if said.get("workers/lost") else "")
    )
