"""The lines of a chart, as a binary answer: a JSON header, then columns of numbers."""

from __future__ import annotations

import json
import math
import struct
from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from operant._util.checks import is_number
from operant.errors import UsageError
from operant.tracking.reading.pyramid import Pyramid
from operant.tracking.reading.run import Points
from operant.web.answers import ApiRequest, NotFound, TooLarge
from operant.web.app_state import AppState, Cursor
from operant.web.cache import OpenRun

MOST_RUNS = 1000
MOST_TAGS = 500
MOST_BUCKETS = 10_000
MOST_CELLS = 8_000_000
AXES = ("step", "wall", "relative")

Floats = NDArray[np.float64]


def charts(app: AppState, request: ApiRequest) -> Any:
    """`POST /api/charts`: at most ``buckets`` buckets of each tag of each run, or of each group of runs."""
    from starlette.responses import Response

    runs = list(dict.fromkeys(request.texts("runs", MOST_RUNS)))
    tags = list(dict.fromkeys(request.texts("tags", MOST_TAGS, 4096)))
    buckets = request.given("buckets", int, 500)
    if not 1 <= buckets <= MOST_BUCKETS:
        raise UsageError(f"'buckets' is a whole number from 1 to {MOST_BUCKETS}, not {buckets}")
    if len(runs) * len(tags) * buckets * 4 > MOST_CELLS * 4:
        raise TooLarge(f"{len(runs)} runs x {len(tags)} tags x {buckets} buckets are too many for one answer")
    axis = request.given("x", str, "step")
    if axis not in AXES:
        raise UsageError(f"'x' is one of {', '.join(AXES)}, not {axis[:40]!r}")
    start, end = (_limit(request.body.get(name), name) for name in ("start", "end"))
    cursor = app.runs.cursor
    group = request.body.get("group")
    if group is not None and not isinstance(group, str):
        raise UsageError("'group' must be the name of a setting")
    found: list[tuple[dict[str, Any], list[Floats]]] = []
    lines: dict[str, list[tuple[str, list[Floats]]]] = {tag: [] for tag in tags}
    labels: dict[str, str] = {}
    for run_id in runs:
        try:
            opened = app.runs.open(run_id, tags)
        except NotFound:
            continue
        with opened.lock:
            opened.refresh(tags)
            if group is not None:
                labels[run_id] = _group_label(app, opened, group)
            known = set(opened.run.scalar_tags)
            for tag in tags:
                if tag in known:
                    columns = line(opened, tag, buckets, start, end, axis)
                    if group is None:
                        found.append(
                            ({"run": run_id, "tag": tag, "fields": ["x", "least", "greatest", "mean"]}, columns)
                        )
                    elif len(columns[0]):
                        lines[tag].append((run_id, columns))
    app.runs.tidy()
    if group is not None:
        found = [one for tag in tags for one in grouped(tag, lines[tag], labels, buckets)]
    return Response(encode_series(found, str(Cursor(app.instance, runs=cursor))), media_type="application/octet-stream")


def line(opened: OpenRun, tag: str, buckets: int, start: float | None, end: float | None, axis: str) -> list[Floats]:
    """x, least, greatest and mean of each bucket."""
    run = opened.run
    points = run.scalars(tag)
    origin = (run.summary.started or 0.0) if axis == "relative" else 0.0
    by_step = axis == "step"
    if not by_step and (start is not None or end is not None):
        times = points["wall"] - origin
        inside = (times >= (-math.inf if start is None else start)) & (times <= (math.inf if end is None else end))
        points = points[inside]
        start = end = None
        chart = None if _is_short(points, buckets) else Pyramid(points).chart(buckets)
    else:
        low, high = None if start is None else math.ceil(start), None if end is None else math.floor(end)
        points = points if low is None and high is None else _between(points, low, high)
        chart = None if _is_short(points, buckets) else run.chart(tag, buckets, low, high)
    if chart is None:
        return _as_recorded(points, by_step, origin)
    x = chart.last_step.astype(np.float64) if by_step else chart.last_wall - origin
    return [x, chart.least, chart.greatest, chart.mean]


