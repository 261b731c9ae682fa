"""The functions that searchers are compared on:
each is minimised and says what may vary in Operant's own YAML form.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np

Config = dict[str, Any]
TRIALS = 100


@dataclass(frozen=True)
class Problem:
    name: str
    search_args: list[dict[str, Any]]
    function: Callable[[Config], float]
    # Standard deviation of what is added to a result; the best trial by such results is judged without it.
    noise: float = 0.0
    # Trials that wait for their results at a time.
    pending: int = 1
    # The value of `kind` that leads to the optimum, in problems where the narrowest of several branches is the best.
    better: str | None = None
    seeds: int = 20


def minimise(
    problem: Problem, seed: int, ask: Callable[[], tuple[Any, Config]], tell: Callable[[Any, float], None]
) -> list[float]:
    """The value of the best of 100 trials, and whether it is of the better branch (1 or 0)."""
    noise = np.random.default_rng([seed, 0x5E]).normal(0.0, problem.noise, TRIALS)
    waiting: list[tuple[Any, Config]] = []
    best, config = math.inf, {}
    for number in range(TRIALS):
        while len(waiting) < min(problem.pending, TRIALS - number):
            waiting.append(ask())
        token, tried = waiting.pop(0)
        seen = problem.function(tried) + float(noise[number])
        if seen < best:
            best, config = seen, tried
        tell(token, seen)
    return [problem.function(config), float(config.get("kind") == problem.better)]


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


def _branches(count: int, equal: bool) -> Problem:
    """Branches with two arguments of their own, and one that all share; the last is the best and narrowest, or all are
    alike.
    """
    kinds = [f"k{i}" for i in range(count)]
    args: list[dict[str, Any]] = [{"type": "Categorical", "name": "kind", "data": kinds}, *_box(1, 0.0, 1.0)]
    for i, kind in enumerate(kinds):
        args += [{"type": "Real", "name": f"{n}{i}", "data": [0.0, 1.0], "when": {"kind": kind}} for n in "uv"]

    def loss(config: Config) -> float:
        i = kinds.index(config["kind"])
        radius = (config[f"u{i}"] - 0.3 - 0.1 * i) ** 2 + (config[f"v{i}"] - 0.7 + 0.1 * i) ** 2
        shared = 0.05 * (config["x0"] - 0.4) ** 2
        if equal:
            return float(0.8 * radius + shared)
        if i == count - 1:
            return float(1 - np.exp(-radius / (2 * 0.12**2)) + shared)
        return float(0.2 + 0.1 * i + 0.8 * radius + shared)

    name = f"branches{count}-equal" if equal else f"branches{count}"
    return Problem(name, args, loss, better=None if equal else kinds[-1], seeds=20 if equal else 100)


_DECADES = (-6, -4, -3, -2, -1, 1)


def _log_scaled(config: Config) -> float:
    """Six positive numbers over nine decades, a valley along which two of them trade."""
    x = np.log10(_vector(config)) - np.array(_DECADES)
    return float(np.sum(x**2) + 4 * (x[0] + x[1]) ** 2)


_TASTES = np.random.default_rng(7).normal(size=(8, 5)), np.random.default_rng(8).normal(size=(7, 5, 5))


def _categories(config: Config) -> float:
    """Eight choices of five, each with an effect of its own and one together with the next."""
    chosen = [int(config[f"c{i}"][1:]) for i in range(8)]
    alone, paired = _TASTES
    single = sum(alone[i, one] for i, one in enumerate(chosen))
    return float(single + sum(paired[i, a, b] for i, (a, b) in enumerate(itertools.pairwise(chosen))))


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
        ),
        Problem("hartmann6", _box(6, 0.0, 1.0), _hartmann),
        Problem("ackley10", _box(10, -32.768, 32.768), _ackley),
        Problem("rosenbrock10", _box(10, -5.0, 10.0), _rosenbrock),
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
        ),
        Problem("noisy-hartmann6", _box(6, 0.0, 1.0), _hartmann, noise=0.3),
        Problem("noisy-rosenbrock4", _box(4, -2.0, 2.0), _rosenbrock, noise=10.0),
        Problem("parallel-hartmann6", _box(6, 0.0, 1.0), _hartmann, pending=16),
        Problem("parallel-ackley10", _box(10, -32.768, 32.768), _ackley, pending=16),
        Problem("log6", [{**one, "log": True} for one in _box(6, 1e-7, 1e2)], _log_scaled),
        Problem(
            "categories8",
            [{"type": "Categorical", "name": f"c{i}", "data": [f"v{n}" for n in range(5)]} for i in range(8)],
            _categories,
        ),
        _branches(2, equal=False),
        _branches(4, equal=False),
        _branches(4, equal=True),
    )
}
