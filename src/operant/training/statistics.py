"""Figures over seeds that one lucky seed does not carry (Agarwal et al. 2021)."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from operant._util.statistics import iqm


def interval(
    values: Sequence[float], confidence: float = 0.95, draws: int = 2000, seed: int = 0
) -> tuple[float, float, float]:
    """The interquartile mean and its bootstrap interval (percentiles)."""
    given = np.asarray(values, float)
    rng = np.random.default_rng(seed)
    means = [iqm(given[rng.integers(len(given), size=len(given))].tolist()) for _ in range(draws)]
    low, high = np.quantile(means, [(1 - confidence) / 2, (1 + confidence) / 2])
    return iqm(given.tolist()), float(low), float(high)
