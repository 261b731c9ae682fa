"""Exploration whose noise is a function of the state: gSDE (Raffin et al. 2021, arXiv 2005.05719).

Plain Gaussian noise is new at every step, so it shakes more than it explores. Here a matrix E of random weights is
drawn for each environment and kept for many steps; the noise is f(s) E, with f(s) the last hidden layer of the policy.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import torch

from operant.algorithms.contracts import Array
from operant.algorithms.heads import HALF_LOG_2PI, Gaussian
from operant.models.spaces import ActionSpec

__all__ = ["StateGaussian"]

_FLOOR = 1e-6  # of the variance, as in the authors' code


class StateGaussian(Gaussian):
    """Normal distributions around the means with σ² = f(s)² exp(2 log σ_E) + 10⁻⁶ (equation 4 of the paper).

    A spread is the pair of f(s) [B, F] and log σ_E [F, A]. As in the paper's code no gradient goes into f(s).

    :param every: steps after which a new matrix is drawn; 0: at each call of `noise`, which is for one rollout.
    """

    def __init__(self, spec: ActionSpec, features: int, every: int = 0) -> None:
        super().__init__(spec)
        self._features = features
        self._every = every

    def noise(self, rng: np.random.Generator, steps: int, rows: int) -> Array:
        """The matrix of each environment for each step."""
        every = self._every or steps
        draws = -(-steps // every)
        matrices = rng.standard_normal((draws, rows, self._features, self._size), dtype=np.float32)
        return np.repeat(matrices, every, axis=0)[:steps]

    def choose(self, means: Array, noise: Array | None, spread: Any) -> Array:
        if noise is None:
            return means.copy()
        features, log_std = spread
        return np.asarray(means + np.einsum("nf,nfa->na", features, noise * np.exp(log_std)))

    # -- closed form -------------------------------------------------------------------------------------------------
    def evaluate(
        self, means: Array, actions: Array, spread: Any, with_entropy: bool = True
    ) -> tuple[Array, Array, Any]:
        features, log_std = spread
        squares, variances = np.square(features), np.exp(2.0 * log_std)
        variance = squares @ variances
        variance += means.dtype.type(_FLOOR)
        inverse = 1.0 / np.sqrt(variance)
        scaled = (actions - means) * inverse
        logs = 0.5 * np.log(variance).sum(axis=1)
        log_prob = -0.5 * np.einsum("ij,ij->i", scaled, scaled) - (logs + means.dtype.type(self._size * HALF_LOG_2PI))
        entropy = logs + means.dtype.type(self._size * (0.5 + HALF_LOG_2PI))
        return log_prob, entropy, (scaled, inverse, squares, variances)

    def gradient(self, kept: Any, log_prob_grad: Array, entropy_grad: float) -> tuple[Array, Array | None]:
        """∂log p/∂μ = z/σ; ∂log p/∂log σ = z² − 1 and ∂H/∂log σ = 1, with ∂log σ/∂log σ_E = f² exp(2 log σ_E)/σ²."""
        scaled, inverse, squares, variances = kept
        weighted = scaled * log_prob_grad[:, None]
        by_log_sigma = weighted * scaled - log_prob_grad[:, None] + weighted.dtype.type(entropy_grad)
        by_log_sigma *= np.square(inverse)
        return weighted * inverse, (squares.T @ by_log_sigma) * variances

    # -- torch -------------------------------------------------------------------------------------------------------
    def log_prob_and_entropy(
        self, means: torch.Tensor, actions: torch.Tensor, _mask: torch.Tensor | None, spread: Any
    ) -> tuple[torch.Tensor, torch.Tensor]:
        features, log_std = spread
        variance = features.detach().square() @ torch.exp(2.0 * log_std) + _FLOOR
        logs = 0.5 * torch.log(variance).sum(dim=1)
        scaled = (actions - means).square() / variance
        log_prob = -0.5 * scaled.sum(dim=1) - logs - self._size * HALF_LOG_2PI
        return log_prob, logs + self._size * (0.5 + HALF_LOG_2PI)
