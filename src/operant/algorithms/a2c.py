"""Advantage actor-critic, the synchronous form of A3C (Mnih et al. 2016, arXiv 1602.01783)."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import torch

from operant.algorithms.contracts import Array, Metrics
from operant.algorithms.dialects import same
from operant.algorithms.on_policy import OnPolicy, Prepared, explained_variance, normalized
from operant.algorithms.on_policy_settings import OnPolicySettings
from operant.errors import UsageError
from operant.models.observations import to_array, to_tensors
from operant.settings import setting


@dataclass(frozen=True)
class A2CSettings(OnPolicySettings):
    """Settings of A2C; the defaults are those of the paper's code."""

    rollout: int = setting(
        5, "steps of each environment before an update; more: less bias, more variance, fewer updates"
    )
    gae_lambda: float = setting(
        1.0, "λ of generalised advantage estimation; 1: the paper's n-step return; smaller: less variance, more bias"
    )
    learning_rate: float = setting(7e-4, "step size; larger: faster, until the policy collapses")
    normalize_advantage: bool = setting(
        False,
        "scale advantages of a gradient step to mean 0 and deviation 1: steps do not depend on the size of rewards",
    )
    minibatch: int = setting(
        0, "rows of one gradient step; fewer: more steps for each rollout, more noise; 0: one step with all its rows"
    )
    optimizer: str = setting("rmsprop", "rmsprop as in the paper, or adam: often steadier")

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.minibatch == 1:
            raise UsageError("algorithm.minibatch is 1; it must be at least 2, or 0 for one step with all rows")


_COMMON = OnPolicySettings.di_engine
A2CSettings.di_engine = replace(
    _COMMON,
    table={
        **_COMMON.table,
        "policy.learn.normalize_advantage": "algorithm.normalize_advantage",
        "policy.learn.grad_norm": "algorithm.max_gradient_norm",
        "policy.learn.eps": "algorithm.optimizer_eps",
    },
    defaults={
        "policy.learn.learning_rate": 0.001,
        "policy.learn.entropy_weight": 0.01,
        "policy.learn.eps": 1e-8,
        "policy.collect.discount_factor": 0.9,
        "policy.collect.gae_lambda": 0.95,
    },
    elsewhere=(
        *_COMMON.elsewhere,
        "policy.learn.batch_size",  # one gradient step takes the whole rollout, there as here
        "policy.learn.betas",
        "policy.other.replay_buffer",
    ),
    read=lambda theirs: {**_COMMON.read(theirs), "algorithm.optimizer": "adam"},
)
A2CSettings.machin = replace(
    OnPolicySettings.machin, rules=(*OnPolicySettings.machin.rules, same("batch_size", "rollout"))
)


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


def a2c_gradients(value: Array, *, advantage: Array, target: Array, value_weight: float) -> tuple[Array, Array]:
    """The gradient of `a2c_loss` by log-probability and by value."""
    count = len(value)
    kind = value.dtype.type
    return advantage * kind(-1.0 / count), (value - target) * kind(2.0 * value_weight / count)


class A2C(OnPolicy):
    """Each step of a rollout is learned from once: in one gradient step, or in minibatches.

    Steps that follow each other are alike. Minibatches of a long rollout have steps of all its times, so that there can
    be as many gradient steps as with short ones, and none of them sees one manoeuvre only.
    """

    Settings = A2CSettings
    settings: A2CSettings

    def learn(self, batch: Any) -> tuple[Metrics, None]:
        """Update from one rollout; see `OnPolicy` for its keys."""
        size = self.settings.minibatch
        data = self._prepare(batch, with_log_prob=size > 0)
        if not 0 < size < len(data):
            self._scale_advantage(data)
            return self._step(data), None
        told = []
        for chosen in self._shuffled(data, size):
            part = data.take(chosen)
            if len(part) < 2:
                continue  # one row has no deviation to scale by
            self._scale_advantage(part)
            told.append(self._step(part))
        if not self.measure:
            return {}, None
        metrics = {key: float(np.mean([one[key] for one in told])) for key in told[0]}
        metrics["explained_variance"] = explained_variance(data.value, data.target)
        metrics["updates"] = float(len(told))
        return metrics, None

    def _step(self, data: Prepared) -> Metrics:
        settings = self.settings
        if self._actor is None or self._critic is None:
            with self._modes.updating():
                log_prob_t, entropy_t, value_t = self._torch_forward(data)
                advantage = self._weighed(data, to_array(log_prob_t))
                loss = a2c_loss(
                    log_prob_t,
                    entropy_t,
                    value_t,
                    advantage=to_tensors(advantage, self._device),
                    target=to_tensors(data.target, self._device),
                    entropy_weight=settings.entropy_weight,
                    value_weight=settings.value_weight,
                )
                self._flat.grad_tensor.zero_()
                loss.backward()  # type: ignore[no-untyped-call]
            log_prob, entropy, value = (to_array(part) for part in (log_prob_t, entropy_t, value_t))
        else:
            output = self._head.mask(self._actor.forward(data.obs), data.mask)
            log_prob, entropy, kept = self._head.evaluate(
                output, data.action, self._spread(data.obs, 0), self.measure or settings.entropy_weight != 0.0
            )
            # The critic has not changed since it valued the rollout.
            value = data.value if data.valued else self._critic.forward(data.obs)[:, 0]
            advantage = self._weighed(data, log_prob)
            log_prob_grad, value_grad = a2c_gradients(
                value, advantage=advantage, target=data.target, value_weight=settings.value_weight
            )
            self._fused_backward(kept, log_prob_grad, -settings.entropy_weight / len(data), value_grad, data.valued)
        rate = self._learning_rate
        norm = self._apply_gradient(settings.max_gradient_norm, rate)
        if not self.measure:
            return {}
        metrics = {
            "policy_loss": -float((advantage * log_prob).mean()),
            "value_loss": float(np.square(value - data.target).mean()),
            "entropy": float(np.mean(entropy)),
            "gradient_norm": norm,
            "explained_variance": explained_variance(data.value, data.target),
            "learning_rate": rate,
            "updates": 1.0,
        }
        if self._log_std is not None:
            metrics["std"] = float(np.exp(self._log_std).mean())
        return metrics

    def _scale_advantage(self, data: Prepared) -> None:
        if self.settings.normalize_advantage and len(data) > 1:
            data.advantage = normalized(data.advantage)

    def _weighed(self, data: Prepared, log_prob: Array) -> Array:
        """Advantages as they count for the policy as it is now, which earlier minibatches have changed."""
        if not self.settings.minibatch:
            return data.advantage
        weighed: Array = data.advantage * np.exp(log_prob - data.log_prob)
        return weighed
