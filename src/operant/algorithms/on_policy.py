"""What PPO and A2C share: networks, acting, and the advantages of a rollout."""

from __future__ import annotations

import math
from dataclasses import dataclass
from itertools import repeat
from typing import TYPE_CHECKING, Any, ClassVar

import numpy as np
import torch
from torch import nn

from operant.algorithms.base import BaseAlgorithm, refuse_epsilon
from operant.algorithms.contracts import Actor, ActOut, Array, DataSpec
from operant.algorithms.dialects import COMMON_RULES, DIEngine, Machin, Rule, Values, both, same
from operant.algorithms.errors import DivergedError
from operant.algorithms.heads import Gaussian, Head, make_head
from operant.algorithms.returns import advantages
from operant.algorithms.state_noise import StateGaussian
from operant.data.trees import tree_map
from operant.errors import UsageError
from operant.models.builders import build_actor_critic
from operant.models.flat import FlatParameters, make_optimizer
from operant.models.fused import FusedMLP, is_fusable
from operant.models.observations import to_array, to_tensors
from operant.models.settings import ModelSettings
from operant.settings import setting

if TYPE_CHECKING:
    from gymnasium import Space

__all__ = ["OnPolicy", "OnPolicySettings", "Prepared", "explained_variance", "normalized"]


_FIELDS = ("obs", "action", "reward", "terminated", "truncated", "final_obs", "final_at", "mask")
_NOTHING: dict[str, Any] = {}


@dataclass(frozen=True)
class OnPolicySettings:
    """What all algorithms that learn from rollouts have; each has defaults of its own."""

    rollout: int = setting(
        2048, "steps of each environment before an update; more: less bias and variance, fewer updates"
    )
    gamma: float = setting(0.99, "discount; smaller: less variance and quicker, but what comes late counts less")
    gae_lambda: float = setting(
        0.95, "λ of generalised advantage estimation; smaller: less variance, more bias by a wrong value function"
    )
    learning_rate: float = setting(3e-4, "step size; larger: faster, until the policy collapses")
    anneal_learning_rate: bool = setting(
        False, "let the learning rate fall to zero over the training: settles better, but learns nothing new at the end"
    )
    entropy_weight: float = setting(0.0, "weight of the entropy bonus; larger: explores longer, ends less sure")
    value_weight: float = setting(
        0.5,
        "weight of the squared error of the value; larger: it fits sooner, the policy moves less once clipped",
    )
    max_gradient_norm: float = setting(
        0.5, "limit of the norm of the gradient; smaller: steadier, slower where gradients are large"
    )
    normalize_advantage: bool = setting(
        True, "scale advantages of each minibatch to mean 0 and deviation 1: steps do not depend on the size of rewards"
    )
    optimizer: str = setting("adam", "adam, or rmsprop: without momentum")
    optimizer_eps: float = setting(1e-5, "ε of the optimizer; larger: smaller steps where gradients are tiny")

    di_engine: ClassVar[DIEngine]
    machin: ClassVar[Machin]

    def __post_init__(self) -> None:
        if self.rollout < 1:
            raise UsageError(f"algorithm.rollout is {self.rollout}; it must be at least 1")


# -- how others spell these settings ----------------------------------------------------------------------------------
def collected(theirs: Values) -> int:
    """DI-engine's samples of all environments together for one update."""
    if "policy.collect.n_sample" not in theirs:
        raise UsageError("main_config.policy.collect.n_sample is missing: how many steps are collected for an update")
    return _rollout(theirs) * int(theirs.get("env.collector_env_num", 1))


def _rollout(theirs: Values) -> int:
    return math.ceil(float(theirs["policy.collect.n_sample"] / theirs.get("env.collector_env_num", 1)))


def _from_di_engine(theirs: Values) -> Values:
    collected(theirs)
    read: Values = {"algorithm.rollout": _rollout(theirs)}
    # DI-engine's heads have a layer of their own behind the encoder; ours is one more hidden layer.
    sizes = {value for key, value in theirs.items() if key.endswith(_HEAD_SIZES)}
    if len(sizes) > 1:
        raise UsageError(
            "policy.model.actor_head_hidden_size and critic_head_hidden_size differ; actor and critic have the same "
            "hidden layers here, unless model.actor and model.critic name modules"
        )
    hidden = theirs.get("policy.model.encoder_hidden_size_list")
    return {**read, "model.hidden": [*hidden, *sizes]} if sizes and hidden else read


