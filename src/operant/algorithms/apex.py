"""Distributed prioritised replay (Horgan et al. 2018, arXiv 1803.00933): many that act, each with its own exploration,
and one that learns from what matters most."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from operant.algorithms.contracts import Array
from operant.algorithms.ddpg import DDPG, DDPGSettings, DeterministicPolicy
from operant.algorithms.dqn import DQN, QPolicy
from operant.algorithms.dqn_settings import DQNSettings
from operant.errors import UsageError
from operant.settings import setting

_PRIORITIZED = "draw what was predicted badly more often; false: all alike"
_N_STEP = "rewards that a target sums up; more: what comes late is learned sooner, with more variance"


@dataclass(frozen=True)
class ApexDQNSettings(DQNSettings):
    """Settings of Ape-X DQN: those of DQN, double, dueling, with 3-step prioritised replay."""

    prioritized: bool = setting(True, _PRIORITIZED)
    n_step: int = setting(3, _N_STEP)
    dueling: bool = setting(True, "one head for the value of a state and one for what each action adds to it")
    epsilon: float = setting(0.4, "ε of the environment that explores most; larger: more random actions there")
    epsilon_power: float = setting(7.0, "α: the last environment has ε to the power of 1 + α; larger: it is greedier")

    def __post_init__(self) -> None:
        super().__post_init__()
        if not 0.0 < self.epsilon < 1.0 or self.epsilon_power < 0.0:
            raise UsageError("algorithm.epsilon lies between 0 and 1, algorithm.epsilon_power is 0 or more")


@dataclass(frozen=True)
class ApexDDPGSettings(DDPGSettings):
    """Settings of Ape-X DPG: those of DDPG, with 5-step prioritised replay."""

    prioritized: bool = setting(True, _PRIORITIZED)
    n_step: int = setting(5, _N_STEP)
    noise_spread: float = setting(
        2.0, "the first environment has so many times the noise, the last so many times less; larger: more varied data"
    )

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.noise == "parameter" or self.noise_spread < 1.0:
            raise UsageError("Ape-X DPG has noise on actions, a level for each environment; noise_spread is 1 or more")


# DI-engine's words for these are not read; its dqn's and ddpg's are.
ApexDQNSettings.di_engine = ApexDDPGSettings.di_engine = None  # type: ignore[assignment]


def levels(first: float, last: float, worker: int, workers: int, rows: int) -> Array:
    """Of a geometric ladder over the environments of all workers, the levels of this one's; one alone has the first."""
    place = (worker * rows + np.arange(rows)) / max(1, workers * rows - 1)
    return np.asarray(first * (last / first) ** place)


class ApexQPolicy(QPolicy):
    """Every environment has an ε of its own, which stays: ε^(1 + α i/(N−1))."""

    Settings = ApexDQNSettings
    settings: ApexDQNSettings
    may_remember = False
    _worker, _workers = 0, 1

    def explore_as(self, worker: int, workers: int) -> None:
        self._worker, self._workers = worker, workers

    def _explore(self, obs: Any, rng: np.random.Generator, rows: int, mask: Array | None, epsilon: Any) -> Array:
        if epsilon is None:
            first = self.settings.epsilon
            last = first ** (1.0 + self.settings.epsilon_power)
            epsilon = levels(first, last, self._worker, self._workers, rows)
        return super()._explore(obs, rng, rows, mask, epsilon)


class ApexDQN(ApexQPolicy, DQN):
    """DQN for many that act."""

    policy_class = ApexQPolicy


class ApexDeterministicPolicy(DeterministicPolicy):
    """Every environment has a size of noise of its own, which stays."""

    Settings = ApexDDPGSettings
    settings: ApexDDPGSettings
    _worker, _workers = 0, 1

    def explore_as(self, worker: int, workers: int) -> None:
        self._worker, self._workers = worker, workers

    def _explore(self, obs: Any, rng: np.random.Generator) -> Array:
        output, spread = self._output(obs), self.settings.noise_spread
        size = levels(spread, 1.0 / spread, self._worker, self._workers, len(output))
        noise = self._noise.draw(rng, len(output)) * size[:, None].astype(np.float32)
        return np.asarray(np.clip(output + noise, -1.0, 1.0))


class ApexDDPG(ApexDeterministicPolicy, DDPG):
    """DDPG for many that act."""

    policy_class = ApexDeterministicPolicy
