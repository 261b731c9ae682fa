"""Distributions over actions: sampling in numpy, log-probabilities in torch and in closed form.

Arrays in closed form lie with the batch as the last axis: reductions over few options are then whole-vector operations.
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import torch

from operant.algorithms.contracts import Array
from operant.models.spaces import ActionSpec

_MASKED = -1e8
HALF_LOG_2PI = 0.5 * math.log(2.0 * math.pi)
_FLOOR = 1e-6  # of the variance of StateGaussian, as in the authors' code


class Categorical:
    """One or several independent choices by logits; several are columns side by side."""

    def __init__(self, spec: ActionSpec) -> None:
        self._single = spec.shape == ()
        self._sizes = spec.sizes
        ends = np.cumsum(spec.sizes)
        self._parts = [slice(int(end) - size, int(end)) for end, size in zip(ends, spec.sizes, strict=True)]
        self.action_dtype: Any = np.int64

    def noise(self, rng: np.random.Generator, steps: int, rows: int) -> Array:
        """What makes an argmax over logits a sample (Gumbel's trick): −log of exponential numbers."""
        noise: Array = rng.standard_exponential((steps, rows, sum(self._sizes)), dtype=np.float32)
        while not noise.all():
            # About one in ten million is 0, whose logarithm there is not. Those are drawn again: the least number that
            # has one would mean noise of 87, and an action that the policy never takes.
            zero = noise == 0.0
            noise[zero] = rng.standard_exponential(np.count_nonzero(zero), dtype=np.float32)
        np.log(noise, out=noise)
        np.negative(noise, out=noise)
        return noise

    def mask(self, logits: Array, mask: Array | None) -> Array:
        return logits if mask is None else np.where(mask, logits, np.float32(_MASKED))

    def choose(self, logits: Array, noise: Array | None) -> Array:
        """The most likely action, or with noise a sample."""
        scores = logits if noise is None else logits + noise
        if self._single:
            best: Array = scores.argmax(axis=1)
            return best
        return np.stack([scores[:, part].argmax(axis=1) for part in self._parts], axis=1)

    # -- closed form -------------------------------------------------------------------------------------------------
    def evaluate(
        self, logits: Array, actions: Array, _log_std: Array | None, with_entropy: bool = True
    ) -> tuple[Array, Array, Any]:
        """Log-probability and (if asked for) entropy of each row, and what `gradient` needs."""
        columns = np.ascontiguousarray(logits.T)
        rows = np.arange(columns.shape[1])
        chosen = actions[None] if self._single else actions.T
        log_prob: Any = 0.0
        entropy: Any = 0.0
        kept = []
        for part, choice in zip(self._parts, chosen, strict=True):
            shifted = columns[part] - columns[part].max(axis=0)
            exponents = np.exp(shifted)
            total = exponents.sum(axis=0)
            probabilities = exponents / total
            logs = shifted - np.log(total)
            part_entropy = -(probabilities * logs).sum(axis=0) if with_entropy else 0.0
            log_prob = log_prob + logs[choice, rows]
            entropy = entropy + part_entropy
            kept.append((probabilities, logs, part_entropy, choice, rows))
        return log_prob, entropy, kept

    def gradient(self, kept: Any, log_prob_grad: Array, entropy_grad: float) -> tuple[Array, Array | None]:
        """Gradient of the logits: ∂log p(a)/∂z = 1[a] − p and ∂H/∂z = −p (log p + H)."""
        grads = []
        for probabilities, logs, entropy, choice, rows in kept:
            grad = probabilities * -log_prob_grad
            grad[choice, rows] += log_prob_grad
            if entropy_grad:
                grad -= probabilities * (logs + entropy) * grad.dtype.type(entropy_grad)
            grads.append(grad)
        return (grads[0] if len(grads) == 1 else np.concatenate(grads)).T, None

    # -- torch -------------------------------------------------------------------------------------------------------
    def log_prob_and_entropy(
        self, logits: torch.Tensor, actions: torch.Tensor, mask: torch.Tensor | None, _log_std: torch.Tensor | None
    ) -> tuple[torch.Tensor, torch.Tensor]:
        if mask is not None:
            logits = torch.where(mask, logits, torch.full_like(logits, _MASKED))
        chosen = actions[:, None] if self._single else actions
        log_prob = logits.new_zeros(len(logits))
        entropy = logits.new_zeros(len(logits))
        for number, part in enumerate(self._parts):
            logs = torch.log_softmax(logits[:, part], dim=1)
            log_prob = log_prob + logs.gather(1, chosen[:, number : number + 1])[:, 0]
            entropy = entropy - (logs.exp() * logs).sum(dim=1)
        return log_prob, entropy

    def parameters(self, logits: torch.Tensor, mask: torch.Tensor | None, _log_std: Any) -> tuple[torch.Tensor, ...]:
        """What says which distribution each row is, for `divergence`: logarithms of all probabilities."""
        if mask is not None:
            logits = torch.where(mask, logits, torch.full_like(logits, _MASKED))
        return (torch.cat([torch.log_softmax(logits[:, part], dim=1) for part in self._parts], dim=1),)

    @staticmethod
    def divergence(old: tuple[torch.Tensor, ...], new: tuple[torch.Tensor, ...]) -> torch.Tensor:
        """KL(old ‖ new) of each row."""
        return (old[0].exp() * (old[0] - new[0])).sum(dim=1)


class Gaussian:
    """Independent normal distributions around the means, with one learned spread for each dimension."""

    def __init__(self, spec: ActionSpec) -> None:
        assert spec.low is not None and spec.high is not None
        self._size = spec.outputs
        self._shape = spec.shape
        self._low, self._high = spec.low.reshape(-1), spec.high.reshape(-1)
        self.action_dtype: Any = np.float32

    def noise(self, rng: np.random.Generator, steps: int, rows: int) -> Array:
        return rng.standard_normal((steps, rows, self._size), dtype=np.float32)

    def mask(self, means: Array, mask: Array | None) -> Array:
        if mask is not None:
            raise ValueError("continuous actions cannot be masked")
        return means

    def choose(self, means: Array, noise: Array | None, log_std: Any) -> Array:
        return means.copy() if noise is None else means + np.exp(log_std) * noise

    def to_env(self, action: Array) -> Array:
        """Inside the bounds of the action space, in its shape; learning keeps the unclipped action."""
        return np.clip(action, self._low, self._high).reshape(len(action), *self._shape)

    # -- closed form -------------------------------------------------------------------------------------------------
    def evaluate(
        self, means: Array, actions: Array, log_std: Any, with_entropy: bool = True
    ) -> tuple[Array, Array, Any]:
        inverse = np.exp(-log_std)
        scaled = (actions - means) * inverse
        log_prob = -0.5 * np.einsum("ij,ij->i", scaled, scaled) - (log_std.sum() + self._size * HALF_LOG_2PI)
        entropy = log_std.sum() + self._size * (0.5 + HALF_LOG_2PI)
        return log_prob, np.asarray(entropy, means.dtype), (scaled, inverse)

    def gradient(self, kept: Any, log_prob_grad: Array, entropy_grad: float) -> tuple[Array, Array | None]:
        """With z = (a − μ)/σ: ∂log p/∂μ = z/σ, ∂log p/∂log σ = z² − 1, ∂H/∂log σ = 1 (a mean over the batch)."""
        scaled, inverse = kept
        weighted = scaled * log_prob_grad[:, None]
        spread = (weighted * scaled).sum(axis=0) - log_prob_grad.sum() + entropy_grad * len(scaled)
        return weighted * inverse, spread

    # -- torch -------------------------------------------------------------------------------------------------------
    def log_prob_and_entropy(
        self, means: torch.Tensor, actions: torch.Tensor, _mask: torch.Tensor | None, log_std: Any
    ) -> tuple[torch.Tensor, torch.Tensor]:
        scaled = (actions - means) * torch.exp(-log_std)
        log_prob = -0.5 * scaled.square().sum(dim=1) - log_std.sum() - self._size * HALF_LOG_2PI
        entropy = (log_std.sum() + self._size * (0.5 + HALF_LOG_2PI)).expand(len(means))
        return log_prob, entropy

    def parameters(self, means: torch.Tensor, _mask: torch.Tensor | None, log_std: Any) -> tuple[torch.Tensor, ...]:
        """What says which distribution each row is, for `divergence`: means and logarithms of deviations."""
        return means, log_std.expand_as(means)

    @staticmethod
    def divergence(old: tuple[torch.Tensor, ...], new: tuple[torch.Tensor, ...]) -> torch.Tensor:
        """KL(old ‖ new) of each row: Σ log σ′/σ + (σ² + (μ − μ′)²)/2σ′² − ½."""
        (mean, log_std), (new_mean, new_log_std) = old, new
        square = torch.exp(2.0 * log_std) + (mean - new_mean).square()
        return (new_log_std - log_std + 0.5 * square * torch.exp(-2.0 * new_log_std) - 0.5).sum(dim=1)


class StateGaussian(Gaussian):
    """Exploration whose noise is a function of the state: gSDE (Raffin et al. 2021, arXiv 2005.05719).

    Plain Gaussian noise is new at every step, so it shakes more than it explores. Here a matrix E of random weights is
    drawn for each environment and kept for many steps; the noise is f(s) E, with f(s) the last hidden layer.

    Normal distributions around the means with σ² = f(s)² exp(2 log σ_E) + 10⁻⁶ (equation 4 of the paper).

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

    def parameters(self, means: torch.Tensor, _mask: torch.Tensor | None, spread: Any) -> tuple[torch.Tensor, ...]:
        features, log_std = spread
        return means, 0.5 * torch.log(features.detach().square() @ torch.exp(2.0 * log_std) + _FLOOR)


Head = Categorical | Gaussian


def make_head(spec: ActionSpec) -> Head:
    return Categorical(spec) if spec.discrete else Gaussian(spec)
