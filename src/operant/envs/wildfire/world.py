"""N fires with their agents: what each environment is made of, whatever door it is used through."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from importlib import import_module
from typing import Any

import numpy as np

from operant.envs.vector import Array
from operant.envs.wildfire.attributes import choose
from operant.envs.wildfire.physics.spread import Fires
from operant.envs.wildfire.rewards import Outcome, find_reward
from operant.envs.wildfire.scenarios import Scenario, ScenarioSet, ScenarioSettings, SetSettings
from operant.envs.wildfire.verbs import BURNING, UNBURNED, Verbs
from operant.errors import UsageError
from operant.settings import setting


@dataclass(frozen=True)
class WildfireSettings:
    """One kind of wildfire environment; names are those of SimHarness's ``env_config`` where it has them."""

    simulation: ScenarioSettings = setting(ScenarioSettings, "land, weather and ignition")
    scenarios: SetSettings = setting(SetSettings, "which scenarios episodes are made of")
    deterministic: bool = setting(False, "every episode is the first scenario, with the same start of the agents")
    resample_interval: int = setting(0, "episodes of an environment after which it gets another set; 0: never")
    step_minutes: float = setting(1.0, "by how much the fire moves at a time; more: fewer, coarser decisions")
    agent_speed: int = setting(1, "steps of the agents for each step of the fire; more: faster agents")
    num_agents: int = setting(1, "agents on each map")
    movements: tuple[str, ...] = setting(("none", "up", "down", "left", "right"), "what agents may do with their feet")
    interactions: tuple[str, ...] = setting(("none", "fireline"), "and with their hands: none and names of tools")
    action_space: str = setting("discrete", "discrete, or multi_discrete: movement and interaction apart")
    agent_initialization_method: str = setting("automatic", "automatic: by seed; manual: initial_agent_positions")
    initial_agent_positions: tuple[Any, ...] = setting((), "[[row, column], …], one for each agent")
    attributes: tuple[str, ...] = setting(("fire_map_with_agents",), "channels of the observation")
    normalized_attributes: tuple[str, ...] = setting(("fire_map_with_agents",), "those brought to 0…1 by their bounds")
    window: int = setting(0, "cells seen to each side of an agent; 0: the whole map")
    frame: str = setting(
        "map", "wind: windows and movements are turned and mirrored so that it blows up: one way to learn, not eight"
    )
    reward: str = setting("area_saved", "simple, area_saved, area_saved_v2, assets, or package.module:function")
    action_masks: bool = setting(False, "tell which actions change something: no steps off the map, no vain lines")
    max_episode_steps: int | None = setting(None, "agent steps; by default those that fit into simulation.minutes")
    render_benchmark: bool = setting(False, "pictures show the fire that nobody fights beside this one, in step")
    jit: bool | None = setting(None, "compile with numba; by default where it is installed")


