"""Scores made ready for a regression model: scaled, their skew taken out, failed trials filled in."""

from __future__ import annotations

import numpy as np

from operant.searchers._trial_arrays import filled_scores

Array = np.ndarray
# From 1 on only the bad side is pressed together; the differences among the good ones are what counts.
_POWERS = np.linspace(1.0, 3.0, 21)


class Outputs:
    """Yeo-Johnson's power transform with the likeliest power, then mean 0 and variance 1.

    Rewards of learning runs have long tails on the bad side; a model that has to follow those cannot see the
    differences among the good ones (Cowen-Rivers et al. 2022, arXiv 2012.03826).
    """

    def __init__(self) -> None:
        self._centre = 0.0
        self._scale = 1.0
        self._power = 1.0
        self._mean = 0.0
        self._deviation = 1.0
        self._worst = 0.0

    def learn(self, scores: Array) -> None:
        filled = filled_scores(scores)
        finite = scores[np.isfinite(scores)]
        self._worst = float(finite.min()) if len(finite) else 0.0
        # Divided by the largest before anything is squared: rewards of 1e300 are no reason to fail.
        largest = float(np.abs(filled).max()) or 1.0
        self._centre = float(np.median(filled))
        self._scale = (float((filled / largest).std()) or 1.0) * largest
        scaled = filled / self._scale - self._centre / self._scale
        self._power = _likeliest_power(scaled)
        warped = _yeo_johnson(scaled, self._power)
        self._mean = float(warped.mean())
        self._deviation = float(warped.std()) or 1.0

    def __call__(self, scores: Array) -> Array:
        filled = np.where(np.isnan(scores), self._worst, scores)
        warped = _yeo_johnson(filled / self._scale - self._centre / self._scale, self._power)
        out: Array = (warped - self._mean) / self._deviation
        return out


def _yeo_johnson(x: Array, power: float) -> Array:
    positive, negative = np.maximum(x, 0.0), np.maximum(-x, 0.0)
    up = np.log1p(positive) if power == 0 else ((1 + positive) ** power - 1) / power
    down = np.log1p(negative) if power == 2 else ((1 + negative) ** (2 - power) - 1) / (2 - power)
    out: Array = np.where(x >= 0, up, -down)
    return out


def _likeliest_power(x: Array) -> float:
    slope = float((np.sign(x) * np.log1p(np.abs(x))).sum())
    best, found = -np.inf, 1.0
    for power in _POWERS:
        variance = float(_yeo_johnson(x, power).var())
        if variance <= 0:
            continue
        likelihood = -0.5 * len(x) * np.log(variance) + (power - 1) * slope
        if likelihood > best:
            best, found = likelihood, float(power)
    return found


def choose_rows(scores: Array, most: int, rng: np.random.Generator) -> Array:
    """All rows, or the best half of what a model can take and the rest at random."""
    n = len(scores)
    if n <= most:
        return np.arange(n)
    order = np.argsort(-np.where(np.isnan(scores), -np.inf, scores), kind="stable")
    good = order[: most // 2]
    others = rng.choice(order[most // 2 :], most - len(good), replace=False)
    return np.sort(np.concatenate([good, others]))
