"""The spread of fires without numba: the cells that burn within a step are improved together until none changes.

Arrival times are the least fixed point of the same equations as in ``_spread_numba``, with sums in the same order, so
both give the same bits as long as the weather holds.
"""

from __future__ import annotations

import numpy as np

from operant.envs.vector import Array
from operant.envs.wildfire.physics._stencil import Stencil


def advance(
    time: Array, fields: Array, changes: Array, box: Array, width: int, since: Array, until: Array, upcoming: Array,
    stencil: Stencil,
) -> None:  # fmt: skip
    """As `_spread_numba.advance`; ``box`` [N, 4] holds rows and columns outside of which nothing is known to burn."""
    going = since < until
    top, bottom, first, last = _common(box, going)
    maps = time.reshape(len(time), -1, width)
    near = maps[:, top:bottom, first:last]
    n, row, column = ((near < np.inf) & (near > since[:, None, None]) & (near <= until[:, None, None])).nonzero()
    source = (row + top) * width + column + first
    while source.size:
        _widen(box, n, source, width, stencil.radius)
        fire, cell, best = _reached(time, fields, changes, n, source, until, stencil)
        flat = fire * time.shape[1] + cell
        before = time.ravel()[flat]
        np.minimum.at(time.ravel(), flat, best)
        changed = np.unique(flat[best < before])
        n, source = np.divmod(changed, time.shape[1])
        soon = time[n, source] <= until[n]
        n, source = n[soon], source[soon]
    top, bottom, first, last = _common(box, going)
    near = maps[:, top:bottom, first:last]
    later = np.where(near > until[:, None, None], near, np.inf).min((1, 2), initial=np.inf)
    upcoming[going] = later[going]


def revise(
    time: Array, fields: Array, changes: Array, width: int, clock: Array, fires: Array, cells: Array, stencil: Stencil
) -> None:
    """As `_spread_numba.revise`."""
    reach = np.arange(-stencil.radius, stencil.radius + 1)
    flat = (fires[:, None] * time.shape[1] + cells[:, None] + (reach[:, None] * width + reach).ravel()).ravel()
    n, cell = np.divmod(np.unique(flat), time.shape[1])
    stale = (time[n, cell] > clock[n]) & (time[n, cell] < np.inf)
    n, cell = n[stale], cell[stale]
    time[n, cell] = np.inf
    open_to_fire = fields[n, 0, cell, 0] != np.inf
    n, cell = n[open_to_fire], cell[open_to_fire]
    which, i = (time[n[:, None], cell[:, None] + stencil.offset] <= clock[n][:, None]).nonzero()
    n, cell = n[which], cell[which]
    first = time[n, cell + stencil.offset[i]]
    best = _by_way(fields, changes, n, cell, i, first, stencil)
    second = time[n, cell + stencil.offset[stencil.following[i]]]
    (both,) = (second <= clock[n]).nonzero()
    facet = _by_facet(fields, changes, n[both], cell[both], i[both], first[both], second[both], stencil)
    best[both] = np.minimum(best[both], facet)
    np.minimum.at(time.ravel(), n * time.shape[1] + cell, best)


def survey(
    time: Array, duration: Array, assets: Array, clock: Array, width: int, margin: int,
    status: Array, counts: Array, lost: Array,
) -> None:  # fmt: skip
    """As `_spread_numba.survey`, of all cells."""
    then = time.reshape(len(time), -1, width)[:, margin:-margin, margin:-margin]
    burnt = then <= clock[:, None, None]
    burning = burnt & (then + duration > clock[:, None, None])
    begun = burnt & (status != 1) & (status != 2)
    status[burnt] = 2
    status[burning] = 1
    counts[:, 0], counts[:, 1] = burning.sum((1, 2)), begun.sum((1, 2))
    lost[:] = (assets * begun).sum((1, 2))


def _common(box: Array, going: Array) -> tuple[int, int, int, int]:
    if not going.any():
        return 0, 0, 0, 0
    held = box[going]
    return int(held[:, 0].min()), int(held[:, 1].max()), int(held[:, 2].min()), int(held[:, 3].max())


def _widen(box: Array, n: Array, source: Array, width: int, radius: int) -> None:
    row, column = np.divmod(source, width)
    np.minimum.at(box[:, 0], n, row - radius)
    np.maximum.at(box[:, 1], n, row + radius + 1)
    np.minimum.at(box[:, 2], n, column - radius)
    np.maximum.at(box[:, 3], n, column + radius + 1)


def _reached(
    time: Array, fields: Array, changes: Array, n: Array, source: Array, until: Array, s: Stencil
) -> tuple[Array, Array, Array]:
    """The cells around ``source`` that could burn sooner by it: fire, cell and time, one row for each way."""
    now = time[n, source]
    targets = source[:, None] - s.offset
    better = (time[n[:, None], targets] > now[:, None]) & (fields[n[:, None], 0, targets, 0] != np.inf)
    which, i = better.nonzero()
    fire, cell, now = n[which], targets[which, i], now[which]
    best = _by_way(fields, changes, fire, cell, i, now, s)
    for ahead, other in ((True, s.following[i]), (False, s.preceding[i])):
        then = time[fire, cell + s.offset[other]]
        (both,) = ((then <= until[fire]) & (then < np.inf)).nonzero()
        f, cells = fire[both], cell[both]
        if ahead:
            facet = _by_facet(fields, changes, f, cells, i[both], now[both], then[both], s)
        else:
            facet = _by_facet(fields, changes, f, cells, other[both], then[both], now[both], s)
        best[both] = np.minimum(best[both], facet)
    return fire, cell, best


