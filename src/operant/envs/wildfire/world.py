"""N fires with their agents: what each environment is made of, whatever door it is used through."""

from __future__ import annotations

import math
from dataclasses import dataclass
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
        self._nothing = np.zeros(count)
        self._waits = any(tool is not None and tool.every > 1 for tool in self.verbs.tools)
        self._bench_burnt = np.zeros((count, self._steps + 1))
        self._bench_lost = np.zeros((count, self._steps + 1))
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
        self._bench_burnt[n], self._bench_lost[n] = bench.tables(self.settings.step_minutes, self._steps)
        self._final[n] = self._bench_burnt[n, -1]
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
        movement, interaction = self.verbs.split(actions)
        laid = self._lay(interaction)
        self.position += self.delta[self._rows[:, None], movement]
        np.minimum(np.maximum(self.position, 0, out=self.position), self._last_cell, out=self.position)
        self.turn += 1
        spread = self.turn % self.settings.agent_speed == 0
        before = (self.burnt, self.lost)
        if spread.any():
            now = self.turn // self.settings.agent_speed * self.settings.step_minutes
            self.fires.advance(until=np.maximum(now, self.fires.clock))
            self._survey()
        ended = (self.fires.upcoming == np.inf) & (self.burning == 0)
        return np.asarray(self._reward(self._outcome(spread, ended, laid, *before)), np.float64), ended

    def _lay(self, interaction: Array) -> Array:
        laid = np.zeros(self.count, np.int64)
        ready: Any = True
        if self._waits:
            np.maximum(self.wait - 1, 0, out=self.wait)
            ready = self.wait == 0
        for number, tool in enumerate(self.verbs.tools):
            if tool is None:
                continue
            n, agent = ((interaction == number) & ready).nonzero()
            if not n.size:
                continue
            if self._waits:
                self.wait[n, agent] = tool.every
            row, column = self.position[n, agent, 0], self.position[n, agent, 1]
            if tool.width > 1:
                n, row, column = self._square(n, row, column, tool.width)
            able = (self.status[n, row, column] == UNBURNED) & self._burnable[n, row, column]
            n, row, column = n[able], row[able], column[able]
            if n.size:
                self.fires.slow(n, row, column, tool.keeps)
                self.status[n, row, column] = tool.code
                self.laid += np.bincount(n, minlength=self.count)
                in_the_way = n[np.isfinite(self.bench_arrival[n, row, column])]
                laid += np.bincount(in_the_way, minlength=self.count)
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

    def _square(self, n: Array, row: Array, column: Array, width: int) -> tuple[Array, Array, Array]:
        """The cells on the map within squares of ``width`` around places."""
        reach = np.arange(width) - width // 2
        rows, columns = row[:, None, None] + reach[:, None], column[:, None, None] + reach
        n, rows, columns = (each.ravel() for each in np.broadcast_arrays(n[:, None, None], rows, columns))
        inside = (rows >= 0) & (rows < self.shape[0]) & (columns >= 0) & (columns < self.shape[1])
        return n[inside], rows[inside], columns[inside]

    def _survey(self) -> None:
        self.burning, self.burnt, self.lost = self.fires.survey(self.status, self.assets)

    def _outcome(self, spread: Array, ended: Array, laid: Array, burnt: Array, lost: Array) -> Outcome:
        now = np.minimum(self.turn // self.settings.agent_speed, self._steps)
        last = np.maximum(now - spread, 0)
        bench, bench_now = self._bench_burnt, self._bench_burnt[self._rows, now]
        losses = (self._nothing,) * 3  # where there is nothing to lose
        if self._worth.any():
            lost_now = self._bench_lost[self._rows, now]
            losses = (
                self.lost - lost,
                lost_now - self._bench_lost[self._rows, last],
                self._bench_lost[:, -1] - lost_now,
            )
        final = self._final
        if self._looks_ahead and self._unprojected.any():
            end = self._steps * self.settings.step_minutes
            self._final = (self.projection.time <= end).sum((1, 2))
        return Outcome(
            cells=self.shape[0] * self.shape[1],
            spread=spread,
            ended=ended,
            burning=self.burning,
            new_burnt=self.burnt - burnt,
            bench_new_burnt=bench_now - bench[self._rows, last],
            bench_rest=bench[:, -1] - bench_now,
            bench_burnt=np.maximum(bench[:, -1], 1),
            new_lost=losses[0],
            bench_new_lost=losses[1],
            bench_lost_rest=losses[2],
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
        hands = ~self.verbs.uses_tool | able[..., None]  # [N, agents, interactions]
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


def _check(settings: WildfireSettings) -> None:
    for name in ("agent_speed", "num_agents"):
        if getattr(settings, name) < 1:
            raise UsageError(f"{name} is {getattr(settings, name)}; it must be at least 1")
    if settings.step_minutes <= 0:
        raise UsageError(f"step_minutes is {settings.step_minutes}; it must be a time")
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
    given = np.array([list(place) for place in settings.initial_agent_positions], np.int64).reshape(-1, 2)
    if len(given) != settings.num_agents or (given < 0).any() or (given >= np.array(shape)).any():
        raise UsageError(
            f"initial_agent_positions is {given.tolist()}; a row and a column on the map of {shape} "
            f"for each of the {settings.num_agents} agents are wanted"
        )
    return given
