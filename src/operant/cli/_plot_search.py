"""The charts of a search: the same data as on its page."""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable
from pathlib import Path
from typing import Any

from operant.errors import MissingExtraError
from operant.plotting.charts import (
    BLUE,
    GREEN,
    GREY,
    STATUS,
    Axis,
    Bars,
    Chart,
    Heat,
    Line,
    Mark,
    Note,
    Points,
    Spans,
    shade,
    thin,
)
from operant.schedulers.analysis import chart_data
from operant.schedulers.analysis.axes import SettingAxis, axes_of, label
from operant.schedulers.views.live import LiveSearch
from operant.schedulers.views.recorded import job_history, recorded_rule
from operant.schedulers.views.region_tree import has_tree, region_nodes

_MOST_SLICES = 9
_MOST_AXES = 10
_MOST_LINES = 500
_PAIRED = 3


def charts_of_search(folder: Path, kinds: list[str]) -> list[Chart]:
    search = _Search(LiveSearch(folder))
    return [chart for kind in kinds for chart in SEARCH_KINDS[kind](search)]


class _Search:
    """A search with what several charts need of it."""

    def __init__(self, live: LiveSearch) -> None:
        self.live = live
        self.reward = str(live.state.opened.get("reward") or "reward")
        self.columns, self.settings, _ = chart_data.job_columns(live)
        self.axes = axes_of(live.state)
        self._importance: dict[str, Any] | None = None

    @property
    def importance(self) -> dict[str, Any]:
        if self._importance is None:
            self._importance = chart_data.importance(chart_data.trials_of(self.live))
        return self._importance

    def ranked_axes(self) -> list[SettingAxis]:
        """The settings that vary, those that matter most first where that is known."""
        varied = [one for one in self.axes if len({label(v) for v in self.settings.get(one.name, [])}) > 1]
        try:
            order = self.importance["names"] if self.importance["importance"] else []
        except MissingExtraError:  # the charts keep the order of the configuration
            order = []
        places = {name: place for place, name in enumerate(order)}
        return sorted(varied, key=lambda one: places.get(one.name, len(places)))

    def rewarded(self) -> list[int]:
        """Rows of jobs of the search itself that have a reward."""
        rewards, checks = self.columns["reward"], self.columns["is_check"]
        return [
            row
            for row, reward in enumerate(rewards)
            if reward is not None and math.isfinite(reward) and not checks[row]
        ]

    def title(self, row: int) -> str:
        shown = [f"job {self.columns['id'][row]}: {str(self.columns['status'][row]).lower()}"]
        reward = self.columns["reward"][row]
        if reward is not None:
            shown.append(f"{self.reward} {reward:.6g}")
        shown += [f"{name} = {_text(values[row])}" for name, values in self.settings.items() if values[row] is not None]
        return "\n".join(shown)

    def shares(self, rows: list[int]) -> dict[int, float]:
        """For each row from 0 (the worst) to 1 (the best), by rank: one absurd reward leaves the others apart."""
        rewards = self.columns["reward"]
        ordered = sorted(rows, key=lambda row: rewards[row], reverse=not self.live.state.maximize)
        return {row: place / max(1, len(ordered) - 1) for place, row in enumerate(ordered)}

    def scale(self, rows: list[int]) -> tuple[float, float, str] | None:
        rewards = [self.columns["reward"][row] for row in rows]
        if not rewards:
            return None
        worst, best = min(rewards), max(rewards)
        return (worst, best, self.reward) if self.live.state.maximize else (best, worst, self.reward)


def _history(search: _Search) -> list[Chart]:
    rows, columns = search.rewarded(), search.columns
    marks: list[Mark] = []
    for status, colour in STATUS.items():
        of_status = [row for row in rows if columns["status"][row] == status]
        if of_status:
            marks.append(
                Points(
                    [float(columns["number"][row]) for row in of_status],
                    [columns["reward"][row] for row in of_status],
                    [colour] * len(of_status),
                    [search.title(row) for row in of_status],
                    status.lower(),
                )
            )
    best = [(float(columns["number"][row]), columns["best_so_far"][row]) for row in rows]
    if best:
        marks.append(Line([x for x, _ in best], [y for _, y in best], GREEN, 2.0, name="best so far", steps=True))
    return [Chart("Best so far", Axis("proposal"), Axis(search.reward), marks, remark="" if rows else "no result yet")]


