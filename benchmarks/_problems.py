"""The functions that searchers are compared on:
each is minimised and says what may vary in Operant's own YAML form.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np

Config = dict[str, Any]
SEEDS = range(20)
TRIALS = 100


@dataclass(frozen=True)
class Problem:
    name: str
    search_args: list[dict[str, Any]]
    function: Callable[[Config], float]
    optimum: float


def _box(count: int, low: float, high: float) -> list[dict[str, Any]]:
    return [{"type": "Real", "name": f"x{i}", "data": [low, high]} for i in range(count)]


def _vector(config: Config) -> np.ndarray:
    return np.array([config[f"x{i}"] for i in range(len(config))])


def _branin(config: Config) -> float:
    a, b = config["x0"], config["x1"]
    bowl = (b - 5.1 / (4 * math.pi**2) * a**2 + 5 / math.pi * a - 6) ** 2
    return bowl + 10 * (1 - 1 / (8 * math.pi)) * math.cos(a) + 10


_HARTMANN_A = np.array(
    [
        [10, 3, 17, 3.5, 1.7, 8],
        [0.05, 10, 17, 0.1, 8, 14],
        [3, 3.5, 1.7, 10, 17, 8],
        [17, 8, 0.05, 10, 0.1, 14],
    ]
)
_HARTMANN_P = 1e-4 * np.array(
    [
        [1312, 1696, 5569, 124, 8283, 5886],
        [2329, 4135, 8307, 3736, 1004, 9991],
        [2348, 1451, 3522, 2883, 3047, 6650],
        [4047, 8828, 8732, 5743, 1091, 381],
    ]
)
_HARTMANN_C = np.array([1.0, 1.2, 3.0, 3.2])


def _hartmann(config: Config) -> float:
    x = _vector(config)
    return -float(_HARTMANN_C @ np.exp(-(_HARTMANN_A * (x - _HARTMANN_P) ** 2).sum(axis=1)))


def _ackley(config: Config) -> float:
    x = _vector(config)
    radius = -20 * math.exp(-0.2 * math.sqrt(float(np.mean(x**2))))
    return radius - math.exp(float(np.mean(np.cos(2 * math.pi * x)))) + 20 + math.e


def _rosenbrock(config: Config) -> float:
    x = _vector(config)
    return float(np.sum(100 * (x[1:] - x[:-1] ** 2) ** 2 + (1 - x[:-1]) ** 2))


_KINDS = {"adam": (0.0, -3.0), "sgd": (0.2, -1.5), "rmsprop": (0.4, -3.5), "adagrad": (0.8, -2.0)}
_ACTIVATIONS = {"relu": (0.1, 3), "tanh": (0.0, 2), "gelu": (0.3, 5)}


def _mixed(config: Config) -> float:
    """What tuning looks like: the best rate depends on the optimizer, the best depth on the activation."""
    offset, rate = _KINDS[config["optimizer"]]
    shift, depth = _ACTIVATIONS[config["activation"]]
    return (
        offset
        + shift
        + 0.5 * (math.log10(config["lr"]) - rate) ** 2
        + 0.1 * (config["layers"] - depth) ** 2
        + 2.0 * (config["dropout"] - 0.2) ** 2
        + 0.2 * (math.log2(config["width"]) - 7.5) ** 2
    )


PROBLEMS = {
    problem.name: problem
    for problem in (
        Problem(
            "branin",
            [
                {"type": "Real", "name": "x0", "data": [-5.0, 10.0]},
                {"type": "Real", "name": "x1", "data": [0.0, 15.0]},
            ],
            _branin,
            0.397887,
        ),
        Problem("hartmann6", _box(6, 0.0, 1.0), _hartmann, -3.32237),
        Problem("ackley10", _box(10, -32.768, 32.768), _ackley, 0.0),
        Problem("rosenbrock10", _box(10, -5.0, 10.0), _rosenbrock, 0.0),
        Problem(
            "mixed",
            [
                {"type": "Categorical", "name": "optimizer", "data": list(_KINDS)},
                {"type": "Categorical", "name": "activation", "data": list(_ACTIVATIONS)},
                {"type": "Int", "name": "layers", "data": [1, 8]},
                {"type": "Int", "name": "width", "data": [16, 1024], "log": True},
                {"type": "Real", "name": "lr", "data": [1e-5, 1.0], "log": True},
                {"type": "Real", "name": "dropout", "data": [0.0, 0.9]},
            ],
            _mixed,
            0.0,
        ),
    )
}
