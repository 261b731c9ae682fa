"""From where fire reaches a cell: square rings of neighbours, the cells on the way, and the corners it passes."""

from __future__ import annotations

from dataclasses import dataclass
from fractions import Fraction
from functools import cache
from itertools import pairwise

import numpy as np

from operant.envs.vector import Array

Cell = tuple[int, int]


@dataclass(frozen=True)
class Stencil:
    """Neighbour i of a cell lies at ``offset[i]``; beside it on the same ring stands neighbour ``following[i]``.

    Offsets of cells are flat, for a map with rows of ``width`` cells.
    """

    radius: int
    offset: Array  # [D] int64
    rows: Array  # [D] float64: how many rows and columns the fire moves from the neighbour to the cell
    columns: Array
    length: Array  # [D] in cells
    ring: Array  # [D] float64: distance of the cell from the line through a neighbour and the one that follows
    start: Array  # [D] float64: where the neighbour stands on that line, from the point nearest to the cell
    step_row: Array  # [D] float64: how the movement changes from a neighbour to the one that follows
    step_column: Array
    following: Array  # [D] int64
    preceding: Array  # [D] int64
    path: Array  # [D, L] int64: cells on the way; entries that are not used point at the cell itself
    weight: Array  # [D, L] float64: the part of the way in each of them; 0 where not used
    corner: Array  # [D, C, 2] int64: a way through the corner of two cells is closed when neither of them burns

    def packed(self) -> tuple[Array, Array]:
        """All of it as a table of whole numbers and one of real ones: numba hands over two arrays at less cost."""
        cells, corners = (self.weight > 0).sum(1), (self.corner != 0).any(-1).sum(1)
        columns = 5 + self.path.shape[1] + 2 * self.corner.shape[1]
        whole = np.zeros((self.offset.size, columns), np.int64)
        whole[:, :5] = np.stack([self.offset, self.following, self.preceding, cells, corners], 1)
        for i, (count, pairs) in enumerate(zip(cells, corners, strict=True)):
            whole[i, 5 : 5 + count] = self.path[i, :count]
            whole[i, 5 + count : 5 + count + 2 * pairs] = self.corner[i, :pairs].ravel()
        scalars = (self.rows, self.columns, self.length, self.ring, self.start, self.step_row, self.step_column)
        return whole, np.concatenate([np.stack(scalars, 1), self.weight], 1)


@cache
def make_stencil(width: int, rings: tuple[int, ...]) -> Stencil:
    sources: list[Cell] = []
    ring: list[int] = []
    following: list[int] = []
    for radius in rings:
        first, around = len(sources), _ring(radius)
        sources += around
        ring += [radius] * len(around)
        following += [first + (i + 1) % len(around) for i in range(len(around))]
    ways = [_way(source) for source in sources]
    longest, most = max(len(way[0]) for way in ways), max(1, *(len(way[1]) for way in ways))
    path, weight = np.zeros((len(sources), longest), np.int64), np.zeros((len(sources), longest))
    corner = np.zeros((len(sources), most, 2), np.int64)
    for i, (cells, corners) in enumerate(ways):
        for j, (cell, part) in enumerate(cells):
            path[i, j], weight[i, j] = cell[0] * width + cell[1], float(part)
        for j, pair in enumerate(corners):
            corner[i, j] = [cell[0] * width + cell[1] for cell in pair]
    movement = -np.array(sources, np.float64)
    turn = movement[following] - movement  # of length 1 along one axis
    preceding = np.empty(len(sources), np.int64)
    preceding[following] = np.arange(len(sources))
    return Stencil(
        radius=max(rings),
        offset=np.array([row * width + column for row, column in sources]),
        rows=movement[:, 0].copy(),
        columns=movement[:, 1].copy(),
        length=np.sqrt(movement[:, 0] ** 2 + movement[:, 1] ** 2),
        ring=np.array(ring, np.float64),
        start=(movement * turn).sum(1),
        step_row=turn[:, 0].copy(),
        step_column=turn[:, 1].copy(),
        following=np.array(following),
        preceding=preceding,
        path=path,
        weight=weight,
        corner=corner,
    )


def _ring(radius: int) -> list[Cell]:
    """The cells at the distance ``radius`` in the larger of rows and columns, one after the other."""
    side = range(-radius, radius)
    return [
        *((-radius, column) for column in side),
        *((row, radius) for row in side),
        *((radius, -column) for column in side),
        *((-row, -radius) for row in side),
    ]


def _way(source: Cell) -> tuple[list[tuple[Cell, Fraction]], list[tuple[Cell, Cell]]]:
    """The cells between the centres of ``source`` and (0, 0) with their parts of the way; pairs at corners passed."""
    half = Fraction(1, 2)
    cuts = {Fraction(0), Fraction(1)}
    for extent in source:
        cuts |= {(edge + half) / abs(extent) for edge in range(abs(extent))} if extent else set()
    places = sorted(cuts)
    cells = []
    for near, far in pairwise(places):
        middle = (near + far) / 2
        cells.append(((round(source[0] * middle), round(source[1] * middle)), far - near))
    corners = []
    for (one, _), (other, _) in pairwise(cells):
        if one[0] != other[0] and one[1] != other[1]:
            corners.append(((one[0], other[1]), (other[0], one[1])))
    return cells, corners
