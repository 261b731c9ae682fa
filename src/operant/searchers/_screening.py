"""Chooses among draws of CMA-ES the one that a model of the samples around expects most of.

The model is a Gaussian process in the coordinates of the distribution itself, in which its contours are spheres, so one
length scale does for all arguments (as in Bajer et al., "Gaussian process surrogate models for the CMA evolution
strategy", 2019). Choosing the best of some draws by it is what they call pre-selection.
"""

from __future__ import annotations

import math

import numpy as np

from operant.searchers._gp_model import squared_distances
from operant.searchers._trial_arrays import filled_scores

Array = np.ndarray
# The model learns from so many samples, the nearest ones: twice as many make a fit eight times as dear.
_MOST_POINTS = 150
# Length scales in units of the middle distance of its samples, and noise in units of the variance: of all pairs the one
# is taken that makes the samples most likely.
_LENGTHS = (0.5, 1.0, 2.0, 4.0, 8.0)
_NOISES = (1e-4, 1e-2, 0.1, 0.5)
_ROOT5 = math.sqrt(5.0)
# The variance of scores beyond this could not be computed.
_HUGE = 1e150


class LocalModel:
    """A Gaussian process (Matern 5/2) of the samples nearest to the origin of their coordinates; NaN is a failure."""

    def __init__(self, points: Array, scores: Array) -> None:
        nearest = np.argsort((points**2).sum(axis=1), kind="stable")[:_MOST_POINTS]
        # A failure is as bad as the worst around: failures may be by chance, and the worst of all is far worse.
        self._points, scores = points[nearest], filled_scores(scores[nearest]).clip(-_HUGE, _HUGE)
        # Ranks would do as well for CMA-ES, but not for a model: how much better a sample is tells where to go on.
        middle, spread = float(scores.mean()), float(scores.std())
        scaled = (scores - middle) / spread if spread > 0 else np.zeros(len(scores))
        distances = np.sqrt(squared_distances(self._points, self._points))
        apart = distances[distances > 0]
        unit = float(np.median(apart)) if len(apart) else 1.0
        likeliest = -math.inf
        for length in _LENGTHS:
            values, vectors = np.linalg.eigh(_matern(distances / (length * unit)))
            turned = vectors.T @ scaled
            for noise in _NOISES:
                variances = np.maximum(values, 0.0) + noise
                # The scale of the process is the one that fits best, in closed form.
                scale = max(float(np.mean(turned**2 / variances)), 1e-300)
                likelihood = -0.5 * (len(scaled) * math.log(scale) + float(np.log(variances).sum()))
                if likelihood > likeliest:
                    likeliest, self._length = likelihood, length * unit
                    self._weights = vectors @ (turned / variances)

    def expected(self, points: Array) -> Array:
        """What is expected of some points, up to a shift and a positive factor."""
        distances = np.sqrt(squared_distances(points, self._points))
        expected: Array = _matern(distances / self._length) @ self._weights
        return expected


def _matern(distances: Array) -> Array:
    root = _ROOT5 * distances
    value: Array = (1 + root + root**2 / 3) * np.exp(-root)
    return value
