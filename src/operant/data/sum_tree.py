"""Sampling in proportion to weights that change: a tree of partial sums in numpy arrays."""

from __future__ import annotations

from itertools import pairwise
from typing import Any

import numpy as np

from operant.data.trees import Array

_SHIFT = 4
_FAN = 1 << _SHIFT  # children of a node; measured: 32 is slower at 100,000 weights, 8 at a million


class SumTree:
    """``size`` weights. Every inner sum is recomputed from its children, so rounding errors never pile up.

    Wide and shallow: leaves, nodes, blocks of nodes and rows of blocks instead of twenty levels of pairs, so a batch
    costs a handful of numpy calls. Sums are made from left to right, each addition rounded: with a matrix product, a
    third of the time, the order and so the last bit would depend on the processor and the BLAS, and the compiled code
    could not make the same sums.

    :param kernels: `operant.data.kernels`, to have the loops compiled.
    """

    def __init__(self, size: int, kernels: Any = None) -> None:
        self.size = size
        self._kernels = kernels
        rows = -(-size // _FAN**3)
        blocks = rows * _FAN
        self._leaves = np.zeros((blocks * _FAN, _FAN))
        self._nodes = np.zeros((blocks, _FAN))
        self._blocks = np.zeros((rows, _FAN))
        self._rows = np.zeros(rows)
        self._before_row = np.zeros(rows + 1)
        self._before_block = np.zeros(blocks)
        self._flat = self._leaves.reshape(-1)
        self._levels = (
            self._flat,
            self._nodes.reshape(-1),
            self._blocks.reshape(-1),
            self._rows,
            self._before_row,
        )
        self._stale = False  # whether the sums of all rows and blocks before each one are those of earlier weights
        self._strata: Array = np.zeros(0)  # 0, 1, … and where rows of sums begin, for the last size of batch
        self._row_starts = np.zeros(0, np.int64)

    @property
    def total(self) -> float:
        if self._kernels is None:
            self._sum_blocks()
        return float(self._before_row[-1])

    def _sum_blocks(self) -> None:
        if self._stale:
            within = np.add.accumulate(self._blocks, axis=1)
            self._rows[:] = within[:, -1]
            np.add.accumulate(self._rows, out=self._before_row[1:])
            before = self._before_block.reshape(self._blocks.shape)
            before[:, 0] = self._before_row[:-1]
            np.add(within[:, :-1], self._before_row[:-1, None], out=before[:, 1:])
            self._stale = False

    def get(self, index: Array) -> Array:
        return self._flat.take(index)

    def set(self, index: Array, weight: Array | float) -> None:
        """Give the leaves ``index`` new weights; of one named twice the last counts."""
        self._stale = True
        if self._kernels is not None:
            index = np.ascontiguousarray(index, np.int64)
            if not isinstance(weight, np.ndarray):
                weight = np.full(index.size, weight)
            self._kernels.set_weights(*self._levels, index, weight)
            return
        self._flat[index] = weight
        for level, sums in pairwise((self._leaves, self._nodes, self._blocks)):
            index = index >> _SHIFT
            sums.reshape(-1)[index] = _sums(level.take(index, axis=0))

    def draw(self, share: Array) -> tuple[Array, Array, float]:
        """A leaf from each of B equal parts of the sum; ``share`` [B] in [0, 1) says where in its part.

        Gives the leaves, their weights and the least of these.
        """
        count = share.size
        part = self.total / count
        if self._kernels is not None:
            leaf, weight = np.empty(count, np.int64), np.empty(count)
            least = self._kernels.draw(*self._levels, part, share, leaf, weight)
            if least > 0.0:
                return leaf, weight, least
        if len(self._strata) != count:
            self._strata = np.arange(count)
        leaf, weight = self.find((share + self._strata) * part)
        return leaf, weight, float(np.minimum.reduce(weight))

    def find(self, mass: Array) -> tuple[Array, Array]:
        """The leaf in which the running sum of weights passes each ``mass`` [B] in [0, total), and its weight."""
        self._sum_blocks()
        node = self._before_block.searchsorted(mass, side="right")
        node -= 1
        rest = mass - self._before_block.take(node)
        node, rest = self._descend(self._nodes, node, rest)
        node, rest = self._descend(self._leaves, node, rest)
        weight = self._flat.take(node)
        if not weight.all():  # a mass at the very edge of a sum, once in 10^15 times
            running = self._flat.cumsum()
            wrong = np.flatnonzero(weight <= 0)
            node[wrong] = running.searchsorted(np.minimum(mass[wrong], np.nextafter(running[-1], 0.0)), side="right")
            weight = self._flat.take(node)
        return node, weight

    def _descend(self, sums: Array, node: Array, rest: Array) -> tuple[Array, Array]:
        """The child of each node in which ``rest`` lies, and what is left of it there."""
        before = np.zeros((node.size, _FAN))  # the sums of all children before each one
        np.add.accumulate(sums.take(node, axis=0)[:, :-1], axis=1, out=before[:, 1:])
        child = _count(before <= rest[:, None])  # the last one whose predecessors weigh no more, counted from 1
        rest = rest - before.reshape(-1).take(self._starts(node.size) + child)
        child += node << _SHIFT
        child -= 1
        return child, rest

    def _starts(self, count: int) -> Array:
        """The place before each of so many rows of sums; batches mostly have one size."""
        if len(self._row_starts) != count:
            self._row_starts = np.arange(0, count * _FAN, _FAN) - 1
        return self._row_starts

    def weights(self) -> Array:
        """All weights, a copy."""
        return self._flat[: self.size].copy()

    def load(self, weights: Array) -> None:
        """Replace all weights at once."""
        self._flat[: self.size] = weights
        for level, sums in pairwise((self._leaves, self._nodes, self._blocks)):
            sums.reshape(-1)[:] = _sums(level)
        self._stale = True
        self._sum_blocks()


def _sums(rows: Array) -> Array:
    """The sum of each row, from left to right; numpy's own `sum` adds in an order of its own."""
    return np.asarray(np.add.accumulate(rows, axis=1)[:, -1])


def _count(rows: Array) -> Array:
    """How many of each row of booleans are true. They are bytes of 0 and 1, so eight are added in one whole number:
    argmax and sum, which look at each, take two to three times as long.
    """
    eights = rows.view(np.int64)
    total = eights[:, 0] + eights[:, 1]
    for column in range(2, eights.shape[1]):
        total += eights[:, column]
    total *= 0x0101010101010101  # the highest byte becomes the sum of all eight
    total >>= 56
    return np.asarray(total)
