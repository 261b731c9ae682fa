"""Observations and rewards brought to a common scale, by what has been seen so far."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
import numpy.typing as npt

Array = npt.NDArray[Any]
_LIMIT = 10.0


class RunningMoments:
    """Mean and variance of all rows so far (Chan et al. 1979, parallel update)."""

    def __init__(self, shape: tuple[int, ...]) -> None:
        self.mean = np.zeros(shape)
        self.variance = np.ones(shape)
        self.count = 1e-4

    def update(self, rows: Array) -> None:
        count = len(rows)
        mean, variance = rows.mean(axis=0), rows.var(axis=0)
        total = self.count + count
        delta = mean - self.mean
        self.variance = (
            np.asarray(self.variance * self.count + variance * count + np.square(delta) * (self.count * count / total))
            / total
        )
        self.mean = np.asarray(self.mean + delta * (count / total))
        self.count = total

    def state_dict(self) -> dict[str, Any]:
        return {"mean": np.array(self.mean), "variance": np.array(self.variance), "count": self.count}

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        mean, variance = np.array(state["mean"], float), np.array(state["variance"], float)
        if mean.shape != self.mean.shape or variance.shape != self.variance.shape:
            raise ValueError(
                f"scales of {mean.shape} and {variance.shape} do not fit observations of {self.mean.shape}"
            )
        self.mean, self.variance = mean, variance
        self.count = float(state["count"])


class Normalizer:
    """Scales rows of observations to mean 0 and deviation 1, rewards by the deviation of the discounted return."""

    def __init__(self, size: int, num_envs: int, gamma: float, *, obs: bool, reward: bool) -> None:
        self.obs_moments = RunningMoments((size,)) if obs else None
        self.return_moments = RunningMoments(()) if reward else None
        self._gamma = gamma
        self._returns = np.zeros(num_envs)

    def observe(self, obs: Array, learn: bool = True) -> Array:
        """Scaled observations [N, size]; while learning they count."""
        if self.obs_moments is None:
            return obs
        if learn:
            self.obs_moments.update(obs)
        scaled = (obs - self.obs_moments.mean) / np.sqrt(self.obs_moments.variance + 1e-8)
        return np.clip(scaled, -_LIMIT, _LIMIT).astype(np.float32)

    def reward(self, reward: Array, done: Array) -> Array:
        if self.return_moments is None:
            return reward
        self._returns = self._returns * self._gamma + reward
        self.return_moments.update(self._returns)
        scaled = np.clip(reward / np.sqrt(self.return_moments.variance + 1e-8), -_LIMIT, _LIMIT)
        self._returns[done] = 0.0
        return np.asarray(scaled)

    def state_dict(self) -> dict[str, Any]:
        return {
            "obs": None if self.obs_moments is None else self.obs_moments.state_dict(),
            "return": None if self.return_moments is None else self.return_moments.state_dict(),
            "returns": self._returns.copy(),
        }

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        if self.obs_moments is not None:
            self.obs_moments.load_state_dict(state["obs"])
        if self.return_moments is not None:
            self.return_moments.load_state_dict(state["return"])
            self._returns = state["returns"].copy()
