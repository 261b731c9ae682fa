"""Groups of finished trainings as experiments are judged: scores by task and seed, and how they came about."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from fnmatch import fnmatchcase
from pathlib import Path
from typing import Any

import numpy as np

from operant.errors import UsageError
from operant.plotting.charts import SERIES, Axis, Band, Chart, Line, Mark, Points
from operant.status import Status
from operant.tracking import Run
from operant.tracking.reading.index import Index, RunRow
from operant.training.statistics import Array, improvement, interval, profile

TAG = "evaluation/return"
_PLACES, _MARKS = 40, 101
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
    """Trainings of one kind: for each task (an environment) the curves of its seeds.

    `mixed` names the settings, beside the seed, in which trainings of one task differ: then they are not of one kind.
    `unfinished` counts seeds whose training did not come to its end: scores without those that failed look better.
    """

    name: str
    tasks: dict[str, list[Curve]]
    mixed: list[str]
    unfinished: int = 0

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
    rows = Index(root).rows()
    groups = []
    for name, patterns in wanted.items():
        called = " or ".join(patterns)
        named = [row for row in rows if any(_matches(row, pattern) for pattern in patterns)]
        finished = [row for row in named if row.status == Status.FINISHED]
        if not finished:
            raise UsageError(f"no finished training in {root} is called {called}; `operant runs` lists them")
        matching = [row for row in finished if TAG in row.last]
        if not matching:
            raise UsageError(f"no run in {root} that is called {called} has evaluations ({TAG}): it is no training")
        groups.append(_group(root, name, matching, named))
    return _alike(groups)


def group_by_name(root: Path, rows: Sequence[RunRow]) -> list[Group]:
    """Runs as groups of the same name, in which the seeds are told apart by its end."""
    named: dict[str, list[RunRow]] = {}
    everything: dict[str, list[RunRow]] = {}
    for row in rows:
        name = _without_seed(row.name)
        everything.setdefault(name, []).append(row)
        if row.status == Status.FINISHED and TAG in row.last:
            named.setdefault(name, []).append(row)
    if not named:
        raise UsageError("none of these runs is a finished training with evaluations")
    return _alike([_group(root, name, named[name], everything[name]) for name in sorted(named)])


def _alike(groups: list[Group]) -> list[Group]:
    first = groups[0]
    for other in groups[1:]:
        if other.tasks.keys() != first.tasks.keys():
            missing = sorted(other.tasks.keys() ^ first.tasks.keys())[0]
            raise UsageError(
                f"{first.name} and {other.name} were trained on other environments: only one of them has {missing}"
            )
    return groups


def _group(root: Path, name: str, rows: Sequence[RunRow], everything: Sequence[RunRow]) -> Group:
    """A group of these runs; `everything` are those of its name, finished or not."""
    newest: dict[tuple[str, Any], RunRow] = {}
    for row in sorted(rows, key=lambda row: row.started or 0.0):
        newest[_task_and_seed(row)] = row
    unfinished = {_task_and_seed(row) for row in everything if "env.id" in row.params} - newest.keys()
    tasks: dict[str, list[Curve]] = {}
    settings: dict[str, list[Mapping[str, Any]]] = {}
    for (task, _), row in sorted(newest.items(), key=lambda item: (item[0][0], item[1].id)):
        tasks.setdefault(task, []).append(_curve(Run.open(row.id, root)))
        settings.setdefault(task, []).append(row.params)
    return Group(name, tasks, sorted(set().union(*map(_differing, settings.values()))), len(unfinished))


def _task_and_seed(row: RunRow) -> tuple[str, Any]:
    return _task(row), row.params.get("seed", row.id)


def _differing(settings: Sequence[Mapping[str, Any]]) -> set[str]:
    names = set().union(*settings) - {"name", "seed"}
    return {name for name in names if len({repr(one.get(name)) for one in settings}) > 1}


def _matches(row: RunRow, pattern: str) -> bool:
    called = (row.id, row.name, _without_seed(row.name))
    return pattern in called or any(fnmatchcase(given, pattern) for given in called)  # names may have brackets


def _without_seed(name: str) -> str:
    whole, _, seed = name.rpartition("-seed")
    return whole if seed.isdigit() else name


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
        # Where all scores are the same; next to a large number 1 is nothing.
        ranges[task] = (low, high if high > low else low + max(1.0, float(np.spacing(abs(low)))))
    return ranges


def score_figures(groups: Sequence[Group], ranges: Mapping[str, Range], best: bool = False) -> list[dict[str, Any]]:
    """Of each group its IQM, and how surely one of its runs is better than one of the first group's."""
    first = groups[0].scores(ranges, best)
    found = []
    for group in groups:
        scores = group.scores(ranges, best)
        better = None if group is groups[0] else improvement(scores, first)
        figures = {"group": group.name, "runs": group.runs, "iqm": interval(scores), "better": better}
        found.append({**figures, "mixed": group.mixed, "unfinished": group.unfinished})
    return found


def score_charts(groups: Sequence[Group], ranges: Mapping[str, Range], best: bool = False) -> list[Chart]:
    """IQMs, performance profiles and how soon which score is reached."""
    label = "return" if len(ranges) == 1 else "score"
    every = [value for group in groups for task in group.scores(ranges, best) for value in task]
    marks = np.linspace(min(every), max(every), _MARKS)
    means: list[Mark] = []
    profiles: list[Mark] = []
    progress: list[Mark] = []
    for place, group in enumerate(groups):
        colour, name = SERIES[place % len(SERIES)], f"{group.name} ({group.runs} runs)"
        scores = group.scores(ranges, best)
        middle, low, high = interval(scores)
        told = f"{group.name}: {middle:.4g} [{low:.4g}, {high:.4g}]"
        means += [
            Line([low, high], [place, place], colour, 4.0, 0.5, title=told),
            Points([middle], [place], [colour], [told], size=5.0),
        ]
        share, least, most = profile(scores, marks.tolist())
        profiles += [
            Band(marks.tolist(), least.tolist(), most.tolist(), colour),
            Line(marks.tolist(), share.tolist(), colour, 2.0, name=name, title=name, steps=True),
        ]
        steps, found = group.progress(ranges)
        progress += [
            Band(steps.tolist(), found[:, 1].tolist(), found[:, 2].tolist(), colour),
            Line(steps.tolist(), found[:, 0].tolist(), colour, 2.0, name=name, title=name),
        ]
    names = tuple(group.name for group in groups)
    remark = "bands and bars: 95 % bootstrap intervals, seeds drawn anew within each environment"
    return [
        Chart("Interquartile mean", Axis(label), Axis("", choices=names), means, remark=remark),
        Chart("Performance profile", Axis(label), Axis("share of runs above it"), profiles, remark=remark),
        Chart("Sample efficiency", Axis("step"), Axis(f"IQM of the {label}"), progress, remark=remark),
    ]
