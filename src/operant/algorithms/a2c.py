"""Advantage actor-critic, the synchronous form of A3C (Mnih et al. 2016, arXiv 1602.01783)."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
import torch

from operant.algorithms.contracts import Array, Metrics
from operant.algorithms.on_policy import OnPolicy, explained_variance
from operant.algorithms.ppo import normalized
from operant.errors import UsageError
from operant.models.settings import ModelSettings
from operant.settings import setting

if TYPE_CHECKING:
    from gymnasium import Space

__all__ = ["A2C", "A2CSettings", "a2c_loss", "a2c_slopes"]


@dataclass(frozen=True)
class A2CSettings:
    """Settings of A2C."""

    rollout: int = setting(5, "steps of each environment before an update")
    gamma: float = setting(0.99, "discount")
    gae_lambda: float = setting(1.0, "λ of generalised advantage estimation; 1 is the n-step return of the paper")
    learning_rate: float = setting(7e-4, "step size")
    anneal_learning_rate: bool = setting(False, "let the learning rate fall to zero over the training")
    entropy_weight: float = setting(0.0, "weight of the entropy bonus")
    value_weight: float = setting(0.5, "weight of the squared error of the value")
    max_gradient_norm: float = setting(0.5, "limit of the norm of the gradient")
    normalize_advantage: bool = setting(False, "scale the advantages of each rollout to mean 0 and deviation 1")
    optimizer: str = setting("rmsprop", "rmsprop or adam")
    optimizer_eps: float = setting(1e-5, "ε of the optimizer")

    def __post_init__(self) -> None:
        if self.rollout < 1:
            raise UsageError("A2C needs rollout ≥ 1")


def a2c_loss(
    log_prob: torch.Tensor,
    entropy: torch.Tensor,
    value: torch.Tensor,
    *,
    advantage: torch.Tensor,
    target: torch.Tensor,
    entropy_weight: float,
    value_weight: float,
) -> torch.Tensor:
    """Section 4 of the paper: −E[A log π(a)] + c₁ E[(V − R)²] − c₂ E[H]; A is a constant here."""
    return (
        -(advantage * log_prob).mean()
        + value_weight * (value - target).square().mean()
        - entropy_weight * entropy.mean()
    )


def a2c_slopes(value: Array, *, advantage: Array, target: Array, value_weight: float) -> tuple[Array, Array]:
    """The gradient of `a2c_loss` by log-probability and by value."""
    count = len(value)
    kind = value.dtype.type
    return advantage * kind(-1.0 / count), (value - target) * kind(2.0 * value_weight / count)


class A2C(OnPolicy):
    """One gradient step for each rollout."""

    def __init__(
        self,
        observation_space: Space[Any],
        action_space: Space[Any],
        settings: A2CSettings | None = None,
        model: ModelSettings | None = None,
        seed: int = 0,
    ) -> None:
        self.settings = settings or A2CSettings()
        super().__init__(
            observation_space,
            action_space,
            model or ModelSettings(),
            seed,
            optimizer=self.settings.optimizer,
            optimizer_eps=self.settings.optimizer_eps,
        )

    @property
    def learning_rate(self) -> float:
        left = 1.0 - self.progress if self.settings.anneal_learning_rate else 1.0
        return self.settings.learning_rate * left

    def learn(self, batch: Any) -> tuple[Metrics, None]:
        """Update from one rollout; see `OnPolicy` for its keys."""
        settings = self.settings
        data = self.prepare(batch, settings.gamma, settings.gae_lambda, with_log_prob=False)
        if settings.normalize_advantage and len(data) > 1:
            data.advantage = normalized(data.advantage)
        if self._actor is None or self._critic is None:
            log_prob_t, entropy_t, value_t = self.torch_forward(data)
            loss = a2c_loss(
                log_prob_t,
                entropy_t,
                value_t,
                advantage=torch.from_numpy(data.advantage),
                target=torch.from_numpy(data.target),
                entropy_weight=settings.entropy_weight,
                value_weight=settings.value_weight,
            )
            self.flat.grad_tensor.zero_()
            loss.backward()  # type: ignore[no-untyped-call]
            log_prob, entropy, value = (part.detach().numpy() for part in (log_prob_t, entropy_t, value_t))
        else:
            output = self.head.mask(self._actor.forward(data.obs), data.mask)
            log_prob, entropy, kept = self.head.evaluate(
                output, data.action, self._log_std, self.measure or settings.entropy_weight != 0.0
            )
            value = self._critic.forward(data.obs)[:, 0]
            log_prob_slope, value_slope = a2c_slopes(
                value, advantage=data.advantage, target=data.target, value_weight=settings.value_weight
            )
            self.fused_backward(kept, log_prob_slope, -settings.entropy_weight / len(data), value_slope)
        rate = self.learning_rate
        norm = self.apply_gradient(settings.max_gradient_norm, rate)
        if not self.measure:
            return {}, None
        metrics = {
            "policy_loss": -float((data.advantage * log_prob).mean()),
            "value_loss": float(np.square(value - data.target).mean()),
            "entropy": float(np.mean(entropy)),
            "gradient_norm": norm,
            "explained_variance": explained_variance(data.value, data.target),
            "learning_rate": rate,
            "updates": 1.0,
        }
        if self._log_std is not None:
            metrics["std"] = float(np.exp(self._log_std).mean())
        return metrics, None
