"""Learning by trying changes of the policy: augmented random search (Mania et al. 2018, arXiv 1803.07055) and evolution
strategies (Salimans et al. 2017, arXiv 1703.03864).

A candidate is two numbers, which direction and which side of it. Whoever knows the key makes the same direction of its
number, so that what goes between processes is the policy, these numbers, and one return for each.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from itertools import pairwise
from typing import Any

import numpy as np

from operant.algorithms.base import BaseAlgorithm
from operant.algorithms.bounds import check_bounds
from operant.algorithms.contracts import Actor, Array, DataSpec, Metrics
from operant.algorithms.errors import DivergedError
from operant.errors import UsageError
from operant.settings import setting

_KEPT = 256  # directions that are remembered: each is asked for whenever an episode ends


@dataclass(frozen=True)
class _EvolutionSettings:
    directions: int = setting(8, "directions of a round, each tried to both sides; more: a better step for more steps")
    noise: float = setting(0.03, "how far a candidate is from the policy; larger: looks further, sees less detail")
    learning_rate: float = setting(0.02, "step size; larger: faster, until it jumps about")
    survival: float = setting(
        0.0, "taken off the reward of each step, where it pays for staying alive; larger: standing still pays less"
    )
    linear: bool = setting(True, "a linear policy, as in the paper of ARS; false: the network that `model` describes")

    def __post_init__(self) -> None:
        check_bounds(self)
        if self.directions < 1 or not 0.0 < self.noise < math.inf:
            raise UsageError("algorithm.directions is at least 1, algorithm.noise a finite number above 0")


@dataclass(frozen=True)
class ARSSettings(_EvolutionSettings):
    """Settings of ARS; with env.normalize_obs it is the paper's V2, without V1."""

    best: int = setting(0, "directions that count, those with the best side, 0: all; fewer: less noise, less variety")

    def __post_init__(self) -> None:
        super().__post_init__()
        if not 0 <= self.best <= self.directions:
            raise UsageError(f"algorithm.best is {self.best}; of {self.directions} directions at most all can count")


@dataclass(frozen=True)
class ESSettings(_EvolutionSettings):
    """Settings of ES; the defaults are made for small networks."""

    directions: int = setting(32, "directions of a round, each tried to both sides; more: a better step for more steps")
    noise: float = setting(0.1, "how far a candidate is from the policy; larger: looks further, sees less detail")
    learning_rate: float = setting(0.05, "step size of Adam; larger: faster, until it jumps about")
    weight_decay: float = setting(0.005, "pull of all weights towards 0; larger: smaller weights, noise counts more")
    linear: bool = setting(False, "a linear policy; false: the network that `model` describes")


def ars_step(returns: Array, directions: Array, best: int) -> Array:
    """Σ (r₊ − r₋) δ / (b σ) over the b directions with the largest max(r₊, r₋), where σ is the deviation of the 2b
    returns that are used (algorithm 2 of the paper, lines 6 and 7); `returns` [D, 2], `directions` [D, P]."""
    used = np.argsort(-returns.max(axis=1), kind="stable")[:best]
    deviation = returns[used].std()
    if deviation == 0.0:
        return np.zeros(directions.shape[1])  # all alike: nothing is known of the way
    weighed = (returns[used, 0] - returns[used, 1]) @ directions[used]
    return np.asarray(weighed / (best * deviation))


def centred_ranks(returns: Array) -> Array:
    """Ranks from −½ to ½, so that only their order counts (section 2.1 of the paper of ES); equals share theirs."""
    values, place, count = np.unique(returns, return_inverse=True, return_counts=True)
    rank = np.cumsum(count) - (count + 1) / 2
    spread: Array = rank[place].reshape(returns.shape) / max(1, returns.size - 1) - 0.5
    return spread if len(values) > 1 else np.zeros_like(spread)


