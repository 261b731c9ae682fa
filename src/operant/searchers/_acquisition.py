"""How promising a point is, and the search for the most promising one."""

from __future__ import annotations

import math
from collections.abc import Callable, Collection
from typing import Any, Protocol

import numpy as np

from operant.searchers._extras import require
from operant.space import Layout

Array = np.ndarray
_LOG_ROOT_2PI = 0.5 * math.log(2 * math.pi)
_MOST_ORDERED = 64


class Model(Protocol):
    """Anything that predicts a mean and a standard deviation."""

    def predict(self, points: Array) -> tuple[Array, Array]: ...


class Acquisition:
    """A function of mean and deviation, higher is better, with its derivatives by both."""

    def __init__(self, name: str, best: float, xi: float = 0.0, kappa: float = 1.96) -> None:
        self.name = name
        self._best = best
        self._xi = xi
        self._kappa = kappa
        self._special: Any = require("scipy.special")

    def __call__(self, mean: Array, deviation: Array) -> tuple[Array, Array, Array]:
        """Value, derivative by the mean, derivative by the deviation."""
        if self.name == "LCB":
            return mean + self._kappa * deviation, np.ones_like(mean), np.full_like(mean, self._kappa)
        z = (mean - self._best - self._xi) / deviation
        log_cdf = self._special.log_ndtr(z)
        log_pdf = -0.5 * z**2 - _LOG_ROOT_2PI
        if self.name == "PI":
            hazard = np.exp(log_pdf - log_cdf)
            return log_cdf, hazard / deviation, -hazard * z / deviation
        # log EI (Ament et al. 2023, arXiv 2310.20708): plain EI is 0 with slope 0 almost everywhere.
        log_h = self._log_h(z, log_pdf)
        value = log_h + np.log(deviation)
        return value, np.exp(log_cdf - log_h) / deviation, np.exp(log_pdf - log_h) / deviation

    def _log_h(self, z: Array, log_pdf: Array) -> Array:
        """log(pdf(z) + z cdf(z)) without cancellation for z far below 0."""
        near = np.maximum(z, -1.0)
        direct = np.log(np.exp(-0.5 * near**2 - _LOG_ROOT_2PI) + near * self._special.ndtr(near))
        far = np.minimum(z, -1.0)
        ratio = math.sqrt(math.pi / 2) * self._special.erfcx(-far / math.sqrt(2)) * -far
        tail = np.where(far > -1e5, np.log1p(-np.minimum(ratio, 1 - 1e-16)), -2 * np.log(-far))
        h: Array = np.where(z > -1.0, direct, log_pdf + tail)
        return h


class Maximiser:
    """Looks for the point with the highest acquisition: many candidates, then local search from the best few.

    Numbers with many values are moved along the gradient; of categories and short ranges each value is tried.
    In a space with conditions every point is where its configuration would be put: what is not active is not moved.
    """

    def __init__(self, layout: Layout) -> None:
        arguments = layout.arguments
        self._layout = layout
        self._continuous = np.array(
            [i for i, a in enumerate(arguments) if not a.categorical and a.leaf.size > _MOST_ORDERED],
            dtype=int,
        )
        self._choices: dict[int, Array] = {
            i: (np.arange(int(a.leaf.size)) + 0.5) / float(a.leaf.size)
            if a.categorical
            else a.leaf.encode_many(list(a.leaf.data))
            for i, a in enumerate(arguments)
            if (a.categorical or a.leaf.size <= _MOST_ORDERED) and a.leaf.size > 1
        }
        self._categories = [i for i, argument in enumerate(arguments) if argument.categorical]
        self._dimensions = len(arguments)
        self._optimize: Any = require("scipy.optimize")

    def candidates(self, rng: np.random.Generator, count: int, centres: Array) -> Array:
        """Random points, and as many near good ones: all coordinates moved, or only a few."""
        anywhere = rng.random((count, self._dimensions))
        if len(centres) == 0:
            return self.snap(anywhere)
        chosen = centres[rng.integers(len(centres), size=count)]
        if self._layout.conditional:
            # An argument that becomes active may be anywhere; centres have it in the middle.
            chosen = np.where(self.active(chosen), chosen, rng.random(chosen.shape))
        scale = 10.0 ** rng.uniform(-3, -0.5, size=(count, 1))
        moved = chosen + rng.normal(size=chosen.shape) * scale
        # In many dimensions a step in all of them hardly ever improves; half the points change only some.
        few = rng.random((count, 1)) < 0.5
        some = rng.random(chosen.shape) < np.maximum(0.2, 1.5 / self._dimensions)
        near = np.where(~few | some, moved, chosen)
        for i, levels in self._choices.items():
            redrawn = rng.random(count) < 0.25
            near[:, i] = np.where(redrawn, levels[rng.integers(len(levels), size=count)], chosen[:, i])
        return self.snap(np.vstack([anywhere, np.clip(near, 0.0, 1.0)]))

    def snap(self, points: Array) -> Array:
        """Points with each short-ranged coordinate at the nearest value that exists, inactive ones in the middle."""
        for i, levels in self._choices.items():
            points[:, i] = levels[np.abs(points[:, i, None] - levels).argmin(axis=1)]
        if self._layout.conditional:
            return self._layout.snap_many(points)
        return points

    def distances(self, points: Array, point: Array) -> Array:
        """Of each point from one: the largest difference of a coordinate, 1 where a category is another."""
        differences = np.abs(points - point)
        differences[:, self._categories] = differences[:, self._categories] > 0
        found: Array = differences.max(axis=1)
        return found

    def active(self, points: Array) -> Array:
        """Which arguments the configuration of each point has."""
        return self._layout.active_many(points)

    def improve(
        self,
        start: Array,
        value: Callable[[Array], Array],
        gradient: Callable[[Array, Array], tuple[float, Array]] | None,
        rounds: int = 3,
        fixed: Collection[int] = (),
    ) -> tuple[Array, float]:
        """Local search from one point, by turns along the gradient and through the choices but the fixed ones."""
        point, best = start.copy(), float(value(start[None])[0])
        for _ in range(rounds):
            before = best
            if gradient is not None and len(self._continuous):
                point, best = self._climb(point, best, gradient)
            if self._choices:
                point, best = self._sweep(point, best, value, fixed)
            if best <= before + 1e-9 or not self._choices:
                break
        return point, best

    def _climb(
        self, point: Array, best: float, gradient: Callable[[Array, Array], tuple[float, Array]]
    ) -> tuple[Array, float]:
        moved, columns = point.copy(), self._continuous
        if self._layout.conditional:
            columns = columns[self.active(point[None])[0, columns]]
            if not len(columns):
                return point, best

        def loss(x: Array) -> tuple[float, Array]:
            moved[columns] = x
            value, slope = gradient(moved, columns)
            return -value, -slope

        found = self._optimize.minimize(
            loss,
            point[columns],
            jac=True,
            method="L-BFGS-B",
            bounds=[(0.0, 1.0)] * len(columns),
            options={"maxiter": 40},
        )
        if -float(found.fun) > best:
            moved[columns] = found.x
            return moved, -float(found.fun)
        return point, best

    def _sweep(
        self, point: Array, best: float, value: Callable[[Array], Array], fixed: Collection[int]
    ) -> tuple[Array, float]:
        for i, levels in self._choices.items():
            if i in fixed:
                continue
            tried = np.tile(point, (len(levels), 1))
            tried[:, i] = levels
            if self._layout.conditional:
                tried = self.snap(tried)
            values = value(tried)
            top = int(values.argmax())
            if float(values[top]) > best:
                point, best = tried[top], float(values[top])
        return point, best
