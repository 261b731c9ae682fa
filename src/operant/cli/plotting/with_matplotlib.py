"""Charts drawn by matplotlib: PNG for chats, SVG and PDF for papers."""

from __future__ import annotations

import math
import warnings
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from operant._util.units import printable
from operant.cli.plotting.charts import (
    GREY,
    Axis,
    Band,
    Bars,
    Chart,
    Heat,
    Line,
    Note,
    Points,
    Spans,
    nice_ticks,
    shade,
)  # fmt: skip
from operant.errors import MissingExtraError

__all__ = ["SUFFIXES", "draw_figure"]

SUFFIXES = (".png", ".svg", ".pdf")
_WIDTH, _HEIGHT = 6.4, 4.0
_STYLE: Any = {
    "text.parse_math": False,  # a setting may be called $x
    "svg.hashsalt": "operant",  # the same search gives the same file
    "font.size": 9,
    "axes.spines.top": False,
    "axes.spines.right": False,
    "axes.titleweight": "bold",
    "axes.titlelocation": "left",
    "axes.grid": True,
    "grid.color": "#dddddd",
    "grid.linewidth": 0.6,
    "axes.axisbelow": True,
    "figure.dpi": 150,
}
_NO_DATES = {".svg": {"Date": None}, ".pdf": {"CreationDate": None}, ".png": {}}
_LONGEST_LEGEND = 12


def draw_figure(charts: Sequence[Chart], title: str, path: Path, kind: str) -> None:
    """Write all charts as one figure; ``kind`` is the suffix that says what file it is."""
    try:
        import matplotlib
        from matplotlib.figure import Figure
    except ImportError:
        raise MissingExtraError(f"a plot as {kind}", "plot") from None
    columns = 1 if len(charts) == 1 else 2
    rows = math.ceil(len(charts) / columns)
    with matplotlib.rc_context(_STYLE), warnings.catch_warnings():
        warnings.simplefilter("ignore", UserWarning)  # a letter that the font does not have
        figure = Figure(figsize=(_WIDTH * columns, _HEIGHT * rows), layout="constrained")
        figure.suptitle(printable(title), fontsize=11)
        places = figure.subplots(rows, columns, squeeze=False).flat
        for place, chart in zip(places, charts, strict=False):
            _draw(place, chart, figure)
        for place in list(figure.axes):
            if not place.has_data() and not place.texts and not place.get_title(loc="left"):
                place.remove()
        figure.savefig(path, format=kind[1:], metadata=_NO_DATES[kind])


def _draw(place: Any, chart: Chart, figure: Any) -> None:
    place.set_title(printable(chart.title))
    if chart.remark and not chart.marks:
        place.set_axis_off()
        place.text(0.5, 0.5, printable(chart.remark), ha="center", va="center", transform=place.transAxes, color=GREY)
        return
    for mark in chart.marks:
        _draw_mark(place, mark)
    across, up = chart.limits()
    _set_axis(place.xaxis, place.set_xscale, place.set_xlim, chart.x, across)
    _set_axis(place.yaxis, place.set_yscale, place.set_ylim, chart.y, up)
    if chart.x.choices and any(len(one) > 6 for one in chart.x.choices):
        place.tick_params(axis="x", rotation=20)
    entries = list(chart.entries.items())
    if entries:
        from matplotlib.lines import Line2D

        shown = entries[:_LONGEST_LEGEND]
        handles = [Line2D([], [], color=colour, linewidth=2.5, label=printable(name)) for name, colour in shown]
        if len(entries) > len(shown):
            handles.append(Line2D([], [], alpha=0, label=f"… and {len(entries) - len(shown)} more"))
        place.legend(handles=handles, fontsize=7, framealpha=0.8, edgecolor="none", loc="best")
    if chart.scale is not None:
        _draw_scale(place, chart.scale, figure)
    if chart.remark:
        place.annotate(
            printable(chart.remark),
            (1.0, 1.0),
            xycoords="axes fraction",
            ha="right",
            va="bottom",
            fontsize=7,
            color=GREY,
        )


def _draw_mark(place: Any, mark: Any) -> None:
    match mark:
        case Line():
            how = "steps-post" if mark.steps else "default"
            place.plot(
                mark.x, mark.y, color=mark.colour, linewidth=mark.width, alpha=mark.alpha, drawstyle=how,
                solid_joinstyle="round",
            )  # fmt: skip
        case Points():
            place.scatter(
                mark.x, mark.y, s=(mark.size * 2) ** 2 / 2, c=list(mark.colours), edgecolors="white", linewidths=0.4,
                zorder=3,
            )  # fmt: skip
        case Band():
            place.fill_between(mark.x, mark.low, mark.high, color=mark.colour, alpha=mark.alpha, linewidth=0)
        case Bars():
            place.barh(range(len(mark.values)), mark.values, color=mark.colour, height=0.7)
        case Spans():
            widths = [end - start for start, end in zip(mark.starts, mark.ends, strict=True)]
            place.barh(mark.rows, widths, left=mark.starts, color=list(mark.colours), height=0.8, edgecolor="white",
                       linewidth=0.4)  # fmt: skip
        case Heat():
            from matplotlib.colors import to_rgba

            cells = [[(0, 0, 0, 0) if one is None else to_rgba(one, 0.85) for one in line] for line in mark.colours]
            place.pcolormesh(mark.x_edges, mark.y_edges, cells)
            place.grid(False)
        case Note():
            where = {"middle": "center", "start": "left", "end": "right"}[mark.anchor]
            place.text(
                mark.x, mark.y, printable(mark.text), ha=where, va="center", fontsize=7,
                bbox={"facecolor": "white", "alpha": 0.7, "linewidth": 0, "pad": 0.6},
            )  # fmt: skip


def _set_axis(ticks: Any, set_scale: Any, set_limits: Any, axis: Axis, limits: tuple[float, float]) -> None:
    if axis.log:
        set_scale("log")
    set_limits(*limits)
    ticks.set_label_text(printable(axis.label))
    if axis.bare:
        ticks.set_visible(False)
    elif axis.choices or axis.log:  # powers of ten as plain numbers: nothing here is read as a formula
        places, labels = zip(*nice_ticks(axis, *limits), strict=True)
        ticks.set_ticks(places, [printable(one) for one in labels])
        ticks.set_ticks([], minor=True)


def _draw_scale(place: Any, scale: tuple[float, float, str], figure: Any) -> None:
    from matplotlib.cm import ScalarMappable
    from matplotlib.colors import ListedColormap

    first, last, name = scale
    colours = ScalarMappable(cmap=ListedColormap([shade(step / 63) for step in range(64)]))
    colours.set_clim(0.0, 1.0)
    bar = figure.colorbar(colours, cax=place.inset_axes((1.02, 0.0, 0.025, 1.0)))
    bar.set_ticks([0.0, 1.0], labels=[f"{first:.4g}", f"{last:.4g}"])
    bar.set_label(printable(name), labelpad=-10)
    bar.outline.set_visible(False)