class _Evolution(BaseAlgorithm):
    """A policy as one row of numbers, tried with changes."""

    settings: Any

    @staticmethod
    def data_spec(settings: Any) -> DataSpec:
        return DataSpec("candidate", "fresh", ("candidate", "return", "length"), count=2 * settings.directions)

    def __init__(self, *args: Any, **options: Any) -> None:
        super().__init__(*args, **options)
        if not self.adapter.is_flat or self.model.has_own_modules:
            raise UsageError(
                f"{type(self).__name__} has networks of its own for observations that are rows of numbers; PPO takes "
                "pictures, dicts and modules"
            )
        hidden = () if self.settings.linear else self.model.hidden
        sizes = (self.adapter.size, *hidden, self.actions.outputs)
        self._shapes = list(pairwise(sizes))
        rng = np.random.default_rng([self.seed, 8])
        # Linear: from zero and without a bias, as in the paper; otherwise small random numbers for each layer.
        layers = [
            np.zeros(before * after)
            if self.settings.linear
            else np.concatenate([rng.normal(0.0, 1.0, before * after) / np.sqrt(before), np.zeros(after)])
            for before, after in self._shapes
        ]
        if not self.settings.linear:
            layers[-1] *= 0.01
        self.policy = np.concatenate(layers)
        self._key = self.seed
        self._number = 0  # directions drawn so far
        self._kept: dict[int, Array] = {}

    # -- acting ------------------------------------------------------------------------------------------------------
    def direction(self, number: int) -> Array:
        """The direction of a number: the same wherever it is made."""
        found = self._kept.get(number)
        if found is None:
            if len(self._kept) >= _KEPT:
                self._kept.clear()
            noise = np.random.Generator(np.random.Philox(key=[self._key, number]))
            found = self._kept[number] = noise.standard_normal(len(self.policy))
        return found

    def candidates(self, count: int, rng: np.random.Generator) -> Array:
        """Direction and side of each [count, 2]."""
        numbers = self._number + np.arange(count // 2)
        self._number += count // 2
        return np.stack([np.repeat(numbers, 2), np.tile([1, -1], count // 2)], axis=1)

    def candidate_actor(self, candidates: Array) -> Actor:
        noise = self.settings.noise
        return self._actor_of(
            np.stack([self.policy + side * noise * self.direction(int(number)) for number, side in candidates])
        )

    def actor(self, rng: np.random.Generator | None, steps: int, rows: int, *, epsilon: float | None = None) -> Actor:
        return self._actor_of(self.policy[None])

    def _actor_of(self, policies: Array) -> Actor:
        """What acts by a policy for each environment, or by one for all [1, P]."""
        layers, start = [], 0
        for before, after in self._shapes:
            end = start + before * after
            weight = policies[:, start:end].reshape(-1, before, after).astype(np.float32)
            bias = 0.0 if self.settings.linear else policies[:, end : end + after].astype(np.float32)
            layers.append((weight, bias))
            start = end + (0 if self.settings.linear else after)
        relu = self.model.activation == "relu"

        def act(obs: Any, mask: Array | None, _state: Any) -> tuple[Array, Array, dict[str, Any]]:
            output = obs
            for number, (weight, bias) in enumerate(layers):
                if number:
                    output = np.maximum(output, 0.0) if relu else np.tanh(output)
                output = np.matmul(output[:, None, :], weight)[:, 0] + bias
            if not self.actions.discrete:
                return self.actions.to_env(output), output, {}
            output = output if mask is None else np.where(mask, output, -np.inf)
            ends = np.cumsum(self.actions.sizes)
            chosen = [part.argmax(axis=1) for part in np.split(output, ends[:-1], axis=1)]
            action = chosen[0] if self.actions.shape == () else np.stack(chosen, axis=1)
            return action, action, {}

        return act

    # -- learning ----------------------------------------------------------------------------------------------------
    def learn(self, batch: Any) -> tuple[Metrics, None]:
        """A step from how candidates did: ``candidate`` [2D, 2], ``return`` and ``length`` [2D]."""
        sides = (batch["return"] - self.settings.survival * batch["length"]).reshape(-1, 2)
        directions = np.stack([self.direction(int(number)) for number, _ in batch["candidate"][::2]])
        step = self._step(sides, directions)
        if not np.isfinite(step).all():
            raise DivergedError
        self.policy = self.policy + step
        if not self.measure:
            return {}, None
        told = {"return": float(np.mean(batch["return"])), "return_max": float(np.max(batch["return"]))}
        return {**told, "step": float(np.linalg.norm(step)), "norm": float(np.linalg.norm(self.policy))}, None

    def _step(self, returns: Array, directions: Array) -> Array:
        raise NotImplementedError

    # -- saving ------------------------------------------------------------------------------------------------------
    def weights(self) -> dict[str, Array]:
        return {"policy": self.policy.copy(), "key": np.array(self._key)}

    def load_weights(self, weights: dict[str, Array]) -> None:
        self.policy = np.array(weights["policy"], np.float64)
        key = int(weights["key"].item())
        if key != self._key:
            self._key = key
            self._kept.clear()

    def state_dict(self) -> dict[str, Any]:
        return {**super().state_dict(), "number": self._number}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        super().load_state_dict(state)
        self._number = int(state["number"])


class ARS(_Evolution):
    """The best directions, weighed by the difference of their sides, over the deviation of the returns."""

    Settings = ARSSettings
    settings: ARSSettings

    def _step(self, returns: Array, directions: Array) -> Array:
        best = self.settings.best or len(returns)
        return self.settings.learning_rate * ars_step(returns, directions, best)


class ES(_Evolution):
    """All directions, weighed by ranks, and a step of Adam."""

    Settings = ESSettings
    settings: ESSettings

    def __init__(self, *args: Any, **options: Any) -> None:
        super().__init__(*args, **options)
        self._moments = np.zeros((2, len(self.policy)))
        self._steps = 0

    def _step(self, returns: Array, directions: Array) -> Array:
        ranks = centred_ranks(returns)
        gradient = (ranks[:, 0] - ranks[:, 1]) @ directions / (returns.size * self.settings.noise)
        gradient -= self.settings.weight_decay * self.policy
        self._steps += 1
        self._moments[0] += 0.1 * (gradient - self._moments[0])
        self._moments[1] += 0.001 * (np.square(gradient) - self._moments[1])
        mean, square = self._moments[0] / (1.0 - 0.9**self._steps), self._moments[1] / (1.0 - 0.999**self._steps)
        return np.asarray(self.settings.learning_rate * mean / (np.sqrt(square) + 1e-8))

    def state_dict(self) -> dict[str, Any]:
        return {**super().state_dict(), "moments": self._moments.copy(), "steps": self._steps}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        super().load_state_dict(state)
        self._moments, self._steps = np.array(state["moments"]), int(state["steps"])
