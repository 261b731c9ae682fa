"""Sampling in proportion to weights that change: a tree of partial sums in numpy arrays."""

from __future__ import annotations

import numpy as np

from operant.data.trees import Array

__all__ = ["SumTree"]

# Wide and shallow: three levels of arrays instead of twenty of pairs, so a batch costs a handful of numpy calls.
_FAN = 16


class SumTree:
    """``size`` weights. Every inner sum is recomputed from its children, so rounding errors never pile up."""

    def __init__(self, size: int) -> None:
        blocks = -(-size // _FAN**2)
        self.size = size
        self._leaves = np.zeros((blocks * _FAN, _FAN))
        self._middle = np.zeros((blocks, _FAN))
        self._top = np.zeros(blocks)
        self._cumulated: Array | None = None

    @property
    def total(self) -> float:
        return float(self._running()[-1])

    def _running(self) -> Array:
        if self._cumulated is None:
            self._cumulated = np.cumsum(self._top)
        return self._cumulated

    def get(self, index: Array) -> Array:
        return np.asarray(self._leaves.reshape(-1).take(index))

    def set(self, index: Array, weight: Array | float) -> None:
        """Give the leaves ``index`` new weights; of one named twice the last counts."""
        self._leaves.reshape(-1)[index] = weight
        middle = index // _FAN
        self._middle.reshape(-1)[middle] = self._leaves.take(middle, axis=0).sum(axis=1)
        top = middle // _FAN
        self._top[top] = self._middle.take(top, axis=0).sum(axis=1)
        self._cumulated = None

    def find(self, mass: Array) -> Array:
        """The leaf at which the running sum of weights passes each ``mass`` [B] in [0, total).

        A leaf of weight zero is never found, even where ``mass`` is rounded up to a sum: it is held just below it.
        """
        running = self._running()
        mass = np.minimum(mass, np.nextafter(running[-1], 0.0))
        node = np.searchsorted(running, mass, side="right")
        mass = mass - (running.take(node) - self._top.take(node))
        for level in (self._middle, self._leaves):
            sums = level.take(node, axis=0).cumsum(axis=1)
            mass = np.clip(mass, 0.0, np.nextafter(sums[:, -1], 0.0))
            child = (sums <= mass[:, None]).sum(axis=1)
            before = sums[np.arange(node.size), child - 1]
            mass = np.where(child > 0, mass - before, mass)
            node = node * _FAN + child
        return np.asarray(node)

    def weights(self) -> Array:
        """All weights, a copy."""
        return self._leaves.reshape(-1)[: self.size].copy()

    def load(self, weights: Array) -> None:
        """Replace all weights at once."""
        self._leaves.reshape(-1)[: self.size] = weights
        self._middle.reshape(-1)[:] = self._leaves.sum(axis=1)
        self._top[:] = self._middle.sum(axis=1)
        self._cumulated = None
