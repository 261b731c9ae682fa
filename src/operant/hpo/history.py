"""All trials of a search, for those who want more than the best: a sequence, a table and a plot."""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import Any, overload

from operant._util.units import duration, printable
from operant.status import USABLE


@dataclass
class TrialRecord:
    """One trial that has ended."""

    task_id: int
    """From 1 on, as the function got it."""
    status: str
    """FINISHED, STOPPED (early, by an assessor, a time limit or itself), KILLED (skipped or stopped) or ERROR."""
    make_config: Callable[[], Any] = field(repr=False, compare=False)
    flat: Mapping[str, Any]
    """What was chosen, by flat name, as the function got it."""
    result: Any = None
    metrics: Mapping[str, Any] = field(default_factory=dict)
    target: float | None = None
    columns: Mapping[str, Any] = field(default_factory=dict)
    attempts: int = 1
    reason: str | None = None
    error: str | None = None
    trace: str | None = None

    @cached_property
    def config(self) -> Any:
        """What was chosen, as the function got it."""
        return self.make_config()

    def __getstate__(self) -> dict[str, Any]:
        """For pickle and copy: the configuration itself, and not how it is made."""
        return {**self.__dict__, "config": self.config, "make_config": dict}


class History(Sequence[TrialRecord]):
    """The trials in the order in which they were proposed."""

    def __init__(self, name: str, maximize: bool, records: Iterable[TrialRecord] = ()) -> None:
        self.name = name
        self.maximize = maximize
        self._records: dict[int, TrialRecord | tuple[Any, ...]] = {one.task_id: one for one in records}
        self._ordered: list[TrialRecord] | None = None
        self.make: Callable[..., TrialRecord] = TrialRecord
        """Makes a record of what `add_parts` was given, the number of the trial first."""

    def add(self, record: TrialRecord) -> None:
        self._records[record.task_id] = record
        self._ordered = None

    def add_parts(self, task_id: int, *parts: Any) -> None:
        """Take what a trial's record is made of: a search of small trials has no time for records that nobody reads."""
        self._records[task_id] = parts
        self._ordered = None

    def of(self, task_id: int) -> TrialRecord | None:
        found = self._records.get(task_id)
        if isinstance(found, tuple):
            found = self._records[task_id] = self.make(task_id, *found)
        return found

    @property
    def _all(self) -> list[TrialRecord]:
        if self._ordered is None:
            self._ordered = [one for task_id in sorted(self._records) if (one := self.of(task_id)) is not None]
        return self._ordered

    def __getstate__(self) -> dict[str, Any]:
        """For pickle and copy: the records themselves, and not how they are made."""
        return {**self.__dict__, "_records": {one.task_id: one for one in self._all}, "make": TrialRecord}

    @overload
    def __getitem__(self, index: int) -> TrialRecord: ...

    @overload
    def __getitem__(self, index: slice) -> list[TrialRecord]: ...

    def __getitem__(self, index: int | slice) -> TrialRecord | list[TrialRecord]:
        return self._all[index]

    def __len__(self) -> int:
        return len(self._records)

    def __iter__(self) -> Iterator[TrialRecord]:
        return iter(self._all)

    def ranking(self, count: int | None = None) -> list[TrialRecord]:
        """The best trials, best first; of equals the earliest."""
        sign = -1.0 if self.maximize else 1.0
        scored = [
            (sign * one.target, one)
            for one in self
            if one.target is not None and not math.isnan(one.target) and _counts(one)
        ]
        scored.sort(key=lambda pair: pair[0])
        return [one for _, one in scored[:count]]

    def table(self, count: int | None = None) -> str:
        """All trials as a table of text, or the `count` best of them."""
        records = self._all if count is None else self.ranking(count)
        names = list(dict.fromkeys(name for one in records for name in one.flat))
        columns = list(dict.fromkeys(name for one in records for name in one.columns))
        head = ["trial", "status", self.name, *columns, "time", *names]
        rows = [
            [
                str(one.task_id),
                one.status.lower(),
                "" if one.target is None else show(one.target),
                *(show(one.columns[name]) if name in one.columns else "" for name in columns),
                duration(one.metrics["time"], fine=True) if "time" in one.metrics else "",
                *(show(one.flat[name]) if name in one.flat else "" for name in names),
            ]
            for one in records
        ]
        return text_table(head, rows)

    def rows(self) -> list[dict[str, Any]]:
        """One flat dict for each trial: what `pandas.DataFrame` takes."""
        return [
            {
                "task_id": one.task_id,
                "status": one.status,
                self.name: one.target,
                **one.columns,
                **one.metrics,
                **one.flat,
            }
            for one in self
        ]

    def plot(self, path: str | Path | None = None) -> str:
        """A picture (SVG) of every trial and of the best so far; written to `path` if one is given."""
        text = _picture(self)
        if path is not None:
            Path(path).write_text(text, encoding="utf-8")
        return text

    def __repr__(self) -> str:
        return f"History of {len(self)} trials\n{self.table()}" if len(self) else "History of 0 trials"


def _counts(record: TrialRecord) -> bool:
    return record.status in USABLE


def _picture(history: History) -> str:
    from operant.plotting.charts import BLUE, GREEN, Axis, Chart, Line, Mark, Points
    from operant.plotting.vector import svg_file

    shown = [one for one in history if one.target is not None and math.isfinite(one.target) and _counts(one)]
    ids, targets = [float(one.task_id) for one in shown], [float(one.target or 0.0) for one in shown]
    marks: list[Mark] = []
    if shown:
        best = list(itertools.accumulate(targets, max if history.maximize else min))
        titles = [f"trial {one.task_id}: {show(one.target)}" for one in shown]
        marks.append(Line(ids, best, GREEN, 2.0, name="best so far", steps=True))
        marks.append(Points(ids, targets, [BLUE] * len(ids), titles, name="trials"))
    remark = "" if shown else "no result yet"
    chart = Chart(f"{len(shown)} trials", Axis("trial"), Axis(history.name), marks, remark=remark)
    return svg_file([chart], history.name)


def text_table(head: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    """A table as plain text: `+---+` between rows and `+===+` below the head."""
    widths = [max(len(row[i]) for row in (head, *rows)) for i in range(len(head))]
    line = "+" + "+".join("-" * (width + 2) for width in widths) + "+"
    double = line.replace("-", "=")
    lines = [line, _row(head, widths), double]
    for row in rows:
        lines += [_row(row, widths), line]
    return "\n".join(lines)


def show(value: Any) -> str:
    """A value as it stands in a cell: one printable line, not too long."""
    if isinstance(value, float):
        return f"{value:.6g}"
    text = printable(str(value))
    return text if len(text) <= 60 else text[:57] + "..."


def _row(cells: Sequence[str], widths: Sequence[int]) -> str:
    return "| " + " | ".join(cell.ljust(width) for cell, width in zip(cells, widths, strict=True)) + " |"
