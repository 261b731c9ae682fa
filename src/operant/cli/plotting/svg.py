"""A chart as inline SVG: no script, no network; pointing at a mark tells what it is."""

from __future__ import annotations

import math
from collections.abc import Callable
from html import escape

from operant._util.units import printable
from operant.cli.plotting.charts import (
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

__all__ = ["chart_svg", "scale_svg"]

WIDTH, HEIGHT = 640, 400
_LEFT, _RIGHT, _TOP, _BOTTOM = 76, 24, 16, 52

Scale = Callable[[float], float]


def chart_svg(chart: Chart) -> str:
    if not chart.marks:
        return f'<svg viewBox="0 0 {WIDTH} 120" role="img">{_text(WIDTH / 2, 60, chart.remark, "middle")}</svg>'
    (x_low, x_high), (y_low, y_high) = chart.limits()
    left = _LEFT + (max((len(short(one)) for one in chart.y.choices), default=0) > 8) * 60
    across = _scale(chart.x, x_low, x_high, left, WIDTH - _RIGHT)
    up = _scale(chart.y, y_low, y_high, HEIGHT - _BOTTOM, _TOP)
    inner = "".join(_mark(mark, across, up) for mark in chart.marks)
    return (
        f'<svg viewBox="0 0 {WIDTH} {HEIGHT}" role="img" aria-label="{_escaped(chart.title)}">'
        f"{_x_axis(chart.x, across, x_low, x_high)}{_y_axis(chart.y, up, y_low, y_high, left)}{inner}</svg>"
    )


def _scale(axis: Axis, low: float, high: float, start: float, end: float) -> Scale:
    if axis.log:
        bottom, top = math.log(low), math.log(high)
        return lambda value: start + (math.log(max(value, 1e-300)) - bottom) / (top - bottom) * (end - start)
    return lambda value: start + (value - low) / (high - low) * (end - start)


def _x_axis(axis: Axis, across: Scale, low: float, high: float) -> str:
    parts = []
    tilted = any(len(one) > 9 for one in axis.choices) and len(axis.choices) > 4
    for value, label in nice_ticks(axis, low, high) if not axis.bare else []:
        x = across(value)
        parts.append(f'<line class="grid" x1="{x:.1f}" x2="{x:.1f}" y1="{_TOP}" y2="{HEIGHT - _BOTTOM}"/>')
        turn = f' transform="rotate(-20 {x:.1f} {HEIGHT - _BOTTOM + 18})"' if tilted else ""
        parts.append(_text(x, HEIGHT - _BOTTOM + 18, label, "end" if tilted else "middle", turn))
    parts.append(_text((across(low) + across(high)) / 2, HEIGHT - 10, axis.label, "middle", ' class="label"'))
    return "".join(parts)


def _y_axis(axis: Axis, up: Scale, low: float, high: float, left: float) -> str:
    parts = []
    for value, label in nice_ticks(axis, low, high) if not axis.bare else []:
        y = up(value)
        parts.append(f'<line class="grid" x1="{left}" x2="{WIDTH - _RIGHT}" y1="{y:.1f}" y2="{y:.1f}"/>')
        parts.append(_text(left - 6, y + 5, label, "end"))
    middle = (up(low) + up(high)) / 2
    parts.append(_text(14, middle, axis.label, "middle", f' class="label" transform="rotate(-90 14 {middle:.1f})"'))
    return "".join(parts)


def _mark(mark: Mark, across: Scale, up: Scale) -> str:
    match mark:
        case Line():
            return _line(mark, across, up)
        case Points():
            dots = zip(mark.x, mark.y, mark.colours, mark.titles, strict=True)
            return "".join(
                f'<circle cx="{across(x):.1f}" cy="{up(y):.1f}" r="{mark.size}" fill="{colour}">'
                f"{_title(title)}</circle>"
                for x, y, colour, title in dots
                if math.isfinite(x) and math.isfinite(y)
            )
        case Band():
            ends = [*zip(mark.x, mark.high, strict=True), *reversed(list(zip(mark.x, mark.low, strict=True)))]
            places = " ".join(f"{across(x):.1f},{up(y):.1f}" for x, y in ends if math.isfinite(y))
            return f'<polygon points="{places}" fill="{mark.colour}" fill-opacity="{mark.alpha}"/>'
        case Bars():
            return "".join(
                _box(across(0.0), up(at + 0.35), across(value), up(at - 0.35), mark.colour, title)
                for at, (value, title) in enumerate(zip(mark.values, mark.titles, strict=True))
            )
        case Spans():
            rows = zip(mark.rows, mark.starts, mark.ends, mark.colours, mark.titles, strict=True)
            return "".join(
                _box(across(start), up(row + 0.4), across(end), up(row - 0.4), colour, title)
                for row, start, end, colour, title in rows
            )
        case Heat():
            return _heat(mark, across, up)
        case Note():
            return _text(across(mark.x), up(mark.y) + 5, short(mark.text), mark.anchor, ' class="note"')


def _line(mark: Line, across: Scale, up: Scale) -> str:
    """A path that has a gap wherever a value is no number."""
    parts, last = [], None
    for x, y in zip(mark.x, mark.y, strict=True):
        if not (math.isfinite(x) and math.isfinite(y)):
            last = None
            continue
        here = (across(x), up(y))
        if last is None:
            parts.append(f"M{here[0]:.1f} {here[1]:.1f}")
        else:
            parts.append(f"{f'H{here[0]:.1f}' if mark.steps else ''}L{here[0]:.1f} {here[1]:.1f}")
        last = here
    style = f'stroke="{mark.colour}" stroke-width="{mark.width:g}" stroke-opacity="{mark.alpha:.2f}"'
    return f'<path d="{"".join(parts)}" {style}>{_title(mark.title)}</path>'


def _heat(mark: Heat, across: Scale, up: Scale) -> str:
    parts = []
    for row, line in enumerate(mark.colours):
        for column, colour in enumerate(line):
            if colour is not None:
                corners = (across(mark.x_edges[column]), up(mark.y_edges[row + 1]))
                ends = (across(mark.x_edges[column + 1]), up(mark.y_edges[row]))
                parts.append(_box(*corners, *ends, colour, ""))
    return f'<g class="heat">{"".join(parts)}</g>'


def _box(x0: float, y0: float, x1: float, y1: float, colour: str, title: str) -> str:
    size = f'width="{max(0.8, x1 - x0):.1f}" height="{max(0.8, y1 - y0):.1f}"'
    return f'<rect x="{x0:.1f}" y="{y0:.1f}" {size} fill="{colour}">{_title(title)}</rect>'


def scale_svg(scale: tuple[float, float, str]) -> str:
    """The shades with the values at their ends."""
    first, last, name = scale
    steps = "".join(f'<rect x="{at * 5}" y="0" width="5.5" height="10" fill="{shade(at / 31)}"/>' for at in range(32))
    return (
        f'<span class="scale">{_escaped(f"{first:.4g}")} <svg viewBox="0 0 160 10" width="160" height="10">{steps}'
        f"</svg> {_escaped(f'{last:.4g}')} {_escaped(name)}</span>"
    )


def _title(text: str) -> str:
    return f"<title>{_escaped(text)}</title>" if text else ""


def _text(x: float, y: float, text: str, anchor: str, more: str = "") -> str:
    return f'<text x="{x:.1f}" y="{y:.1f}" text-anchor="{anchor}"{more}>{_escaped(text)}</text>' if text else ""


def _escaped(text: str) -> str:
    return escape("\n".join(printable(line) for line in text.split("\n")))
