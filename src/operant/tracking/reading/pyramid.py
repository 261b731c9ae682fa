"""Charts of any length: least, greatest and mean value of ever larger groups of points.

A chart from a sample misses the spikes people look for, and changes with every refresh. Here every
bucket tells the extremes of all points in it, and the same points give the same picture.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from operant.errors import UsageError
from operant.tracking.reading.run import Points

FACTOR = 16
_SMALL = 4096  # with fewer groups than this no higher level pays
_PIECE = FACTOR << 16

Floats = NDArray[np.float64]
Integers = NDArray[np.int64]


@dataclass
class Chart:
    """Columns of one chart, a row for each bucket that has points, in the order of steps.

    ``least``, ``greatest`` and ``mean`` are of the finite values (NaN where there are none); ``odd``
    counts values that are NaN or infinite, so that a page can mark them.
    """

    first_step: Integers
    last_step: Integers
    last_wall: Floats
    least: Floats
    greatest: Floats
    mean: Floats
    count: Integers
    odd: Integers

    def __len__(self) -> int:
        return len(self.count)


@dataclass
class _Level:
    """Groups of ``FACTOR ** level`` points each, in the order of steps; the last group may be smaller."""

    first_step: Integers
    last_step: Integers
    last_wall: Floats
    least: Floats
    greatest: Floats
    total: Floats
    count: Integers
    odd: Integers

    def combine(self, starts: NDArray[np.intp]) -> _Level:
        """Join neighbouring groups: one new group begins at each of ``starts``."""
        ends = np.append(starts[1:], len(self.count)) - 1
        return _Level(
            self.first_step[starts],
            self.last_step[ends],
            self.last_wall[ends],
            np.fmin.reduceat(self.least, starts),
            np.fmax.reduceat(self.greatest, starts),
            np.add.reduceat(self.total, starts),
            np.add.reduceat(self.count, starts),
            np.add.reduceat(self.odd, starts),
        )

    def part(self, start: int, end: int | None = None) -> _Level:
        return _Level(**{name: column[start:end] for name, column in vars(self).items()})

    @staticmethod
    def join(*levels: _Level) -> _Level:
        return _Level(**{name: np.concatenate([getattr(one, name) for one in levels]) for name in vars(levels[0])})


class Pyramid:
    """The levels over one series, built once and extended as the series grows."""

    def __init__(self, points: Points) -> None:
        self._source_length = len(points)
        self._source_last = points[-1].item() if len(points) else None
        self._points = _by_step(points)
        self._levels = _raise_levels([_first_level(self._points)])

    def grows_into(self, points: Points) -> bool:
        """Whether ``points`` are the ones this was built from, with others behind them in order of steps."""
        old = self._source_length
        if self._source_last is None or len(points) < old or points[old - 1].item() != self._source_last:
            return False
        new = points["step"][old:]
        behind = not len(new) or int(self._points["step"][-1]) <= int(new[0])
        return behind and bool(np.all(new[1:] >= new[:-1]))

    def extend(self, points: Points) -> None:
        """Take in the points behind those known, after :meth:`grows_into` said that they are."""
        new = points[self._source_length :]
        if not len(new):
            return
        known = len(self._points)
        self._points = points if _is_sorted(points) else np.concatenate([self._points, new])
        levels: list[_Level] = []
        for number, level in enumerate(self._levels, 1):
            whole = known // FACTOR**number  # groups that can no longer change
            if number == 1:
                fresh = _first_level(self._points[whole * FACTOR :])
            else:
                fresh = _next_level(levels[-1].part(whole * FACTOR))
            levels.append(_Level.join(level.part(0, whole), fresh))
        self._levels = _raise_levels(levels)
        self._source_length, self._source_last = len(points), points[-1].item()

    def chart(self, buckets: int = 2000, start: int | None = None, end: int | None = None) -> Chart:
        if buckets < 1:
            raise UsageError(f"a chart has at least one bucket, got buckets={buckets}")
        steps = self._points["step"]
        low = 0 if start is None else int(np.searchsorted(steps, start, "left"))
        high = len(steps) if end is None else int(np.searchsorted(steps, end, "right"))
        if high <= low:
            return _as_chart(_ground_level(self._points[:0]))
        return _as_chart(self._buckets(low, high, min(buckets, high - low)))

    def _buckets(self, low: int, high: int, buckets: int) -> _Level:
        """The points from ``low`` to ``high``, in equal numbers to each bucket."""
        edges = low + (high - low) * np.arange(buckets) // buckets
        number = 0
        while number < len(self._levels) and FACTOR ** (number + 1) * 4 <= (high - low) // buckets:
            number += 1
        if number == 0:
            return _ground_level(self._points[low:high]).combine(edges - low)
        # From the coarsest level that is fine enough, and from the points themselves at both ends. Inner
        # edges move to the next group: less than a quarter of a bucket, and no point is left out.
        group = FACTOR**number
        first, until = -(-low // group), high // group
        head = _ground_level(self._points[low : first * group])
        tail = _ground_level(self._points[until * group : high])
        whole = _Level.join(head, self._levels[number - 1].part(first, until), tail)
        starts = np.minimum(-(-edges // group), until) - first + len(head.count)
        starts[0] = 0
        return whole.combine(np.unique(starts[starts < len(whole.count)]))


def _is_sorted(points: Points) -> bool:
    steps = points["step"]
    return bool(np.all(steps[1:] >= steps[:-1]))


def _by_step(points: Points) -> Points:
    return points if _is_sorted(points) else points[np.argsort(points["step"], kind="stable")]


def _ground_level(points: Points) -> _Level:
    """Groups of one point each."""
    values = np.ascontiguousarray(points["value"])
    steps = np.ascontiguousarray(points["step"])
    odd = ~np.isfinite(values)
    finite, total = (np.where(odd, np.nan, values), np.where(odd, 0.0, values)) if odd.any() else (values, values)
    ones = np.ones(len(values), np.int64)
    return _Level(steps, steps, np.ascontiguousarray(points["wall"]), finite, finite, total, ones, odd.astype(np.int64))


def _first_level(points: Points) -> _Level:
    # In pieces: the columns of ground groups would take three times the memory of the points themselves.
    pieces = [_next_level(_ground_level(points[at : at + _PIECE])) for at in range(0, max(len(points), 1), _PIECE)]
    return _Level.join(*pieces)


def _next_level(level: _Level) -> _Level:
    if not len(level.count):
        return level
    return level.combine(np.arange(0, len(level.count), FACTOR))


def _raise_levels(levels: list[_Level]) -> list[_Level]:
    while len(levels[-1].count) > _SMALL:
        levels.append(_next_level(levels[-1]))
    return levels


def _as_chart(level: _Level) -> Chart:
    finite = level.count - level.odd
    with np.errstate(invalid="ignore", divide="ignore"):
        mean = np.where(finite > 0, level.total / finite, np.nan)
    return Chart(
        level.first_step, level.last_step, level.last_wall, level.least, level.greatest, mean, level.count, level.odd
    )
