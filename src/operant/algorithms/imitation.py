"""Learning from recorded episodes: behaviour cloning, and GAIL (Ho and Ermon 2016, arXiv 1606.03476)."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import torch
from torch import nn

from operant.algorithms.base import recorded_actions
from operant.algorithms.bounds import check_bounds
from operant.algorithms.contracts import Array, DataSpec, Metrics
from operant.algorithms.dialects import Rule, same
from operant.algorithms.errors import DivergedError
from operant.algorithms.on_policy import ActorCriticPolicy, OnPolicy, Prepared
from operant.algorithms.ppo import PPO, PPOSettings
from operant.algorithms.trpo import TRPO, TRPOSettings
from operant.data.batches import read_recorded
from operant.data.trees import tree_map
from operant.errors import UsageError
from operant.models.builders import build_critics
from operant.models.flat import FlatParameters, make_optimizer
from operant.models.observations import to_array, to_tensors
from operant.settings import setting

_EXPERT = "recorded transitions to learn from: a file as `operant record` writes it, or minari:NAME"


@dataclass(frozen=True)
class BCSettings:
    """Settings of behaviour cloning."""

    expert: str = setting("", _EXPERT)
    batch: int = setting(64, "transitions of one gradient step; larger: less noise in the gradient, more time")
    updates: int = setting(10, "gradient steps of a round, each of which counts as a step of the training")
    learning_rate: float = setting(1e-3, "step size; larger: faster, until it does not settle")
    entropy_weight: float = setting(0.0, "weight of the entropy bonus; larger: less sure where little was recorded")
    max_gradient_norm: float = setting(10.0, "limit of the norm of the gradient; smaller: steadier, slower")
    gamma: float = setting(0.99, "discount, which only the scale of rewards needs")
    optimizer: str = setting("adam", "adam, or rmsprop: without momentum")
    optimizer_eps: float = setting(1e-8, "ε of the optimizer; larger: smaller steps where gradients are tiny")

    def __post_init__(self) -> None:
        check_bounds(self)
        if min(self.batch, self.updates) < 1:
            raise UsageError("behaviour cloning needs batch and updates from 1 up")


class ClonedPolicy(ActorCriticPolicy):
    """A policy as PPO has it."""

    Settings = BCSettings
    settings: BCSettings  # type: ignore[assignment]
    may_remember = False

    @staticmethod
    def data_spec(settings: Any) -> DataSpec:
        fields = ("obs", "action", "reward", "terminated", "truncated", "next_obs")
        return DataSpec(
            "step",
            "dataset",
            fields,
            gamma=settings.gamma,
            batch=settings.batch,
            updates=settings.updates,
            path=settings.expert,
        )


class BC(ClonedPolicy, OnPolicy):
    """Makes the recorded actions likely: −E[log π(a|s)]. The value network stays as it is.

    A batch has ``obs`` and ``action`` [B, …].
    """

    policy_class = ClonedPolicy
    takes_scaled = False

    def learn(self, batch: Any) -> tuple[Metrics, None]:
        settings = self.settings
        action = np.asarray(batch["action"])
        action = action.reshape(len(action), *(() if self.actions.shape == () else (-1,)))
        mask, nothing = batch.get("mask"), np.zeros(len(action), np.float32)
        if self._actor is not None:
            output = self._head.mask(self._actor.forward(batch["obs"]), mask)
            log_prob, entropy, kept = self._head.evaluate(output, action, self._spread(batch["obs"], 0))
            even = np.full(len(action), -1.0 / len(action), np.float32)
            self._fused_backward(kept, even, -settings.entropy_weight / len(action))
        else:
            data = Prepared(batch["obs"], action, mask, nothing, nothing, nothing, nothing)
            with self._modes.updating():
                log_probs, entropies, _ = self._torch_forward(data)
                self._flat.grad_tensor.zero_()
                (-log_probs.mean() - settings.entropy_weight * entropies.mean()).backward()  # type: ignore[no-untyped-call]
            log_prob, entropy = to_array(log_probs), to_array(entropies)
        norm = self._apply_gradient(settings.max_gradient_norm, settings.learning_rate)
        if not self.measure:
            return {}, None
        return {
            "policy_loss": -float(log_prob.mean()),
            "entropy": float(np.mean(entropy)),
            "gradient_norm": norm,
            "learning_rate": settings.learning_rate,
        }, None


@dataclass(frozen=True)
class _Imitation:
    """What GAIL has beside the settings of what it learns the policy with."""

    expert: str = setting("", _EXPERT)
    discriminator_updates: int = setting(
        16, "gradient steps of the discriminator for each rollout; more: it tells sooner, and the policy may not follow"
    )
    discriminator_batch: int = setting(256, "rows of each side in one of them; larger: less noise, more time")
    discriminator_rate: float = setting(3e-4, "step size of the discriminator; larger: tells apart sooner")

    def __post_init__(self) -> None:
        super().__post_init__()  # type: ignore[misc]
        if min(self.discriminator_updates, self.discriminator_batch) < 1:
            raise UsageError("GAIL needs discriminator_updates and discriminator_batch from 1 up")


@dataclass(frozen=True)
class GAILSettings(_Imitation, PPOSettings):
    """Settings of GAIL over PPO."""


@dataclass(frozen=True)
class TrustRegionGAILSettings(_Imitation, TRPOSettings):
    """Settings of GAIL over TRPO."""


_MACHIN = (
    same("expert_trajectory_path", "expert"),
    same("discriminator_update_times", "discriminator_updates"),
    same("discriminator_learning_rate", "discriminator_rate"),
    # The whole file is kept.
    Rule(("expert_replay_size",), (), lambda given: {}, lambda settings: {"expert_replay_size": 500_000}),
)
_MACHIN_OWN = {
    "expert_trajectory_path": "trajectory.data",
    "discriminator_update_times": 1,
    "discriminator_learning_rate": 1e-3,
    "discriminator_batch": 100,
    "expert_replay_size": 500_000,
}
for _settings, _policy in ((GAILSettings, PPOSettings.machin), (TrustRegionGAILSettings, TRPOSettings.machin)):
    _settings.machin = replace(_policy, rules=(*_policy.rules, *_MACHIN), own={**_policy.own, **_MACHIN_OWN})
    # DI-engine's GAIL is a reward model beside a policy, which its configs say elsewhere.
    _settings.di_engine = None  # type: ignore[assignment]


def discriminator_loss(expert: torch.Tensor, policy: torch.Tensor) -> torch.Tensor:
    """Equation 15 of the paper with the sides changed: −E_E[log D] − E_π[log(1 − D)], D = σ(logit) for the expert."""
    return nn.functional.softplus(-expert).mean() + nn.functional.softplus(policy).mean()


class _Imitating(OnPolicy):
    """Learns a discriminator between the expert's steps and its own, and from rewards that say how alike they are."""

    takes_scaled = False
    may_remember = False
    settings: Any

    def __init__(self, *args: Any, **options: Any) -> None:
        super().__init__(*args, **options)
        if not self.settings.expert:
            raise UsageError(
                "GAIL learns from recorded episodes: algorithm.expert=FILE, or expert_trajectory_path in a config of "
                "Machin's (`operant record RUN` makes the file)"
            )
        recorded = read_recorded(
            self.settings.expert,
            self.adapter.adapt_recorded,
            lambda action: self._as_input(recorded_actions(self, action)),
        )
        self._expert = recorded["obs"], recorded["action"]
        with torch.random.fork_rng(devices=[]):
            torch.manual_seed(self.seed + 1_000_003)
            plain = replace(self.model, network=None, actor=None, critic=None, recurrent="")
            self._discriminator = build_critics(self.adapter, self._expert[1].shape[1], plain, 1).to(self._device)
        self._discriminator_flat = FlatParameters(self._discriminator)
        self._discriminator_optimizer = make_optimizer("adam", self._discriminator_flat, 1e-8)
        self._discriminator_rng = np.random.default_rng([self.seed, 2])

    @staticmethod
    def data_spec(settings: Any) -> DataSpec:
        spec = OnPolicy.data_spec(settings)
        return replace(spec, fields=tuple(name for name in spec.fields if name != "reward"))

    def _as_input(self, action: Array) -> Array:
        """Actions as the discriminator takes them: numbers, or ones where an option was chosen."""
        if not self.actions.discrete:
            return np.asarray(action, np.float32).reshape(len(action), -1)
        columns = np.asarray(action, np.int64).reshape(len(action), -1)
        each = [
            np.eye(size, dtype=np.float32)[column] for size, column in zip(self.actions.sizes, columns.T, strict=True)
        ]
        return np.concatenate(each, axis=1)

    def learn(self, batch: Any) -> tuple[Metrics, None]:
        """Update the discriminator, then the policy from a rollout with its rewards; see `OnPolicy` for the keys."""
        if "advantage" in batch:
            raise UsageError("GAIL makes its own rewards: let `learn` estimate advantages")
        given = {name: batch[name] for name in self.data.fields}
        steps, rows = given["terminated"].shape
        obs = tree_map(lambda part: part[:steps].reshape(-1, *part.shape[2:]), given["obs"])
        action = self._as_input(given["action"].reshape(steps * rows, *given["action"].shape[2:]))
        found = self._learn_discriminator(obs, action)
        given["reward"] = self._rewards(obs, action).reshape(steps, rows)
        metrics, _ = super().learn(given)  # type: ignore[misc]
        return ({**metrics, **found} if self.measure else {}), None

    def _learn_discriminator(self, obs: Any, action: Array) -> Metrics:
        settings, rng = self.settings, self._discriminator_rng
        sides = [torch.zeros(1), torch.zeros(1)]
        loss = torch.zeros(())
        for _ in range(settings.discriminator_updates):
            for side, (seen, done) in enumerate((self._expert, (obs, action))):
                index = rng.integers(len(done), size=settings.discriminator_batch)
                sides[side] = self._logits(tree_map(lambda part, index=index: part[index], seen), done[index])
            loss = discriminator_loss(*sides)
            self._discriminator_flat.grad_tensor.zero_()
            loss.backward()  # type: ignore[no-untyped-call]
            self._discriminator_optimizer.step(settings.discriminator_rate)
        if not torch.isfinite(loss):
            raise DivergedError
        if not self.measure:
            return {}
        expert, policy = (float((side > 0).float().mean()) for side in sides)
        return {"discriminator_loss": loss.item(), "expert_seen": expert, "policy_taken_for_expert": policy}

    def _logits(self, obs: Any, action: Array) -> torch.Tensor:
        logits: torch.Tensor = self._discriminator(to_tensors(obs, self._device), to_tensors(action, self._device))[0]
        return logits

    def _rewards(self, obs: Any, action: Array) -> Array:
        """−log(1 − D): above 0, and the larger the more a step looks like the expert's."""
        with torch.no_grad():
            return to_array(nn.functional.softplus(self._logits(obs, action)))

    def state_dict(self) -> dict[str, Any]:
        return {
            **super().state_dict(),
            "discriminator": self._discriminator_flat.tensor.cpu().numpy().copy(),
            "discriminator_optimizer": self._discriminator_optimizer.state_dict(),
            "discriminator_rng": self._discriminator_rng.bit_generator.state,
        }

    def load_state_dict(self, state: dict[str, Any]) -> None:
        super().load_state_dict(state)
        self._discriminator_flat.tensor.copy_(torch.as_tensor(state["discriminator"]))
        self._discriminator_optimizer.load_state_dict(state["discriminator_optimizer"])
        self._discriminator_rng.bit_generator.state = state["discriminator_rng"]


class _GAILPolicy(ActorCriticPolicy):
    """What acts of both: it needs no recorded episodes."""

    may_remember = False
    data_spec = staticmethod(_Imitating.data_spec)


class GAIL(_Imitating, PPO):
    """Learns to do as was recorded: PPO on what a discriminator says."""

    Settings = GAILSettings
    policy_class = _GAILPolicy


class TrustRegionGAIL(_Imitating, TRPO):
    """Learns to do as was recorded: TRPO, as in the paper, on what a discriminator says."""

    Settings = TrustRegionGAILSettings
    policy_class = _GAILPolicy