def _to_di_engine(ours: Values) -> Values:
    return {"policy.collect.n_sample": ours["algorithm.rollout"] * ours.get("env.num_envs", 1)}


_HEAD_SIZES = ("actor_head_hidden_size", "critic_head_hidden_size")
OnPolicySettings.di_engine = DIEngine(
    table={
        "policy.collect.discount_factor": "algorithm.gamma",
        "policy.collect.gae_lambda": "algorithm.gae_lambda",
        "policy.learn.entropy_weight": "algorithm.entropy_weight",
        "policy.learn.value_weight": "algorithm.value_weight",
    },
    defaults={},
    # `ignore_done` works around what truncations do to DI-engine's targets; ours bootstrap at truncations.
    elsewhere=(
        "policy.action_space",
        "policy.on_policy",
        "policy.model.action_space",
        *(f"policy.model.{size}" for size in _HEAD_SIZES),
        "policy.collect.n_sample",
        "policy.learn.ignore_done",
        "policy.learn.update_per_collect",
    ),
    read=_from_di_engine,
    write=_to_di_engine,
    steps_per_iteration=collected,
)

OnPolicySettings.machin = Machin(
    rules=(
        *(rule for rule in COMMON_RULES if rule.ours not in (("learning_rate",), ("batch",))),
        both("actor_learning_rate", "critic_learning_rate", "learning_rate"),
        same("value_weight", "value_weight"),
        same("gae_lambda", "gae_lambda"),
        same("normalize_advantage", "normalize_advantage"),
        # Machin adds weight times entropy to the loss; here the weight is that of a bonus.
        Rule(
            ("entropy_weight",),
            ("entropy_weight",),
            lambda given: {"entropy_weight": 0.0 if given["entropy_weight"] is None else -given["entropy_weight"]},
            lambda settings: {"entropy_weight": -settings["entropy_weight"] if settings["entropy_weight"] else None},
        ),
        # Of the value; it is not to be chosen.
        Rule(("criterion",), (), lambda given: {}, lambda settings: {"criterion": "MSELoss"}),
    )
)


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


