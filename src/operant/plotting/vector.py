"""Drawings as text: inline SVG in one HTML page that needs nothing else, or one SVG file for a paper."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from html import escape

from operant._util.units import printable
from operant.plotting.charts import Chart
from operant.plotting.drawing import Boxes, Dots, Drawing, Part, Polygon, Polyline, Text, draw_chart, draw_figure

PAPER_COLOURS = {"ink": "#1b1f24", "soft": "#556", "grid": "#e3e5e8", "paper": "#ffffff"}
_PAGE_COLOURS = {role: f"var(--{role})" for role in PAPER_COLOURS}
_STYLE = """
:root { color-scheme: light dark; --ink: #1b1f24; --soft: #667; --grid: #e3e5e8; --paper: #fff; --back: #f6f7f8 }
@media (prefers-color-scheme: dark) {
  :root { --ink: #e8eaed; --soft: #9aa0a6; --grid: #33383e; --paper: #1b1f24; --back: #121417 }
}
body { margin: 0; padding: 1.5rem; background: var(--back); color: var(--ink); font: 15px/1.4 system-ui, sans-serif }
main { display: grid; gap: 1rem; grid-template-columns: repeat(auto-fit, minmax(min(100%, 30rem), 1fr)) }
figure { margin: 0; padding: .5rem; background: var(--paper); border: 1px solid var(--grid); border-radius: .5rem }
h1 { font-size: 1.3rem; margin: 0 0 1rem }
svg { width: 100%; height: auto; display: block }
svg circle:hover, svg rect:hover { stroke: var(--ink); stroke-width: 1.5 }
svg path:hover { stroke-width: 3.5; stroke-opacity: 1 }
"""
# The file may hold names that others chose: nothing in it can run or load anything.
_POLICY = "default-src 'none'; style-src 'unsafe-inline'"
_FONT = 'font-family="DejaVu Sans, Helvetica, Arial, sans-serif"'


def html_page(charts: Sequence[Chart], title: str) -> str:
    """All charts as one page: to mail, to keep beside a paper, to open on a machine offline."""
    shown = escape(printable(title))
    body = "\n".join(f"<figure>{_inline(draw_chart(chart), chart.title)}</figure>" for chart in charts)
    return (
        f'<!doctype html>\n<html lang="en">\n<head>\n<meta charset="utf-8">\n'
        f'<meta http-equiv="Content-Security-Policy" content="{_POLICY}">\n'
        f'<meta name="viewport" content="width=device-width, initial-scale=1">\n<title>{shown}</title>\n'
        f"<style>{_STYLE}</style>\n</head>\n<body>\n<h1>{shown}</h1>\n<main>\n{body}\n</main>\n</body>\n</html>\n"
    )


def svg_file(charts: Sequence[Chart], title: str) -> str:
    """All charts as one SVG file."""
    width, height, placed = draw_figure(charts, title)
    inner = "".join(
        f'<g transform="translate({x:g} {y:.1f})">{_parts(drawing, PAPER_COLOURS)}</g>' for x, y, drawing in placed
    )
    return (
        f'<?xml version="1.0" encoding="utf-8"?>\n<svg xmlns="http://www.w3.org/2000/svg" {_FONT} '
        f'width="{width:g}" height="{height:.1f}" viewBox="0 0 {width:g} {height:.1f}">'
        f'<title>{escape(printable(title))}</title><rect width="100%" height="100%" fill="#fff"/>{inner}</svg>\n'
    )


def _inline(drawing: Drawing, title: str) -> str:
    return (
        f'<svg viewBox="0 0 {drawing.width:g} {drawing.height:.1f}" role="img" aria-label="{_escaped(title)}">'
        f"{_parts(drawing, _PAGE_COLOURS)}</svg>"
    )


def _parts(drawing: Drawing, roles: Mapping[str, str]) -> str:
    return "".join(_part(part, roles) for part in drawing.parts)


def _part(part: Part, roles: Mapping[str, str]) -> str:
    match part:
        case Polyline():
            lines = ("M" + "L".join(f"{x:.1f} {y:.1f}" for x, y in piece) for piece in part.pieces)
            alpha = f' stroke-opacity="{part.alpha:.2f}"' if part.alpha < 1 else ""
            return (
                f'<path d="{"".join(lines)}" fill="none" stroke="{roles.get(part.colour, part.colour)}" '
                f'stroke-width="{part.width:g}" stroke-linejoin="round"{alpha}>{_title(part.title)}</path>'
            )
        case Polygon():
            places = " ".join(f"{x:.1f},{y:.1f}" for x, y in part.corners)
            return f'<polygon points="{places}" fill="{part.colour}" fill-opacity="{part.alpha:g}"/>'
        case Dots():
            style = f'r="{part.radius:g}" stroke="{roles["paper"]}" stroke-width=".6"'
            return "".join(
                f'<circle cx="{x:.1f}" cy="{y:.1f}" fill="{colour}" {style}>{_title(title)}</circle>'
                for (x, y), colour, title in zip(part.places, part.colours, part.titles, strict=True)
            )
        case Boxes():
            boxes = "".join(
                f'<rect x="{left:.1f}" y="{upper:.1f}" width="{right - left:.1f}" height="{lower - upper:.1f}" '
                f'fill="{roles.get(colour, colour)}">{_title(title)}</rect>'
                for (left, upper, right, lower), colour, title in zip(
                    part.corners, part.colours, part.titles, strict=True
                )
            )
            # Cells that lie side by side must not show their seams.
            return boxes if part.alpha == 1 else f'<g opacity="{part.alpha}" shape-rendering="crispEdges">{boxes}</g>'
        case Text():
            turn = f' transform="rotate({-part.turned:g} {part.x:.1f} {part.y:.1f})"' if part.turned else ""
            bold = ' font-weight="bold"' if part.bold else ""
            outline = f' stroke="{roles["paper"]}" stroke-width="3" paint-order="stroke"' if part.outlined else ""
            return (
                f'<text x="{part.x:.1f}" y="{part.y:.1f}" text-anchor="{part.anchor}" font-size="{part.size:g}" '
                f'fill="{roles[part.colour]}"{bold}{outline}{turn}>'
                f"{_escaped(part.text)}</text>"
            )


def _title(text: str) -> str:
    return f"<title>{_escaped(text)}</title>" if text else ""


def _escaped(text: str) -> str:
    return escape("\n".join(printable(line) for line in text.split("\n")))
