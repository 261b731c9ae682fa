"""The spread of fires compiled by numba: cells in the order in which they burn (Dijkstra, generalised by Knuth 1977).

Sums are made in the same order as in ``_spread_numpy``, which gives the same bits.
"""

from __future__ import annotations

import numpy as np

from operant.envs.vector import Array
from operant.envs.wildfire.physics._numba import compiled

_OFFSET, _FOLLOWING, _PRECEDING, _CELLS, _CORNERS, _FIRST = range(6)  # columns of Stencil.whole
_ROWS, _COLUMNS, _LENGTH, _RING, _START, _STEP_ROW, _STEP_COLUMN, _WEIGHTS = range(8)  # and of Stencil.real


@compiled
def _open(field: Array, cell: int, i: int, whole: Array) -> bool:
    for j in range(whole[i, _CORNERS]):
        at = _FIRST + whole[i, _CELLS] + 2 * j
        if field[cell + whole[i, at], 0] == np.inf and field[cell + whole[i, at + 1], 0] == np.inf:
            return False
    return True


@compiled
def _mean(field: Array, cell: int, i: int, whole: Array, real: Array) -> tuple[float, float, float]:
    slowness, row, column = 0.0, 0.0, 0.0
    for j in range(whole[i, _CELLS]):
        at, part = cell + whole[i, _FIRST + j], real[i, _WEIGHTS + j]
        slowness += part * field[at, 0]
        row += part * field[at, 1]
        column += part * field[at, 2]
    return slowness, row, column


@compiled
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


@compiled
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


@compiled
def _facet_mean(field: Array, cell: int, i: int, j: int, whole: Array, real: Array) -> tuple[float, float, float]:
    slowness1, row1, column1 = _mean(field, cell, i, whole, real)
    slowness2, row2, column2 = _mean(field, cell, j, whole, real)
    return (slowness1 + slowness2) * 0.5, (row1 + row2) * 0.5, (column1 + column2) * 0.5


@compiled
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


@compiled
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


@compiled
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


@compiled
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


@compiled
def _advance_one(
    time: Array, fields: Array, changes: Array, until: float, least: Array, front: Array, flames: Array,
    sizes: Array, heap: Array, place: Array, whole: Array, real: Array,
) -> float:  # fmt: skip
    size, later, burnt = 0, 0, sizes[1]
    for j in range(sizes[0]):
        cell = front[j]
        if time[cell] <= until and time[cell] < np.inf:
            heap[size] = cell
            _sift_up(heap, place, time, size)
            size += 1
        elif time[cell] < np.inf:  # else a line keeps the fire from it
            front[later] = cell
            later += 1
    while size:
        source = _pop(heap, size, place, time)
        size -= 1
        flames[burnt] = source
        burnt += 1
        now = time[source]
        for i in range(whole.shape[0]):
            cell = source - whole[i, _OFFSET]
            before = time[cell]
            if before <= now:
                continue
            following = time[cell + whole[whole[i, _FOLLOWING], _OFFSET]]
            preceding = time[cell + whole[whole[i, _PRECEDING], _OFFSET]]
            if before <= min(now, min(following, preceding)) + least[i]:
                continue  # nothing that comes by this neighbour can be sooner
            if fields[0, cell, 0] == np.inf:
                continue
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
                if before == np.inf:
                    front[later] = cell
                    later += 1
                if best <= until:
                    if place[cell] < 0:
                        heap[size] = cell
                        place[cell] = size
                        size += 1
                    _sift_up(heap, place, time, place[cell])
    sizes[0], sizes[1] = 0, burnt
    upcoming = np.inf
    for j in range(later):
        then = time[front[j]]
        if then > until:  # those that have burned since they were found are left out
            front[sizes[0]] = front[j]
            sizes[0] += 1
            upcoming = min(upcoming, then)
    return float(upcoming)


