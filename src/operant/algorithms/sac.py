"""Soft actor-critic (Haarnoja et al. 2018, arXiv 1812.05905): as much return as possible, as randomly as possible."""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import torch
from torch import nn

from operant.algorithms._sac_sequences import SequenceLearning
from operant.algorithms.contracts import Actor, Array, Metrics
from operant.algorithms.dialects import same
from operant.algorithms.off_policy import ContinuousPolicy, OffPolicy
from operant.algorithms.off_policy_settings import OffPolicySettings, di_engine_words
from operant.errors import UsageError
from operant.models.builders import (
    PolicyNetwork,
    StateNoiseNetwork,
    build_memory,
    build_policy,
    build_recurrent_policy,
)
from operant.models.observations import to_array, to_tensors
from operant.models.recurrent import OwnRecurrentPolicyNetwork, RecurrentPolicyNetwork, remembers
from operant.settings import setting

_HALF_LOG_2PI = 0.5 * math.log(2.0 * math.pi)
_LARGEST_POWER = 709.0  # of e as a float
_LOG_STD = (-20.0, 2.0)  # bounds of the logarithm of the deviation, as in the authors' code


@dataclass(frozen=True)
class SACSettings(OffPolicySettings):
    """Settings of SAC."""

    temperature: float = setting(
        1.0, "worth of the entropy beside the return, at first or (not learned) always; larger: more random actions"
    )
    learn_temperature: bool = setting(
        True, "let it become what the target entropy needs: no search over it; false: it stays"
    )
    target_entropy: float | None = setting(
        None, "entropy that the temperature aims at, by default minus the number of actions; larger: more random"
    )
    temperature_rate: float | None = setting(
        None, "step size of the temperature, by default learning_rate; larger: it follows faster, less steadily"
    )

    def __post_init__(self) -> None:
        super().__post_init__()
        if not 0.0 < self.temperature < math.inf:
            raise UsageError(f"algorithm.temperature is {self.temperature}; it must be a finite number above 0")


SACSettings.di_engine = di_engine_words(
    "policy.learn.learning_rate_q",
    "policy.learn.learning_rate_policy",
    {
        "policy.learn.alpha": "algorithm.temperature",
        "policy.learn.auto_alpha": "algorithm.learn_temperature",
        "policy.learn.learning_rate_alpha": "algorithm.temperature_rate",
        "policy.learn.target_entropy": "algorithm.target_entropy",
    },
    {
        "policy.random_collect_size": 10_000,
        "policy.model.twin_critic": True,
        "policy.learn.learning_rate_q": 3e-4,
        "policy.learn.learning_rate_policy": 3e-4,
        "policy.learn.learning_rate_alpha": 3e-4,
        "policy.learn.alpha": 0.2,
    },
    # SAC explores by its own noise, has no network for V, and learns the logarithm of the temperature.
    ("policy.collect.noise_sigma", "policy.learn.value_network", "policy.learn.log_space"),
)
SACSettings.machin = replace(
    OffPolicySettings.machin,
    rules=(
        *OffPolicySettings.machin.rules,
        same("target_entropy", "target_entropy"),
        same("initial_entropy_alpha", "temperature"),
        same("alpha_learning_rate", "temperature_rate"),
    ),
    own={
        **OffPolicySettings.machin.own,
        "update_rate": 0.005,
        "target_entropy": None,
        "initial_entropy_alpha": 1.0,
        "alpha_learning_rate": 1e-3,
    },
)


def squashed_log_prob(noise: torch.Tensor, log_std: torch.Tensor, before: torch.Tensor) -> torch.Tensor:
    """log π of a = tanh(u), u = μ + σ ε (appendix C): Σ log N(ε)/σ − log(1 − tanh² u), the last in a form that does
    not run out of digits, log(1 − tanh² u) = 2 (log 2 − u − softplus(−2u))."""
    normal = -0.5 * noise.square() - log_std - _HALF_LOG_2PI
    return (normal - 2.0 * (math.log(2.0) - before - nn.functional.softplus(-2.0 * before))).sum(dim=1)


def sample_squashed(output: Array, noise: Array) -> tuple[Array, Array, Array]:
    """Actions, their log-probability (as `squashed_log_prob`) and σ, from means and log σ side by side."""
    size = noise.shape[1]
    log_std = np.minimum(np.maximum(output[:, size:], _LOG_STD[0]), _LOG_STD[1])
    std = np.exp(log_std)
    before = output[:, :size] + std * noise
    # log(1 − tanh² u) = 2 (log 2 − |u| − log(1 + exp(−2|u|)))
    far = np.abs(before)
    normal = -0.5 * np.square(noise) - log_std + 2.0 * (far + np.log1p(np.exp(-2.0 * far)))
    log_prob = normal.sum(axis=1) - normal.dtype.type(size * (_HALF_LOG_2PI + 2.0 * math.log(2.0)))
    return np.tanh(before), log_prob, std


