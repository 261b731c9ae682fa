"""What can be observed: maps by name, each with bounds that hold in every scenario of its kind."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from operant.envs.vector import Array
from operant.envs.wildfire.physics.fuels import fuel_table
from operant.envs.wildfire.scenarios import Scenario, ScenarioSettings
from operant.envs.wildfire.verbs import AGENT, BURNED, BURNING
from operant.envs.wildfire.weather import Weather
from operant.errors import UsageError, nearest

if TYPE_CHECKING:
    from operant.envs.wildfire.world import World

_SOON = 10.0  # minutes in which a threat falls to 1/e


@dataclass(frozen=True)
class Attribute:
    """One channel of the observation.

    ``still`` draws it once for a scenario; ``moving`` for all fires in every step, ``spreading`` when a fire has moved.
    """

    bounds: Callable[[ScenarioSettings, int], tuple[float, float]]  # of scenarios of a kind, and the number of agents
    still: Callable[[Scenario], Array] | None = None  # [H, W]
    moving: Callable[[World], Array] | None = None  # [N, H, W]


def choose(names: Sequence[str], settings: ScenarioSettings, agents: int) -> tuple[list[Attribute], Array, Array]:
    """The attributes of these names, and the lower and upper bound of each."""
    for name in names:
        if name not in ATTRIBUTES:
            raise UsageError(
                f"there is no attribute {name!r}{nearest(name, ATTRIBUTES)}; known: {', '.join(ATTRIBUTES)}"
            )
    if not names:
        raise UsageError("attributes is empty; at least one is needed, such as 'fire_map'")
    chosen = [ATTRIBUTES[name] for name in names]
    bounds = np.array([one.bounds(settings, agents) for one in chosen])
    return chosen, bounds[:, 0], bounds[:, 1]


def _between(low: float, high: float) -> Callable[[ScenarioSettings, int], tuple[float, float]]:
    return lambda settings, agents: (low, high)


def _of_fuel(values: Callable[[], Array]) -> Attribute:
    """A property of the fuel model of each cell."""
    return Attribute(
        bounds=lambda settings, agents: (0.0, float(values().max())),
        still=lambda scenario: values()[scenario.land.rows] * scenario.land.burnable,
    )


def _terrain_bounds(settings: ScenarioSettings, agents: int) -> tuple[float, float]:
    """Of elevations: those of the land where all scenarios share it, else what its generator can reach."""
    if settings.land_seed is not None or "elevation" in settings.maps:
        elevation = settings.make(0).land.elevation
        low, high = float(elevation.min()), float(elevation.max())
        return (low, high) if high > low else (low, low + 1.0)
    own = settings.terrain
    if own.get("type", "flat") == "flat":
        height = float(own.get("elevation", 0.0))
        return min(height, 0.0), max(height, 1.0)
    return 0.0, float(own.get("height", 200.0)) * (int(own.get("count", 6)) if own["type"] == "hills" else 1)


def _slope_bounds(settings: ScenarioSettings, agents: int) -> tuple[float, float]:
    if settings.land_seed is not None:
        return 0.0, max(float(settings.make(0).land.slope.max()), 1.0)
    low, high = _terrain_bounds(settings, agents)
    return 0.0, max((high - low) / settings.cell_size * np.sqrt(2.0), 1.0)


def _wind_bounds(settings: ScenarioSettings, agents: int) -> tuple[float, float]:
    own = settings.wind
    highest = float(np.max(np.asarray(own.get("speed", 5.0), np.float64)))
    if own.get("type") == "gusts":
        highest *= 1.0 + 3.0 * np.sqrt(0.75 / 0.25) * float(own.get("strength", 0.3))
    if own.get("type") == "terrain":
        highest *= 1.0 + abs(float(own.get("speed_up", 0.5)))
    return 0.0, max(highest, 1e-3)


def _weather_now(value: Callable[[Weather, int], Any]) -> Callable[[World], Array]:
    def draw(world: World) -> Array:
        maps = np.empty((world.count, *world.shape))
        for n, scenario in enumerate(world.scenarios):
            maps[n] = value(scenario.weather, int(scenario.weather.at(world.fires.clock[n])))
        return maps

    return draw


def _dead_moisture(weather: Weather, k: int) -> Any:
    return weather.moisture[min(k, len(weather.moisture) - 1)].dead_1h


def _arrival(world: World) -> Array:
    return np.where(world.fires.burnt, world.fires.time, world.settings.simulation.minutes)


def _until_fire(world: World) -> Array:
    """Minutes until the fire comes if no further line is laid; the longest where it does not, 0 where it has been."""
    left = world.projection.time - world.fires.clock[:, None, None]
    return np.clip(left, 0.0, world.settings.simulation.minutes, out=left)


def _threat(world: World) -> Array:
    """1 where fire is or was, less the later it comes, 0 where it does not: as off the map, beyond a window's end."""
    left = _until_fire(world)
    return np.where(left < world.settings.simulation.minutes, np.exp(left * (-1.0 / _SOON)), 0.0)