@compiled
def advance(
    time: Array, fields: Array, changes: Array, since: Array, until: Array, upcoming: Array, least: Array,
    front: Array, flames: Array, sizes: Array, heap: Array, place: Array, whole: Array, real: Array,
) -> None:  # fmt: skip
    """Let each fire n burn from ``since[n]`` to ``until[n]``; ``upcoming[n]`` is then when its next cell will burn.

    ``time`` [N, cells] holds when each cell burns: for good up to ``since``, after it as far as is known by then.
    ``fields`` [N, K, cells, 3] is slowness and drift from the time ``changes[n, k]`` on; ``least`` [N, D] is less than
    fire takes from or beside a neighbour. The first ``sizes[n, 0]`` of ``front[n]`` are the cells that will burn after
    ``since``; those that burn join the first ``sizes[n, 1]`` of ``flames[n]``. ``heap`` and ``place`` [cells] are for
    use here; ``place`` is -1.
    """
    for n in range(time.shape[0]):
        if since[n] < until[n]:
            weathers = 1
            while weathers < changes.shape[1] and changes[n, weathers] < np.inf:
                weathers += 1
            upcoming[n] = _advance_one(
                time[n], fields[n], changes[n, :weathers], until[n], least[n], front[n], flames[n], sizes[n], heap,
                place, whole, real,
            )  # fmt: skip


@compiled
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


@compiled
def _revise_one(
    time: Array, fields: Array, changes: Array, width: int, clock: float, cell: int, whole: Array, real: Array
) -> None:
    radius = int(real[-1, _RING])
    weathers = 1
    while weathers < changes.size and changes[weathers] < np.inf:
        weathers += 1
    for row in range(-radius, radius + 1):
        for column in range(-radius, radius + 1):
            near = cell + row * width + column
            if clock < time[near] < np.inf:
                time[near] = _reach_cell(time, fields, changes[:weathers], near, clock, whole, real)


@compiled
def revise(
    time: Array, fields: Array, changes: Array, width: int, clock: Array, fires: Array, cells: Array,
    whole: Array, real: Array,
) -> None:  # fmt: skip
    """After the fields of ``cells`` of ``fires`` have changed: find anew when those around them will burn."""
    for j in range(fires.size):
        n = fires[j]
        _revise_one(time[n], fields[n], changes[n], width, clock[n], cells[j], whole, real)


@compiled
def slow(
    time: Array, fields: Array, changes: Array, width: int, margin: int, clock: Array, factor: Array, narrow: Array,
    fires: Array, rows: Array, columns: Array, keeps: Array, unburnt: Array,
    whole: Array, real: Array, narrow_whole: Array, narrow_real: Array,
) -> int:  # fmt: skip
    """Lay lines and `revise`; returns how many cells are left: those with a slower line than they already have.

    ``unburnt`` tells which did not burn yet.
    """
    left = 0
    for j in range(fires.size):
        n, row, column = fires[j], rows[j], columns[j]
        cell = (row + margin) * width + column + margin
        unburnt[j] = time[n, cell] > clock[n]
        if not unburnt[j] or keeps[j] >= factor[n, row, column]:
            continue
        if keeps[j] == 0.0:
            fields[n, :, cell, 0], fields[n, :, cell, 1:] = np.inf, 0.0
        elif factor[n, row, column] == 1.0:
            fields[n, :, cell] *= 1.0 / keeps[j]
        else:
            left += 1
            continue
        factor[n, row, column] = keeps[j]
        if narrow[n]:
            _revise_one(time[n], fields[n], changes[n], width, clock[n], cell, narrow_whole, narrow_real)
        else:
            _revise_one(time[n], fields[n], changes[n], width, clock[n], cell, whole, real)
    return left


@compiled
def survey(
    time: Array, duration: Array, assets: Array, clock: Array, flames: Array, sizes: Array, width: int, margin: int,
    status: Array, counts: Array, lost: Array,
) -> None:  # fmt: skip
    """Write 1 where each fire burns and 2 where it burned into ``status`` [N, H, W].

    ``counts`` [N, 2] are the cells that burn and those that began to since the last survey, ``lost`` what stood there.
    ``flames`` are those that burnt then or began to since, and afterwards those that burn.
    """
    for n in range(time.shape[0]):
        burning, begun, value = 0, 0, 0.0
        for j in range(sizes[n, 1]):
            cell = flames[n, j]
            r, c = cell // width - margin, cell % width - margin
            if status[n, r, c] != 1 and status[n, r, c] != 2:
                begun += 1
                value += assets[n, r, c]
            if time[n, cell] + duration[n, r, c] > clock[n]:
                status[n, r, c] = 1
                flames[n, burning] = cell
                burning += 1
            else:
                status[n, r, c] = 2
        sizes[n, 1] = burning
        counts[n, 0], counts[n, 1], lost[n] = burning, begun, value
