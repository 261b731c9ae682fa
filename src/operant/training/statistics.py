"""Figures over seeds that one lucky seed does not carry (Agarwal et al. 2021)."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import numpy.typing as npt

__all__ = ["interval", "iqm"]


def iqm(values: Sequence[float] | npt.NDArray[Any]) -> float:
    """Interquartile mean: the mean of the middle half, with parts of values at its edges."""
    ordered = np.sort(np.asarray(values, float))
    count = len(ordered)
    edges = np.arange(count + 1) / count
    weight = np.clip(np.minimum(edges[1:], 0.75) - np.maximum(edges[:-1], 0.25), 0.0, None)
    return float((ordered * weight).sum() / weight.sum())


def interval(
    values: Sequence[float], confidence: float = 0.95, draws: int = 2000, seed: int = 0
) -> tuple[float, float, float]:
    """The interquartile mean and its bootstrap interval (percentiles)."""
    given = np.asarray(values, float)
    rng = np.random.default_rng(seed)
    means = [iqm(given[rng.integers(len(given), size=len(given))]) for _ in range(draws)]
    low, high = np.quantile(means, [(1 - confidence) / 2, (1 + confidence) / 2])
    return iqm(given), float(low), float(high)