def squashed_gradient(
    output: Array, noise: Array, action: Array, std: Array, by_action: Array, temperature: float
) -> Array:
    """The gradient of E[α log π(a) − Q(a)] by means and log σ, given ∂Q/∂a: with a = tanh(u), ∂log π/∂u is 2a."""
    rows, size = noise.shape
    kind = output.dtype.type
    gradient = np.empty_like(output)
    by_before = gradient[:, :size]
    np.multiply(action, kind(2.0 * temperature), out=by_before)
    by_before -= by_action * (1.0 - np.square(action))
    by_before *= kind(1.0 / rows)
    by_log_std = by_before * std * noise - kind(temperature / rows)
    raw = output[:, size:]
    gradient[:, size:] = by_log_std * ((raw >= _LOG_STD[0]) & (raw <= _LOG_STD[1]))
    return gradient


class SquashedGaussianPolicy(ContinuousPolicy):
    """Normal distributions pressed between −1 and 1 by tanh; mean and deviation are functions of the observation."""

    Settings = SACSettings
    settings: SACSettings
    may_remember = True

    def __init__(self, *args: Any, **options: Any) -> None:
        super().__init__(*args, **options)
        self._matrix: Array | None = None  # E of each environment [N, F, A], and how many steps it was used
        self._matrix_steps = 0

    def _build(self) -> PolicyNetwork | RecurrentPolicyNetwork | OwnRecurrentPolicyNetwork:
        network: Any
        if self.model.recurrent:
            network = build_recurrent_policy(self.adapter, self.outputs, self.model)
        else:
            network = build_policy(self.adapter, self._size if self.model.state_noise else self.outputs, self.model)
            if remembers(network.actor):
                if self.model.critic is not None:
                    raise UsageError("beside a model.actor with initial_state the critics are built: no model.critic")
                network = OwnRecurrentPolicyNetwork(network.actor, build_memory(self.adapter, self.model))
        if not self.model.state_noise:
            return network  # type: ignore[no-any-return]
        if isinstance(network, RecurrentPolicyNetwork | OwnRecurrentPolicyNetwork):
            raise UsageError("model.state_noise is not for SAC with memory: leave one of the two")
        return StateNoiseNetwork(network, self._size, float(self.model.log_std))

    @property
    def outputs(self) -> int:
        return 2 * self._size

    def _best(self, output: Array) -> Array:
        return np.asarray(np.tanh(output[:, : self._size]))

    def actor(self, rng: np.random.Generator | None, steps: int, rows: int, *, epsilon: float | None = None) -> Actor:
        if rng is not None and not self.model.state_noise_steps:
            self._matrix = None  # a new one for each rollout
        return super().actor(rng, steps, rows, epsilon=epsilon)

    def _explore(self, obs: Any, rng: np.random.Generator) -> Array:
        output = self._output(obs)
        if self.model.state_noise:
            return np.asarray(np.tanh(output[:, : self._size] + self._state_noise(obs, rng)))
        return self._sampled(output, rng)

    def _sampled(self, output: Array, rng: np.random.Generator) -> Array:
        mean = output[:, : self._size]
        log_std = np.minimum(np.maximum(output[:, self._size :], _LOG_STD[0]), _LOG_STD[1])
        return np.asarray(np.tanh(mean + np.exp(log_std) * rng.standard_normal(mean.shape, dtype=np.float32)))

    def _state_noise(self, obs: Any, rng: np.random.Generator) -> Array:
        """f(s) E; the matrix stays for some steps."""
        with torch.no_grad(), self._modes.acting():
            features = to_array(self.network.features(to_tensors(obs, self._device)))
        shape = (len(features), features.shape[1], self._size)
        used_up = self.model.state_noise_steps and self._matrix_steps >= self.model.state_noise_steps
        if self._matrix is None or self._matrix.shape != shape or used_up:
            self._matrix, self._matrix_steps = rng.standard_normal(shape, dtype=np.float32), 0
        self._matrix_steps += 1
        weights = self._matrix * np.exp(to_array(self.network.log_std))
        return np.asarray(np.einsum("nf,nfa->na", features, weights))


