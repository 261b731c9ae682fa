"""The spread of fires compiled by numba: cells in the order in which they burn (Dijkstra, generalised by Knuth 1977).

Sums are made in the same order as in ``_spread_numpy``, which gives the same bits.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, TypeVar

import numpy as np
from numba import njit

from operant.envs.vector import Array

_OFFSET, _FOLLOWING, _PRECEDING, _CELLS, _CORNERS, _FIRST = range(6)  # columns of Stencil.whole
_ROWS, _COLUMNS, _LENGTH, _RING, _START, _STEP_ROW, _STEP_COLUMN, _WEIGHTS = range(8)  # and of Stencil.real

_Function = TypeVar("_Function", bound=Callable[..., Any])


def _compile(function: _Function) -> _Function:
    compile_it: Any = njit  # a decorator whose types mypy knows only where numba is installed
    made: _Function
    try:
        made = compile_it(cache=True, nogil=True)(function)
    except RuntimeError:  # nowhere to write the cache to: a read-only installation without a home
        made = compile_it(nogil=True)(function)
    return made


@_compile
def _open(field: Array, cell: int, i: int, whole: Array) -> bool:
    for j in range(whole[i, _CORNERS]):
        at = _FIRST + whole[i, _CELLS] + 2 * j
        if field[cell + whole[i, at], 0] == np.inf and field[cell + whole[i, at + 1], 0] == np.inf:
            return False
    return True


@_compile
def _mean(field: Array, cell: int, i: int, whole: Array, real: Array) -> tuple[float, float, float]:
    slowness, row, column = 0.0, 0.0, 0.0
    for j in range(whole[i, _CELLS]):
        at, part = cell + whole[i, _FIRST + j], real[i, _WEIGHTS + j]
        slowness += part * field[at, 0]
        row += part * field[at, 1]
        column += part * field[at, 2]
    return slowness, row, column


@_compile
def _by_way(fields: Array, changes: Array, cell: int, i: int, begin: float, whole: Array, real: Array) -> float:
    """When fire that stands in neighbour ``i`` at ``begin`` reaches the cell straight on."""
    if not _open(fields[0], cell, i, whole):
        return np.inf
    left, k = 1.0, 0
    while k + 1 < changes.size and changes[k + 1] <= begin:
        k += 1
    while True:
        slowness, row, column = _mean(fields[k], cell, i, whole, real)
        cost = slowness * real[i, _LENGTH] - (row * real[i, _ROWS] + column * real[i, _COLUMNS])
        if k + 1 == changes.size or begin + left * cost <= changes[k + 1]:
            return float(begin + left * cost)
        left -= (changes[k + 1] - begin) / cost
        k += 1
        begin = changes[k]


@_compile
def _steady_facet(
    slowness: float, row: float, column: float, i: int, first: float, second: float, real: Array
) -> float:
    """When the cell is reached from the point of the straight front from which that is soonest."""
    gain = (first - second) + (row * real[i, _STEP_ROW] + column * real[i, _STEP_COLUMN])
    square = slowness * slowness - gain * gain
    if square > 0.0:
        at = min(max(real[i, _RING] * gain / np.sqrt(square) - real[i, _START], 0.0), 1.0)
    else:
        at = 1.0 if gain > 0.0 else 0.0
    along_row = real[i, _ROWS] + at * real[i, _STEP_ROW]
    along_column = real[i, _COLUMNS] + at * real[i, _STEP_COLUMN]
    length = np.sqrt(along_row * along_row + along_column * along_column)
    cost = slowness * length - (row * along_row + column * along_column)
    return float(max(first + at * (second - first) + cost, max(first, second)))


@_compile
def _facet_mean(field: Array, cell: int, i: int, j: int, whole: Array, real: Array) -> tuple[float, float, float]:
    slowness1, row1, column1 = _mean(field, cell, i, whole, real)
    slowness2, row2, column2 = _mean(field, cell, j, whole, real)
    return (slowness1 + slowness2) * 0.5, (row1 + row2) * 0.5, (column1 + column2) * 0.5


@_compile
def _by_facet(
    fields: Array, changes: Array, cell: int, i: int, first: float, second: float, whole: Array, real: Array
) -> float:
    """When a front that stood in neighbour ``i`` at ``first`` and in the following one at ``second`` reaches the cell.

    Between the two the front is straight. In steady weather that of its points counts from which the cell is reached
    soonest; else the best of three, so that a front which is later never arrives sooner.
    """
    j = whole[i, _FOLLOWING]
    if not (_open(fields[0], cell, i, whole) and _open(fields[0], cell, j, whole)):
        return np.inf
    if changes.size == 1:
        slowness, row, column = _facet_mean(fields[0], cell, i, j, whole, real)
        if slowness == np.inf:
            return np.inf
        return _steady_facet(slowness, row, column, i, first, second, real)
    best = np.inf
    for quarter in range(1, 4):
        at = 0.25 * quarter
        begin = first + at * (second - first)
        along_row = real[i, _ROWS] + at * real[i, _STEP_ROW]
        along_column = real[i, _COLUMNS] + at * real[i, _STEP_COLUMN]
        length = np.sqrt(along_row * along_row + along_column * along_column)
        left, k = 1.0, 0
        while k + 1 < changes.size and changes[k + 1] <= begin:
            k += 1
        while True:
            slowness, row, column = _facet_mean(fields[k], cell, i, j, whole, real)
            cost = slowness * length - (row * along_row + column * along_column)
            if k + 1 == changes.size or begin + left * cost <= changes[k + 1]:
                break
            left -= (changes[k + 1] - begin) / cost
            k += 1
            begin = changes[k]
        best = min(best, begin + left * cost)
    return max(best, max(first, second))


@_compile
def _in_steady_weather(time: Array, field: Array, cell: int, i: int, now: float, whole: Array, real: Array) -> float:
    """The least of `_by_way` and of both `_by_facet` of neighbour ``i``, each mean made once."""
    if not _open(field, cell, i, whole):
        return np.inf
    slowness1, row1, column1 = _mean(field, cell, i, whole, real)
    if slowness1 == np.inf:
        return np.inf
    best = now + (slowness1 * real[i, _LENGTH] - (row1 * real[i, _ROWS] + column1 * real[i, _COLUMNS]))
    for ahead in (True, False):
        j = whole[i, _FOLLOWING] if ahead else whole[i, _PRECEDING]
        then = time[cell + whole[j, _OFFSET]]
        if then > now or not _open(field, cell, j, whole):
            continue
        slowness2, row2, column2 = _mean(field, cell, j, whole, real)
        if slowness2 == np.inf:
            continue
        slowness, row, column = (slowness1 + slowness2) * 0.5, (row1 + row2) * 0.5, (column1 + column2) * 0.5
        if ahead:
            best = min(best, _steady_facet(slowness, row, column, i, now, then, real))
        else:
            best = min(best, _steady_facet(slowness, row, column, j, then, now, real))
    return float(best)


@_compile
def _sift_up(heap: Array, place: Array, time: Array, at: int) -> None:
    cell = heap[at]
    while at > 0:
        above = (at - 1) // 2
        if time[heap[above]] <= time[cell]:
            break
        heap[at] = heap[above]
        place[heap[at]] = at
        at = above
    heap[at] = cell
    place[cell] = at


@_compile
def _pop(heap: Array, size: int, place: Array, time: Array) -> int:
    top, cell = heap[0], heap[size - 1]
    place[top] = -1
    size -= 1
    if size:
        at = 0
        while True:
            below = 2 * at + 1
            if below >= size:
                break
            if below + 1 < size and time[heap[below + 1]] < time[heap[below]]:
                below += 1
            if time[heap[below]] >= time[cell]:
                break
            heap[at] = heap[below]
            place[heap[at]] = at
            at = below
        heap[at] = cell
        place[cell] = at
    return int(top)


@_compile
def _advance_one(
    time: Array, fields: Array, changes: Array, box: Array, width: int, since: float, until: float, fastest: float,
    heap: Array, place: Array, whole: Array, real: Array,
) -> float:  # fmt: skip
    radius = int(real[-1, _RING])
    size = 0
    for row in range(box[0], box[1]):
        for column in range(box[2], box[3]):
            cell = row * width + column
            if since < time[cell] <= until and time[cell] < np.inf:
                heap[size] = cell
                _sift_up(heap, place, time, size)
                size += 1
    while size:
        source = _pop(heap, size, place, time)
        size -= 1
        now = time[source]
        row, column = source // width, source % width
        box[0], box[1] = min(box[0], row - radius), max(box[1], row + radius + 1)
        box[2], box[3] = min(box[2], column - radius), max(box[3], column + radius + 1)
        for i in range(whole.shape[0]):
            cell = source - whole[i, _OFFSET]
            before = time[cell]
            if before <= now or fields[0, cell, 0] == np.inf:
                continue
            following = time[cell + whole[whole[i, _FOLLOWING], _OFFSET]]
            preceding = time[cell + whole[whole[i, _PRECEDING], _OFFSET]]
            if before <= min(now, min(following, preceding)) + real[i, _RING] * fastest:
                continue  # nothing that comes by this neighbour can be sooner
            if changes.size == 1:
                best = min(before, _in_steady_weather(time, fields[0], cell, i, now, whole, real))
            else:
                best = min(before, _by_way(fields, changes, cell, i, now, whole, real))
                if following <= now:
                    best = min(best, _by_facet(fields, changes, cell, i, now, following, whole, real))
                if preceding <= now:
                    j = whole[i, _PRECEDING]
                    best = min(best, _by_facet(fields, changes, cell, j, preceding, now, whole, real))
            if best < before:
                time[cell] = best
                if best <= until:
                    if place[cell] < 0:
                        heap[size] = cell
                        place[cell] = size
                        size += 1
                    _sift_up(heap, place, time, place[cell])
    upcoming = np.inf
    for row in range(box[0], box[1]):
        for column in range(box[2], box[3]):
            then = time[row * width + column]
            if until < then < upcoming:
                upcoming = then
    return upcoming


@_compile
def advance(
    time: Array, fields: Array, changes: Array, box: Array, width: int, since: Array, until: Array, upcoming: Array,
    fastest: Array, heap: Array, place: Array, whole: Array, real: Array,
) -> None:  # fmt: skip
    """Let each fire n burn from ``since[n]`` to ``until[n]``; ``upcoming[n]`` is then when its next cell will burn.

    ``time`` [N, cells] holds when each cell burns: for good up to ``since``, after it as far as is known by then.
    ``fields`` [N, K, cells, 3] is slowness and drift from the time ``changes[n, k]`` on; ``box`` [N, 4] holds rows and
    columns outside of which nothing is known to burn; ``fastest`` [N] is less than any cell takes. ``heap`` and
    ``place`` [cells] are for use here; ``place`` is -1.
    """
    for n in range(time.shape[0]):
        if since[n] < until[n]:
            weathers = 1
            while weathers < changes.shape[1] and changes[n, weathers] < np.inf:
                weathers += 1
            upcoming[n] = _advance_one(
                time[n], fields[n], changes[n, :weathers], box[n], width, since[n], until[n], fastest[n],
                heap, place, whole, real,
            )  # fmt: skip


@_compile
def _reach_cell(time: Array, fields: Array, changes: Array, cell: int, now: float, whole: Array, real: Array) -> float:
    """When a cell that does not burn ``now`` will be reached from those that do."""
    best = np.inf
    if fields[0, cell, 0] == np.inf:
        return best
    for i in range(whole.shape[0]):
        first = time[cell + whole[i, _OFFSET]]
        if first > now:
            continue
        best = min(best, _by_way(fields, changes, cell, i, first, whole, real))
        second = time[cell + whole[whole[i, _FOLLOWING], _OFFSET]]
        if second <= now:
            best = min(best, _by_facet(fields, changes, cell, i, first, second, whole, real))
    return best


@_compile
def revise(
    time: Array, fields: Array, changes: Array, width: int, clock: Array, fires: Array, cells: Array,
    whole: Array, real: Array,
) -> None:  # fmt: skip
    """After the fields of ``cells`` of ``fires`` have changed: find anew when those around them will burn."""
    radius = int(real[-1, _RING])
    for j in range(fires.size):
        n = fires[j]
        weathers = 1
        while weathers < changes.shape[1] and changes[n, weathers] < np.inf:
            weathers += 1
        for row in range(-radius, radius + 1):
            for column in range(-radius, radius + 1):
                cell = cells[j] + row * width + column
                if clock[n] < time[n, cell] < np.inf:
                    time[n, cell] = _reach_cell(time[n], fields[n], changes[n, :weathers], cell, clock[n], whole, real)


@_compile
def survey(
    time: Array, duration: Array, assets: Array, clock: Array, box: Array, width: int, margin: int,
    status: Array, counts: Array, lost: Array,
) -> None:  # fmt: skip
    """Write 1 where each fire burns and 2 where it burned into ``status`` [N, H, W]; count both, and what is lost."""
    for n in range(time.shape[0]):
        burning, burnt, value = 0, 0, 0.0
        for row in range(max(box[n, 0], margin), min(box[n, 1], margin + status.shape[1])):
            for column in range(max(box[n, 2], margin), min(box[n, 3], margin + status.shape[2])):
                then = time[n, row * width + column]
                if then <= clock[n]:
                    r, c = row - margin, column - margin
                    burnt += 1
                    value += assets[n, r, c]
                    if then + duration[n, r, c] > clock[n]:
                        burning += 1
                        status[n, r, c] = 1
                    else:
                        status[n, r, c] = 2
        counts[n, 0], counts[n, 1], lost[n] = burning, burnt, value
