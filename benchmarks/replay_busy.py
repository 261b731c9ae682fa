"""An environment whose step takes a given time, for `replay.py` to find out when worker processes pay."""

from __future__ import annotations

import time
from typing import Any

import gymnasium
import numpy as np


class Busy(gymnasium.Env[Any, Any]):
    observation_space = gymnasium.spaces.Box(-1, 1, (17,), np.float32)
    action_space = gymnasium.spaces.Discrete(2)

    def __init__(self, micros: float) -> None:
        self.seconds = micros / 1e6
        self.obs = np.zeros(17, np.float32)

    def reset(self, *, seed: int | None = None, options: Any = None) -> tuple[Any, dict[str, Any]]:
        super().reset(seed=seed)
        return self.obs, {}

    def step(self, action: Any) -> tuple[Any, float, bool, bool, dict[str, Any]]:
        end = time.thread_time() + self.seconds  # work, not waiting: it takes longer where cores are busy
        while time.thread_time() < end:
            pass
        return self.obs, 0.0, False, False, {}
