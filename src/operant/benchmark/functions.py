"""Functions with known difficulties by name: linear policies on MuJoCo, and formulas with a moved optimum.

All are maximised. A formula's optimum lies at a place drawn from `shift_seed`, never in the middle of the box, so that
no searcher gains by starting there.
"""

from __future__ import annotations

import importlib
import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, Protocol

import numpy as np

from operant.errors import ConfigError, unknown

Array = np.ndarray
MUJOCO = ("swimmer", "hopper", "halfcheetah", "walker2d", "ant", "humanoid")
# The returns that the literature calls solved, and the number of weights by which a search without `func_type` is told.
THRESHOLDS = {"swimmer": 325.0, "hopper": 3120.0, "halfcheetah": 3430.0, "walker2d": 4390.0, "ant": 3580.0}
THRESHOLDS |= {"humanoid": 6000.0}
_BY_DIMENSIONS = {16: "swimmer", 33: "hopper"}


class Function(Protocol):
    """What a search maximises: a point of a box, and a seed for whatever is random."""

    @property
    def name(self) -> str: ...

    @property
    def dims(self) -> int: ...

    @property
    def low(self) -> float: ...

    @property
    def high(self) -> float: ...

    def __call__(self, point: Sequence[float] | Array, seed: int | Sequence[int], /) -> float: ...


@dataclass(frozen=True)
class Formula:
    """A formula on a box, with its optimum moved."""

    name: str
    dims: int
    low: float
    high: float
    value: Callable[[Array], float]
    offset: Array

    def __call__(self, point: Sequence[float] | Array, seed: int | Sequence[int]) -> float:
        return -self.value(np.asarray(point, dtype=float) - self.offset)


def make_function(func_type: str | None, dims: int | None = None, rollouts: int = 3, shift_seed: int = 0) -> Function:
    """The function called `func_type`; without a name the one that has `dims` weights.

    A formula takes its number of arguments from `dims`: `ackley`, `rosenbrock`, `levy`, `hartmann` (6),
    `michalewicz`, `rover` (even).
    """
    if func_type is None:
        if dims not in _BY_DIMENSIONS:
            raise ConfigError(
                f"which function {dims} search args belong to is not known (16 are Swimmer, 33 Hopper): "
                f"give `func_type`",
                ("scheduler", "func_type"),
            )
        func_type = _BY_DIMENSIONS[dims]
    func_type = str(func_type)
    if func_type in MUJOCO:
        from operant.envs.mujoco_linear import MujocoFunction

        function: Function = MujocoFunction(func_type, rollouts)
    elif func_type in _FORMULAS:
        function = _formula(func_type, dims, shift_seed)
    else:
        raise ConfigError(unknown("func_type", func_type, (*MUJOCO, *_FORMULAS)), ("scheduler", "func_type"))
    if dims is not None and dims != function.dims:
        raise ConfigError(
            f"{func_type} has {function.dims} arguments, but there are {dims} search args", ("task", "search_args")
        )
    return function


def search_args(function: Function) -> list[dict[str, Any]]:
    """The arguments a0, a1, … of a function, as a search describes them."""
    return [{"type": "Real", "name": f"a{i}", "data": [function.low, function.high]} for i in range(function.dims)]


# How many arguments a formula can have, where not any number; the spline of a rover needs four points.
_COUNTS: dict[str, tuple[str, Callable[[int], bool]]] = {
    "hartmann": ("6", lambda count: count == 6),
    "rover": ("an even number of at least 8", lambda count: count >= 8 and count % 2 == 0),
    "rosenbrock": ("at least 2", lambda count: count >= 2),
}


def _formula(name: str, dims: int | None, shift_seed: int) -> Formula:
    low, high, usual, value = _FORMULAS[name]
    count = usual if dims is None else dims
    has, fits = _COUNTS.get(name, ("", lambda _: True))
    if not fits(count):
        raise ConfigError(f"{name} has {has} arguments, not {count}", ("task", "search_args"))
    rng = np.random.default_rng([shift_seed, 0xF0])
    # By up to a quarter of the box, at least a tenth, in each coordinate: the optimum stays inside.
    offset = rng.uniform(0.1, 0.25, count) * rng.choice([-1.0, 1.0], count) * (high - low)
    if name in ("hartmann", "michalewicz", "rover"):
        offset = np.zeros(count)  # their optima are nowhere special as they are
    return Formula(name, count, low, high, value, offset)