def _between(points: Points, low: int | None, high: int | None) -> Points:
    steps = points["step"]
    inside = np.ones(len(steps), bool)
    if low is not None:
        inside &= steps >= low
    if high is not None:
        inside &= steps <= high
    return points[inside]


def _is_short(points: Points, buckets: int) -> bool:
    """Whether every point has a bucket of its own: then there is nothing to sum up."""
    steps = points["step"]
    return len(points) <= buckets and bool(np.all(steps[1:] >= steps[:-1]))


def _as_recorded(points: Points, by_step: bool, origin: float) -> list[Floats]:
    x = points["step"].astype(np.float64) if by_step else points["wall"] - origin
    values: Floats = np.where(np.isfinite(points["value"]), points["value"], np.nan)
    return [x, values, values, values]


def grouped(
    tag: str, lines: Sequence[tuple[str, list[Floats]]], labels: dict[str, str], buckets: int
) -> list[tuple[dict[str, Any], list[Floats]]]:
    """Mean over the runs of each group, with one standard deviation to both sides, on steps that all share."""
    groups: dict[str, list[tuple[str, list[Floats]]]] = {}
    for run_id, columns in lines:
        groups.setdefault(labels[run_id], []).append((run_id, columns))
    found = []
    for name, members in sorted(groups.items()):
        low = min(columns[0][0] for _, columns in members)
        high = max(columns[0][-1] for _, columns in members)
        count = min(buckets, max(len(columns[0]) for _, columns in members))
        x = np.linspace(low, high, max(count, 1))
        table = np.stack([_at(x, columns) for _, columns in members])
        seen = np.isfinite(table)
        number = seen.sum(axis=0)
        with np.errstate(invalid="ignore", divide="ignore"):
            mean = np.where(seen, table, 0.0).sum(axis=0) / number
            spread = np.sqrt(np.where(seen, (table - mean) ** 2, 0.0).sum(axis=0) / np.maximum(number - 1, 1))
        kept = number > 0
        header = {
            "group": name,
            "tag": tag,
            "runs": [run_id for run_id, _ in members],
            "fields": ["x", "low", "high", "mean"],
        }
        found.append((header, [x[kept], (mean - spread)[kept], (mean + spread)[kept], mean[kept]]))
    return found


def _at(x: Floats, columns: list[Floats]) -> Floats:
    """A run's mean at the given places, NaN outside of what it recorded."""
    finite = np.isfinite(columns[3])
    if not finite.any():
        return np.full(len(x), np.nan)
    result: Floats = np.interp(x, columns[0][finite], columns[3][finite], left=np.nan, right=np.nan)
    return result


def encode_series(found: Sequence[tuple[dict[str, Any], list[Floats]]], cursor: str) -> bytes:
    """Length of the header, header padded so that the numbers begin at a multiple of 8, numbers."""
    series, offset = [], 0
    for header, columns in found:
        series.append({**header, "n": len(columns[0]), "offset": offset})
        offset += 8 * sum(len(column) for column in columns)
    # Offsets count from the start of the body, which depends on the header's own length: leave room, then say it.
    room = len(json.dumps({"series": series, "cursor": cursor})) + 12 * len(series) + 64
    room += -(room + 4) % 8
    for one in series:
        one["offset"] += room + 4
    header_text = json.dumps({"series": series, "cursor": cursor}, separators=(",", ":")).encode()
    pieces = [struct.pack("<I", room), header_text.ljust(room)]
    pieces += [np.ascontiguousarray(column, "<f8").tobytes() for _, columns in found for column in columns]
    return b"".join(pieces)


def _group_label(app: AppState, opened: OpenRun, name: str) -> str:
    from operant.schedulers.analysis.axes import label
    from operant.web.runs_api import params_of

    params = params_of(app, opened.id, opened.run.params)
    return f"{name}={label(params[name])}" if name in params else f"no {name}"


def _limit(value: Any, name: str) -> float | None:
    if value is None:
        return None
    if not is_number(value) or not math.isfinite(value):
        raise UsageError(f"{name!r} must be a number or null")
    return float(value)
