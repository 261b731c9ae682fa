"""Curves of runs: the raw line always, over it a smooth one or the mean of a group."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import numpy as np

from operant.errors import UsageError, nearest
from operant.plotting.charts import SERIES, Axis, Band, Chart, Line, Mark, thin
from operant.tracking import Run

_MOST_TAGS = 12
_PLACES = 200


def curves(runs: Sequence[Run], tags: Sequence[str], smooth: float, group: str | None) -> list[Chart]:
    """A chart for each tag. With ``group`` (a setting, or ``name``) runs that agree in it share a colour and a mean."""
    chosen = _tags(runs, tags)
    groups: dict[str, list[Run]] = {}
    for run in runs:
        groups.setdefault(run.id if group is None else _group(run, group), []).append(run)
    charts = []
    for tag in chosen:
        marks: list[Mark] = []
        for place, (name, members) in enumerate(groups.items()):
            having = [run for run in members if tag in run.scalar_tags and len(run.scalars(tag))]
            colour = SERIES[place % len(SERIES)]
            if group is None:
                marks += [mark for run in having for mark in _single(run, tag, colour, smooth)]
            elif having:
                marks += _together(having, tag, colour, f"{group} = {name} ({len(having)} runs)", smooth)
        charts.append(Chart(tag, Axis("step"), Axis(tag), marks, remark=_remark(group, smooth)))
    return charts


def _remark(group: str | None, smooth: float) -> str:
    told = ["mean of the runs, band of ± one standard deviation"] if group is not None else []
    told += [f"thick: smoothed by {smooth:g}; thin: as recorded"] if smooth else []
    return "; ".join(told)


def _tags(runs: Sequence[Run], wanted: Sequence[str]) -> list[str]:
    known = list(dict.fromkeys(tag for run in runs for tag in run.scalar_tags))
    for tag in wanted:
        if tag not in known:
            raise UsageError(f"none of these runs has a scalar {tag!r}{nearest(tag, known)}")
    if wanted:
        return list(wanted)
    own = [tag for tag in known if not tag.startswith("system/")] or known
    if not own:
        raise UsageError("these runs have recorded no scalars")
    return own[:_MOST_TAGS]


def _group(run: Run, key: str) -> str:
    if key == "name":
        return run.name
    value = run.params.get(key)
    return "none" if value is None else f"{value:.6g}" if isinstance(value, float) else str(value)


def _points(run: Run, tag: str) -> tuple[Any, Any]:
    points = run.scalars(tag)
    points = points[np.argsort(points["step"], kind="stable")]
    return points["step"].astype(float), points["value"]


def _single(run: Run, tag: str, colour: str, smooth: float) -> list[Mark]:
    steps, values = _points(run, tag)
    raw = thin(steps.tolist(), values.tolist(), 1000)
    name = f"{run.name} ({run.id})" if run.name and run.name != run.id else run.id
    if not smooth:
        return [Line(*raw, colour, 1.5, name=name, title=name)]
    soft = thin(steps.tolist(), smoothed(values.tolist(), smooth), 1000)
    return [Line(*raw, colour, 0.8, 0.4, title=name), Line(*soft, colour, 2.0, name=name, title=name)]


def _together(runs: Sequence[Run], tag: str, colour: str, name: str, smooth: float) -> list[Mark]:
    """Thin lines of all runs, and their mean and deviation at common steps."""
    marks: list[Mark] = []
    found = [_points(run, tag) for run in runs]
    for run, (steps, values) in zip(runs, found, strict=True):
        marks.append(Line(*thin(steps.tolist(), values.tolist(), 400), colour, 0.6, 0.25, title=run.id))
    low, high = min(steps[0] for steps, _ in found), max(steps[-1] for steps, _ in found)
    grid = np.unique(np.concatenate([steps for steps, _ in found]))
    if len(grid) > _PLACES:
        grid = np.linspace(low, high, _PLACES)
    # Each run is smoothed by itself, as it was recorded: the grid is coarser, and would be smoothed far more.
    soft = [
        (steps, np.array(smoothed(values.tolist(), smooth))) if smooth else (steps, values) for steps, values in found
    ]
    table = np.array([np.interp(grid, steps, values, left=np.nan, right=np.nan) for steps, values in soft])
    there = np.isfinite(table)
    count = there.sum(axis=0)
    kept = count > 0
    grid, table, there, count = grid[kept], table[:, kept], there[:, kept], count[kept]
    mean = np.where(there, table, 0.0).sum(axis=0) / count
    spread = np.sqrt(np.where(there, (table - mean) ** 2, 0.0).sum(axis=0) / np.maximum(count - 1, 1))
    if len(runs) > 1:
        marks.append(Band(grid.tolist(), (mean - spread).tolist(), (mean + spread).tolist(), colour))
    marks.append(Line(grid.tolist(), mean.tolist(), colour, 2.2, name=name, title=name))
    return marks


def smoothed(values: Sequence[float], weight: float) -> list[float]:
    """The exponential moving average, without the pull towards zero that it has at its beginning."""
    found, mean, total = [], 0.0, 0.0
    for value in values:
        if math.isfinite(value):
            mean, total = weight * mean + (1 - weight) * value, weight * total + 1 - weight
        found.append(mean / total if total else math.nan)
    return found