class SAC(SequenceLearning, SquashedGaussianPolicy, OffPolicy):
    """Learns a random policy whose actions have much value and entropy, with a temperature that weighs the two."""

    policy_class = SquashedGaussianPolicy
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
        self._log_temperature = ScalarAdam(math.log(settings.temperature))
        self._target_entropy = -float(self._size) if settings.target_entropy is None else settings.target_entropy
        self._drawn: tuple[Array, ...] = ()  # of the policy for the batch at hand: see `_fused_next_value`

    @property
    def _temperature(self) -> float:
        return self._log_temperature.exponential

    def learn(self, batch: Any) -> tuple[Metrics, Array | None]:
        return self._learn_from_sequences(batch) if self._remembers else super().learn(batch)

    def _draw(self, rows: int) -> Array:
        return self._rng.standard_normal((rows, self._size), dtype=np.float32)

    def _sample(self, output: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        """Actions and their log-probabilities, with a gradient (reparametrised)."""
        mean, log_std = output[:, : self._size], output[:, self._size :].clamp(*_LOG_STD)
        noise = to_tensors(self._draw(len(output)), self._device)
        before = mean + log_std.exp() * noise
        return torch.tanh(before), squashed_log_prob(noise, log_std, before)

    def _next_value(self, next_obs: Any) -> torch.Tensor:
        """Equation 3: min Q⁻(s′, a′) − α log π(a′|s′)."""
        action, log_prob = self._sample(self.network(next_obs))
        return self._target_critics(next_obs, action).amin(dim=0) - self._temperature * log_prob  # type: ignore[no-any-return]

    def _actor_loss(self, obs: Any) -> tuple[torch.Tensor, Any]:
        """Equation 7: E[α log π(a|s) − min Q(s, a)]."""
        action, log_prob = self._sample(self.network(obs))
        temperature = self._temperature
        entropy = -float(log_prob.detach().mean())
        self._learn_temperature(entropy)
        loss = (temperature * log_prob - self._critics(obs, action).amin(dim=0)).mean()
        return loss, lambda: {"entropy": entropy, "temperature": temperature}

    def _fused_next_value(self, batch: Any) -> Array:
        assert self._actor is not None
        next_obs = batch["next_obs"]
        rows = len(next_obs)
        # The policy is the same until its own step at the end of an update, so what that will need is computed along.
        obs = np.concatenate((next_obs, batch["obs"])) if self._actor_is_due else next_obs
        output, noise = self._actor.forward(obs), self._draw(len(obs))
        action, log_prob, std = sample_squashed(output, noise)
        self._drawn = tuple(part[rows:] for part in (output, noise, action, log_prob, std))
        q = self._target_q.forward(next_obs, action[:rows]).min(axis=0)
        return np.asarray(q - np.float32(self._temperature) * log_prob[:rows])

    def _fused_actor_gradient(self, obs: Array) -> Metrics:
        assert self._q is not None and self._actor is not None
        output, noise, action, log_prob, std = self._drawn
        q, by_action = self._q.least(obs, action)
        temperature = self._temperature
        entropy = -float(log_prob.mean())
        self._learn_temperature(entropy)
        gradient = squashed_gradient(output, noise, action, std, by_action, temperature)
        self._actor.backward(gradient, first=len(obs), of=2 * len(obs))
        if not self.measure:
            return {}
        loss = temperature * -entropy - float(q.mean())
        return {"policy_loss": loss, "entropy": entropy, "temperature": temperature}

    def _learn_temperature(self, entropy: float) -> None:
        """Equation 18 by log α, as in the authors' code: ∂/∂log α of E[−log α (log π + H̄)] is H − H̄."""
        settings = self.settings
        if settings.learn_temperature:
            rate = settings.learning_rate if settings.temperature_rate is None else settings.temperature_rate
            self._log_temperature.step(entropy - self._target_entropy, rate)

    def state_dict(self) -> dict[str, Any]:
        noise = {"matrix": self._matrix, "steps": self._matrix_steps}
        return {**super().state_dict(), "log_temperature": self._log_temperature.state_dict(), "state_noise": noise}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        super().load_state_dict(state)
        self._log_temperature = ScalarAdam(**state["log_temperature"])
        noise = state.get("state_noise", {"matrix": None, "steps": 0})
        self._matrix, self._matrix_steps = noise["matrix"], int(noise["steps"])


class ScalarAdam:
    """Adam of one number (Kingma and Ba 2015, algorithm 1)."""

    def __init__(self, value: float, mean: float = 0.0, square: float = 0.0, count: int = 0) -> None:
        self.value, self._mean, self._square, self._count = value, mean, square, count

    @property
    def exponential(self) -> float:
        """e to its power; infinite where no number is as large, which makes the next loss one that is refused."""
        return math.exp(self.value) if self.value < _LARGEST_POWER else math.inf

    def step(self, gradient: float, rate: float) -> None:
        if not math.isfinite(gradient):
            return  # the loss that it is part of is refused
        self._count += 1
        self._mean += 0.1 * (gradient - self._mean)
        self._square += 0.001 * (gradient * gradient - self._square)
        mean = self._mean / (1.0 - 0.9**self._count)
        self.value -= rate * mean / (math.sqrt(self._square / (1.0 - 0.999**self._count)) + 1e-8)

    def state_dict(self) -> Metrics:
        return {"value": self.value, "mean": self._mean, "square": self._square, "count": self._count}
