"""What a chart is and where its parts lie; every format writes down the same drawing."""

from __future__ import annotations

import math
import re

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from operant.plotting.charts import (
    BLUE,
    GREEN,
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
    short,
    thin,
)
from operant.plotting.drawing import Boxes, Dots, Polygon, Polyline, Text, draw_chart, draw_figure
from operant.plotting.vector import html_page, svg_file


@given(st.lists(st.floats(allow_nan=False, allow_infinity=False), min_size=1, max_size=3000))
def test_thinning_keeps_the_outline(values: list[float]) -> None:
    x, y = thin([float(place) for place in range(len(values))], values, 100)
    assert len(x) <= 102 and x == sorted(x) and max(y) == max(values) and min(y) == min(values)
    assert (x[0], y[0]) == (0.0, values[0]) and (x[-1], y[-1]) == (len(values) - 1.0, values[-1])
    assert all(values[int(a)] == b for a, b in zip(x, y, strict=True))


@given(st.floats(-1e9, 1e9), st.floats(1e-6, 1e9), st.booleans())
@example(low=5e-324, width=8.0, log=False)
def test_ticks_lie_on_the_axis(low: float, width: float, log: bool) -> None:
    if log:
        low = abs(low) + 1e-6
    high = low + width
    if high <= low * (1 + 1e-9) + 1e-9:
        return
    ticks = nice_ticks(Axis(log=log), low, high)
    assert 1 <= len(ticks) <= 12
    slack = 1e-9 * (high - low) + 1e-15 * max(abs(low), abs(high))  # a tick at 0 fits an axis from 5e-324
    assert all(low - slack <= at <= high + slack for at, _ in ticks)


def everything() -> Chart:
    nan = math.nan
    marks = [
        Heat([0.0, 5.0, 10.0], [0.0, 1.0], [["#112233", None]]),
        Band([0.0, 5.0, 10.0], [0.1, nan, 0.3], [0.2, nan, 0.4], BLUE),
        Line([0.0, 2.0, 4.0, 6.0], [0.0, 1.0, nan, 0.5], GREEN, name="best", title="the best", steps=True),
        Points([0.0, 10.0, nan], [0.0, 1.0, 0.5], [BLUE] * 3, ["first", "last", "nowhere"], name="jobs"),
        Spans([0.0], [1.0], [1.0], [BLUE], ["short"]),
        Note(5.0, 0.5, "a word", "start"),
    ]
    return Chart("All <kinds>", Axis("x"), Axis("y"), marks, {"legend": "#445566"}, (0.0, 9.0, "shade"), "a remark")


def test_values_lie_where_the_axes_say() -> None:
    drawing = draw_chart(everything())
    (dots,) = [part for part in drawing.parts if isinstance(part, Dots)]
    texts = {part.text: part for part in drawing.parts if isinstance(part, Text)}
    assert len(dots.places) == 2 and dots.titles == ("first", "last")  # what is no number lies nowhere
    (x0, y0), (x1, y1) = dots.places
    ticks = {part.text: part.x for part in drawing.parts if isinstance(part, Text) and part.anchor == "middle"}
    assert (ticks["0"], ticks["10"]) == (pytest.approx(x0), pytest.approx(x1)) and y1 < y0
    line = next(part for part in drawing.parts if isinstance(part, Polyline) and part.title == "the best")
    first, second = line.pieces
    assert len(first) == 3 and len(second) == 1  # a step, and a gap where there is no number
    assert first[1] == (first[2][0], first[0][1])
    (band,) = [part for part in drawing.parts if isinstance(part, Polygon)]
    assert len(band.corners) == 4
    boxes = [part for part in drawing.parts if isinstance(part, Boxes)]
    assert len(boxes[0].corners) == 1 and boxes[0].alpha < 1
    left, _, right, _ = boxes[1].corners[0]
    assert right > left  # nothing is too short to be seen
    for told in ("All <kinds>", "x", "y", "a word", "legend", "best", "jobs", "9  shade", "a remark"):
        assert told in texts
    assert all(0 <= part.x <= drawing.width and 0 <= part.y <= drawing.height for part in texts.values())


def test_bars_begin_at_zero() -> None:
    drawing = draw_chart(Chart("b", Axis(), Axis(choices=("one", "two")), [Bars([0.5, 1.0], BLUE, ["", ""])]))
    boxes = next(part for part in drawing.parts if isinstance(part, Boxes))
    (a0, _, a1, low), (b0, high, b1, _) = boxes.corners
    assert a0 == b0 and b1 - b0 == pytest.approx(2 * (a1 - a0)) and high < low


def test_a_long_legend_is_cut_and_long_names_wrap() -> None:
    lines = [Line([0.0, 1.0], [0.0, 1.0], BLUE, name=f"a run with a long name, number {at}") for at in range(20)]
    drawing = draw_chart(Chart("c", Axis(), Axis(), list(lines)))
    texts = [part for part in drawing.parts if isinstance(part, Text)]
    assert any(part.text == "… and 8 more" for part in texts)
    assert max(part.y for part in texts) < drawing.height
    assert len({part.y for part in texts if part.text.startswith("a run")}) > 3


def test_every_format_writes_the_same_drawing() -> None:
    charts = [everything(), everything(), Chart("Empty", Axis(), Axis(), remark="no result yet")]
    width, height, placed = draw_figure(charts, "all")
    assert width == 2 * placed[1][2].width and [one[:2] for one in placed[1:3]] == [(0.0, 36.0), (640.0, 36.0)]
    page, file = html_page(charts, "all"), svg_file(charts, "all")

    def lengths(text: str) -> list[str]:
        return re.findall(r' (?:d|cx|cy|x|y|points)="([^"]+)"', text)

    assert lengths(page) == lengths(file)[2:]  # the file has a heading as well
    assert "var(--" in page and "var(--" not in file and f'height="{height:.1f}"' in file


def test_the_figure_of_matplotlib_has_every_part() -> None:
    pytest.importorskip("matplotlib", reason="matplotlib is not installed")
    from matplotlib.figure import Figure

    from operant.plotting.raster import _put

    canvas = Figure().add_axes((0, 0, 1, 1))
    drawing = draw_chart(everything())
    for order, part in enumerate(drawing.parts):
        _put(canvas, part, 0.0, 0.0, order)
    shown = [*canvas.collections, *canvas.texts]
    assert sorted(one.get_zorder() for one in shown) == list(range(len(drawing.parts)))
    assert [one.get_text() for one in canvas.texts] == [part.text for part in drawing.parts if isinstance(part, Text)]


def test_long_names_that_begin_alike_stay_apart() -> None:
    names = ["config(scheduler.gamma)", "config(scheduler.step_size)"]
    assert [short(name) for name in names] == ["config…uler.gamma)", "config….step_size)"]
    assert short("x" * 18) == "x" * 18