class World:
    """The state of N fires and their agents, and what a step does to it. Episodes are begun and ended from outside."""

    def __init__(self, settings: WildfireSettings, count: int) -> None:
        _check(settings)
        self.settings, self.count, self.agents = settings, count, settings.num_agents
        self.verbs = Verbs(settings.movements, settings.interactions)
        self._reward = find_reward(settings.reward)
        self._looks_ahead = getattr(self._reward, "looks_ahead", False)
        self._sets = {0: ScenarioSet(settings.simulation, settings.scenarios, step_minutes=settings.step_minutes)}
        land = self._sets[0].scenario(0).land
        self.shape = land.shape
        self._last_cell = np.array(self.shape) - 1
        self._steps = math.ceil(settings.simulation.minutes / settings.step_minutes)
        self.max_episode_steps = settings.max_episode_steps or self._steps * settings.agent_speed
        self._starts = _given_positions(settings, self.shape)
        self._choose_attributes()

        self.fires = Fires(count, self.shape, jit=settings.jit)
        maps = (count, *self.shape)
        self.scenarios: list[Scenario] = []
        self.number = np.zeros(count, np.int64)  # drawn for the present episode
        self.episode = np.full(count, -1)  # how many each has begun
        self.turn = np.zeros(count, np.int64)
        self.position = np.zeros((count, self.agents, 2), np.int64)
        self.frame = np.tile(np.eye(2, dtype=np.int64), (count, 1, 1))  # turns what agents see into the map
        self.delta = np.tile(self.verbs.delta, (count, 1, 1))  # [N, movements, 2] on the map
        self.wait = np.zeros((count, self.agents), np.int64)  # steps until a tool can be used again
        self.laid = np.zeros(count, np.int64)
        self.status: Array = np.zeros(maps, np.uint8)
        self.assets, self.bench_arrival, self._burnable = (
            np.zeros(maps),
            np.full(maps, np.inf),
            np.zeros(maps, np.bool_),
        )
        self._worth = np.zeros(count)
        self._rows = np.arange(count)
        self._nothing, self._everywhere = np.zeros(count), np.ones(count, np.bool_)
        self._act = _acting(self.fires.jit)
        self._lines = np.zeros((count * self.agents * int(self.verbs.tools[:, 1].max()) ** 2, 4), np.int64)
        self._bench = np.zeros((count, self._steps + 2, 4))
        self._bench_total = np.ones(count)
        self.burning, self.burnt, self.lost = np.zeros(count, np.int64), np.zeros(count, np.int64), np.zeros(count)
        beyond = settings.window  # what lies off the map, as far as a window can show it
        padded = (count, self.shape[0] + 2 * beyond, self.shape[1] + 2 * beyond, len(settings.attributes))
        self._padded: Array = np.full(padded, self.low, np.float32)
        self._buffer = self._padded[:, beyond : padded[1] - beyond, beyond : padded[2] - beyond]
        self._around = np.stack(
            [self._window_cells(n) for n in range(count)]
        )  # from an agent's cell, in the padded maps
        self._projection: Fires | None = None
        self._unprojected = np.ones(count, np.bool_)  # lines were laid since
        self._final = np.zeros(count, np.int64)  # cells that will have burned at the end

    def _choose_attributes(self) -> None:
        settings = self.settings
        self._attributes, low, high = choose(settings.attributes, settings.simulation, self.agents)
        for name in settings.normalized_attributes:
            if name not in settings.attributes:
                raise UsageError(f"normalized_attributes names {name!r}, which is not among attributes")
        scaled = np.array([name in settings.normalized_attributes for name in settings.attributes])
        self._shift = np.where(scaled, low, 0.0)
        self._scale = np.where(scaled, 1.0 / (high - low), 1.0)
        self._single_scale = self._scale.astype(np.float32)  # for maps of codes: exact enough, and half the work
        self.low, self.high = np.where(scaled, 0.0, low), np.where(scaled, 1.0, high)

    # Episodes.

    def begin(self, where: Array, numbers: Array) -> None:
        """Begin new episodes in the environments ``where``, of the scenarios that ``numbers`` name."""
        first = not self.scenarios
        for n, number in zip(where.tolist(), numbers.tolist(), strict=True):
            self.episode[n] += 1
            self.number[n] = 0 if self.settings.deterministic else number
            scenario = self._scenario(n)
            if first:
                self.scenarios.append(scenario)
            else:
                self.scenarios[n] = scenario
            self._load(n, scenario)
            self.fires.begin(n, scenario.rates, scenario.ignitions)
            self.position[n] = self._start(n, scenario)
        self.turn[where], self.wait[where], self.laid[where], self.status[where] = 0, 0, 0, UNBURNED
        self.burnt[where], self.lost[where] = 0, 0.0
        self._unprojected[where] = True
        goal = self.fires.clock.copy()
        goal[where] = 0.0
        self.fires.advance(until=goal)
        self._survey()

    def _scenario(self, n: int) -> Scenario:
        interval = self.settings.resample_interval
        index = int(self.episode[n]) // interval if interval else 0
        if index not in self._sets:
            self._sets[index] = self._sets[0].resampled(index)
        scenario = self._sets[index].scenario(int(self.number[n]))
        if scenario.land.shape != self.shape:
            raise UsageError(
                f"all maps of an environment have one shape; here are {self.shape} and {scenario.land.shape}"
            )
        return scenario

    def _load(self, n: int, scenario: Scenario) -> None:
        """What does not change while the fire burns."""
        self.assets[n], self._burnable[n] = scenario.land.assets, scenario.land.burnable
        self._worth[n] = scenario.land.assets.sum()
        bench = scenario.benchmark
        self.bench_arrival[n] = bench.arrival
        self._bench[n] = bench.table(self.settings.step_minutes, self._steps)
        self._final[n] = bench.burnt(self._steps * self.settings.step_minutes)
        self._bench_total[n] = max(self._final[n], 1)
        if self.settings.frame == "wind":
            self.frame[n] = _wind_frame(scenario)
            self.delta[n] = self.verbs.delta @ self.frame[n].T
            self._around[n] = self._window_cells(n)
        for channel, attribute in enumerate(self._attributes):
            if attribute.still is not None:
                self._buffer[n, :, :, channel] = (
                    self._shifted(attribute.still(scenario), channel) * self._scale[channel]
                )

    def _start(self, n: int, scenario: Scenario) -> Array:
        if self._starts is not None:
            return self._starts
        generator = np.random.default_rng((int(self.number[n]), 1))
        cells = self.shape[0] * self.shape[1]
        return np.stack(np.divmod(generator.choice(cells, self.agents, replace=self.agents > cells), self.shape[1]), -1)

    # Steps.

    def step(self, actions: Array) -> tuple[Array, Array]:
        """Agents lay lines, then move; the fire burns on when it is its turn. Returns rewards and which fires are out.

        ``actions`` are numbers [N, agents].
        """
        if not self.scenarios:
            raise UsageError("a wildfire was stepped before it was reset")
        laid = self._lay(actions)
        self.turn += 1
        now, spread = self.turn, self._everywhere
        if self.settings.agent_speed > 1:
            now, part = np.divmod(self.turn, self.settings.agent_speed)
            spread = part == 0
        begun = lost = self._nothing
        if self.settings.agent_speed == 1 or spread.any():
            self.fires.advance(until=np.maximum(now * self.settings.step_minutes, self.fires.clock))
            begun, lost = self._survey()
        ended = (self.fires.upcoming == np.inf) & (self.burning == 0)
        reward = np.asarray(self._reward(self._outcome(now, spread, ended, laid, begun, lost)), np.float64)
        if reward.shape != (self.count,):
            raise UsageError(
                f"the reward {self.settings.reward!r} gave an array of {reward.shape} for {self.count} fires; "
                "it is one number for each"
            )
        return reward, ended

    def _lay(self, actions: Array) -> Array:
        """Agents lay lines, then move; returns how many cells of line are where the benchmark fire comes."""
        moving = (self.delta, self.verbs.tools, self.position, self.wait)
        count = self._act(actions, *moving, self.status, self._burnable, self._lines)
        if count < 0:
            raise UsageError(f"there are {self.verbs.count} actions, from 0 on; these are {actions.ravel().tolist()}")
        if not count:
            return self._nothing
        n, row, column, tool = self._lines[:count].T
        self.fires.slow(n, row, column, self.verbs.keeps[tool])
        self.laid += np.bincount(n, minlength=self.count)
        laid = np.bincount(n, self.bench_arrival[n, row, column] < np.inf, self.count)
        self._unprojected |= laid > 0
        return laid

    @property
    def projection(self) -> Fires:
        """The fires as they will be at the end if no further line is laid: computed anew where one was."""
        if self._projection is None:
            self._projection = Fires(self.count, self.shape, jit=self.settings.jit)
            self._unprojected[:] = True
        if self._unprojected.any():
            self._projection.look_ahead(self.fires, self._unprojected, self._steps * self.settings.step_minutes)
            self._unprojected[:] = False
        return self._projection

    def _survey(self) -> tuple[Array, Array]:
        """Cells that began to burn since the last survey, and the value of the assets in them."""
        self.burning, begun, lost = self.fires.survey(self.status, self.assets)
        self.burnt += begun
        self.lost += lost
        return begun, lost

    def _outcome(self, now: Array, spread: Array, ended: Array, laid: Array, begun: Array, lost: Array) -> Outcome:
        bench = self._bench[self._rows, np.minimum(now, self._steps + 1)]
        if self.settings.agent_speed > 1:
            bench[~spread, ::2] = 0.0
        final = self._final
        if self._looks_ahead and self._unprojected.any():
            end = self._steps * self.settings.step_minutes
            self._final = (self.projection.time <= end).sum((1, 2))
        return Outcome(
            cells=self.shape[0] * self.shape[1],
            spread=spread,
            ended=ended,
            burning=self.burning,
            new_burnt=begun,
            bench_new_burnt=bench[:, 0],
            bench_rest=bench[:, 1],
            bench_burnt=self._bench_total,
            new_lost=lost,
            bench_new_lost=bench[:, 2],
            bench_lost_rest=bench[:, 3],
            assets=self._worth,
            laid=laid,
            spared=final - self._final if self._looks_ahead else self._nothing,
            agents=self.agents,
            agent_speed=self.settings.agent_speed,
        )

    # What is seen.

    def _shifted(self, values: Array, channel: int) -> Array:
        return values - self._shift[channel] if self._shift[channel] else values

    def observe(self) -> Array:
        """[N, H, W, channels] float32, or [N, agents, 2 w + 1, 2 w + 1, channels] of windows."""
        for channel, attribute in enumerate(self._attributes):
            if attribute.moving is not None:
                values = self._shifted(attribute.moving(self), channel)
                scale = self._single_scale if values.dtype == np.uint8 else self._scale
                np.multiply(values, scale[channel], out=self._buffer[..., channel], casting="same_kind")
        if not self.settings.window:
            return self._buffer.copy()
        _, height, width, channels = self._padded.shape
        place = (self._rows[:, None] * height + self.position[..., 0]) * width + self.position[..., 1]
        side = 2 * self.settings.window + 1
        seen = self._padded.reshape(-1, channels).take(place[..., None] + self._around[:, None], axis=0)
        return np.asarray(seen.reshape(self.count, self.agents, side, side, channels))

    def _window_cells(self, n: int) -> Array:
        """[cells] how far those of a window lie from the upper left one of a window that is not turned."""
        reach = np.arange(-self.settings.window, self.settings.window + 1)
        rows, columns = self.frame[n] @ np.stack(np.meshgrid(reach, reach, indexing="ij")).reshape(2, -1)
        beyond = self.settings.window
        return np.asarray((rows + beyond) * self._padded.shape[2] + columns + beyond)

    def mask(self) -> Array:
        """[N, agents, actions] bool: which actions change something."""
        after = self.position[:, :, None] + self.delta[:, None]  # [N, agents, movements, 2]
        moves = ((after >= 0) & (after < np.array(self.shape))).all(-1)
        n = np.arange(self.count)[:, None]
        row, column = self.position[..., 0], self.position[..., 1]
        able = (self.status[n, row, column] == UNBURNED) & self._burnable[n, row, column] & (self.wait <= 1)
        hands = (self.verbs.tools[:, 0] == 0) | able[..., None]  # [N, agents, interactions]
        both = (hands[..., :, None] & moves[..., None, :]).reshape(self.count, self.agents, -1)
        both[~both.any(-1)] = True  # an agent without 'none' on a spoilt cell may do anything, in vain
        return np.asarray(both)

    def metrics(self, n: int) -> dict[str, float]:
        """How fire n compares with the one that nobody fights: as that stands now, or at its end if this one is out."""
        scenario, bench = self.scenarios[n], self.scenarios[n].benchmark
        clock = max(float(self.fires.clock[n]), 0.0)
        out = self.fires.upcoming[n] == np.inf and self.burning[n] == 0
        bench_burnt, bench_lost = bench.burnt(np.inf if out else clock), bench.assets_lost(np.inf if out else clock)
        hectares = scenario.land.cell_size**2 / 10_000
        return {
            "burned_area": float(self.burnt[n]) * hectares,
            "area_saved": float(bench_burnt - self.burnt[n]) * hectares,
            "area_saved_part": float(bench_burnt - self.burnt[n]) / max(bench_burnt, 1),
            "assets_saved": bench_lost - float(self.lost[n]),
            "time_gained": max(0.0, bench.end - clock) if out else 0.0,
            "burn_rate": float(self.burnt[n]) * hectares / max(clock, self.settings.step_minutes),
            "burning_cells": float((self.status[n] == BURNING).sum()),
            "line_cells": float(self.laid[n]),
            "minutes": clock,
        }

    # Going on exactly.

    _SAVED = ("number", "episode", "turn", "position", "wait", "laid", "status", "burning", "burnt", "lost", "_final")

    def save_state(self) -> dict[str, Any]:
        return {"fires": self.fires.save_state(), **{name: getattr(self, name).copy() for name in self._SAVED}}

    def load_state(self, state: dict[str, Any]) -> None:
        for name in self._SAVED:
            setattr(self, name, state[name].copy())
        self.scenarios = [self._scenario(n) for n in range(self.count)]
        for n, scenario in enumerate(self.scenarios):
            self._load(n, scenario)
        self._final = state["_final"].copy()
        self._unprojected[:] = True
        self.fires.load_state(state["fires"], [scenario.rates for scenario in self.scenarios])


