"""The twelve learning-curve families of Domhan, Springenberg and Hutter (IJCAI 2015), fitted and weighed.

Curves are fitted to values scaled to 0..1 with better = higher, so sign and size of a reward do not matter.
"""

from __future__ import annotations

import importlib
import math
import warnings
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from operant.errors import MissingExtraError

Array = np.ndarray
_LEAST_CURVES = 4
# Mean squared errors on the scale 0..1. Values that jump between two levels leave 1/4 unexplained, plain noise 1/12.
_FOLLOWS = 0.125
_NOISE = 1e-6
_FAR_BETTER = 5.0


@dataclass(frozen=True)
class Family:
    name: str
    formula: Callable[..., Array]
    start: tuple[float, ...]
    growing: tuple[float, ...] = ()
    """A second start, for curves that go on growing: no path of falling error leads there from the first."""


FAMILIES = (
    Family("vap", lambda x, a, b, c: np.exp(a + b / x + c * np.log(x)), (0.0, -1.0, 0.01)),
    Family("pow3", lambda x, c, a, alpha: c - a * x**-alpha, (1.0, 1.0, 0.5), growing=(0.0, -0.1, -1.0)),
    Family("linear", lambda x, a, b: a * x + b, (0.0, 0.5)),
    Family("logx_linear", lambda x, a, b: a * np.log(x) + b, (0.2, 0.2)),
    Family(
        "dr_hill_zero_background",
        lambda x, theta, eta, kappa: theta * x**eta / (np.abs(kappa) ** eta + x**eta),
        (1.0, 1.0, 2.0),
    ),
    Family("log_power", lambda x, a, b, c: a / (1 + (x / np.exp(b)) ** c), (1.0, 0.7, -1.0)),
    Family("pow4", lambda x, c, a, b, alpha: c - np.abs(a * x + b) ** -alpha, (1.0, 1.0, 0.5, 0.7)),
    Family(
        "mmf",
        lambda x, alpha, beta, kappa, delta: alpha - (alpha - beta) / (1 + np.abs(kappa * x) ** delta),
        (1.0, 0.0, 0.3, 1.2),
    ),
    Family("exp4", lambda x, c, a, b, alpha: c - np.exp(-a * x**alpha + b), (1.0, 0.6, 0.1, 0.7)),
    Family("ilog2", lambda x, c, a: c - a / np.log(x + 1), (1.1, 0.6)),
    Family(
        "weibull",
        lambda x, alpha, beta, kappa, delta: alpha - (alpha - beta) * np.exp(-(np.abs(kappa * x) ** delta)),
        (1.0, 0.0, 0.3, 1.0),
    ),
    Family(
        "janoschek",
        lambda x, alpha, beta, kappa, delta: alpha - (alpha - beta) * np.exp(-kappa * x**delta),
        (1.0, 0.0, 0.3, 1.0),
    ),
)


def extrapolate(scores: Sequence[float], target: int) -> float | None:
    """The score to be expected at step `target`; None when too few curves can follow the values so far."""
    y = np.asarray(scores, dtype=float)
    low, high = float(y.min()), float(y.max())
    if high == low:
        return high
    predictions, weights = _fit_all((y - low) / (high - low), target)
    if len(predictions) < _LEAST_CURVES:
        return None
    scaled = float(np.average(predictions, weights=weights))
    return low + scaled * (high - low)


def _fit_all(y: Array, target: int) -> tuple[Array, Array]:
    """What the families that follow the values expect at the target, and the weight of each."""
    optimize = _scipy_optimize()
    x = np.arange(1, len(y) + 1, dtype=float)
    predictions, evidence = [], []
    for family in FAMILIES:
        if len(family.start) >= len(y):
            continue
        fits = [_fit(optimize, family, x, y, start) for start in (family.start, family.growing) if start]
        found = [one for one in fits if one is not None]
        if not found:
            continue
        residual, fitted = min(found, key=lambda one: one[0])
        with np.errstate(all="ignore"):
            prediction = float(family.formula(np.array([float(target)]), *fitted)[0])
        if residual <= _FOLLOWS and math.isfinite(prediction):
            predictions.append(prediction)
            evidence.append(_evidence(residual, len(y), len(fitted)))
    if not predictions:
        return np.array([]), np.array([])
    values, logs = np.array(predictions), np.array(evidence)
    # A family that ran away from all others follows the noise, not the curve — unless it fits far better than they do.
    middle = np.median(values)
    near = np.abs(values - middle) <= 3 * max(float(np.median(np.abs(values - middle))), 0.1)
    far_better = logs >= logs[near].max(initial=-math.inf) + _FAR_BETTER
    kept = near | far_better
    values, logs = values[kept], logs[kept]
    return values, np.exp(logs - logs.max())


def _evidence(residual: float, points: int, parameters: int) -> float:
    """Minus half of Akaike's criterion, corrected for few points: four parameters go through six points by chance."""
    correction = 2 * parameters * (parameters + 1) / max(points - parameters - 1, 0.5)
    return -0.5 * (points * math.log(residual + _NOISE) + 2 * parameters + correction)


def _fit(optimize: Any, family: Family, x: Array, y: Array, start: tuple[float, ...]) -> tuple[float, Array] | None:
    """The mean squared error of the fit from a start, and its parameters."""
    with warnings.catch_warnings(), np.errstate(all="ignore"):
        warnings.simplefilter("ignore")
        try:
            fitted, _ = optimize.curve_fit(family.formula, x, y, p0=start, maxfev=400)
        except (RuntimeError, ValueError, TypeError):
            return None
        residual = float(np.mean((family.formula(x, *fitted) - y) ** 2))
    return (residual, fitted) if np.all(np.isfinite(fitted)) and math.isfinite(residual) else None


def _scipy_optimize() -> Any:
    try:
        return importlib.import_module("scipy.optimize")
    except ImportError:
        raise MissingExtraError("CurveFittingAssessor", "search") from None