class OnPolicy(BaseAlgorithm):
    """A policy and a value network that learn from rollouts.

    A rollout is a mapping with ``obs`` [T+1, N, …] (the last row is what the last step led to), ``action``,
    ``reward``, ``terminated``, ``truncated`` [T, N], ``final_obs`` [k, …] with ``final_at`` [k] (the last observations
    of truncated episodes and their places t·N+n), and ``mask`` [T, N, A] or None. Where it has ``advantage`` and
    ``value`` [T, N] already, ``obs`` has T rows and the last four are not needed.
    """

    settings: OnPolicySettings
    model_roles = (("actor", "actor"), ("critic", "critic"))

    def __init__(
        self,
        observation_space: Space[Any],
        action_space: Space[Any],
        settings: OnPolicySettings | None = None,
        model: ModelSettings | None = None,
        seed: int = 0,
    ) -> None:
        super().__init__(observation_space, action_space, settings, model, seed)
        settings, model = self.settings, self.model
        with torch.random.fork_rng(devices=[]):
            torch.manual_seed(seed)
            self.network = build_actor_critic(self.adapter, self.actions, model)
        if self.actions.discrete:
            self.entropy_limit = sum(math.log(size) for size in self.actions.sizes)
        self.head: Head = make_head(self.actions)
        if model.state_noise:
            assert self.network.log_std is not None
            self.head = StateGaussian(self.actions, len(self.network.log_std), model.state_noise_steps)
        plain = self.network.encoder is None and self.adapter.is_flat
        fused = model.fused and plain and is_fusable(self.network.actor) and is_fusable(self.network.critic)
        self._device = self.place(self.network, fused=fused)
        self.flat = FlatParameters(self.network)
        self.optimizer = make_optimizer(settings.optimizer, self.flat, settings.optimizer_eps)
        self.rng = np.random.default_rng([seed, 1])
        self._log_std: Array | None = None
        self._log_std_grad: Array | None = None
        if self.network.log_std is not None and self.flat.on_cpu:
            self._log_std, self._log_std_grad = self.flat.views(self.network.log_std)
        self._actor: FusedMLP | None = None
        self._critic: FusedMLP | None = None
        if fused and self.flat.on_cpu:
            assert isinstance(self.network.actor, nn.Sequential) and isinstance(self.network.critic, nn.Sequential)
            self._actor = FusedMLP(self.network.actor, self.flat)
            self._critic = FusedMLP(self.network.critic, self.flat)

    @staticmethod
    def data_spec(settings: OnPolicySettings) -> DataSpec:
        return DataSpec("step", "fresh", _FIELDS, gamma=settings.gamma, count=settings.rollout)

    @property
    def path(self) -> str:
        return "fused (closed-form gradients)" if self._actor is not None else "torch (autograd)"

    @property
    def learning_rate(self) -> float:
        """The step size now."""
        left = 1.0 - self.progress if self.settings.anneal_learning_rate else 1.0
        return self.settings.learning_rate * left

    # -- acting ------------------------------------------------------------------------------------------------------
    def policy_output(self, obs: Any) -> Array:
        """Logits or means for adapted observations."""
        if self._actor is not None:
            return self._actor.forward(obs, 1)
        with torch.no_grad(), self.modes.acting():
            return to_array(self.network(to_tensors(obs, self._device))[0])

    def values(self, obs: Any) -> Array:
        """The value of adapted observations."""
        if self._critic is not None:
            return self._critic.forward(obs, 1)[:, 0].copy()
        with torch.no_grad(), self.modes.acting():
            return to_array(self.network(to_tensors(obs, self._device))[1])

    def spread(self, obs: Any, slot: int = 1) -> Any:
        """What the head of continuous actions takes for their spread, after a forward pass of the same observations."""
        if not isinstance(self.head, StateGaussian):
            return self.log_std
        if self._actor is not None:
            return self._actor.hidden(len(obs), slot), self._log_std
        with torch.no_grad(), self.modes.acting():
            return to_array(self.network.policy_features(to_tensors(obs, self._device))), self.log_std

    @property
    def log_std(self) -> Array | None:
        """The logarithm of the spread of continuous actions."""
        on_gpu = self._log_std is None and self.network.log_std is not None
        return to_array(self.network.log_std) if on_gpu else self._log_std

    def actor(self, rng: np.random.Generator | None, steps: int, rows: int, *, epsilon: float | None = None) -> Actor:
        refuse_epsilon(epsilon)
        head, policy_output, with_log_prob = self.head, self.policy_output, "log_prob" in self.data.fields
        noise_of_steps = repeat(None) if rng is None else iter(head.noise(rng, steps, rows))

        def act(obs: Any, mask: Array | None, _state: Any) -> tuple[Array, Array, dict[str, Any]]:
            noise = next(noise_of_steps)
            output = policy_output(obs)
            if mask is not None:
                output = head.mask(output, mask)
            if isinstance(head, Gaussian):
                action = head.choose(output, noise, None if noise is None else self.spread(obs))
                for_env = head.to_env(action)
            else:
                for_env = action = head.choose(output, noise)
            return for_env, action, {"log_prob": self.log_prob(obs, action, mask)[0]} if with_log_prob else _NOTHING

        return act

    def act(
        self,
        obs: Any,
        state: Any = None,
        *,
        mask: Array | None = None,
        explore: bool,
        rng: np.random.Generator,
        epsilon: float | None = None,
    ) -> ActOut:
        """Sampled actions when exploring, otherwise the most likely ones; with their log-probability and entropy."""
        out = super().act(obs, state, mask=mask, explore=explore, rng=rng, epsilon=epsilon)
        log_prob, entropy = self.log_prob(self.adapter.adapt(obs), out.extras["action"], mask)
        return ActOut(out.action, None, {**out.extras, "log_prob": log_prob, "entropy": entropy})

    def log_prob(self, obs: Any, action: Array, mask: Array | None = None) -> tuple[Array, Array]:
        """Log-probability of actions (as they are learned from) for adapted observations, and the entropy."""
        output = self.head.mask(self.policy_output(obs), mask)
        log_prob, entropy, _ = self.head.evaluate(output, action, self.spread(obs))
        return log_prob, entropy

    # -- learning ----------------------------------------------------------------------------------------------------
    def prepare(self, batch: Any, with_log_prob: bool = True) -> Prepared:
        """Values, advantages and (for ratios) log-probabilities under the policy as it is before the update."""
        reward = np.asarray(batch["reward"])
        steps, rows = reward.shape
        flat_obs = tree_map(lambda part: part.reshape(-1, *part.shape[2:]), batch["obs"])
        if "advantage" in batch:
            value, advantage = batch["value"].reshape(-1), batch["advantage"].reshape(-1)
        else:
            value, advantage = self._advantages(batch, flat_obs, steps, rows)
        obs = tree_map(lambda part: part[: steps * rows], flat_obs)
        action = batch["action"].reshape(steps * rows, *batch["action"].shape[2:])
        mask = batch.get("mask")
        mask = None if mask is None else mask.reshape(steps * rows, -1)
        log_prob = value
        if with_log_prob:
            output = self.head.mask(self.policy_output(obs), mask)
            log_prob, _, _ = self.head.evaluate(output, action, self.spread(obs), False)
        return Prepared(obs, action, mask, log_prob, value, advantage, advantage + value)

    def _advantages(self, batch: Any, flat_obs: Any, steps: int, rows: int) -> tuple[Array, Array]:
        value: Array = self.values(flat_obs).reshape(steps + 1, rows)
        next_value: Array = value[1:].copy()
        if len(batch["final_at"]):
            next_value.reshape(-1)[batch["final_at"]] = self.values(batch["final_obs"])
        value = value[:-1]
        advantage = advantages(
            batch["reward"],
            batch["terminated"],
            batch["truncated"],
            value,
            next_value,
            gamma=self.settings.gamma,
            lam=self.settings.gae_lambda,
        )
        return value.reshape(-1), advantage.reshape(-1)

    def apply_gradient(self, limit: float, rate: float) -> float:
        """One optimizer step with the gradient at hand; returns its norm."""
        norm = self.flat.clip_gradient(limit)
        if not np.isfinite(norm):
            raise DivergedError
        self.optimizer.step(rate)
        return norm

    def torch_forward(self, part: Prepared) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
        """Log-probabilities, entropies and values of rows, with autograd."""
        obs = to_tensors(part.obs, self._device)
        policy, value = self.network(obs)
        mask = None if part.mask is None else to_tensors(part.mask, self._device)
        spread: Any = self.network.log_std
        if isinstance(self.head, StateGaussian):
            spread = (self.network.policy_features(obs), spread)
        log_prob, entropy = self.head.log_prob_and_entropy(policy, to_tensors(part.action, self._device), mask, spread)
        return log_prob, entropy, value

    def fused_backward(self, kept: Any, log_prob_grad: Array, entropy_grad: float, value_grad: Array) -> None:
        """All gradients from those of the loss by log-probability, entropy (a mean) and value."""
        assert self._actor is not None and self._critic is not None
        grad, spread = self.head.gradient(kept, log_prob_grad, entropy_grad)
        self._actor.backward(grad)
        self._critic.backward(value_grad[:, None])
        if self._log_std_grad is not None and spread is not None:
            self._log_std_grad[:] = spread

    # -- saving ------------------------------------------------------------------------------------------------------
    def state_dict(self) -> dict[str, Any]:
        return {
            "weights": self.weights(),
            "optimizer": self.optimizer.state_dict(),
            "rng": self.rng.bit_generator.state,
            "progress": self.progress,
            "module_rng": self.modes.state_dict(),
        }

    def load_state_dict(self, state: dict[str, Any]) -> None:
        self.load_weights(state["weights"])
        self.optimizer.load_state_dict(state["optimizer"])
        self.rng.bit_generator.state = state["rng"]
        self.modes.load_state_dict(state.get("module_rng", {}))
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
