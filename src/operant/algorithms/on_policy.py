"""What PPO and A2C share: networks, acting, and the advantages of a rollout."""

from __future__ import annotations

import math
from dataclasses import dataclass
from itertools import repeat
from typing import Any

import numpy as np
import torch
from torch import nn

from operant.algorithms.base import BaseAlgorithm, BasePolicy, refuse_epsilon
from operant.algorithms.contracts import Actor, Array, DataSpec
from operant.algorithms.errors import DivergedError
from operant.algorithms.heads import Gaussian, Head, StateGaussian, make_head
from operant.algorithms.on_policy_settings import OnPolicySettings
from operant.data.sequences import Sequences, by_environment, pairs, split_rollout
from operant.data.trees import tree_map
from operant.errors import UsageError
from operant.models.builders import build_actor_critic
from operant.models.flat import FlatParameters, make_optimizer
from operant.models.fused import FusedMLP, is_fusable
from operant.models.observations import to_array, to_tensors

_FIELDS = ("obs", "action", "reward", "terminated", "truncated", "final_obs", "final_at", "mask")
_NOTHING: dict[str, Any] = {}


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
    sequences: Sequences | None = None
    """Of policies with memory: which rows follow each other."""
    share: float = 1.0
    """Of several learners: how much of the minibatch is here."""
    valued: int = 0
    """How many rows the critic was given when it found these values; these are the first of them."""
    weight: Array | None = None
    """How much each row counts in the policy's gradient; without it all alike."""

    def __len__(self) -> int:
        return len(self.action)

    def take(self, chosen: Array) -> Prepared:
        """Some rows, or of a policy with memory some sequences."""
        if self.sequences is None:
            return self._rows(chosen)
        index, sequences = self.sequences.take(chosen)
        part = self._rows(index)
        part.sequences = sequences
        return part

    def _rows(self, index: Array) -> Prepared:
        return Prepared(
            tree_map(lambda part: part[index], self.obs),
            self.action[index],
            None if self.mask is None else self.mask[index],
            self.log_prob[index],
            self.value[index],
            self.advantage[index],
            self.target[index],
            weight=None if self.weight is None else self.weight[index],
        )


