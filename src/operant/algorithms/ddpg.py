"""Deep deterministic policy gradient (Lillicrap et al. 2016, arXiv 1509.02971), and TD3 (Fujimoto et al. 2018, arXiv
1802.09477): the same with two critics, noise on the target's actions and a policy that is updated less often."""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from typing import Any, ClassVar

import numpy as np
import torch
from torch import nn

from operant.algorithms.contracts import Array, Metrics
from operant.algorithms.dialects import Values
from operant.algorithms.noise import KINDS, ActionNoise, ParameterNoise
from operant.algorithms.off_policy import ContinuousPolicy, OffPolicy
from operant.algorithms.off_policy_settings import OffPolicySettings, di_engine_words, read_truth
from operant.errors import UsageError
from operant.models.builders import PolicyNetwork, build_policy
from operant.models.observations import to_tensors
from operant.settings import setting


@dataclass(frozen=True)
class DDPGSettings(OffPolicySettings):
    """Settings of DDPG."""

    learning_rate: float = setting(1e-3, "step size of Adam; larger: faster, until values diverge")
    critics: int = setting(1, "critics, of which the smallest value counts; more: less overestimation, more time")
    noise: str = setting(
        "gaussian",
        "added to actions: gaussian, clipped, uniform, ou (goes on from step to step) or none; to weights: parameter",
    )
    noise_scale: float = setting(
        0.1, "its size, in half ranges of the action; larger: explores more, but training returns stay lower"
    )
    noise_limit: float = setting(0.5, "what clipped noise is at most; larger: rarer actions are tried too")
    noise_steps: int = setting(
        50, "steps for which noise on weights stays the same; more: explores further in one direction, less evenly"
    )
    smoothing: float = setting(
        0.0, "deviation of noise on the target policy's actions; larger: values of neighbours count, peaks do not"
    )
    smoothing_limit: float = setting(0.5, "what that noise is at most; larger: neighbours from further away count")

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.noise not in KINDS:
            raise UsageError(f"algorithm.noise is {', '.join(KINDS)}; got {self.noise!r}")
        if self.noise_steps < 1:
            raise UsageError(f"algorithm.noise_steps is {self.noise_steps}; it must be at least 1")


@dataclass(frozen=True)
class TD3Settings(DDPGSettings):
    """Settings of TD3; the defaults are those of the paper's code."""

    critics: int = setting(2, "critics, of which the smallest value counts; more: less overestimation, more time")
    actor_every: int = setting(
        2, "updates of the critics for each of the policy; more: it moves by better values, but less often"
    )
    target_every: int = setting(2, "updates between moves of the target networks; more: steadier targets, slower")
    smoothing: float = setting(
        0.2, "deviation of noise on the target policy's actions; larger: values of neighbours count, peaks do not"
    )


def _from_di_engine(theirs: Values) -> Values:
    limit = theirs["policy.learn.noise_range.max"]
    low = theirs.get("policy.learn.noise_range.min")
    if low is not None and isinstance(limit, (int, float)) and low != -limit:
        raise UsageError(
            f"main_config.policy.learn.noise_range goes from {low!r} to {limit!r}; here noise ends at the same "
            "distance on both sides, such as -0.5 and 0.5"
        )
    if "policy.learn.noise_range" in theirs:  # null: no limit
        if theirs["policy.learn.noise_range"] is not None:
            raise UsageError(
                f"main_config.policy.learn.noise_range is {theirs['policy.learn.noise_range']!r}; it has min and max, "
                "such as -0.5 and 0.5, or is None"
            )
        limit = math.inf
    smoothed = read_truth(theirs, "policy.learn.noise")
    return {
        "algorithm.smoothing": theirs["policy.learn.noise_sigma"] if smoothed else 0.0,
        "algorithm.smoothing_limit": limit,
    }


def _to_di_engine(ours: Values) -> Values:
    smoothing, limit = ours["algorithm.smoothing"], ours["algorithm.smoothing_limit"]
    return {
        "policy.learn.noise": smoothing > 0.0,
        "policy.learn.noise_sigma": smoothing or 0.2,
        "policy.learn.noise_range": {"min": -limit, "max": limit} if math.isfinite(limit) else None,
    }


