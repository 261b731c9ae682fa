"""The doors: N fires in one array for our trainers, and one fire as a Gymnasium environment."""

from __future__ import annotations

from typing import Any, ClassVar

import gymnasium
import numpy as np
from gymnasium import spaces

from operant.envs.numpy_vector import NumpyVectorEnv
from operant.envs.vector import Array, Step, Tree
from operant.envs.wildfire.rendering import draw_frame
from operant.envs.wildfire.simfire import with_simfire
from operant.envs.wildfire.world import WildfireSettings, World
from operant.envs.window import Window
from operant.errors import UsageError
from operant.settings import fill


def observation_space(world: World, *, agents: int) -> spaces.Box:
    """Of one environment, or of one agent's window; several agents' windows stand one after the other."""
    window = world.settings.window
    shape = (2 * window + 1, 2 * window + 1) if window else world.shape
    low, high = world.low.astype(np.float32), world.high.astype(np.float32)
    full = (agents, *shape, len(low)) if window and agents > 1 else (*shape, len(low))
    return spaces.Box(np.broadcast_to(low, full), np.broadcast_to(high, full), dtype=np.float32)


def action_space(world: World, *, agents: int) -> spaces.Space[Any]:
    verbs = world.verbs
    if world.settings.action_space == "multi_discrete":
        return spaces.MultiDiscrete(list(verbs.counts) * agents)
    return spaces.Discrete(verbs.count) if agents == 1 else spaces.MultiDiscrete([verbs.count] * agents)


def _numbers(world: World, actions: Array, agents: int) -> Array:
    """Actions of ``action_space`` for N environments as numbers [N, agents]."""
    each = 2 if world.settings.action_space == "multi_discrete" else 1
    if actions.dtype.kind not in "iu" or actions.size != len(actions) * agents * each:
        raise UsageError(
            f"actions are whole numbers, {agents * each} for each fire, got {actions.ravel().tolist()!s:.80}"
        )
    if world.settings.action_space == "multi_discrete":
        pairs, counts = actions.reshape(len(actions), agents, 2), world.verbs.counts
        if (pairs < 0).any() or (pairs >= counts).any():
            raise UsageError(
                f"there are {counts[0]} movements and {counts[1]} interactions, from 0 on; these are {pairs.tolist()}"
            )
        return np.asarray(pairs[..., 0] + counts[0] * pairs[..., 1])
    return actions.reshape(len(actions), agents)


class WildfireVector(NumpyVectorEnv):
    """N wildfires that step together. Keywords are those of `WildfireSettings`.

    ``step.info["fires"]`` holds the metrics of the fires that ended with a step, in the order of ``step.episodes``.
    """

    state_names: ClassVar[tuple[str, ...]] = ()
    one: ClassVar[type[gymnasium.Env[Any, Any]]]
    """A single one, for who makes vectors of its own."""

    def __init__(self, num_envs: int = 1, *, seed: int | None = None, **settings: Any) -> None:
        self.world = World(fill(WildfireSettings, with_simfire(settings)), num_envs)
        super().__init__(num_envs, max_episode_steps=self.world.max_episode_steps, seed=seed)
        self.single_observation_space = observation_space(self.world, agents=self.world.agents)
        self.single_action_space: Any = action_space(self.world, agents=self.world.agents)
        self._ended: list[dict[str, float]] = []

    def draw(self, generator: np.random.Generator, count: int) -> Array:
        return generator.integers(2**31, size=count)

    def begin(self, where: Array, drawn: Array) -> None:
        if self.world.scenarios:
            self._ended = [self.world.metrics(n) for n in where.tolist()]
        self.world.begin(where, drawn)

    def advance(self, actions: Array) -> tuple[Array, Array]:
        return self.world.step(_numbers(self.world, actions, self.world.agents))

    def step(self, actions: Any) -> Step:
        step = super().step(actions)
        if step.final_obs is not None:
            step.info["fires"] = self._ended
        return step

    def observe(self) -> Tree:
        seen = self.world.observe()
        return seen[:, 0] if self.world.settings.window and self.world.agents == 1 else seen

    @property
    def action_mask(self) -> Array | None:
        if not self.world.settings.action_masks or not isinstance(self.single_action_space, spaces.Discrete):
            return None
        return self.world.mask()[:, 0]

    def draw_frame(self, index: int) -> Array:
        return draw_frame(self.world, index)

    def save_state(self) -> dict[str, Any]:
        return {**super().save_state(), "world": self.world.save_state()}

    def load_state(self, state: dict[str, Any]) -> Tree:
        if "world" in state:
            self.world.load_state(state["world"])
        return super().load_state(state)