def _benchmark_now(world: World) -> Array:
    clock = world.fires.clock[:, None, None]
    return (world.bench_arrival <= clock) * np.where(
        world.bench_arrival + world.fires.duration > clock, np.float64(BURNING), np.float64(BURNED)
    )


def _agents(world: World) -> Array:
    maps = np.zeros((world.count, *world.shape))
    n = np.arange(world.count)[:, None]
    maps[n, world.position[..., 0], world.position[..., 1]] = 1.0
    return maps


def _lines(world: World) -> Array:
    return np.asarray(1.0 - world.fires.factor)


def _with_agents(world: World) -> Array:
    maps = world.status.astype(np.float64)
    for agent in range(world.agents):
        maps[np.arange(world.count), world.position[:, agent, 0], world.position[:, agent, 1]] = AGENT + agent
    return maps


ATTRIBUTES: Mapping[str, Attribute] = {
    "fire_map": Attribute(_between(0, AGENT - 1), moving=lambda world: world.status),
    "fire_map_with_agents": Attribute(lambda settings, agents: (0, AGENT + agents - 1), moving=_with_agents),
    "agents": Attribute(_between(0, 1), moving=_agents),
    "burning": Attribute(_between(0, 1), moving=lambda world: world.status == BURNING),
    "burned": Attribute(_between(0, 1), moving=lambda world: world.status == BURNED),
    "lines": Attribute(_between(0, 1), moving=_lines),  # what they take of the rate
    "w_0": _of_fuel(lambda: fuel_table().load.sum(-1)),  # lb/ft²
    "sigma": _of_fuel(lambda: fuel_table().sav[:, 0]),  # 1/ft, of the fine dead fuel
    "delta": _of_fuel(lambda: fuel_table().depth),  # ft
    "M_x": _of_fuel(lambda: fuel_table().extinction),
    "elevation": Attribute(_terrain_bounds, still=lambda scenario: scenario.land.elevation),  # m
    "slope": Attribute(_slope_bounds, still=lambda scenario: scenario.land.slope),
    "wind_speed": Attribute(_wind_bounds, moving=_weather_now(lambda weather, k: weather.wind_speed[k])),  # m/s
    "wind_direction": Attribute(_between(0, 360), moving=_weather_now(lambda weather, k: weather.wind_direction[k])),
    "moisture": Attribute(_between(0, 4), moving=_weather_now(_dead_moisture)),  # of the fine dead fuel
    "assets": Attribute(
        lambda settings, agents: (0.0, float(max(settings.make(0).land.assets.max(), 1.0))),
        still=lambda scenario: scenario.land.assets,
    ),
    "arrival_time": Attribute(lambda settings, agents: (0.0, settings.minutes), moving=_arrival),  # minutes
    "time_to_fire": Attribute(lambda settings, agents: (0.0, settings.minutes), moving=_until_fire),  # minutes
    "threat": Attribute(_between(0, 1), moving=_threat),
    "bench_fire_map": Attribute(_between(0, BURNED), moving=_benchmark_now),
    "bench_fire_map_final": Attribute(
        _between(0, BURNED), still=lambda scenario: BURNED * np.isfinite(scenario.benchmark.arrival)
    ),
}