DDPGSettings.di_engine = di_engine_words(
    "policy.learn.learning_rate_critic",
    "policy.learn.learning_rate_actor",
    {"policy.learn.actor_update_freq": "algorithm.actor_every", "policy.collect.noise_sigma": "algorithm.noise_scale"},
    {
        "policy.random_collect_size": 25_000,
        "policy.other.replay_buffer.replay_buffer_size": 100_000,
        "policy.model.twin_critic": False,
        "policy.learn.learning_rate_critic": 1e-3,
        "policy.learn.learning_rate_actor": 1e-3,
        "policy.learn.noise": False,
        "policy.learn.noise_sigma": 0.2,
        "policy.learn.noise_range.max": 0.5,
    },
    ("policy.reward_batch_norm", "policy.learn.noise", "policy.learn.noise_sigma", "policy.learn.noise_range"),
    _from_di_engine,
    _to_di_engine,
)
TD3Settings.di_engine = replace(
    DDPGSettings.di_engine,
    defaults={**DDPGSettings.di_engine.defaults, "policy.model.twin_critic": True, "policy.learn.noise": True},
)


class DeterministicPolicy(ContinuousPolicy):
    """One action for each observation; it explores by noise."""

    Settings = DDPGSettings
    settings: DDPGSettings

    def __init__(self, *args: Any, **options: Any) -> None:
        super().__init__(*args, **options)
        settings = self.settings
        self._noise = ActionNoise(settings.noise, settings.noise_scale, settings.noise_limit, self._size)
        self._weight_noise = ParameterNoise(settings.noise_scale, settings.noise_steps)

    def _build(self) -> PolicyNetwork:
        if self.model.state_noise:
            raise UsageError("model.state_noise is for policies that are sampled (SAC, PPO, A2C), not for this one")
        return build_policy(self.adapter, self._size, self.model, nn.Tanh())

    def _best(self, output: Array) -> Array:
        return output.copy()

    def _explore(self, obs: Any, rng: np.random.Generator) -> Array:
        if self.settings.noise == "parameter":
            return self._weight_noise.act(self._flat.tensor, lambda: self._output(obs), rng)
        output = self._output(obs)
        return np.clip(output + self._noise.draw(rng, len(output)), -1.0, 1.0)


class DDPG(DeterministicPolicy, OffPolicy):
    """Learns a deterministic policy by the gradient of a critic."""

    policy_class = DeterministicPolicy
    model_roles: ClassVar[tuple[tuple[str, str], ...]] = (
        ("actor", "actor"),
        ("actor", "its target"),
        ("critic", "critic"),
        ("critic", "its target"),
    )
    _has_target_actor = True

    def _smoothing(self, rows: int) -> Array | None:
        """Noise on the target policy's actions (equation 14 of the TD3 paper)."""
        settings = self.settings
        if settings.smoothing <= 0.0:
            return None
        noise = self._rng.standard_normal((rows, self._size), dtype=np.float32) * np.float32(settings.smoothing)
        return np.asarray(np.clip(noise, -settings.smoothing_limit, settings.smoothing_limit))

    def _next_value(self, next_obs: Any) -> torch.Tensor:
        """min Q⁻(s′, π⁻(s′) + ε): of all critics the smallest (equation 10 of the TD3 paper)."""
        assert self._target_network is not None
        action = self._target_network(next_obs)
        noise = self._smoothing(len(action))
        if noise is not None:
            action = (action + to_tensors(noise, self._device)).clamp(-1.0, 1.0)
        return self._target_critics(next_obs, action).amin(dim=0)  # type: ignore[no-any-return]

    def _actor_loss(self, obs: Any) -> tuple[torch.Tensor, Any]:
        """−E[Q₁(s, π(s))]."""
        return -self._critics.critics[0](obs, self.network(obs)).mean(), dict

    def _fused_next_value(self, batch: Any) -> Array:
        next_obs = batch["next_obs"]
        action = self._target_actor.forward(next_obs)
        noise = self._smoothing(len(action))
        if noise is not None:
            action = np.minimum(np.maximum(action + noise, -1.0), 1.0)
        return np.asarray(self._target_q.forward(next_obs, action).min(axis=0))

    def _fused_actor_gradient(self, obs: Array) -> Metrics:
        assert self._q is not None and self._actor is not None
        q, by_action = self._q.first(obs, self._actor.forward(obs))
        self._actor.backward(by_action * np.float32(-1.0 / len(obs)))
        return {"policy_loss": -float(q.mean())} if self.measure else {}

    def state_dict(self) -> dict[str, Any]:
        noise = {**self._noise.state_dict(), "weights": self._weight_noise.state_dict()}
        return {**super().state_dict(), "noise": noise}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        super().load_state_dict(state)
        self._noise.load_state_dict(state["noise"])
        if "weights" in state["noise"]:  # checkpoints from before there was noise on weights have none
            self._weight_noise.load_state_dict(state["noise"]["weights"])


class TD3(DDPG):
    """DDPG with twin critics, smoothed targets and a delayed policy."""

    Settings = TD3Settings
    settings: TD3Settings
    model_roles = (*DDPG.model_roles, ("critic", "second critic"), ("critic", "its target"))