class ActorCriticPolicy(BasePolicy):
    """The policy of an actor-critic network: sampled from its distribution, or the most likely action."""

    settings: OnPolicySettings
    may_remember = True

    def __init__(self, *args: Any, **options: Any) -> None:
        super().__init__(*args, **options)
        model = self.model
        with torch.random.fork_rng(devices=[]):
            torch.manual_seed(self.seed)
            self.network = build_actor_critic(self.adapter, self.actions, model)
        self._remembers = self._remember()
        self._head: Head = make_head(self.actions)
        if model.state_noise:
            assert self.network.log_std is not None
            self._head = StateGaussian(self.actions, len(self.network.log_std), model.state_noise_steps)
        plain = self.network.encoder is None and self.adapter.is_flat and not self._remembers
        fused = model.fused and plain and is_fusable(self.network.actor) and is_fusable(self.network.critic)
        self._device = self._place(self.network, fused=fused)
        self._flat = FlatParameters(self.network)
        self._log_std_array: Array | None = None
        self._log_std_grad: Array | None = None
        if self.network.log_std is not None and self._flat.on_cpu:
            self._log_std_array, self._log_std_grad = self._flat.views(self.network.log_std)
        self._actor: FusedMLP | None = None
        if fused and self._flat.on_cpu:
            assert isinstance(self.network.actor, nn.Sequential)
            self._actor = FusedMLP(self.network.actor, self._flat)

    @staticmethod
    def data_spec(settings: OnPolicySettings) -> DataSpec:
        return DataSpec("step", "fresh", _FIELDS, gamma=settings.gamma, count=settings.rollout)

    @property
    def path(self) -> str:
        return "fused (closed-form gradients)" if self._actor is not None else "torch (autograd)"

    def _policy_output(self, obs: Any) -> Array:
        """Logits or means for adapted observations."""
        if self._actor is not None:
            return self._actor.forward(obs, 1)
        with torch.no_grad(), self._modes.acting():
            return to_array(self.network(to_tensors(obs, self._device))[0])

    def _spread(self, obs: Any, slot: int = 1) -> Any:
        """What the head of continuous actions takes for their spread, after a forward pass of the same observations."""
        if not isinstance(self._head, StateGaussian):
            return self._log_std
        if self._actor is not None:
            return self._actor.hidden(len(obs), slot), self._log_std_array
        with torch.no_grad(), self._modes.acting():
            return to_array(self.network.policy_features(to_tensors(obs, self._device))), self._log_std

    @property
    def _log_std(self) -> Array | None:
        """The logarithm of the spread of continuous actions."""
        on_gpu = self._log_std_array is None and self.network.log_std is not None
        return to_array(self.network.log_std) if on_gpu else self._log_std_array

    def actor(self, rng: np.random.Generator | None, steps: int, rows: int, *, epsilon: float | None = None) -> Actor:
        refuse_epsilon(epsilon)
        head, policy_output, with_log_prob = self._head, self._policy_output, "log_prob" in self.data.fields
        noise_of_steps = repeat(None) if rng is None else iter(head.noise(rng, steps, rows))

        def act(obs: Any, mask: Array | None, _state: Any) -> tuple[Array, Array, dict[str, Any]]:
            noise = next(noise_of_steps)
            output = policy_output(obs)
            if mask is not None:
                output = head.mask(output, mask)
            spread = None
            if isinstance(head, Gaussian):
                spread = None if noise is None and not with_log_prob else self._spread(obs)
                action = head.choose(output, noise, spread)
                for_env = head.to_env(action)
            else:
                for_env = action = head.choose(output, noise)
            if not with_log_prob:
                return for_env, action, _NOTHING
            return for_env, action, {"log_prob": head.evaluate(output, action, spread, False)[0]}

        def act_with_memory(obs: Any, mask: Array | None, state: Any) -> tuple[Array, Array, dict[str, Any]]:
            noise = next(noise_of_steps)
            output, spread, after = self._one_step(obs, self.initial_state(rows) if state is None else state)
            output = head.mask(output, mask)
            action = head.choose(output, noise, spread) if isinstance(head, Gaussian) else head.choose(output, noise)
            for_env = head.to_env(action) if isinstance(head, Gaussian) else action
            extras = {"state": after}
            if with_log_prob:
                extras["log_prob"] = head.evaluate(output, action, spread, False)[0]
            return for_env, action, extras

        return act_with_memory if self._remembers else act

    def _one_step(self, obs: Any, state: Any) -> tuple[Array, Any, Any]:
        """Logits or means of a network with memory, the spread of continuous actions, and the state after the step."""
        with torch.no_grad(), self._modes.acting():
            output, hidden, after = self.network.step(to_tensors(obs, self._device), to_tensors(state, self._device))
        spread = (to_array(hidden), self._log_std) if isinstance(self._head, StateGaussian) else self._log_std
        return to_array(output), spread, tree_map(to_array, after)

    def _about(self, obs: Any, action: Array, mask: Array | None, state: Any) -> dict[str, Any]:
        log_prob, entropy = self._log_prob(obs, action, mask, state)
        return {"log_prob": log_prob, "entropy": entropy}

    def _log_prob(self, obs: Any, action: Array, mask: Array | None = None, state: Any = None) -> tuple[Array, Array]:
        """Log-probability of actions (as they are learned from) for adapted observations, and the entropy."""
        if self._remembers:
            output, spread, _ = self._one_step(obs, state)
        else:
            output, spread = self._policy_output(obs), self._spread(obs)
        log_prob, entropy, _ = self._head.evaluate(self._head.mask(output, mask), action, spread)
        return log_prob, entropy


