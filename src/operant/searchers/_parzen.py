"""Parzen estimators over the unit cube: the log kernels of all points with all components in one product.

For a number with kernel N(mu, s) cut off at 0 and 1, log k(x, mu) = x^2 [-1/(2 s^2)] + x [mu/s^2] + [rest],
so a point is described by (x^2, x, 1) and a component by the brackets. For a categorical argument a point is
its one-hot vector and a component the log chances of each value. An argument that is not active has zeros on
its side: as a component it says nothing about the argument, as a point it asks nothing.
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from operant.searchers._extras import require
from operant.space import Layout, Numeric

Array = np.ndarray
_HALF_LOG_2PI = 0.5 * math.log(2 * math.pi)


class Kernels:
    """The features of points and components for the arguments of a space."""

    def __init__(self, layout: Layout) -> None:
        self._numeric = np.array([i for i, a in enumerate(layout.arguments) if not a.categorical], dtype=int)
        self._categorical = [(i, int(a.leaf.size)) for i, a in enumerate(layout.arguments) if a.categorical]
        self._dimensions = len(layout.arguments)
        # A kernel narrower than the distance of two values could not reach a neighbour.
        self._narrowest = np.array(
            [
                0.0 if math.isinf(a.leaf.size) else 0.5 / float(a.leaf.size)
                for a in layout.arguments
                if isinstance(a.leaf, Numeric)
            ]
        )
        self._special: Any = require("scipy.special")

    def neighbours(self, points: Array) -> Array:
        """The numbers of points, each argument's in order: what `bandwidths` looks up neighbours in."""
        numbers = points[:, self._numeric]
        found = np.empty((len(numbers) + 2, numbers.shape[1]))
        found[0], found[1:-1], found[-1] = -np.inf, np.sort(numbers, axis=0), np.inf
        return found

    def bandwidths(self, points: Array, neighbours: Array, least: float) -> Array:
        """For each number of each point the larger distance to its neighbours, and no less than `least`."""
        numbers = points[:, self._numeric]
        widths = np.empty_like(numbers)
        for j in range(numbers.shape[1]):
            line, x = neighbours[:, j], numbers[:, j]
            first, beyond = line.searchsorted(x, side="left"), line.searchsorted(x, side="right")
            # A point that is among its neighbours is not its own; but an equal one is, at distance 0.
            itself = beyond > first
            left = x - line[np.where(itself, beyond - 2, first - 1)]
            right = line[first + itself] - x
            # The ends of the range are no neighbours: kernels at the rim would become very wide.
            left[left == np.inf] = -np.inf
            right[right == np.inf] = -np.inf
            finite = np.maximum(left, right)
            finite[finite == -np.inf] = 0.0 if len(line) > 3 else 1.0
            widths[:, j] = finite
        # Not `clip`, here and below: for a few numbers it takes several times as long.
        limited: Array = np.maximum(np.minimum(np.maximum(widths, least), 1.0), self._narrowest)
        return limited

    def widened(self, widths: Array, count: int) -> Array:
        """Half way (on a log scale) to Scott's rule for so many components, which sees the large picture."""
        scott = 0.2 * max(count, 1) ** (-1.0 / (self._dimensions + 4))
        wide: Array = np.maximum(np.sqrt(widths * scott), self._narrowest)
        return wide

    def components(self, points: Array, active: Array, widths: Array, blur: float) -> Array:
        """Features of components at `points`.

        A categorical kernel forgets its value and takes any of k with the chance k blur / (1 + k blur).
        """
        blocks = []
        if len(self._numeric):
            mu, m = points[:, self._numeric], active[:, self._numeric]
            precision = 1.0 / widths**2
            inside = self._special.ndtr((1 - mu) / widths) - self._special.ndtr(-mu / widths)
            rest = -0.5 * mu**2 * precision - np.log(widths * inside) - _HALF_LOG_2PI
            blocks += [m * (-0.5 * precision), m * (mu * precision), m * rest]
        for column, size in self._categorical:
            forgets = _chance_to_forget(size, blur)
            chances = np.full((len(points), size), forgets / size)
            chances[np.arange(len(points)), _choice(points[:, column], size)] += 1 - forgets
            # Relative to the uniform density, as for numbers on the unit interval.
            blocks.append(active[:, column, None] * np.log(chances * size))
        return np.concatenate(blocks, axis=1)

    def points(self, points: Array, active: Array) -> Array:
        blocks = []
        if len(self._numeric):
            x, a = points[:, self._numeric], active[:, self._numeric]
            blocks += [a * x**2, a * x, a * 1.0]
        for column, size in self._categorical:
            one_hot = np.zeros((len(points), size))
            one_hot[np.arange(len(points)), _choice(points[:, column], size)] = active[:, column]
            blocks.append(one_hot)
        return np.concatenate(blocks, axis=1)

    def draw(self, rng: np.random.Generator, centres: Array, active: Array, widths: Array, blur: float) -> Array:
        """One point from the kernel of each centre; arguments that a centre does not have are uniform."""
        drawn = rng.random((len(centres), self._dimensions))
        if len(self._numeric):
            mu, m = centres[:, self._numeric], active[:, self._numeric]
            low, high = self._special.ndtr(-mu / widths), self._special.ndtr((1 - mu) / widths)
            uniform = drawn[:, self._numeric]
            moved = mu + widths * self._special.ndtri(low + uniform * (high - low))
            drawn[:, self._numeric] = np.where(m, np.minimum(np.maximum(moved, 0.0), 1.0), uniform)
        for column, size in self._categorical:
            keeps = active[:, column] & (rng.random(len(centres)) >= _chance_to_forget(size, blur))
            drawn[keeps, column] = centres[keeps, column]
        return drawn


def log_density(points: Array, components: Array, log_weights: Array) -> Array:
    """The log of the mixture density at points, all given by their features."""
    kernels = points @ components.T
    kernels += log_weights
    top = kernels.max(axis=1, keepdims=True)
    np.exp(np.subtract(kernels, top, out=kernels), out=kernels)
    density: Array = np.log(kernels.sum(axis=1)) + top[:, 0]
    return density


def _chance_to_forget(size: int, blur: float) -> float:
    return size * blur / (1 + size * blur)


def _choice(column: Array, size: int) -> Array:
    choice: Array = np.minimum((column * size).astype(int), size - 1)
    return choice
