"""Classic control tasks that do not tell velocities: what a policy needs memory for."""

from __future__ import annotations

from typing import Any, ClassVar

import numpy as np
from gymnasium import spaces

from operant.envs.classics import CartPole, MountainCarContinuous, Pendulum
from operant.envs.numpy_vector import NumpyVectorEnv
from operant.envs.vector import Array


class _Positions(NumpyVectorEnv):
    columns: ClassVar[tuple[int, ...]]
    """What is told of the whole observation."""
    limit: ClassVar[int]

    def __init__(self, num_envs: int = 1, **kwargs: Any) -> None:
        super().__init__(num_envs, **{"max_episode_steps": self.limit} | kwargs)
        whole: Any = self.single_observation_space
        told = list(self.columns)
        self.single_observation_space = spaces.Box(whole.low[told], whole.high[told], dtype=np.float32)

    def observe(self) -> Array:
        return np.ascontiguousarray(np.asarray(super().observe())[:, self.columns])  # type: ignore[safe-super]


class CartPolePositions(_Positions, CartPole):
    """CartPole-v1: the places of cart and pole."""

    columns, limit = (0, 2), 500


class PendulumPositions(_Positions, Pendulum):
    """Pendulum-v1: cosine and sine of the angle."""

    columns, limit = (0, 1), 200


class MountainCarContinuousPositions(_Positions, MountainCarContinuous):
    """MountainCarContinuous-v0: the place of the car."""

    columns, limit = (0,), 999