class OnPolicy(ActorCriticPolicy, BaseAlgorithm):
    """A policy and a value network that learn from rollouts.

    A rollout is a mapping with ``obs`` [T+1, N, …] (the last row is what the last step led to), ``action``,
    ``reward``, ``terminated``, ``truncated`` [T, N], ``final_obs`` [k, …] with ``final_at`` [k] (the last observations
    of truncated episodes and their places t·N+n), and ``mask`` [T, N, A] or None; for policies with memory ``state``
    [T, N, …] before each step. Without memory it may have ``advantage`` and ``value`` [T, N] already: ``obs`` has T
    rows then, and ``terminated``, ``truncated`` and last observations are not needed.
    """

    policy_class = ActorCriticPolicy
    model_roles = (("actor", "actor"), ("critic", "critic"))

    def __init__(self, *args: Any, **options: Any) -> None:
        super().__init__(*args, **options)
        if self.actions.discrete:
            self.entropy_limit = sum(math.log(size) for size in self.actions.sizes)
        self.optimizer = make_optimizer(self.settings.optimizer, self._flat, self.settings.optimizer_eps)
        self._rng = np.random.default_rng([self.seed, 1])
        self._critic: FusedMLP | None = None
        if self._actor is not None:
            assert isinstance(self.network.critic, nn.Sequential)
            self._critic = FusedMLP(self.network.critic, self._flat)

    @property
    def _learning_rate(self) -> float:
        """The step size now."""
        left = 1.0 - self.progress if self.settings.anneal_learning_rate else 1.0
        return self.settings.learning_rate * left

    def values(self, obs: Any) -> Array:
        """The value of adapted observations."""
        if self._remembers:
            raise UsageError("values of a policy with memory depend on what came before: let `learn` estimate them")
        if self._critic is not None:
            return self._critic.forward(obs, 1)[:, 0].copy()
        with torch.no_grad(), self._modes.acting():
            return to_array(self.network(to_tensors(obs, self._device))[1])

    def _prepare(self, batch: Any, with_log_prob: bool = True) -> Prepared:
        """Values, advantages and (for ratios) log-probabilities under the policy as it is before the update."""
        if self._remembers:
            return self._prepare_sequences(batch, with_log_prob)
        reward = np.asarray(batch["reward"])
        steps, rows = reward.shape
        flat_obs = tree_map(lambda part: part.reshape(-1, *part.shape[2:]), batch["obs"])
        valued = 0
        if "advantage" in batch:
            value, advantage = batch["value"].reshape(-1), batch["advantage"].reshape(-1)
        else:
            value, advantage = self._advantages(batch, flat_obs, steps, rows)
            valued = (steps + 1) * rows
        obs = tree_map(lambda part: part[: steps * rows], flat_obs)
        action = batch["action"].reshape(steps * rows, *batch["action"].shape[2:])
        mask = batch.get("mask")
        mask = None if mask is None else mask.reshape(steps * rows, -1)
        log_prob = value
        if with_log_prob:
            output = self._head.mask(self._policy_output(obs), mask)
            log_prob, _, _ = self._head.evaluate(output, action, self._spread(obs), False)
        return Prepared(obs, action, mask, log_prob, value, advantage, advantage + value, valued=valued)

    def _advantages(self, batch: Any, flat_obs: Any, steps: int, rows: int) -> tuple[Array, Array]:
        value: Array = self.values(flat_obs).reshape(steps + 1, rows)
        next_value: Array = value[1:].copy()
        if len(batch["final_at"]):
            next_value.reshape(-1)[batch["final_at"]] = self.values(batch["final_obs"])
        value = value[:-1]
        return value.reshape(-1), self._estimate(batch, value, next_value).reshape(-1)

    def _estimate(self, batch: Any, value: Array, next_value: Array) -> Array:
        return advantages(
            batch["reward"],
            batch["terminated"],
            batch["truncated"],
            value,
            next_value,
            gamma=self.settings.gamma,
            lam=self.settings.gae_lambda,
        )

    # -- with memory -------------------------------------------------------------------------------------------------
    def _prepare_sequences(self, batch: Any, with_log_prob: bool) -> Prepared:
        """As `_prepare`; the network runs through each sequence from the state that was stored for its first step."""
        steps, rows = batch["reward"].shape
        sequences = split_rollout(batch["terminated"] | batch["truncated"], batch["state"], self.model.sequence)
        obs = by_environment(tree_map(lambda part: part[:steps], batch["obs"]))
        action = by_environment(batch["action"])
        mask = batch.get("mask")
        mask = None if mask is None else by_environment(mask)
        output, value, spread = self._unroll(obs, sequences)
        by_step = value.reshape(rows, steps).T
        advantage = by_environment(self._estimate(batch, by_step, self._next_values(batch, by_step)))
        log_prob = value
        if with_log_prob:
            log_prob, _, _ = self._head.evaluate(self._head.mask(output, mask), action, spread, False)
        return Prepared(obs, action, mask, log_prob, value, advantage, advantage + value, sequences)

    def _next_values(self, batch: Any, value: Array) -> Array:
        """Values of what each step truly led to. Where that is not the next row (at truncations and behind the last
        step) they come of two steps: from the state before, through the step, to the observation after it."""
        steps, rows = value.shape
        at, obs = np.arange((steps - 1) * rows, steps * rows), tree_map(lambda part: part[-1], batch["obs"])
        if len(batch["final_at"]):
            at = np.concatenate([at, batch["final_at"]])
            obs = tree_map(lambda *parts: np.concatenate(parts), obs, batch["final_obs"])
        before, state = (tree_map(lambda part: part[at // rows, at % rows], batch[name]) for name in ("obs", "state"))
        both, sequences = pairs(before, obs, state, len(at))
        found = self._unroll(both, sequences)[1][1::2]
        following = np.empty((steps, rows), value.dtype)
        following[:-1], following[-1] = value[1:], found[:rows]
        # A truncation at the last step counts, not the episode that began behind it.
        following.reshape(-1)[batch["final_at"]] = found[rows:]
        return following

    def _unroll(self, obs: Any, sequences: Sequences) -> tuple[Array, Array, Any]:
        """Logits or means, values, and the spread of continuous actions, without gradient."""
        with torch.no_grad(), self._modes.acting():
            output, value, hidden = self._unrolled(to_tensors(obs, self._device), sequences)
        spread = (to_array(hidden), self._log_std) if isinstance(self._head, StateGaussian) else self._log_std
        return to_array(output), to_array(value), spread

    def _unrolled(self, obs: Any, sequences: Sequences) -> Any:
        where = (to_tensors(one, self._device) for one in (sequences.state, sequences.place, sequences.at))
        return self.network.unroll(obs, *where)

    def _shuffled(self, data: Prepared, size: int) -> list[Array]:
        """Numbers of the rows of each minibatch, or of a policy with memory those of whole sequences."""
        if data.sequences is None:
            return self._in_parts(len(data), size)
        order = self._rng.permutation(len(data.sequences))
        parts = max(1, round(len(data) / size))
        part_of = (np.cumsum(data.sequences.length[order]) - 1) * parts // len(data)
        return np.split(order, np.flatnonzero(np.diff(part_of)) + 1)

    def _in_parts(self, rows: int, size: int) -> list[Array]:
        order = self._rng.permutation(rows)
        return [order[start : start + size] for start in range(0, rows, size)]

    def _apply_gradient(self, limit: float, rate: float) -> float:
        """One optimizer step with the gradient at hand; returns its norm."""
        norm = self._flat.clip_gradient(limit)
        if not np.isfinite(norm):
            raise DivergedError
        self.optimizer.step(rate)
        return norm

    def _torch_forward(self, part: Prepared) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
        """Log-probabilities, entropies and values of rows, with autograd."""
        policy, value, spread, mask = self._torch_output(part)
        log_prob, entropy = self._head.log_prob_and_entropy(policy, to_tensors(part.action, self._device), mask, spread)
        return log_prob, entropy, value

    def _torch_output(self, part: Prepared) -> tuple[torch.Tensor, torch.Tensor, Any, torch.Tensor | None]:
        """Logits or means of rows, values, the spread of continuous actions and the mask, with autograd."""
        obs = to_tensors(part.obs, self._device)
        if part.sequences is None:
            policy, value = self.network(obs)
            hidden = self.network.policy_features(obs) if isinstance(self._head, StateGaussian) else None
        else:
            policy, value, hidden = self._unrolled(obs, part.sequences)
        mask = None if part.mask is None else to_tensors(part.mask, self._device)
        spread: Any = self.network.log_std
        if isinstance(self._head, StateGaussian):
            spread = (hidden, spread)
        return policy, value, spread, mask

    def _fused_backward(
        self, kept: Any, log_prob_grad: Array, entropy_grad: float, value_grad: Array | None = None, valued: int = 0
    ) -> None:
        """All gradients from those of the loss by log-probability, entropy (a mean) and, if it has a part, value;
        `valued`: see `Prepared`, if the values are those of `values`."""
        assert self._actor is not None and self._critic is not None
        grad, spread = self._head.gradient(kept, log_prob_grad, entropy_grad)
        self._actor.backward(grad)
        if value_grad is not None:
            self._critic.backward(value_grad[:, None], 1 if valued else 0, of=valued or None)
        if self._log_std_grad is not None and spread is not None:
            self._log_std_grad[:] = spread

    # -- saving ------------------------------------------------------------------------------------------------------
    def state_dict(self) -> dict[str, Any]:
        return {
            "weights": self.weights(),
            "optimizer": self.optimizer.state_dict(),
            "rng": self._rng.bit_generator.state,
            "progress": self.progress,
            "module_rng": self._modes.state_dict(),
        }

    def load_state_dict(self, state: dict[str, Any]) -> None:
        self.load_weights(state["weights"])
        self.optimizer.load_state_dict(state["optimizer"])
        self._rng.bit_generator.state = state["rng"]
        self._modes.load_state_dict(state.get("module_rng", {}))
        self.progress = float(state["progress"])


def advantages(
    reward: Array,
    terminated: Array,
    truncated: Array,
    value: Array,
    next_value: Array,
    gamma: float,
    lam: float,
) -> Array:
    """Generalised advantage estimation (Schulman et al. 2016, equation 16), all arrays [T, N].

    ``next_value[t]`` is the value of the state that step t truly led to: at a truncation that of the last
    observation of the episode, so truncation bootstraps; at a termination it counts as zero.
    """
    delta = reward + gamma * next_value * (1.0 - terminated) - value
    carry = (gamma * lam) * (1.0 - (terminated | truncated))
    delta, carry = delta.astype(np.float32, copy=False), carry.astype(np.float32, copy=False)
    result = np.empty_like(delta)
    following = np.zeros_like(delta[0])
    for now, weight, out in zip(delta[::-1], carry[::-1], result[::-1], strict=True):
        np.multiply(weight, following, out=out)
        following = np.add(now, out, out=out)
    return result


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