def _importance(search: _Search) -> list[Chart]:
    try:
        found = search.importance
    except MissingExtraError as error:  # the other charts do without
        return [Chart("Importance", Axis(), Axis(bare=True), remark=str(error))]
    names, shares = found["names"][::-1], found["importance"][::-1]
    if not shares:
        return [Chart("Importance", Axis(), Axis(bare=True), remark=str(found["note"]))]
    titles = [f"{name}: {share:.1%}" for name, share in zip(names, shares, strict=True)]
    return [
        Chart(
            "Importance",
            Axis(f"share of the effect on {search.reward}"),
            Axis(choices=tuple(names)),
            [Bars(shares, BLUE, titles)],
            remark=str(found["note"] or ""),
        )
    ]


def _parallel(search: _Search) -> list[Chart]:
    axes, rows, columns = search.ranked_axes()[:_MOST_AXES], search.rewarded(), search.columns
    shares = search.shares(rows)
    rows = sorted(rows, key=lambda row: shares[row])[-_MOST_LINES:]  # the best lie on top
    if not rows:
        return [Chart("Parallel coordinates", Axis(), Axis(bare=True), remark="no result yet")]
    rewards = [columns["reward"][row] for row in rows]
    low, high = min(rewards), max(rewards)
    marks: list[Mark] = []
    for row in rows:
        places = [_place(axis, search.settings[axis.name][row]) for axis in axes]
        places.append((columns["reward"][row] - low) / (high - low) if high > low else 0.5)
        xs = [float(at) for at, place in enumerate(places) if place is not None]
        ys = [place for place in places if place is not None]
        share = shares[row]
        marks.append(Line(xs, ys, shade(share), 1.0 + share, 0.35 + 0.55 * share, title=search.title(row)))
    for at, axis in enumerate(axes):
        marks.append(Line([at, at], [0.0, 1.0], GREY, 1.0))
        for place, text in _axis_labels(axis):
            marks.append(Note(at, place, text))
    marks.append(Line([len(axes)] * 2, [0.0, 1.0], GREY, 1.0))
    marks += [Note(len(axes), 1.06, f"{high:.4g}"), Note(len(axes), -0.06, f"{low:.4g}")]
    names = (*(f"{axis.name} (log)" if axis.log else axis.name for axis in axes), search.reward)
    return [Chart("Parallel coordinates", Axis(choices=names), Axis(bare=True), marks, scale=search.scale(rows))]


def _place(axis: SettingAxis, value: Any) -> float | None:
    place = axis.place(value)
    if place is None or axis.is_numeric:
        return place
    return place / max(1, len(axis.choices or ()) - 1) if len(axis.choices or ()) > 1 else 0.5


def _axis_labels(axis: SettingAxis) -> list[tuple[float, str]]:
    if axis.is_numeric:
        return [(-0.06, _text(axis.low)), (1.06, _text(axis.high))]
    choices = axis.choices or ()
    if len(choices) > 8:
        return [(-0.06, _text(choices[0])), (1.06, _text(choices[-1]))]
    return [(_place(axis, one) or 0.0, _text(one)) for one in choices]


def _slice(search: _Search) -> list[Chart]:
    found = {one["axis"]["name"]: one for one in chart_data.slices(search.live)}
    rows = {search.columns["id"][row]: row for row in search.rewarded()}
    charts = []
    for axis in search.ranked_axes()[:_MOST_SLICES]:
        one = found[axis.name]
        kept = [
            (_across(axis, value), reward, rows[job])
            for value, reward, job in zip(one["values"], one["rewards"], one["ids"], strict=True)
            if job in rows and _across(axis, value) is not None
        ]
        last = max((search.columns["number"][row] for _, _, row in kept), default=0) or 1
        points = Points(
            [x for x, _, _ in kept if x is not None],
            [y for _, y, _ in kept],
            [shade(search.columns["number"][row] / last) for _, _, row in kept],
            [search.title(row) for _, _, row in kept],
        )
        charts.append(Chart(axis.name, _axis(axis), Axis(search.reward), [points], scale=(0, last, "proposal")))
    return charts or [Chart("Slices", Axis(), Axis(bare=True), remark="no setting varies")]


