"""SimFire itself in the harness: a small Gymnasium environment around a simulation that `_target_` makes.

    cd examples/wildfire/simfire
    operant harness --config-dir . --config-name simfire cli.mode=train

SimFire has to be installed beside Operant (docs/wildfire.md). Any object with its verbs will do.
"""

from __future__ import annotations

from typing import Any

import gymnasium
import numpy as np
from gymnasium import spaces

MOVES = ((0, 0), (-1, 0), (1, 0), (0, -1), (0, 1))  # rows and columns
UNBURNED, BURNING, BURNED = 0, 1, 2


class SimFireEnv(gymnasium.Env[Any, Any]):
    """An agent that digs a line wherever it goes, on the map of a SimFire simulation.

    :param sim: has SimFire's ``run``, ``reset``, ``get_actions`` and ``update_mitigation``.
    """

    def __init__(self, sim: Any, *, max_episode_steps: int = 100) -> None:
        self.sim, self.max_episode_steps = sim, max_episode_steps
        self.line = sim.get_actions()["fireline"]
        self.map = np.asarray(sim.run(1)[0])
        self.observation_space = spaces.Box(0, self.line + 1, self.map.shape, np.float32)
        self.action_space = spaces.Discrete(len(MOVES))

    def reset(self, *, seed: int | None = None, options: dict[str, Any] | None = None) -> tuple[Any, dict[str, Any]]:
        super().reset(seed=seed)
        self.sim.reset()
        self.steps, self.place = 0, self.np_random.integers(self.map.shape)
        self.map, _ = self.sim.run(1)
        return self._observe(), {}

    def step(self, action: Any) -> tuple[Any, float, bool, bool, dict[str, Any]]:
        row, column = (int(at) for at in self.place)
        if self.map[row, column] == UNBURNED:
            self.sim.update_mitigation([(column, row, self.line)])  # SimFire counts x, y
        self.place = np.clip(self.place + MOVES[int(action)], 0, np.array(self.map.shape) - 1)
        before = self._burnt()
        self.map, active = self.sim.run(1)
        self.steps += 1
        reward = -(self._burnt() - before) / self.map.size
        return self._observe(), reward, not active, self.steps >= self.max_episode_steps, {}

    def _burnt(self) -> int:
        return int(np.isin(self.map, (BURNING, BURNED)).sum())

    def _observe(self) -> Any:
        seen = np.asarray(self.map, np.float32)
        seen[tuple(self.place)] = self.line + 1
        return seen
