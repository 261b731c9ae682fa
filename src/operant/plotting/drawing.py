"""Where everything in a chart lies: one layout, which SVG, HTML, PNG and PDF only write down.

Lengths are pixels, from the upper left corner. A colour is ``#rrggbb``, or a role (``ink``, ``soft``, ``grid``,
``paper``) that whoever writes the drawing gives a colour to: a page has another one in the dark.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field

from operant._util.units import printable
from operant.plotting.charts import (
    Axis,
    Band,
    Bars,
    Chart,
    Heat,
    Line,
    Mark,
    Note,
    Points,
    Spans,
    nice_ticks,
    shade,
    short,
)

WIDTH, PLOT_HEIGHT = 640.0, 330.0
_MARGIN, _LINE = 14.0, 19.0
_TICK_SIZE, _LABEL_SIZE, _TITLE_SIZE, _HEADING_SIZE = 12.0, 13.0, 15.0, 17.0
_LONGEST_LEGEND = 12
_SHADES = 32
_HEAT_ALPHA = 0.85

Place = tuple[float, float]
Scale = Callable[[float], float]


@dataclass(frozen=True)
class Polyline:
    pieces: Sequence[Sequence[Place]]
    """Between two pieces there is a gap."""
    colour: str
    width: float = 1.0
    alpha: float = 1.0
    title: str = ""
    """What pointing at it shows, where the format can; so for all parts."""


@dataclass(frozen=True)
class Polygon:
    corners: Sequence[Place]
    colour: str
    alpha: float = 1.0


@dataclass(frozen=True)
class Dots:
    places: Sequence[Place]
    colours: Sequence[str]
    titles: Sequence[str]
    radius: float


@dataclass(frozen=True)
class Boxes:
    corners: Sequence[tuple[float, float, float, float]]
    """Left, upper, right and lower edge."""
    colours: Sequence[str]
    titles: Sequence[str]
    alpha: float = 1.0


@dataclass(frozen=True)
class Text:
    x: float
    y: float
    text: str
    anchor: str = "middle"
    colour: str = "soft"
    size: float = _TICK_SIZE
    bold: bool = False
    turned: float = 0.0
    """Degrees against the clock."""
    outlined: bool = False
    """Readable on top of other marks."""


Part = Polyline | Polygon | Dots | Boxes | Text


@dataclass
class Drawing:
    width: float = WIDTH
    height: float = 0.0
    parts: list[Part] = field(default_factory=list)

    def write(self, x: float, y: float, text: str, anchor: str = "middle", colour: str = "soft") -> None:
        self.parts.append(Text(x, y, printable(text), anchor, colour))


def draw_chart(chart: Chart) -> Drawing:
    """The title, the plot with its axes, and below it the legend, the scale of shades and the remark."""
    drawing = Drawing()
    drawing.parts.append(Text(_MARGIN, 24, printable(chart.title), "start", "ink", _TITLE_SIZE, bold=True))
    top = 42.0
    if not chart.marks:
        drawing.write(WIDTH / 2, top + 40, chart.remark)
        drawing.height = top + 90
        return drawing
    y = _plot(drawing, chart, top)
    y = _legend(drawing, chart, y)
    if chart.scale is not None:
        y = _shades(drawing, chart.scale, y)
    if chart.remark:
        drawing.write(_MARGIN, y + 12, chart.remark, "start")
        y += _LINE
    drawing.height = y + 8
    return drawing


def draw_figure(charts: Sequence[Chart], title: str) -> tuple[float, float, list[tuple[float, float, Drawing]]]:
    """All charts on one sheet, two in a row below the title: its width and height, and what lies where on it."""
    columns = 1 if len(charts) == 1 else 2
    heading = Drawing(height=36.0)
    heading.parts.append(Text(_MARGIN, 26, printable(title), "start", "ink", _HEADING_SIZE, bold=True))
    placed, y = [(0.0, 0.0, heading)], heading.height
    for at in range(0, len(charts), columns):
        row = [draw_chart(chart) for chart in charts[at : at + columns]]
        placed += [(place * WIDTH, y, one) for place, one in enumerate(row)]
        y += max(one.height for one in row)
    return columns * WIDTH, y, placed


def _plot(drawing: Drawing, chart: Chart, top: float) -> float:
    """Axes and marks; returns how far down they reach."""
    (x_low, x_high), (y_low, y_high) = chart.limits()
    x_ticks = [] if chart.x.bare else nice_ticks(chart.x, x_low, x_high)
    y_ticks = [] if chart.y.bare else nice_ticks(chart.y, y_low, y_high)
    left = _MARGIN + (_LINE if chart.y.label else 0) + max((_wide(label) for _, label in y_ticks), default=0.0) + 8
    right, bottom = WIDTH - 24, top + PLOT_HEIGHT
    across = _scale(chart.x, x_low, x_high, left, right)
    up = _scale(chart.y, y_low, y_high, bottom, top)
    drawing.parts += [Polyline([[(across(at), top), (across(at), bottom)]], "grid") for at, _ in x_ticks]
    drawing.parts += [Polyline([[(left, up(at)), (right, up(at))]], "grid") for at, _ in y_ticks]
    for mark in chart.marks:
        drawing.parts += _mark(mark, across, up)
    for at, label in y_ticks:
        drawing.write(left - 7, up(at) + 4, label, "end")
    room = (right - left) / max(1, len(x_ticks))
    tilted = any(_wide(label) > room for _, label in x_ticks)
    for at, label in x_ticks:
        anchor, turned = ("end", 20.0) if tilted else ("middle", 0.0)
        drawing.parts.append(Text(across(at), bottom + 18, printable(label), anchor, turned=turned))
    y = bottom + 24 + (0.35 * max(_wide(label) for _, label in x_ticks) if tilted else 0)
    if chart.x.label:
        x_label = printable(chart.x.label)
        drawing.parts.append(Text((left + right) / 2, y + 14, x_label, "middle", "ink", _LABEL_SIZE))
        y += _LINE
    if chart.y.label:
        y_label, middle = printable(chart.y.label), (top + bottom) / 2
        drawing.parts.append(Text(_MARGIN + 8, middle, y_label, "middle", "ink", _LABEL_SIZE, turned=90.0))
    return y + 6


def _scale(axis: Axis, low: float, high: float, start: float, end: float) -> Scale:
    if axis.log:
        bottom, top = math.log(low), math.log(high)
        return lambda value: start + (math.log(max(value, 1e-300)) - bottom) / (top - bottom) * (end - start)
    return lambda value: start + (value - low) / (high - low) * (end - start)


def _mark(mark: Mark, across: Scale, up: Scale) -> Iterator[Part]:
    match mark:
        case Line():
            yield Polyline(_pieces(mark, across, up), mark.colour, mark.width, mark.alpha, mark.title)
        case Points():
            dots = [
                ((across(x), up(y)), colour, title)
                for x, y, colour, title in zip(mark.x, mark.y, mark.colours, mark.titles, strict=True)
                if math.isfinite(x) and math.isfinite(y)
            ]
            places, colours, titles = zip(*dots, strict=True) if dots else ((), (), ())
            yield Dots(places, colours, titles, mark.size)
        case Band():
            ends = [*zip(mark.x, mark.high, strict=True), *reversed(list(zip(mark.x, mark.low, strict=True)))]
            yield Polygon([(across(x), up(y)) for x, y in ends if math.isfinite(y)], mark.colour, mark.alpha)
        case Bars():
            rows = enumerate(mark.values)
            edges = [_box(across(0.0), up(at + 0.35), across(value), up(at - 0.35)) for at, value in rows]
            yield Boxes(edges, [mark.colour] * len(edges), mark.titles)
        case Spans():
            spans = zip(mark.rows, mark.starts, mark.ends, strict=True)
            edges = [_box(across(start), up(row + 0.4), across(end), up(row - 0.4)) for row, start, end in spans]
            yield Boxes(edges, mark.colours, mark.titles)
        case Heat():
            cells = [
                (_box(across(x0), up(y1), across(x1), up(y0)), colour)
                for line, y0, y1 in zip(mark.colours, mark.y_edges, mark.y_edges[1:], strict=False)
                for colour, x0, x1 in zip(line, mark.x_edges, mark.x_edges[1:], strict=False)
                if colour is not None
            ]
            edges = [edge for edge, _ in cells]
            yield Boxes(edges, [colour for _, colour in cells], [""] * len(cells), _HEAT_ALPHA)
        case Note():
            text = printable(short(mark.text))
            yield Text(across(mark.x), up(mark.y) + 4, text, mark.anchor, "ink", outlined=True)


def _pieces(mark: Line, across: Scale, up: Scale) -> list[list[Place]]:
    """The places of a line; it has a gap wherever a value is no number."""
    pieces: list[list[Place]] = [[]]
    for x, y in zip(mark.x, mark.y, strict=True):
        if not (math.isfinite(x) and math.isfinite(y)):
            pieces.append([])
            continue
        here = (across(x), up(y))
        if mark.steps and pieces[-1]:
            pieces[-1].append((here[0], pieces[-1][-1][1]))
        pieces[-1].append(here)
    return [piece for piece in pieces if piece]


def _box(left: float, upper: float, right: float, lower: float) -> tuple[float, float, float, float]:
    """The edges of a box that is wide and high enough to be seen."""
    return left, upper, max(right, left + 0.8), max(lower, upper + 0.8)


def _legend(drawing: Drawing, chart: Chart, y: float) -> float:
    entries = [(printable(short(name, 60)), colour) for name, colour in chart.entries.items()]
    more = len(entries) - _LONGEST_LEGEND
    if more > 0:
        entries = [*entries[:_LONGEST_LEGEND], (f"… and {more} more", "paper")]
    x = _MARGIN
    for name, colour in entries:
        wide = 22 + _wide(name) + 14
        if x > _MARGIN and x + wide > WIDTH:
            x, y = _MARGIN, y + _LINE
        drawing.parts.append(Boxes([(x, y + 6, x + 14, y + 9.5)], [colour], [""]))
        drawing.write(x + 20, y + 12, name, "start")
        x += wide
    return y + _LINE if entries else y


def _shades(drawing: Drawing, scale: tuple[float, float, str], y: float) -> float:
    """The shades with the values at their ends."""
    first, last, name = f"{scale[0]:.4g}", f"{scale[1]:.4g}", scale[2]
    drawing.write(_MARGIN, y + 12, first, "start")
    x = _MARGIN + _wide(first) + 6
    edges = [(x + at * 5, y + 2, x + at * 5 + 5.5, y + 12) for at in range(_SHADES)]
    drawing.parts.append(Boxes(edges, [shade(at / (_SHADES - 1)) for at in range(_SHADES)], [""] * _SHADES))
    drawing.write(x + 5 * _SHADES + 6, y + 12, f"{last}  {name}", "start")
    return y + _LINE


def _wide(text: str) -> float:
    """About how wide a text is: letters of a usual font are little more than half as wide as high."""
    return len(text) * _TICK_SIZE * 0.58