def _contour(search: _Search) -> list[Chart]:
    charts = []
    axes = {one.name: one for one in search.axes}
    for a, b in itertools.combinations([one.name for one in search.ranked_axes()[:_PAIRED]], 2):
        found = chart_data.contour(search.live, a, b)
        rewards = [one for one in found["points"]["reward"] if math.isfinite(one)]
        if not rewards:
            continue
        ordered = sorted(rewards)
        across, up = axes[a], axes[b]
        colours = [
            [None if z is None else shade(_rank(ordered, z, search.live.state.maximize)) for z in line]
            for line in found["z"]
        ]
        points = found["points"]
        titles = [
            f"job {job}: {search.reward} {reward:.6g}\n{a} = {_named(across, x)}\n{b} = {_named(up, y)}"
            for job, reward, x, y in zip(*(points[key] for key in ("id", "reward", "x", "y")), strict=True)
        ]
        tints = [shade(_rank(ordered, one, search.live.state.maximize)) for one in points["reward"]]
        marks: list[Mark] = [
            Heat(_edges(across, found["x"]["values"]), _edges(up, found["y"]["values"]), colours),
            Points(points["x"], points["y"], tints, titles, size=3.0),
        ]
        ends = (ordered[0], ordered[-1]) if search.live.state.maximize else (ordered[-1], ordered[0])
        charts.append(Chart(f"{a} and {b}", _axis(across), _axis(up), marks, scale=(*ends, search.reward)))
    return charts or [Chart("Contour", Axis(), Axis(bare=True), remark="it needs two settings that vary, and results")]


def _rank(ordered: list[float], value: float, maximize: bool) -> float:
    import bisect

    share = (bisect.bisect_left(ordered, value) + bisect.bisect_right(ordered, value)) / (2 * len(ordered))
    return share if maximize else 1 - share


def _edges(axis: SettingAxis, values: list[Any]) -> list[float]:
    """The borders of the cells whose middles the values are."""
    if not axis.is_numeric:
        return [at - 0.5 for at in range(len(values) + 1)]
    scaled = [math.log(one) if axis.log else float(one) for one in values]
    if len(scaled) == 1:
        middles = [scaled[0] - 0.5, scaled[0] + 0.5]
    else:
        half = (scaled[1] - scaled[0]) / 2
        middles = [scaled[0] - half, *((a + b) / 2 for a, b in itertools.pairwise(scaled)), scaled[-1] + half]
    return [math.exp(one) if axis.log else one for one in middles]


def _intermediate(search: _Search) -> list[Chart]:
    rule = recorded_rule(search.live.state.opened)

    def curve(job: str) -> tuple[list[float], list[float]] | None:
        history = job_history(search.live.folder, job, rule, search.live.state)
        if not history:
            return None
        return thin([float(one["iteration"]) for one in history], [float(one["value"]) for one in history])

    found = chart_data.intermediate(search.live, rule.attribute, curve)
    rows = {job: row for row, job in enumerate(search.columns["id"])}
    best = search.live.state.best
    marks: list[Mark] = []
    legend = {}
    for one in sorted(
        found, key=lambda job: search.columns["number"][rows[job["id"]]] == (best.number if best else -1)
    ):
        is_best = best is not None and search.columns["number"][rows[one["id"]]] == best.number
        colour = GREEN if is_best else STATUS.get(one["status"], GREY)
        legend[one["status"].lower() if not is_best else "best"] = colour
        title = search.title(rows[one["id"]])
        marks.append(
            Line(one["steps"], one["values"], colour, 2.2 if is_best else 1.0, 1.0 if is_best else 0.5, title=title)
        )
        if one["stopped"]:  # where it was stopped
            marks.append(Points([one["steps"][-1]], [one["values"][-1]], [colour], [title], size=3.0))
    remark = "" if marks else f"no job recorded {rule.attribute} on its way"
    return [Chart("Intermediate values", Axis("step"), Axis(rule.attribute), marks, legend, remark=remark)]