def _open(fields: Array, n: Array, cell: Array, i: Array, s: Stencil) -> Array:
    closed = np.zeros(cell.size, np.bool_)
    for j in range(s.corner.shape[1]):
        one, other = s.corner[i, j, 0], s.corner[i, j, 1]
        closed |= (fields[n, 0, cell + one, 0] == np.inf) & (fields[n, 0, cell + other, 0] == np.inf)
    return np.asarray(~closed)


def _mean(fields: Array, n: Array, k: Array, cell: Array, i: Array, s: Stencil) -> Array:
    """[3, rows]: slowness and drift along the way from neighbour ``i``."""
    total = np.zeros((cell.size, 3))
    for j in range(s.path.shape[1]):
        total += s.weight[i, j, None] * fields[n, k, cell + s.path[i, j]]
    return total.T


def _interval(changes: Array, n: Array, time: Array) -> Array:
    """Which weather holds at ``time``."""
    return np.asarray((changes[n, 1:] <= time[:, None]).sum(1))


def _arrive(changes: Array, n: Array, begin: Array, cost: Array, k: Array) -> tuple[Array, Array]:
    """When a way of ``cost`` minutes is gone to its end, and whether the weather holds until then."""
    end = begin + cost
    if changes.shape[1] == 1:
        return end, np.ones(end.size, np.bool_)
    last = k + 1 == changes.shape[1]
    after = np.where(last, np.inf, changes[n, np.minimum(k + 1, changes.shape[1] - 1)])
    return end, np.asarray(last | (end <= after))


def _by_way(fields: Array, changes: Array, n: Array, cell: Array, i: Array, begin: Array, s: Stencil) -> Array:
    return _go(fields, changes, n, cell, i, None, begin, s.rows[i], s.columns[i], s.length[i], s)


def _by_facet(
    fields: Array, changes: Array, n: Array, cell: Array, i: Array, first: Array, second: Array, s: Stencil
) -> Array:
    j, latest = s.following[i], np.maximum(first, second)
    steady = _steady(changes)[n]
    slowness, row, column = _facet_mean(fields, n, np.zeros(n.size, np.int64), cell, i, j, s)
    gain = (first - second) + (row * s.step_row[i] + column * s.step_column[i])
    square = slowness * slowness - gain * gain
    inside = square > 0.0
    root = np.sqrt(np.where(inside, square, 1.0))
    at = np.where(inside, s.ring[i] * gain / root - s.start[i], np.where(gain > 0.0, 1.0, 0.0))
    best = _from_point(fields, changes, n, cell, i, first, second, np.minimum(np.maximum(at, 0.0), 1.0), s)
    (other,) = (~steady).nonzero()
    if other.size:
        rows = (n[other], cell[other], i[other], first[other], second[other])
        points = [_from_point(fields, changes, *rows, np.full(other.size, at), s) for at in (0.25, 0.5, 0.75)]
        best[other] = np.minimum(np.minimum(points[0], points[1]), points[2])
    return np.maximum(best, latest)


def _steady(changes: Array) -> Array:
    """[N] bool: in which fires the weather never changes."""
    return np.asarray(np.isinf(changes[:, 1:]).all(1))


def _from_point(
    fields: Array, changes: Array, n: Array, cell: Array, i: Array, first: Array, second: Array, at: Array, s: Stencil
) -> Array:
    along_row, along_column = s.rows[i] + at * s.step_row[i], s.columns[i] + at * s.step_column[i]
    length = np.sqrt(along_row * along_row + along_column * along_column)
    begin = first + at * (second - first)
    return _go(fields, changes, n, cell, i, s.following[i], begin, along_row, along_column, length, s)


def _facet_mean(fields: Array, n: Array, k: Array, cell: Array, i: Array, j: Array, s: Stencil) -> Array:
    return (_mean(fields, n, k, cell, i, s) + _mean(fields, n, k, cell, j, s)) * 0.5


def _go(
    fields: Array, changes: Array, n: Array, cell: Array, i: Array, j: Array | None, begin: Array,
    rows: Array, columns: Array, length: Array, s: Stencil,
) -> Array:  # fmt: skip
    """The end of straight ways begun at ``begin``, through all weather that holds on them."""
    result = np.full(cell.size, np.inf)
    passable = _open(fields, n, cell, i, s)
    if j is not None:
        passable &= _open(fields, n, cell, j, s)
    (rest,) = passable.nonzero()
    k, begin, left = _interval(changes, n, begin), begin.copy(), np.ones(cell.size)
    while rest.size:
        fire, at = n[rest], cell[rest]
        if j is None:
            slowness, row, column = _mean(fields, fire, k[rest], at, i[rest], s)
        else:
            slowness, row, column = _facet_mean(fields, fire, k[rest], at, i[rest], j[rest], s)
        cost = slowness * length[rest] - (row * rows[rest] + column * columns[rest])
        end, holds = _arrive(changes, fire, begin[rest], left[rest] * cost, k[rest])
        result[rest[holds]] = end[holds]
        rest, fire, cost = rest[~holds], fire[~holds], cost[~holds]
        after = changes[fire, k[rest] + 1]
        left[rest] -= (after - begin[rest]) / cost
        begin[rest] = after
        k[rest] += 1
    return result
