"""Groups of finished trainings as experiments are judged: scores by task and seed, and how they came about."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from fnmatch import fnmatchcase
from pathlib import Path
from typing import Any

import numpy as np

from operant.errors import UsageError
from operant.status import Status
from operant.tracking import Run
from operant.tracking.reading.index import Index, RunRow
from operant.training.statistics import Array, interval

TAG = "evaluation/return"
_PLACES = 40
_LARGEST = 1e100  # sums and squares of what is larger are none

Range = tuple[float, float]


@dataclass(frozen=True)
class Curve:
    """The evaluations of one training."""

    run: str
    steps: Array
    returns: Array

    def score(self, best: bool) -> float:
        return float(self.returns.max() if best else self.returns[-1])


@dataclass(frozen=True)
class Group:
    """Trainings of one kind: for each task (an environment) the curves of its seeds."""

    name: str
    tasks: dict[str, list[Curve]]

    @property
    def runs(self) -> int:
        return sum(map(len, self.tasks.values()))

    def scores(self, ranges: Mapping[str, Range], best: bool = False) -> list[list[float]]:
        """Scores of each task, on the scale where its range is 0 to 1."""
        return [
            [(curve.score(best) - low) / (high - low) for curve in self.tasks[task]]
            for task, (low, high) in ranges.items()
        ]

    def progress(self, ranges: Mapping[str, Range]) -> tuple[Array, Array]:
        """Steps [P], and at each the IQM and the ends of its interval [P, 3]: how soon which score is reached."""
        curves = [curve for each in self.tasks.values() for curve in each]
        begin, end = max(curve.steps[0] for curve in curves), min(curve.steps[-1] for curve in curves)
        grid = np.linspace(begin, max(begin, end), _PLACES if end > begin else 1)
        tables = [
            (np.array([np.interp(grid, one.steps, one.returns) for one in self.tasks[task]]) - low) / (high - low)
            for task, (low, high) in ranges.items()
        ]
        found = [interval([table[:, place].tolist() for table in tables]) for place in range(len(grid))]
        return grid, np.array(found)


def read_groups(root: Path, wanted: Mapping[str, Sequence[str]]) -> list[Group]:
    """The groups of runs whose name or id matches a pattern; a name alone stands for its seeds.

    Only finished trainings count. Where one was made twice with the same seed, the newest counts.
    """
    rows = [row for row in Index(root).rows() if row.status == Status.FINISHED and TAG in row.last]
    groups = [_group(root, name, patterns, rows) for name, patterns in wanted.items()]
    first = groups[0]
    for other in groups[1:]:
        if other.tasks.keys() != first.tasks.keys():
            missing = sorted(other.tasks.keys() ^ first.tasks.keys())[0]
            raise UsageError(
                f"{first.name} and {other.name} were trained on other environments: only one of them has {missing}"
            )
    return groups


def _group(root: Path, name: str, patterns: Sequence[str], rows: Sequence[RunRow]) -> Group:
    newest: dict[tuple[str, Any], RunRow] = {}
    for row in sorted(rows, key=lambda row: row.started or 0.0):
        if any(_matches(row, pattern) for pattern in patterns):
            newest[_task(row), row.params.get("seed")] = row
    if not newest:
        raise UsageError(f"no finished training in {root} is called {' or '.join(patterns)}; `operant runs` lists them")
    tasks: dict[str, list[Curve]] = {}
    for (task, _), row in sorted(newest.items(), key=lambda item: (item[0][0], item[1].id)):
        tasks.setdefault(task, []).append(_curve(Run.open(row.id, root)))
    return Group(name, tasks)


def _matches(row: RunRow, pattern: str) -> bool:
    name, _, seed = row.name.rpartition("-seed")
    whole = name if seed.isdigit() else row.name
    return any(fnmatchcase(given, pattern) for given in (row.id, row.name, whole))


def _task(row: RunRow) -> str:
    arguments = str(row.params.get("env.arguments", "{}"))
    return str(row.params.get("env.id", "")) + ("" if arguments == "{}" else f" {arguments}")


def _curve(run: Run) -> Curve:
    points = run.scalars(TAG)
    points = points[np.argsort(points["step"], kind="stable")]
    curve = Curve(run.id, points["step"].astype(float), points["value"].astype(float))
    wrong = curve.returns[~(np.abs(curve.returns) <= _LARGEST)]
    if wrong.size:
        raise UsageError(f"run {run.id} has a return of {wrong[0]:g}, which cannot be compared; leave that run out")
    return curve


def score_ranges(groups: Sequence[Group], given: Mapping[str, Range], best: bool = False) -> dict[str, Range]:
    """What counts as 0 and 1 in each task: as given, or where there are several the least and greatest score there.

    One task alone keeps its own scale.
    """
    tasks = list(groups[0].tasks)
    for task in given:
        if task not in tasks:
            raise UsageError(f"a range is given for {task!r}, but the runs are of {', '.join(tasks)}")
    ranges: dict[str, Range] = {}
    for task in tasks:
        scores = [curve.score(best) for group in groups for curve in group.tasks[task]]
        own = (min(scores), max(scores)) if len(tasks) > 1 else (0.0, 1.0)
        low, high = given.get(task, own)
        ranges[task] = (low, high if high > low else low + 1.0)
    return ranges
