"""Drawings as PNG and PDF. Matplotlib puts their parts onto its canvas; where they lie is decided already."""

from __future__ import annotations

import warnings
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from operant.errors import MissingExtraError
from operant.plotting.charts import Chart
from operant.plotting.drawing import Boxes, Dots, Part, Polygon, Polyline, Text, draw_figure
from operant.plotting.vector import PAPER_COLOURS

_POINTS = 0.72  # of a pixel: 100 pixels are an inch
_STYLE: Any = {"text.parse_math": False, "pdf.fonttype": 42}  # a setting may be called $x; text stays text in a PDF
_NO_DATES: dict[str, Any] = {".pdf": {"CreationDate": None}, ".png": {}}  # the same data gives the same file


def write_figure(charts: Sequence[Chart], title: str, path: Path, kind: str) -> None:
    """Write all charts as one figure; ``kind`` is the suffix that says what file it is."""
    try:
        import matplotlib
        from matplotlib.figure import Figure
    except ImportError:
        raise MissingExtraError(f"a plot as {kind}", "plot") from None
    width, height, placed = draw_figure(charts, title)
    with matplotlib.rc_context(_STYLE), warnings.catch_warnings():
        warnings.simplefilter("ignore", UserWarning)  # a letter that the font does not have
        figure = Figure(figsize=(width / 100, height / 100), dpi=150)
        canvas = figure.add_axes((0, 0, 1, 1), xlim=(0, width), ylim=(height, 0))
        canvas.set_axis_off()
        for x, y, drawing in placed:
            for order, part in enumerate(drawing.parts):
                _put(canvas, part, x, y, order)
        metadata = {**_NO_DATES[kind], "Title": title}
        figure.savefig(path, format=kind[1:], metadata=metadata, facecolor=PAPER_COLOURS["paper"])


def _put(canvas: Any, part: Part, left: float, top: float, order: int) -> None:
    """One part with its drawing's upper left corner at ``left`` and ``top``, over all parts before it."""
    from matplotlib.collections import LineCollection, PatchCollection
    from matplotlib.collections import PolyCollection as Polygons
    from matplotlib.patches import Rectangle
    from matplotlib.patheffects import withStroke

    def moved(places: Sequence[tuple[float, float]]) -> list[tuple[float, float]]:
        return [(left + x, top + y) for x, y in places]

    match part:
        case Polyline():
            lines = LineCollection(
                [moved(piece) for piece in part.pieces], colors=PAPER_COLOURS.get(part.colour, part.colour),
                linewidths=part.width * _POINTS, alpha=part.alpha, zorder=order, joinstyle="round",
            )  # fmt: skip
            canvas.add_collection(lines, autolim=False)
        case Polygon():
            area = Polygons([moved(part.corners)], facecolors=part.colour, alpha=part.alpha, linewidths=0, zorder=order)
            canvas.add_collection(area, autolim=False)
        case Dots():
            across, up = zip(*moved(part.places), strict=True) if part.places else ((), ())
            canvas.scatter(
                across, up, s=(2 * part.radius * _POINTS) ** 2, c=list(part.colours), zorder=order,
                edgecolors=PAPER_COLOURS["paper"], linewidths=0.6 * _POINTS,
            )  # fmt: skip
        case Boxes():
            boxes = [Rectangle((left + x0, top + y0), x1 - x0, y1 - y0) for x0, y0, x1, y1 in part.corners]
            colours = [PAPER_COLOURS.get(colour, colour) for colour in part.colours]
            group = PatchCollection(
                boxes, facecolors=colours, alpha=part.alpha, linewidths=0, antialiased=part.alpha == 1, zorder=order
            )
            canvas.add_collection(group, autolim=False)
        case Text():
            effects = [withStroke(linewidth=3 * _POINTS, foreground=PAPER_COLOURS["paper"])] if part.outlined else []
            where = {"middle": "center", "start": "left", "end": "right"}[part.anchor]
            canvas.text(
                left + part.x, top + part.y, part.text, ha=where, va="baseline", fontsize=part.size * _POINTS,
                color=PAPER_COLOURS[part.colour], fontweight="bold" if part.bold else "normal", rotation=part.turned,
                rotation_mode="anchor", path_effects=effects, zorder=order,
            )  # fmt: skip
