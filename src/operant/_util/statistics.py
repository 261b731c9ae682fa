"""The little statistics that racing and the final check need, without a library."""

from __future__ import annotations

import math
from collections.abc import Sequence


def mean(values: Sequence[float]) -> float:
    return math.fsum(values) / len(values)


def iqm(values: Sequence[float]) -> float:
    """The mean of the middle half, with the parts of values that the quarters cut (Agarwal et al. 2021)."""
    ordered = sorted(values)
    count = len(ordered)
    low, high = count / 4, 3 * count / 4
    weights = [max(0.0, min(place + 1, high) - max(place, low)) for place in range(count)]
    return math.fsum(w * v for w, v in zip(weights, ordered, strict=True)) / math.fsum(weights)


def paired_worse(scores: Sequence[float], incumbent: Sequence[float], alpha: float = 0.1) -> bool:
    """Whether a one-sided paired t-test says that ``scores`` (higher is better) are below the incumbent's."""
    differences = [a - b for a, b in zip(scores, incumbent, strict=True)]
    count = len(differences)
    if count < 2:
        return False
    centre = mean(differences)
    if centre >= 0:
        return False
    variance = math.fsum((one - centre) ** 2 for one in differences) / (count - 1)
    if variance == 0:
        return True
    return t_cdf(centre / math.sqrt(variance / count), count - 1) < alpha


def mean_interval(values: Sequence[float], level: float = 0.95) -> tuple[float, float, float]:
    """Mean and the ends of its t-interval; of one value the interval is without end."""
    centre = mean(values)
    count = len(values)
    if count < 2:
        return centre, -math.inf, math.inf
    deviation = math.sqrt(math.fsum((one - centre) ** 2 for one in values) / (count - 1))
    half = t_quantile(0.5 + level / 2, count - 1) * deviation / math.sqrt(count)
    return centre, centre - half, centre + half


def t_cdf(t: float, freedom: int) -> float:
    """Student's distribution, by the incomplete beta function (Abramowitz and Stegun 26.7.1)."""
    tail = 0.5 * _incomplete_beta(freedom / 2, 0.5, freedom / (freedom + t * t))
    return tail if t < 0 else 1 - tail


def t_quantile(probability: float, freedom: int) -> float:
    low, high = -1e6, 1e6
    for _ in range(200):
        middle = (low + high) / 2
        if t_cdf(middle, freedom) < probability:
            low = middle
        else:
            high = middle
    return (low + high) / 2


def _incomplete_beta(a: float, b: float, x: float) -> float:
    if x <= 0:
        return 0.0
    if x >= 1:
        return 1.0
    front = math.exp(math.lgamma(a + b) - math.lgamma(a) - math.lgamma(b) + a * math.log(x) + b * math.log1p(-x))
    if x < (a + 1) / (a + b + 2):
        return front * _continued_fraction(a, b, x) / a
    return 1 - front * _continued_fraction(b, a, 1 - x) / b


def _continued_fraction(a: float, b: float, x: float) -> float:
    """Lentz's method for the fraction of the incomplete beta function."""
    tiny = 1e-300
    c, d = 1.0, 1 - (a + b) * x / (a + 1)
    d = 1 / (d if abs(d) > tiny else tiny)
    result = d
    for m in range(1, 300):
        for factor in (
            m * (b - m) * x / ((a + 2 * m - 1) * (a + 2 * m)),
            -(a + m) * (a + b + m) * x / ((a + 2 * m) * (a + 2 * m + 1)),
        ):
            d = 1 + factor * d
            d = 1 / (d if abs(d) > tiny else tiny)
            c = 1 + factor / c
            c = c if abs(c) > tiny else tiny
            result *= d * c
        if abs(d * c - 1) < 1e-12:
            break
    return result
