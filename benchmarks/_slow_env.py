"""An environment whose step takes a millisecond: of waiting, or of work."""

from __future__ import annotations

import time
from typing import Any

import gymnasium
import numpy as np

__all__ = ["Slow"]


class Slow(gymnasium.Env[Any, Any]):
    """Episodes of 100 steps; the reward is 1 where the action is the sign of the first number."""

    observation_space = gymnasium.spaces.Box(-1.0, 1.0, (4,), np.float32)
    action_space = gymnasium.spaces.Discrete(2)

    def __init__(self, seconds: float = 0.001, work: bool = False) -> None:
        self._seconds, self._work = seconds, work
        self._steps = 0
        self._obs = np.zeros(4, np.float32)

    def reset(self, *, seed: int | None = None, options: dict[str, Any] | None = None) -> tuple[Any, dict[str, Any]]:
        super().reset(seed=seed)
        self._steps = 0
        return self._draw(), {}

    def step(self, action: Any) -> tuple[Any, float, bool, bool, dict[str, Any]]:
        if self._work:
            end = time.thread_time() + self._seconds  # of this thread's own: others on the core do not count
            while time.thread_time() < end:
                pass
        else:
            time.sleep(self._seconds)
        reward = float(action == (self._obs[0] > 0))
        self._steps += 1
        return self._draw(), reward, False, self._steps >= 100, {}

    def _draw(self) -> Any:
        self._obs = self.np_random.uniform(-1.0, 1.0, 4).astype(np.float32)
        return self._obs
