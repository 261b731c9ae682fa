"""An environment that goes slowly for as long as a test has something to do with the training."""

from __future__ import annotations

import time
from pathlib import Path
from typing import Any

from operant.envs.classics import CartPole
from operant.envs.vector import Array


class PacedCartPole(CartPole):
    """CartPole-v1; a step takes 20 ms more while the file ``slow_while`` exists."""

    def __init__(self, num_envs: int = 1, *, slow_while: str, **kwargs: Any) -> None:
        super().__init__(num_envs, max_episode_steps=500, **kwargs)
        self._slow_while = Path(slow_while)

    def advance(self, actions: Array) -> tuple[Array, Array]:
        if self._slow_while.exists():
            time.sleep(0.02)
        return super().advance(actions)
