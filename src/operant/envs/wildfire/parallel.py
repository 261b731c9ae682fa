"""Several agents against one fire, as a parallel environment of PettingZoo."""

from __future__ import annotations

from typing import Any, ClassVar

import numpy as np

from operant.envs.rng import generator_state, restore_generator, seeded
from operant.envs.vector import Array
from operant.envs.wildfire.envs import action_space, observation_space
from operant.envs.wildfire.rendering import draw_frame
from operant.envs.wildfire.simfire import with_simfire
from operant.envs.wildfire.world import WildfireSettings, World
from operant.errors import MissingExtraError, UsageError
from operant.settings import fill

try:
    from pettingzoo import ParallelEnv
except ImportError:
    raise MissingExtraError("a wildfire with several agents (PettingZoo)", "agents") from None


class WildfireParallel(ParallelEnv):  # type: ignore[misc,type-arg,unused-ignore]
    """Agents ``agent_0``, ``agent_1``, … move at the same time and share the reward.

    Keywords are those of `WildfireSettings`. Each agent sees the whole map or its own window.
    """

    metadata: ClassVar[dict[str, Any]] = {"name": "wildfire_v0", "render_modes": ["rgb_array"], "render_fps": 10}

    def __init__(self, *, render_mode: str | None = "rgb_array", **settings: Any) -> None:
        self.render_mode = render_mode
        self.world = World(fill(WildfireSettings, {"num_agents": 2, **with_simfire(settings)}), 1)
        if self.world.settings.action_space != "discrete":
            raise UsageError("action_space is 'multi_discrete'; agents of a parallel environment have discrete actions")
        self.possible_agents = [f"agent_{number}" for number in range(self.world.agents)]
        self.agents: list[str] = []
        self._observations = {agent: observation_space(self.world, agents=1) for agent in self.possible_agents}
        self._actions = {agent: action_space(self.world, agents=1) for agent in self.possible_agents}
        self._generator = seeded(None)

    def observation_space(self, agent: str) -> Any:
        return self._observations[agent]

    def action_space(self, agent: str) -> Any:
        return self._actions[agent]

    def reset(
        self, seed: int | None = None, options: dict[str, Any] | None = None
    ) -> tuple[dict[str, Array], dict[str, Any]]:
        if seed is not None:
            self._generator = seeded(seed)
        self.agents = list(self.possible_agents)
        self.world.begin(np.zeros(1, np.int64), self._generator.integers(2**31, size=1))
        return self._observe(), self._infos(ended=False)

    def step(
        self, actions: dict[str, int]
    ) -> tuple[dict[str, Array], dict[str, float], dict[str, bool], dict[str, bool], dict[str, Any]]:
        numbers = np.array([[int(actions[agent]) for agent in self.possible_agents]])
        reward, out = self.world.step(numbers)
        terminated = bool(out[0])
        truncated = bool(self.world.turn[0] >= self.world.max_episode_steps)
        seen, infos = self._observe(), self._infos(terminated or truncated)
        told = self.agents
        if terminated or truncated:
            self.agents = []
        return (
            seen,
            dict.fromkeys(told, float(reward[0])),
            dict.fromkeys(told, terminated),
            dict.fromkeys(told, truncated),
            infos,
        )

    def _observe(self) -> dict[str, Array]:
        seen = self.world.observe()[0]
        if self.world.settings.window:
            return {agent: seen[number] for number, agent in enumerate(self.possible_agents)}
        return {agent: seen.copy() for agent in self.possible_agents}

    def _infos(self, ended: bool) -> dict[str, Any]:
        metrics = self.world.metrics(0) if ended else {}
        infos: dict[str, dict[str, Any]] = {agent: dict(metrics) for agent in self.possible_agents}
        if self.world.settings.action_masks:
            for number, agent in enumerate(self.possible_agents):
                infos[agent]["action_mask"] = self.world.mask()[0, number].astype(np.int8)
        return infos

    def render(self) -> Array:
        return draw_frame(self.world, 0)

    def save_state(self) -> dict[str, Any]:
        """Everything that `load_state` needs to go on from here exactly."""
        return {"world": self.world.save_state(), "random": generator_state(self._generator), "over": not self.agents}

    def load_state(self, state: dict[str, Any]) -> None:
        self.world.load_state(state["world"])
        self._generator = restore_generator(state["random"])
        self.agents = [] if state["over"] else list(self.possible_agents)

    def close(self) -> None:
        """Nothing is open."""