def _ackley(x: Array) -> float:
    radius = -20 * math.exp(-0.2 * math.sqrt(float(np.mean(x**2))))
    return radius - math.exp(float(np.mean(np.cos(2 * math.pi * x)))) + 20 + math.e


def _rosenbrock(x: Array) -> float:
    x = x + 1
    return float(np.sum(100 * (x[1:] - x[:-1] ** 2) ** 2 + (1 - x[:-1]) ** 2))


def _levy(x: Array) -> float:
    w = 1 + x / 4
    first, last = math.sin(math.pi * w[0]) ** 2, (w[-1] - 1) ** 2 * (1 + math.sin(2 * math.pi * w[-1]) ** 2)
    return float(first + np.sum((w[:-1] - 1) ** 2 * (1 + 10 * np.sin(math.pi * w[:-1] + 1) ** 2)) + last)


_HARTMANN_A = np.array(
    [[10, 3, 17, 3.5, 1.7, 8], [0.05, 10, 17, 0.1, 8, 14], [3, 3.5, 1.7, 10, 17, 8], [17, 8, 0.05, 10, 0.1, 14]]
)
_HARTMANN_P = 1e-4 * np.array(
    [
        [1312, 1696, 5569, 124, 8283, 5886],
        [2329, 4135, 8307, 3736, 1004, 9991],
        [2348, 1451, 3522, 2883, 3047, 6650],
        [4047, 8828, 8732, 5743, 1091, 381],
    ]
)


def _hartmann(x: Array) -> float:
    return -float(np.array([1.0, 1.2, 3.0, 3.2]) @ np.exp(-(_HARTMANN_A * (x - _HARTMANN_P) ** 2).sum(axis=1)))


def _michalewicz(x: Array) -> float:
    return -float(np.sum(np.sin(x) * np.sin(np.arange(1, len(x) + 1) * x**2 / math.pi) ** 20))


# A rover crosses the unit square past obstacles (after Wang et al. 2018, "Batched Large-scale Bayesian Optimization"):
# the centres of squares that cost to cross.
_OBSTACLES = np.array(
    [
        [0.43, 0.11], [0.47, 0.48], [0.70, 0.48], [0.72, 0.73], [0.32, 0.69], [0.12, 0.31], [0.88, 0.30], [0.55, 0.90],
        [0.16, 0.85], [0.30, 0.30], [0.60, 0.22], [0.90, 0.60], [0.05, 0.60], [0.52, 0.66], [0.80, 0.12],
    ]
)  # fmt: skip
_ROVER_FROM, _ROVER_TO = np.array([0.05, 0.05]), np.array([0.95, 0.95])


def _rover(x: Array) -> float:
    """What a smooth path through the given points costs: obstacles it crosses, and ends away from start and goal."""
    splines: Any = importlib.import_module("scipy.interpolate")
    # Points that coincide have no direction, which the spline cannot take.
    points = x.reshape(-1, 2).T + np.linspace(0, 1e-6, len(x) // 2)
    spline, _ = splines.splprep(points, k=3, s=0)
    path = np.array(splines.splev(np.linspace(0, 1, 1000), spline)).T
    inside = (np.abs(path[:, None, :] - _OBSTACLES) < 0.05).all(axis=2).any(axis=1)
    cost = np.where(inside, 20.0, 0.05)
    steps = np.linalg.norm(np.diff(path, axis=0), axis=1)
    length = float(((cost[1:] + cost[:-1]) / 2 * steps).sum())
    ends = np.abs(path[0] - _ROVER_FROM).sum() + np.abs(path[-1] - _ROVER_TO).sum()
    return length + 10 * float(ends) - 5


_FORMULAS: dict[str, tuple[float, float, int, Callable[[Array], float]]] = {
    "ackley": (-5.0, 10.0, 20, _ackley),
    "rosenbrock": (-10.0, 10.0, 20, _rosenbrock),
    "levy": (-10.0, 10.0, 20, _levy),
    "hartmann": (0.0, 1.0, 6, _hartmann),
    "michalewicz": (0.0, math.pi, 20, _michalewicz),
    "rover": (0.0, 1.0, 60, _rover),
}
FORMULAS = tuple(_FORMULAS)
