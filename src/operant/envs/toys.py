"""Small tasks of several agents, in the form of PettingZoo's parallel environments: each isolates one thing."""

from __future__ import annotations

from typing import Any, ClassVar

import numpy as np
from gymnasium import spaces

from operant.envs.rng import seeded
from operant.envs.vector import Array
from operant.errors import UsageError

Told = tuple[dict[str, Any], dict[str, float], dict[str, bool], dict[str, bool], dict[str, Any]]


class _Toy:
    """Agents, their spaces and a generator; a subclass says what they see and what becomes of actions."""

    metadata: ClassVar[dict[str, Any]] = {"render_modes": ["rgb_array"]}
    render_mode: str | None = "rgb_array"

    def __init__(self, agents: list[str], sizes: dict[str, tuple[int, int]]) -> None:
        self.possible_agents = agents
        self.agents: list[str] = []
        self._observed = {agent: spaces.Box(-1.0, 1.0, (sizes[agent][0],), np.float32) for agent in agents}
        self._sizes = {agent: size for agent, (_, size) in sizes.items()}
        self._generator = seeded(None)
        self.turn = 0

    def observation_space(self, agent: str) -> Any:
        return self._observed[agent]

    def action_space(self, agent: str) -> Any:
        return spaces.Discrete(self._sizes[agent])

    def reset(self, seed: int | None = None, options: Any = None) -> tuple[dict[str, Any], dict[str, Any]]:
        if seed is not None:
            self._generator = seeded(seed)
        self.turn = 0
        self.agents = self._there()
        self._draw()
        return {agent: self._see(agent) for agent in self.agents}, {agent: self._tell(agent) for agent in self.agents}

    def _there(self) -> list[str]:
        """Who is there in this turn."""
        return list(self.possible_agents)

    def _draw(self) -> None:
        """Draw what is random in this turn."""

    def _see(self, agent: str) -> Array:
        raise NotImplementedError

    def _tell(self, agent: str) -> dict[str, Any]:
        """An agent's info."""
        return {}

    def render(self) -> Array:
        """A column for each agent, bright while it is there."""
        picture = np.zeros((16, 16 * len(self.possible_agents), 3), np.uint8)
        for number, agent in enumerate(self.possible_agents):
            picture[:, 16 * number : 16 * number + 15, 1] = 200 if agent in self.agents else 40
        return picture

    def close(self) -> None:
        """Nothing is open."""


class AgentsIdentity(_Toy):
    """Each agent sees a one-hot target and answers with its number: reward 1 if right.

    The last agent is of another kind, with more choices (``other``). With ``coming`` agent k joins in turn k; with
    ``going`` it leaves 2k turns before the end. With ``masked`` infos allow the right answer and the next one, and any
    other is an error.
    """

    def __init__(
        self,
        agents: int = 3,
        choices: int = 2,
        other: int = 3,
        length: int = 10,
        coming: bool = False,
        going: bool = False,
        masked: bool = False,
    ) -> None:
        names = [f"agent_{number}" for number in range(agents - 1)] + ["other_0"]
        sizes = {name: (choices, choices) for name in names[:-1]} | {"other_0": (other, other)}
        self._length, self._coming, self._going, self._masked = length, coming, going, masked
        self._target: dict[str, int] = {}
        super().__init__(names, sizes)

    def _there(self) -> list[str]:
        return [name for number, name in enumerate(self.possible_agents) if self._is_there(number, self.turn)]

    def _is_there(self, number: int, turn: int) -> bool:
        return turn >= number * self._coming and turn < self._length - 2 * number * self._going

    def _draw(self) -> None:
        self._target = {name: int(self._generator.integers(self._sizes[name])) for name in self.possible_agents}

    def _see(self, agent: str) -> Array:
        return np.asarray(np.eye(self._sizes[agent], dtype=np.float32)[self._target[agent]])

    def _tell(self, agent: str) -> dict[str, Any]:
        if not self._masked:
            return {}
        mask = np.zeros(self._sizes[agent], np.int8)
        mask[[self._target[agent], (self._target[agent] + 1) % self._sizes[agent]]] = 1
        return {"action_mask": mask}

    def step(self, actions: dict[str, int]) -> Told:
        acting = self.agents
        for agent in acting:
            if self._masked and not self._tell(agent)["action_mask"][actions[agent]]:
                raise UsageError(f"action {actions[agent]} of {agent} is masked out")
        rewards = {agent: float(actions[agent] == self._target[agent]) for agent in acting}
        self.turn += 1
        self._draw()
        over = self.turn >= self._length
        terminated = {agent: agent not in self._there() and not over for agent in acting}
        seen = {agent: self._see(agent) for agent in {*acting, *self._there()}}
        self.agents = self._there()
        return seen, rewards, terminated, dict.fromkeys(acting, over), {agent: self._tell(agent) for agent in seen}


class Gates(_Toy):
    """A keeper sees which of two gates is the right one and opens one, of which the second costs ``price``; then a
    runner sees which is open and goes through one: reward 1 for both if it was open and right. Best return of the two:
    2 − price on average.

    The open gate is in nobody's observation but the runner's, so a value of what the keeper sees knows nothing of what
    opening it was good for: who bootstraps from that opens the cheap one, which is right half the time (return 1).
    """

    def __init__(self, price: float = 0.2) -> None:
        super().__init__(["keeper", "runner"], {"keeper": (3, 2), "runner": (3, 2)})
        self._price, self._right, self._open = price, 0, 0

    def _draw(self) -> None:
        self._right = int(self._generator.integers(2))

    def _see(self, agent: str) -> Array:
        shown = np.zeros(3, np.float32)
        if agent == "keeper" or self.turn:
            shown[self._right if agent == "keeper" else self._open] = 1.0
        shown[2] = self.turn
        return shown

    def step(self, actions: dict[str, int]) -> Told:
        acting, over = self.agents, self.turn == 1
        if over:
            gained = float(int(actions["runner"]) == self._open == self._right)
            self.agents = []
        else:
            self._open, self.turn = int(actions["keeper"]), 1
            gained = -self._price * self._open
        seen = {agent: self._see(agent) for agent in acting}
        rewards, flags = dict.fromkeys(acting, gained), dict.fromkeys(acting, over)
        return seen, rewards, flags, dict.fromkeys(acting, False), {agent: {} for agent in acting}


class Higher(_Toy):
    """Two players name a number; who names the higher one wins 1 from the other. A game for self-play."""

    def __init__(self, numbers: int = 5, length: int = 4) -> None:
        super().__init__(["first", "second"], {"first": (1, numbers), "second": (1, numbers)})
        self._length = length

    def _see(self, agent: str) -> Array:
        return np.full(1, self.turn / self._length, np.float32)

    def step(self, actions: dict[str, int]) -> Told:
        acting = self.agents
        gain = float(np.sign(int(actions["first"]) - int(actions["second"])))
        self.turn += 1
        over = self.turn >= self._length
        seen = {agent: self._see(agent) for agent in acting}
        if over:
            self.agents = []
        rewards = {"first": gain, "second": -gain}
        return seen, rewards, dict.fromkeys(acting, over), dict.fromkeys(acting, False), {agent: {} for agent in acting}
