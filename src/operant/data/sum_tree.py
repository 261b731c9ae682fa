"""Sampling in proportion to weights that change: a tree of partial sums in numpy arrays."""

from __future__ import annotations

import numpy as np

from operant.data.trees import Array

__all__ = ["SumTree"]


class SumTree:
    """``size`` weights. Every inner sum is recomputed from its children, so rounding errors never pile up.

    Wide and shallow: three levels of arrays instead of twenty of pairs, so a batch costs a handful of numpy calls.
    """

    def __init__(self, size: int) -> None:
        self.size = size
        self._shift = 4 if size <= 1 << 18 else 5  # measured: narrow nodes are quicker until the top level gets long
        fan = self._fan = 1 << self._shift
        # row @ _before gives the sums of all entries before each one. For rows this short a matrix product takes a
        # third of the time of np.cumsum, which must wait for each addition.
        self._before = np.triu(np.ones((fan, fan)), k=1)
        self._row_starts = np.zeros(0, np.int64)
        self._all = np.ones(fan)
        blocks = -(-size // fan**2)
        self._leaves = np.zeros((blocks * fan, fan))
        self._middle = np.zeros((blocks, fan))
        self._top = np.zeros(blocks)
        self._flat = self._leaves.reshape(-1)
        self._flat_middle = self._middle.reshape(-1)
        self._running = np.zeros(blocks + 1)  # sum of all blocks before each one
        self._stale = False

    @property
    def total(self) -> float:
        self._update_running()
        return float(self._running[-1])

    def _update_running(self) -> None:
        if self._stale:
            self._top.cumsum(out=self._running[1:])
            self._stale = False

    def get(self, index: Array) -> Array:
        return self._flat.take(index)

    def set(self, index: Array, weight: Array | float) -> None:
        """Give the leaves ``index`` new weights; of one named twice the last counts."""
        self._flat[index] = weight
        middle = index >> self._shift
        self._flat_middle[middle] = self._leaves.take(middle, axis=0) @ self._all
        top = middle >> self._shift
        self._top[top] = self._middle.take(top, axis=0) @ self._all
        self._stale = True

    def find(self, mass: Array) -> tuple[Array, Array]:
        """The leaf in which the running sum of weights passes each ``mass`` [B] in [0, total), and its weight."""
        self._update_running()
        node = self._running.searchsorted(mass, side="right")
        node -= 1
        rest = mass - self._running.take(node)
        starts = self._starts(mass.size)
        before = self._middle.take(node, axis=0, mode="clip") @ self._before
        place = _count(before <= rest[:, None])  # the child is the last one whose predecessors weigh no more
        rest -= before.reshape(-1).take(starts + place)
        node <<= self._shift
        node += place
        node -= 1
        before = self._leaves.take(node, axis=0, mode="clip") @ self._before
        node <<= self._shift
        node += _count(before <= rest[:, None])
        node -= 1
        weight = self._flat.take(node, mode="clip")
        if not weight.all():  # a mass at the very edge of a sum, once in 10^15 times
            running = self._flat.cumsum()
            wrong = np.flatnonzero(weight <= 0)
            node[wrong] = running.searchsorted(np.minimum(mass[wrong], np.nextafter(running[-1], 0.0)), side="right")
            weight = self._flat.take(node)
        return node, weight

    def _starts(self, count: int) -> Array:
        """The place before each of so many rows of sums; batches mostly have one size."""
        if len(self._row_starts) != count:
            self._row_starts = np.arange(0, count * self._fan, self._fan) - 1
        return self._row_starts

    def weights(self) -> Array:
        """All weights, a copy."""
        return self._flat[: self.size].copy()

    def load(self, weights: Array) -> None:
        """Replace all weights at once."""
        self._flat[: self.size] = weights
        self._flat_middle[:] = self._leaves @ self._all
        self._top[:] = self._middle @ self._all
        self._stale = True


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