def _timeline(search: _Search) -> list[Chart]:
    columns = search.columns
    rows = [row for row, lane in enumerate(columns["lane"]) if lane is not None]
    if not rows:
        return [Chart("Timeline", Axis(), Axis(bare=True), remark="no job has started")]
    start = min(columns["started"][row] for row in rows)
    last = max(columns["ended"][row] or columns["started"][row] for row in rows)
    size, unit = next(
        (size, unit) for size, unit in ((86400, "days"), (3600, "hours"), (60, "minutes"), (1, "seconds"))
        if last - start >= 2 * size or size == 1
    )  # fmt: skip
    spans = Spans(
        [float(columns["lane"][row]) for row in rows],
        [(columns["started"][row] - start) / size for row in rows],
        [((columns["ended"][row] or last) - start) / size for row in rows],
        [STATUS.get(columns["status"][row], GREY) for row in rows],
        [search.title(row) for row in rows],
    )
    used = {columns["status"][row] for row in rows}
    legend = {status.lower(): colour for status, colour in STATUS.items() if status in used}
    workers = tuple(str(lane + 1) for lane in range(max(columns["lane"][row] for row in rows) + 1))
    return [Chart("Timeline", Axis(unit), Axis("worker", choices=workers), [spans], legend)]


def _tree(search: _Search) -> list[Chart]:
    """The regions of LA-MCTS: each level below the last, as wide as it has samples, in the shade of their mean."""
    if not has_tree(search.live.state):
        return []
    nodes = region_nodes(search.live.state, search.live.name)
    if not nodes:
        return [Chart("Regions", Axis(), Axis(bare=True), remark="fewer than two trials have ended")]
    means = sorted(node["mean"] for node in nodes)
    deepest = max(len(node["path"]) for node in nodes)
    rows = [float(deepest - len(node["path"])) for node in nodes]
    sign = 1 if search.live.state.maximize else -1
    titles = [
        f"{node['path'] or 'all samples'}: {node['count']} samples, mean {sign * node['mean']:.6g}"
        + ("" if node["bound"] is None else f", bound {sign * node['bound']:.6g}")
        for node in nodes
    ]
    spans = Spans(
        rows,
        [float(node["first"]) for node in nodes],
        [float(node["first"] + node["count"]) for node in nodes],
        [shade(_rank(means, node["mean"], True)) for node in nodes],
        titles,
    )
    stars: list[Mark] = [
        Note(node["first"] + node["count"] / 2, row, "*")
        for node, row in zip(nodes, rows, strict=True)
        if node["marked"]
    ]
    levels = Axis("level", choices=tuple(str(level) for level in range(deepest, -1, -1)))
    remark = "the better half of each region on the left; * the path of the newest proposal"
    ends = (sign * means[0], sign * means[-1], f"mean {search.reward}")
    return [Chart("Regions", Axis("samples"), levels, [spans, *stars], scale=ends, remark=remark)]


def _axis(axis: SettingAxis) -> Axis:
    if axis.is_numeric:
        return Axis(axis.name, axis.log)
    return Axis(axis.name, choices=tuple(_text(one) for one in axis.choices or ()))


def _across(axis: SettingAxis, value: Any) -> float | None:
    """Where a value lies on the axis of a chart: itself, or the number of the choice."""
    if axis.place(value) is None:
        return None
    return float(value) if axis.is_numeric else axis.place(value)


def _named(axis: SettingAxis, place: float) -> str:
    """The value at a place of a chart's axis, as text."""
    return _text(place if axis.is_numeric else (axis.choices or ())[int(place)])


def _text(value: Any) -> str:
    return f"{value:.4g}" if isinstance(value, float) else label(value)


SEARCH_KINDS: dict[str, Callable[[_Search], list[Chart]]] = {
    "history": _history,
    "importance": _importance,
    "parallel": _parallel,
    "slice": _slice,
    "contour": _contour,
    "intermediate": _intermediate,
    "timeline": _timeline,
    "tree": _tree,
}
