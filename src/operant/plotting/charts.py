"""What a chart is, whoever draws it: axes, and marks in the order in which they lie on each other."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, field

from operant.status import Status

# Okabe and Ito's colours, which people see apart whatever their eyes are like; the page has the same.
BLUE, ORANGE, GREEN, VERMILLION = "#0072B2", "#E69F00", "#009E73", "#D55E00"
PURPLE, SKY, GREY = "#CC79A7", "#56B4E9", "#888888"
SERIES = (BLUE, ORANGE, GREEN, VERMILLION, PURPLE, SKY)
STATUS: dict[str, str] = {
    Status.FINISHED: BLUE,
    Status.STOPPED: ORANGE,
    Status.ERROR: VERMILLION,
    Status.KILLED: PURPLE,
    Status.RUNNING: SKY,
}
# Cividis (Nuñez, Anderton and Renslow 2018): even in brightness, so it also works in print.
_SHADES = ((0, 34, 78), (53, 69, 108), (102, 105, 112), (148, 142, 119), (200, 184, 102), (254, 232, 56))


def shade(part: float) -> str:
    """A colour for a share from 0 to 1, from dark blue to yellow."""
    place = min(max(part, 0.0), 1.0) * (len(_SHADES) - 1)
    low = min(int(place), len(_SHADES) - 2)
    mixed = (round(a + (b - a) * (place - low)) for a, b in zip(_SHADES[low], _SHADES[low + 1], strict=True))
    return "#" + "".join(f"{one:02x}" for one in mixed)


@dataclass(frozen=True)
class Axis:
    label: str = ""
    log: bool = False
    choices: tuple[str, ...] = ()
    """Names of the places 0, 1, 2, …; without them the axis is one of numbers."""
    bare: bool = False
    """Drawn without ticks."""


@dataclass(frozen=True)
class Line:
    x: Sequence[float]
    y: Sequence[float]
    colour: str
    width: float = 1.5
    alpha: float = 1.0
    name: str = ""
    """For the legend; lines of one name share an entry."""
    title: str = ""
    """Shown when one points at it."""
    steps: bool = False


@dataclass(frozen=True)
class Points:
    x: Sequence[float]
    y: Sequence[float]
    colours: Sequence[str]
    titles: Sequence[str]
    name: str = ""
    size: float = 3.5


@dataclass(frozen=True)
class Band:
    x: Sequence[float]
    low: Sequence[float]
    high: Sequence[float]
    colour: str
    name: str = ""
    alpha: float = 0.2


@dataclass(frozen=True)
class Bars:
    """Bars from the left, one for each place of the y axis."""

    values: Sequence[float]
    colour: str
    titles: Sequence[str]


@dataclass(frozen=True)
class Spans:
    """Bars that begin and end somewhere, in rows."""

    rows: Sequence[float]
    starts: Sequence[float]
    ends: Sequence[float]
    colours: Sequence[str]
    titles: Sequence[str]


@dataclass(frozen=True)
class Heat:
    """Cells between the edges; None is an empty one."""

    x_edges: Sequence[float]
    y_edges: Sequence[float]
    colours: Sequence[Sequence[str | None]]


@dataclass(frozen=True)
class Note:
    """A word at a place: ``middle``, ``start`` or ``end`` of it lies there."""

    x: float
    y: float
    text: str
    anchor: str = "middle"


Mark = Line | Points | Band | Bars | Spans | Heat | Note


@dataclass(frozen=True)
class Chart:
    title: str
    x: Axis
    y: Axis
    marks: list[Mark] = field(default_factory=list)
    legend: dict[str, str] = field(default_factory=dict)
    """Names and colours that the marks themselves do not tell."""
    scale: tuple[float, float, str] | None = None
    """For marks in shades: the values of the first and the last one, and what they are."""
    remark: str = ""

    @property
    def entries(self) -> dict[str, str]:
        """The legend: each name once, with its colour."""
        found = dict(self.legend)
        for mark in self.marks:
            if isinstance(mark, (Line, Band)) and mark.name:
                found.setdefault(mark.name, mark.colour)
            elif isinstance(mark, Points) and mark.name and mark.colours:
                found.setdefault(mark.name, mark.colours[0])
        return found

    def limits(self) -> tuple[tuple[float, float], tuple[float, float]]:
        """The least and the greatest place of the marks on both axes, with a little room around them."""
        across: list[float] = []
        up: list[float] = []
        for mark in self.marks:
            match mark:
                case Line() | Points():
                    across += mark.x
                    up += mark.y
                case Band():
                    across += mark.x
                    up += [*mark.low, *mark.high]
                case Bars():
                    across += [0.0, *mark.values]
                case Spans():
                    across += [*mark.starts, *mark.ends]
                    up += [one + side for one in mark.rows for side in (-0.5, 0.5)]
                case Heat():
                    across += mark.x_edges
                    up += mark.y_edges
                case Note():
                    across.append(mark.x)
                    up.append(mark.y)
        snug = any(isinstance(mark, Heat) for mark in self.marks)
        return _limits(across, self.x, snug), _limits(up, self.y, snug)


def _limits(places: list[float], axis: Axis, snug: bool) -> tuple[float, float]:
    if axis.choices:
        return -0.5, len(axis.choices) - 0.5
    known = [one for one in places if math.isfinite(one) and not (axis.log and one <= 0)]
    if not known:
        return (1.0, 10.0) if axis.log else (0.0, 1.0)
    low, high = min(known), max(known)
    if snug and high > low:
        return low, high
    if axis.log:
        room = max((math.log(high) - math.log(low)) * 0.04, 0.05)
        return low * math.exp(-room), high * math.exp(room)
    room = (high - low) * 0.04 or max(abs(high) * 0.05, 0.05)
    return low - room, high + room


def thin(x: Sequence[float], y: Sequence[float], most: int = 400) -> tuple[list[float], list[float]]:
    """Fewer points with the same outline: of each stretch its least and its greatest, in their order."""
    if len(x) <= most:
        return list(x), list(y)
    stretch = math.ceil(len(x) / (most // 2))
    kept: list[int] = []
    for start in range(0, len(x), stretch):
        places = range(start, min(start + stretch, len(x)))
        known = [place for place in places if not math.isnan(y[place])] or list(places)[:1]
        kept += sorted({min(known, key=lambda place: y[place]), max(known, key=lambda place: y[place])})
    kept = sorted({0, *kept, len(x) - 1})
    return [x[place] for place in kept], [y[place] for place in kept]


def nice_ticks(axis: Axis, low: float, high: float) -> list[tuple[float, str]]:
    """Places and labels: all choices, powers of ten, or multiples of 1, 2 or 5."""
    if axis.choices:
        every = math.ceil(len(axis.choices) / 24)
        return [(float(at), short(one)) for at, one in enumerate(axis.choices) if at % every == 0]
    if axis.log:
        first, last = math.floor(math.log10(low)), math.ceil(math.log10(high))
        every = max(1, math.ceil((last - first) / 7))
        parts = (1,) if last - first > 3 else (1, 2, 5)
        found = [p * 10.0**power for power in range(first, last + 1, every) for p in parts]
        inside = [(one, f"{one:g}") for one in found if low <= one <= high]
        if len(inside) > 1:
            return inside
    rough = (high - low) / 7
    power = 10.0 ** math.floor(math.log10(rough))
    step = next(size * power for size in (1, 2, 5, 10) if size * power >= rough * 0.99)
    first = math.ceil(low / step)
    return [(at * step, f"{at * step:.10g}") for at in range(first, math.floor(high / step) + 1)]


def short(text: str, most: int = 18) -> str:
    """Cut out of the middle: names of settings begin alike (`config(scheduler.gamma)`) and differ at their ends."""
    if len(text) <= most:
        return text
    end = (most - 1) * 2 // 3
    return f"{text[: most - 1 - end]}…{text[-end:]}"