class Wildfire(gymnasium.Env[Any, Any]):
    """One wildfire. Keywords are those of `WildfireSettings`; ``info`` holds its metrics when an episode ends.

    The seed of ``reset`` chooses the scenario; without one the next is drawn.
    """

    metadata: ClassVar[dict[str, Any]] = {"render_modes": ["rgb_array", "human"], "render_fps": 10}  # type: ignore[misc]

    def __init__(self, *, render_mode: str | None = "rgb_array", **settings: Any) -> None:
        if render_mode not in (None, "rgb_array", "human"):
            raise UsageError(f"render_mode is {render_mode!r}; a wildfire is drawn as 'rgb_array' or 'human'")
        self.render_mode = render_mode
        self._window = Window("Wildfire") if render_mode == "human" else None
        self.world = World(fill(WildfireSettings, with_simfire(settings)), 1)
        self.observation_space = observation_space(self.world, agents=self.world.agents)
        self.action_space = action_space(self.world, agents=self.world.agents)
        self._everywhere = np.zeros(1, np.int64)

    def reset(self, *, seed: int | None = None, options: dict[str, Any] | None = None) -> tuple[Any, dict[str, Any]]:
        super().reset(seed=seed)
        number = (options or {}).get("scenario")
        if number is None:
            number = self.np_random.integers(2**31)
        elif not isinstance(number, int | np.integer) or number < 0:
            raise UsageError(f"the option 'scenario' is {number!r:.80}; it is a number from 0 on")
        self.world.begin(self._everywhere, np.array([number]))
        self._show()
        return self._observe(), self._info(ended=False)

    def step(self, action: Any) -> tuple[Any, float, bool, bool, dict[str, Any]]:
        reward, ended = self.world.step(_numbers(self.world, np.asarray(action)[None], self.world.agents))
        terminated = bool(ended[0])
        truncated = bool(self.world.turn[0] >= self.world.max_episode_steps)
        self._show()
        return self._observe(), float(reward[0]), terminated, truncated, self._info(terminated or truncated)

    def _observe(self) -> Array:
        seen = self.world.observe()[0]
        return np.asarray(seen[0] if self.world.settings.window and self.world.agents == 1 else seen)

    def _info(self, ended: bool) -> dict[str, Any]:
        info: dict[str, Any] = dict(self.world.metrics(0)) if ended else {}
        if self.world.settings.action_masks:
            info["action_mask"] = self.action_masks()
        return info

    def action_masks(self) -> Array:
        """Which actions change something, as MaskablePPO of SB3-contrib asks for it."""
        return np.asarray(self.world.mask()[0].ravel())

    def metrics(self) -> dict[str, float]:
        """How the fire compares, so far, with the one that nobody fights."""
        return self.world.metrics(0)

    def render(self) -> Any:
        return None if self._window else draw_frame(self.world, 0)

    def _show(self) -> None:
        if self._window:
            self._window.show(draw_frame(self.world, 0))

    def close(self) -> None:
        if self._window:
            self._window.close()

    def save_state(self) -> dict[str, Any]:
        return self.world.save_state()

    def load_state(self, state: dict[str, Any]) -> None:
        self.world.load_state(state)


WildfireVector.one = Wildfire
