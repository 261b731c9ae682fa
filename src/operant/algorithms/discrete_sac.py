"""Soft actor-critic for one of n actions (Christodoulou 2019, arXiv 1910.07207): expectations over actions are sums."""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

import numpy as np
import torch
from torch import nn

from operant.algorithms._own_modules import SHOWN, show_module
from operant.algorithms.base import BaseAlgorithm, BasePolicy, refuse_epsilon
from operant.algorithms.contracts import Actor, Array, DataSpec, Metrics
from operant.algorithms.errors import DivergedError
from operant.algorithms.heads import Categorical
from operant.algorithms.off_policy import ContinuousPolicy, Followed
from operant.algorithms.q_functions import QFunction, can_fuse
from operant.algorithms.sac import SACSettings, ScalarAdam
from operant.errors import UsageError
from operant.models.builders import build_q_network
from operant.models.flat import FlatParameters, make_optimizer
from operant.models.loading import load_module_apart
from operant.models.observations import to_array
from operant.settings import setting

if TYPE_CHECKING:
    from gymnasium import Space

    from operant.models.spaces import ActionSpec

_NOTHING: dict[str, Any] = {}
_TARGET_SHARE = 0.89  # as CleanRL has it: with the 0.98 of the paper the policy hardly prefers anything


@dataclass(frozen=True)
class DiscreteSACSettings(SACSettings):
    """Settings of discrete SAC."""

    target_entropy: float | None = setting(
        None, "entropy that the temperature aims at, by default 0.89 of that of random actions; larger: more random"
    )


def softmax(logits: Array, mask: Array | None) -> tuple[Array, Array]:
    """Probabilities of actions and their logarithms; of those that are not allowed 0 and (for products) 0."""
    allowed = logits if mask is None else np.where(mask, logits, logits.dtype.type(-1e8))
    shifted = allowed - allowed.max(axis=1, keepdims=True)
    exponents = np.exp(shifted)
    total = exponents.sum(axis=1, keepdims=True)
    logs = shifted - np.log(total)
    return exponents / total, logs if mask is None else np.where(mask, logs, logs.dtype.type(0.0))


def policy_gradient(probability: Array, log: Array, q: Array, temperature: float) -> tuple[Array, Array]:
    """The loss of each row, Σ π (α log π − Q) (equation 12), and the gradient of its mean by the logits z: with
    f = α log π − Q it is ∂/∂z = π (f − Σ π f), since the logarithms' own gradients cancel."""
    worth = log.dtype.type(temperature) * log - q
    loss = (probability * worth).sum(axis=1)
    return loss, probability * (worth - loss[:, None]) / log.dtype.type(len(loss))


class CategoricalPolicy(BasePolicy):
    """Samples one of n actions by logits."""

    Settings = DiscreteSACSettings
    settings: DiscreteSACSettings
    default_model = ContinuousPolicy.default_model

    def __init__(self, *args: Any, **options: Any) -> None:
        super().__init__(*args, **options)
        if self.model.network is not None:
            raise UsageError("discrete_sac has two kinds of networks: model.actor and model.critic, no network")
        with torch.random.fork_rng(devices=[]):
            torch.manual_seed(self.seed)
            self.network = self._build(self.model.actor)
        self._fused = self.model.fused and self.model.critic is None and can_fuse(self.network, self.adapter)
        self._device = self._place(self.network, fused=self._fused)
        self._flat = FlatParameters(self.network)
        self._logits = QFunction(self.network, self._flat, self._fused, self._modes)
        self._head = Categorical(self.actions)
        self._steps = 0
        if self.model.actor is not None:
            show_module(self, "actor", self.network, (SHOWN, self.actions.outputs))

    def _actions_of(self, space: Space[Any]) -> ActionSpec:
        spec = super()._actions_of(space)
        if not spec.one_choice:
            raise UsageError(f"discrete_sac chooses one of n actions, not {space}; sac takes continuous ones")
        return spec

    def _build(self, own: Any) -> Any:
        return build_q_network(
            self.adapter, self.actions, replace(self.model, network=own, actor=None, critic=None), dueling=False
        )

    @staticmethod
    def data_spec(settings: DiscreteSACSettings) -> DataSpec:
        spec = ContinuousPolicy.data_spec(settings)
        return replace(spec, fields=(*spec.fields, "mask"))

    @property
    def path(self) -> str:
        return self._logits.path

    def set_progress(self, steps: int, total_steps: int) -> None:
        super().set_progress(steps, total_steps)
        self._steps = steps

    def actor(self, rng: np.random.Generator | None, steps: int, rows: int, *, epsilon: float | None = None) -> Actor:
        """Sampled actions, random ones before `learning_starts`; without a generator the most likely ones."""
        refuse_epsilon(epsilon or None)
        head = self._head
        noise = None if rng is None else iter(head.noise(rng, steps, rows))

        def act(obs: Any, mask: Array | None, _state: Any) -> tuple[Array, Array, dict[str, Any]]:
            logits = self._logits.values(obs)
            if rng is not None and epsilon is None and self._steps < self.settings.learning_starts:
                logits = np.zeros_like(logits)
            action = head.choose(head.mask(logits, mask), None if noise is None else next(noise))
            return action, action, _NOTHING

        return act


