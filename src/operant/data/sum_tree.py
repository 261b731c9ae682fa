"""Sampling in proportion to weights that change: a tree of partial sums in numpy arrays."""

from __future__ import annotations

import numpy as np

from operant.data.trees import Array

__all__ = ["SumTree"]

# Wide and shallow: three levels of arrays instead of twenty of pairs, so a batch costs a handful of numpy calls.
_SHIFT = 5
_FAN = 1 << _SHIFT

# row @ _BEFORE gives the sums of all entries before each one. For rows this short a matrix product takes a third of
# the time of np.cumsum, which must wait for each addition.
_BEFORE = np.triu(np.ones((_FAN, _FAN)), k=1)


class SumTree:
    """``size`` weights. Every inner sum is recomputed from its children, so rounding errors never pile up."""

    def __init__(self, size: int) -> None:
        blocks = -(-size // _FAN**2)
        self.size = size
        self._leaves = np.zeros((blocks * _FAN, _FAN))
        self._middle = np.zeros((blocks, _FAN))
        self._top = np.zeros(blocks)
        self._flat = self._leaves.reshape(-1)
        self._flat_middle = self._middle.reshape(-1)
        self._running = np.zeros(blocks + 1)  # sum of all blocks before each one
        self._stale = False

    @property
    def total(self) -> float:
        if self._stale:
            self._top.cumsum(out=self._running[1:])
            self._stale = False
        return float(self._running[-1])

    def get(self, index: Array) -> Array:
        return self._flat.take(index)

    def set(self, index: Array, weight: Array | float) -> None:
        """Give the leaves ``index`` new weights; of one named twice the last counts."""
        self._flat[index] = weight
        middle = index >> _SHIFT
        self._flat_middle[middle] = self._leaves.take(middle, axis=0).sum(axis=1)
        top = middle >> _SHIFT
        self._top[top] = self._middle.take(top, axis=0).sum(axis=1)
        self._stale = True

    def find(self, mass: Array) -> Array:
        """The leaf in which the running sum of weights passes each ``mass`` [B] in [0, total)."""
        total = self.total
        node = self._running.searchsorted(mass, side="right")
        node -= 1
        rest = mass - self._running.take(node)
        starts = np.arange(0, mass.size * _FAN, _FAN)
        for level in (self._middle, self._leaves):
            before = level.take(node, axis=0, mode="clip") @ _BEFORE
            # The child is the last one whose predecessors weigh no more than `rest`: the one before the first that
            # does not, or the last of all.
            child = (before > rest[:, None]).argmax(axis=1)
            child -= 1
            child &= _FAN - 1
            rest -= before.reshape(-1).take(starts + child)
            node <<= _SHIFT
            node += child
        if node.max() >= self.size or not self._flat.take(node).all():
            return self._find_again(np.minimum(mass, np.nextafter(total, 0.0)), node)
        return node

    def _find_again(self, mass: Array, node: Array) -> Array:
        """Replace leaves without weight, which a ``mass`` at the very edge of a sum finds once in 10^15 times."""
        running = self._flat[: self.size].cumsum()
        node = node.copy()
        wrong = np.flatnonzero((node >= self.size) | (self._flat.take(node, mode="clip") <= 0))
        node[wrong] = running.searchsorted(np.minimum(mass[wrong], np.nextafter(running[-1], 0.0)), side="right")
        return node

    def weights(self) -> Array:
        """All weights, a copy."""
        return self._flat[: self.size].copy()

    def load(self, weights: Array) -> None:
        """Replace all weights at once."""
        self._flat[: self.size] = weights
        self._flat_middle[:] = self._leaves.sum(axis=1)
        self._top[:] = self._middle.sum(axis=1)
        self._stale = True
