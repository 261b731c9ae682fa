"""What PPO and A2C share: networks, acting, and the advantages of a rollout."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
import torch
from torch import nn

from operant.algorithms.contracts import ActOut, Array, DataSpec
from operant.algorithms.errors import DivergedError
from operant.algorithms.heads import Gaussian, Head, make_head
from operant.algorithms.returns import advantages
from operant.algorithms.state_noise import StateGaussian
from operant.data.trees import tree_map
from operant.errors import UsageError
from operant.models.builders import build_actor_critic
from operant.models.flat import FlatParameters, make_optimizer
from operant.models.fused import FusedMLP, is_fusable
from operant.models.observations import ObservationAdapter, to_tensors
from operant.models.settings import ModelSettings
from operant.models.spaces import action_spec
from operant.settings import setting

if TYPE_CHECKING:
    from gymnasium import Space

__all__ = ["OnPolicy", "OnPolicySettings", "Prepared", "explained_variance", "normalized"]


@dataclass(frozen=True)
class OnPolicySettings:
    """What all algorithms that learn from rollouts have; each has defaults of its own."""

    rollout: int = setting(2048, "steps of each environment before an update")
    gamma: float = setting(0.99, "discount")
    gae_lambda: float = setting(0.95, "λ of generalised advantage estimation")
    learning_rate: float = setting(3e-4, "step size")
    anneal_learning_rate: bool = setting(False, "let the learning rate fall to zero over the training")
    entropy_weight: float = setting(0.0, "weight of the entropy bonus")
    value_weight: float = setting(0.5, "weight of the squared error of the value")
    max_gradient_norm: float = setting(0.5, "limit of the norm of the gradient")
    normalize_advantage: bool = setting(True, "scale the advantages of each minibatch to mean 0 and deviation 1")
    optimizer: str = setting("adam", "adam or rmsprop")
    optimizer_eps: float = setting(1e-5, "ε of the optimizer")

    def __post_init__(self) -> None:
        if self.rollout < 1:
            raise UsageError(f"algorithm.rollout is {self.rollout}; it must be at least 1")


@dataclass
class Prepared:
    """A rollout as flat rows, with what was computed from it before the first update."""

    obs: Any
    action: Array
    mask: Array | None
    log_prob: Array
    value: Array
    advantage: Array
    target: Array

    def __len__(self) -> int:
        return len(self.action)

    def rows(self, index: Array) -> Prepared:
        return Prepared(
            tree_map(lambda part: part[index], self.obs),
            self.action[index],
            None if self.mask is None else self.mask[index],
            self.log_prob[index],
            self.value[index],
            self.advantage[index],
            self.target[index],
        )


class OnPolicy:
    """A policy and a value network that learn from rollouts.

    A rollout is a mapping with ``obs`` [T+1, N, …] (the last row is what the last step led to), ``action``,
    ``reward``, ``terminated``, ``truncated`` [T, N], ``final_obs`` [k, …] with ``final_at`` [k] (the last observations
    of truncated episodes and their places t·N+n), and ``mask`` [T, N, A] or None.
    """

    data = DataSpec("rollout", ("obs", "action", "reward", "terminated", "truncated", "final_obs", "final_at", "mask"))

    def __init__(
        self,
        observation_space: Space[Any],
        action_space: Space[Any],
        settings: OnPolicySettings,
        model: ModelSettings,
        seed: int,
    ) -> None:
        self.settings = settings
        self.adapter = ObservationAdapter(observation_space, as_row=not model.has_own_modules)
        self.actions = action_spec(action_space)
        with torch.random.fork_rng(devices=[]):
            torch.manual_seed(seed)
            self.network = build_actor_critic(self.adapter, self.actions, model)
        self.head: Head = make_head(self.actions)
        if model.state_noise:
            assert self.network.log_std is not None
            self.head = StateGaussian(self.actions, len(self.network.log_std), model.state_noise_steps)
        self.flat = FlatParameters(self.network)
        self.optimizer = make_optimizer(settings.optimizer, self.flat, settings.optimizer_eps)
        self.rng = np.random.default_rng([seed, 1])
        self.progress = 0.0
        self.measure = True
        self._log_std: Array | None = None
        self._log_std_grad: Array | None = None
        if self.network.log_std is not None:
            self._log_std, self._log_std_grad = self.flat.views(self.network.log_std)
        self._actor: FusedMLP | None = None
        self._critic: FusedMLP | None = None
        plain = self.network.encoder is None and self.adapter.is_flat
        if model.fused and plain and is_fusable(self.network.actor) and is_fusable(self.network.critic):
            assert isinstance(self.network.actor, nn.Sequential) and isinstance(self.network.critic, nn.Sequential)
            self._actor = FusedMLP(self.network.actor, self.flat)
            self._critic = FusedMLP(self.network.critic, self.flat)

    @property
    def path(self) -> str:
        return "fused (closed-form gradients)" if self._actor is not None else "torch (autograd)"

    @property
    def learning_rate(self) -> float:
        """The step size now."""
        left = 1.0 - self.progress if self.settings.anneal_learning_rate else 1.0
        return self.settings.learning_rate * left

    def set_progress(self, steps: int, total_steps: int) -> None:
        self.progress = min(1.0, steps / max(1, total_steps))

    # -- acting ------------------------------------------------------------------------------------------------------
    def policy_output(self, obs: Any) -> Array:
        """Logits or means for adapted observations."""
        if self._actor is not None:
            return self._actor.forward(obs, 1)
        with torch.no_grad():
            out: Array = self.network(to_tensors(obs))[0].numpy()
        return out

    def values(self, obs: Any) -> Array:
        """The value of adapted observations."""
        if self._critic is not None:
            return self._critic.forward(obs, 1)[:, 0].copy()
        with torch.no_grad():
            out: Array = self.network(to_tensors(obs))[1].numpy()
        return out

    def spread(self, obs: Any, slot: int = 1) -> Any:
        """What the head of continuous actions takes for their spread, after a forward pass of the same observations."""
        if not isinstance(self.head, StateGaussian):
            return self._log_std
        if self._actor is not None:
            return self._actor.hidden(len(obs), slot), self._log_std
        with torch.no_grad():
            return self.network.policy_features(to_tensors(obs)).numpy(), self._log_std

    def draw(self, obs: Any, noise: Array | None, mask: Array | None = None) -> tuple[Array, Array]:
        """Actions for adapted observations: as the environment takes them, and as they are learned from."""
        output = self.head.mask(self.policy_output(obs), mask)
        if isinstance(self.head, Gaussian):
            action = self.head.choose(output, noise, None if noise is None else self.spread(obs))
            return self.head.to_env(action), action
        action = self.head.choose(output, noise)
        return action, action

    def act(
        self, obs: Any, state: Any = None, *, mask: Array | None = None, explore: bool, rng: np.random.Generator
    ) -> ActOut:
        """Sampled actions when exploring, otherwise the most likely ones."""
        adapted = self.adapter.adapt(obs)
        rows = len(next(iter(adapted.values()))) if isinstance(adapted, dict) else len(adapted)
        noise = self.head.noise(rng, 1, rows)[0] if explore else None
        for_env, stored = self.draw(adapted, noise, mask)
        return ActOut(for_env, None, {"action": stored})

    # -- learning ----------------------------------------------------------------------------------------------------
    def prepare(self, batch: Any, with_log_prob: bool = True) -> Prepared:
        """Values, advantages and (for ratios) log-probabilities under the policy as it is before the update."""
        reward = np.asarray(batch["reward"])
        steps, rows = reward.shape
        flat_obs = tree_map(lambda part: part.reshape((steps + 1) * rows, *part.shape[2:]), batch["obs"])
        value: Array = self.values(flat_obs).reshape(steps + 1, rows)
        next_value: Array = value[1:].copy()
        if len(batch["final_at"]):
            next_value.reshape(-1)[batch["final_at"]] = self.values(batch["final_obs"])
        value = value[:-1]
        advantage = advantages(
            reward,
            batch["terminated"],
            batch["truncated"],
            value,
            next_value,
            gamma=self.settings.gamma,
            lam=self.settings.gae_lambda,
        ).reshape(-1)
        value = value.reshape(-1)
        obs = tree_map(lambda part: part[: steps * rows], flat_obs)
        action = batch["action"].reshape(steps * rows, *batch["action"].shape[2:])
        mask = batch.get("mask")
        mask = None if mask is None else mask.reshape(steps * rows, -1)
        log_prob = value
        if with_log_prob:
            output = self.head.mask(self.policy_output(obs), mask)
            log_prob, _, _ = self.head.evaluate(output, action, self.spread(obs), False)
        return Prepared(obs, action, mask, log_prob, value, advantage, advantage + value)

    def apply_gradient(self, limit: float, rate: float) -> float:
        """One optimizer step with the gradient at hand; returns its norm."""
        norm = self.flat.clip_gradient(limit)
        if not np.isfinite(norm):
            raise DivergedError
        self.optimizer.step(rate)
        return norm

    def torch_forward(self, part: Prepared) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
        """Log-probabilities, entropies and values of rows, with autograd."""
        obs = to_tensors(part.obs)
        policy, value = self.network(obs)
        mask = None if part.mask is None else torch.from_numpy(part.mask)
        spread: Any = self.network.log_std
        if isinstance(self.head, StateGaussian):
            spread = (self.network.policy_features(obs), spread)
        log_prob, entropy = self.head.log_prob_and_entropy(policy, torch.from_numpy(part.action), mask, spread)
        return log_prob, entropy, value

    def fused_backward(self, kept: Any, log_prob_slope: Array, entropy_slope: float, value_slope: Array) -> None:
        """All gradients from the slopes of the loss by log-probability, entropy (a mean) and value."""
        assert self._actor is not None and self._critic is not None
        slope, spread = self.head.gradient(kept, log_prob_slope, entropy_slope)
        self._actor.backward(slope)
        self._critic.backward(value_slope[:, None])
        if self._log_std_grad is not None and spread is not None:
            self._log_std_grad[:] = spread

    # -- saving ------------------------------------------------------------------------------------------------------
    def weights(self) -> dict[str, Array]:
        return {name: value.numpy().copy() for name, value in self.network.state_dict().items()}

    def load_weights(self, weights: dict[str, Array]) -> None:
        self.network.load_state_dict({name: torch.as_tensor(np.array(value)) for name, value in weights.items()})

    def state_dict(self) -> dict[str, Any]:
        return {
            "weights": self.weights(),
            "optimizer": self.optimizer.state_dict(),
            "rng": self.rng.bit_generator.state,
            "progress": self.progress,
        }

    def load_state_dict(self, state: dict[str, Any]) -> None:
        self.load_weights(state["weights"])
        self.optimizer.load_state_dict(state["optimizer"])
        self.rng.bit_generator.state = state["rng"]
        self.progress = float(state["progress"])


def explained_variance(value: Array, target: Array) -> float:
    """How much of the returns the value function explains: 1 all, 0 nothing, below 0 worse than their mean."""
    spread = float(np.var(target))
    return float("nan") if spread == 0.0 else 1.0 - float(np.var(target - value)) / spread


def normalized(advantage: Array) -> Array:
    """Mean 0 and deviation 1."""
    centred: Array = advantage - advantage.mean()
    deviation = np.sqrt(np.dot(centred, centred) / (len(centred) - 1)) + np.float32(1e-8)
    centred /= deviation
    return centred