class DiscreteSAC(CategoricalPolicy, BaseAlgorithm):
    """Learns a random policy over n actions, with a temperature that weighs return against entropy.

    A batch is as for DQN, maybe with ``mask`` [B, A] beside ``next_mask``.
    """

    policy_class = CategoricalPolicy
    model_roles = (
        ("actor", "actor"),
        ("critic", "critic"),
        ("critic", "its target"),
        ("critic", "second critic"),
        ("critic", "its target"),
    )

    def __init__(self, *args: Any, **options: Any) -> None:
        super().__init__(*args, **options)
        settings = self.settings
        with torch.random.fork_rng(devices=[]):
            torch.manual_seed(self.seed + 1_000_003)  # numbers that the policy did not get
            self._critics, self._targets = (
                nn.ModuleList([self._build_critic() for _ in range(settings.critics)]) for _ in range(2)
            )
        self._place(self.network, self._critics, self._targets, fused=self._fused)
        if self.model.critic is not None:
            show_module(self, "critic", self._critics[0], (SHOWN, self.actions.outputs))
        self._logits = QFunction(self.network, self._flat, self._fused, self._modes)
        self._critic_flat, target_flat = FlatParameters(self._critics), FlatParameters(self._targets)
        self._q = [QFunction(one, self._critic_flat, self._fused, self._modes) for one in self._critics]  # type: ignore[arg-type]
        self._target_q = [QFunction(one, target_flat, self._fused, self._modes) for one in self._targets]  # type: ignore[arg-type]
        self._followed = Followed(self._critics, self._critic_flat, self._targets, target_flat)
        self._followed.move(1.0)
        self._actor_optimizer = make_optimizer(settings.optimizer, self._flat, 1e-8)
        self._critic_optimizer = make_optimizer(settings.optimizer, self._critic_flat, 1e-8)
        self._log_temperature = ScalarAdam(math.log(settings.temperature))
        self.entropy_limit = math.log(self.actions.outputs)
        self._updates = 0

    def _build_critic(self) -> Any:
        own = self.model.critic
        return self._build(None if own is None else load_module_apart(own, self.model.arguments))

    @property
    def beta(self) -> float:
        return self.settings.priority_beta + self.progress * (1.0 - self.settings.priority_beta)

    def optimized(self) -> dict[str, Any]:
        """Names of the optimizers, and the network that each of them steps."""
        return {"_actor_optimizer": self.network, "_critic_optimizer": self._critics}

    def learn(self, batch: Any) -> tuple[Metrics, Array | None]:
        """One gradient step of the critics and, in its turn, of the policy; new priorities are sizes of errors."""
        settings = self.settings
        self._updates += 1
        temperature = self._log_temperature.exponential
        target = self._next_values(batch, temperature)
        rows, action, weight = np.arange(len(target)), batch["action"].reshape(-1), batch.get("weight")
        errors = []
        self._critic_flat.grad_tensor.zero_()
        with self._modes.updating():
            for q in self._q:
                values, backward = q.evaluate(batch["obs"])
                error = values[rows, action] - target
                share = np.where(error < 0, np.float32(settings.increase_rate), np.float32(settings.decrease_rate))
                gradient = np.zeros_like(values)
                gradient[rows, action] = (
                    error * share * (1.0 if weight is None else weight) * np.float32(2.0 / len(target))
                )
                errors.append(np.abs(error))
                backward(gradient)
        size = np.mean(errors, axis=0)
        norm = self._critic_flat.clip_gradient(settings.max_gradient_norm)
        if not (math.isfinite(norm) and math.isfinite(size.max())):
            raise DivergedError
        self._critic_optimizer.step(settings.learning_rate)
        metrics: Metrics = {}
        if self._updates % settings.actor_every == 0:
            metrics = self._learn_policy(batch, temperature)
        if self._updates % settings.target_every == 0:
            self._followed.move(settings.target_rate)
        if not self.measure:
            return {}, size
        return {
            "q_loss": float(np.square(errors).mean(axis=1).sum()),
            "td_error": float(size.mean()),
            "gradient_norm": norm,
            "learning_rate": settings.learning_rate,
            "temperature": temperature,
            **metrics,
        }, size

    def _next_values(self, batch: Any, temperature: float) -> Array:
        """y = R + γⁿ Σ π(a) (min Q⁻(s′, a) − α log π(a)) (equations 9 and 10)."""
        obs = batch["next_obs"]
        probability, log = softmax(self._logits.values(obs), batch.get("next_mask"))
        least = np.min([q.values(obs) for q in self._target_q], axis=0)
        following = (probability * (least - log.dtype.type(temperature) * log)).sum(axis=1)
        discount = batch.get("discount")
        if discount is None:
            discount = np.float32(self.settings.gamma) * (1.0 - batch["terminated"])
        return np.asarray(batch["reward"] + discount * following, following.dtype)

    def _learn_policy(self, batch: Any, temperature: float) -> Metrics:
        settings = self.settings
        least = np.min([q.values(batch["obs"]) for q in self._q], axis=0)
        self._flat.grad_tensor.zero_()
        with self._modes.updating():
            logits, backward = self._logits.evaluate(batch["obs"])
            probability, log = softmax(logits, batch.get("mask"))
            loss, gradient = policy_gradient(probability, log, least, temperature)
            backward(gradient)
        entropy = -float((probability * log).sum(axis=1).mean())
        if not math.isfinite(self._flat.clip_gradient(settings.max_gradient_norm)):
            raise DivergedError
        rate = settings.actor_learning_rate
        self._actor_optimizer.step(settings.learning_rate if rate is None else rate)
        if settings.learn_temperature:
            rate = settings.temperature_rate
            aim = self._target_entropy(batch.get("mask"))
            self._log_temperature.step(entropy - aim, settings.learning_rate if rate is None else rate)
        return {"policy_loss": float(loss.mean()), "entropy": entropy, "q_mean": float(least.mean())}

    def _target_entropy(self, mask: Array | None) -> float:
        if self.settings.target_entropy is not None:
            return self.settings.target_entropy
        # What is attainable where only some actions are allowed: with more the temperature would grow without end.
        limit = (
            math.log(self.actions.outputs) if mask is None else float(np.log(np.maximum(mask.sum(axis=1), 1)).mean())
        )
        return _TARGET_SHARE * limit

    def state_dict(self) -> dict[str, Any]:
        return {
            "weights": self.weights(),
            "critics": self._critic_flat.tensor.cpu().numpy().copy(),
            "targets": self._followed.target_flat.tensor.cpu().numpy().copy(),
            "buffers": [_buffers(one) for one in (self._critics, self._targets)],
            "optimizer": {"actor": self._actor_optimizer.state_dict(), "critics": self._critic_optimizer.state_dict()},
            "log_temperature": self._log_temperature.state_dict(),
            "progress": self.progress,
            "steps": self._steps,
            "updates": self._updates,
            "module_rng": self._modes.state_dict(),
        }

    def load_state_dict(self, state: dict[str, Any]) -> None:
        self.load_weights(state["weights"])
        self._critic_flat.tensor.copy_(torch.as_tensor(state["critics"]))
        self._followed.target_flat.tensor.copy_(torch.as_tensor(state["targets"]))
        for module, buffers in zip((self._critics, self._targets), state.get("buffers", ({}, {})), strict=True):
            module.load_state_dict(
                {name: torch.as_tensor(np.array(one)) for name, one in buffers.items()}, strict=False
            )
        self._actor_optimizer.load_state_dict(state["optimizer"]["actor"])
        self._critic_optimizer.load_state_dict(state["optimizer"]["critics"])
        self._log_temperature = ScalarAdam(**state["log_temperature"])
        self.progress = float(state["progress"])
        self._steps, self._updates = int(state["steps"]), int(state["updates"])
        self._modes.load_state_dict(state["module_rng"])


def _buffers(module: nn.Module) -> dict[str, Array]:
    """What modules of the user's own keep beside parameters, such as the means of a BatchNorm."""
    return {name: to_array(value).copy() for name, value in module.named_buffers()}