def _acting(jit: bool) -> Callable[..., int]:
    """What agents do in a step, compiled or not."""
    made: Callable[..., int] = import_module(f"operant.envs.wildfire._acting_{'numba' if jit else 'numpy'}").act
    return made


def _check(settings: WildfireSettings) -> None:
    for name in ("agent_speed", "num_agents"):
        if getattr(settings, name) < 1:
            raise UsageError(f"{name} is {getattr(settings, name)}; it must be at least 1")
    if not 0 < settings.step_minutes < math.inf:
        raise UsageError(f"step_minutes is {settings.step_minutes}; it must be a time")
    if settings.max_episode_steps is not None and settings.max_episode_steps < 1:
        raise UsageError(f"max_episode_steps is {settings.max_episode_steps}; it must be at least 1")
    if settings.resample_interval < 0:
        raise UsageError(f"resample_interval is {settings.resample_interval}; it is a number of episodes, or 0")
    if settings.window < 0:
        raise UsageError(f"window is {settings.window}; it is a number of cells, or 0 for the whole map")
    if settings.frame == "wind" and not settings.window:
        raise UsageError(
            "frame is 'wind', which turns what an agent sees around it; give its window, such as window: 8"
        )
    for name, known in (
        ("action_space", ("discrete", "multi_discrete")),
        ("frame", ("map", "wind")),
        ("agent_initialization_method", ("automatic", "manual")),
    ):
        if getattr(settings, name) not in known:
            raise UsageError(f"{name} is {getattr(settings, name)!r}; it is one of {', '.join(known)}")


def _wind_frame(scenario: Scenario) -> Array:
    """[2, 2] of 0, 1 and -1: steps on the map of steps on a map on which the first wind blows up, less to the right."""
    speed, comes_from = scenario.weather.mean_wind(0)
    angle = math.radians(comes_from)
    row, column = round(speed * math.cos(angle), 9), round(-speed * math.sin(angle), 9)  # where it blows to
    down, right = 1 if row > 0 else -1, 1 if column >= 0 else -1
    return np.array([[-down, 0], [0, right]] if abs(row) >= abs(column) else [[0, down], [-right, 0]])


def _given_positions(settings: WildfireSettings, shape: tuple[int, int]) -> Array | None:
    if settings.agent_initialization_method == "automatic":
        return None
    try:
        given = np.array([list(place) for place in settings.initial_agent_positions], np.int64).reshape(-1, 2)
    except (TypeError, ValueError):
        given = np.zeros((0, 2), np.int64)
    if len(given) != settings.num_agents or (given < 0).any() or (given >= np.array(shape)).any():
        raise UsageError(
            f"initial_agent_positions is {list(settings.initial_agent_positions)!s:.80}; a row and a column on the map "
            f"of {shape} for each of the {settings.num_agents} agents are wanted"
        )
    return given
