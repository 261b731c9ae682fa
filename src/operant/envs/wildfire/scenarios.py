"""Scenarios: a land, its weather and where fire begins; sets of them, drawn by seed and chosen by a condition."""

from __future__ import annotations

import hashlib
import json
import math
from collections.abc import Mapping
from dataclasses import dataclass, replace
from functools import cached_property, lru_cache
from pathlib import Path
from typing import Any

import numpy as np

from operant._util.conditions import Condition
from operant._util.files import write_file
from operant._util.plain_yaml import read_yaml
from operant.envs.rng import seeded
from operant.envs.vector import Array
from operant.envs.wildfire.grids import Grid, check_cells, read_grid
from operant.envs.wildfire.land import ASSETS, FUELS, TERRAINS, Land, check_names, generate
from operant.envs.wildfire.physics.fuels import NO_DATA
from operant.envs.wildfire.physics.rothermel import Moisture
from operant.envs.wildfire.physics.spread import Fires, SpreadRates
from operant.envs.wildfire.simfire import with_simfire
from operant.envs.wildfire.spotting import Spotting, with_embers
from operant.envs.wildfire.weather import WINDS, Weather, spread_rates, with_moisture
from operant.errors import UsageError, nearest
from operant.settings import fill, setting, to_mapping
from operant.tracking.places import cache_dir

_FACTS = (  # what a condition may ask
    "elapsed_steps", "elapsed_minutes", "burned_cells", "burned_area", "burned_part", "assets_lost", "reaches_edge",
)  # fmt: skip
_LONGEST = 525_600.0
_MAPS = ("elevation", "fuel", "cover", "height", "crown_ratio", "assets")


@dataclass(frozen=True)
class ScenarioSettings:
    """What a scenario is made of. Each group has a ``type`` and the settings of that type (docs/wildfire.md)."""

    shape: tuple[int, ...] = setting((64, 64), "rows and columns of the map; that of the maps where files are given")
    cell_size: float = setting(30.0, "metres; smaller: finer lines and fronts, more cells for the same land")
    terrain: dict[str, Any] = setting({"type": "flat"}, "flat, hills, perlin or gaussian")
    fuel: dict[str, Any] = setting({"type": "uniform", "model": "GR2"}, "uniform, patches or by_elevation")
    wind: dict[str, Any] = setting({"type": "constant"}, "constant, gusts, terrain or table; m/s at 10 m")
    moisture: dict[str, Any] = setting(
        {}, "dead_1h, dead_10h, dead_100h, live_herb, live_woody as fractions, lists of them from times on; dry_slopes"
    )
    canopy: dict[str, Any] = setting({}, "cover (fraction), height (m) and crown_ratio: more cover, less wind below")
    assets: dict[str, Any] = setting({"type": "none"}, "none, houses or towns")
    ignition: dict[str, Any] = setting(
        {"type": "random"}, "random (count, margin) or fixed (cells: [[row, column], …])"
    )
    spotting: dict[str, Any] = setting({}, "probability, distance, spread, delay and intensity of embers; none: {}")
    maps: dict[str, Any] = setting(
        {}, "files with elevation, fuel, cover, height, crown_ratio or assets: .asc .tif .npy"
    )
    minutes: float = setting(600.0, "how long the fire is looked at, and for how long weather is made")
    land_seed: int | None = setting(0, "the land of all scenarios; null: each has one of its own")
    wind_limit: bool = setting(False, "hold the effective wind at 0.9 of the reaction intensity (Rothermel 1972)")

    def __post_init__(self) -> None:
        if len(self.shape) != 2 or min(self.shape) < 1:
            raise UsageError(f"shape is {list(self.shape)[:5]}; rows and columns are wanted, such as [64, 64]")
        check_cells(self.shape, "shape")
        if not 0 < self.cell_size < math.inf:
            raise UsageError(f"cell_size is {self.cell_size}; it is a length in metres")
        if not 0 < self.minutes <= _LONGEST:
            raise UsageError(f"minutes is {self.minutes}; it is a time up to {_LONGEST:,} minutes, which is a year")
        if self.land_seed is not None and self.land_seed < 0:
            raise UsageError(f"land_seed is {self.land_seed}; it is a whole number from 0 on, or null")

    @property
    def hash(self) -> str:
        """Names what the fire depends on: these settings and the bytes of the maps."""
        own = to_mapping(self)
        own["maps"] = {name: _checksum(Path(str(file))) for name, file in self.maps.items()}
        return hashlib.sha256(json.dumps(own, sort_keys=True).encode()).hexdigest()[:16]

    def make(self, seed: int) -> Scenario:
        """The scenario of a seed. Land comes from ``land_seed``, weather and ignition from the seed."""
        generator = seeded(seed)
        try:
            if self.land_seed is None:
                land = self._make_land(seeded(int(generator.integers(2**31))))
            else:
                land = _land(json.dumps(to_mapping(self), sort_keys=True))
            weather = self._make_weather(land, generator)
            return Scenario(self, land, weather, self._ignitions(land, generator), seed)
        except (TypeError, ValueError, OverflowError, MemoryError) as error:
            if isinstance(error, UsageError):
                raise
            raise UsageError(f"no scenario can be made of these settings: {error!s:.200}") from error

    def _make_land(self, generator: np.random.Generator) -> Land:
        for name in self.maps:
            if name not in _MAPS:
                raise UsageError(f"there is no map 'maps.{name}'{nearest(name, _MAPS)}; known: {', '.join(_MAPS)}")
        grids = {name: read_grid(file) for name, file in self.maps.items()}
        shapes = {grid.values.shape for grid in grids.values()} or {tuple(self.shape)}
        if len(shapes) > 1 or len(next(iter(shapes))) != 2:
            raise UsageError(f"the maps must have rows and columns, all the same; they are {sorted(shapes)}")
        shape = next(iter(shapes))
        sizes = [grid.cell_size for grid in grids.values() if grid.cell_size]
        given = {name: _without_gaps(name, grid, self.maps[name]) for name, grid in grids.items()}
        size = sizes[0] if sizes else self.cell_size
        elevation = given.get("elevation")
        if elevation is None:
            elevation = generate(TERRAINS, "terrain", self.terrain, shape, size, generator)
        fuel = given["fuel"] if "fuel" in given else generate(FUELS, "fuel", self.fuel, elevation, generator)
        assets = given["assets"] if "assets" in given else generate(ASSETS, "assets", self.assets, shape, generator)
        canopy = fill(_Canopy, self.canopy, "canopy")
        return Land(
            cell_size=size,
            elevation=np.asarray(elevation, np.float64),
            fuel=fuel,
            cover=given.get("cover", canopy.cover),
            height=given.get("height", canopy.height),
            crown_ratio=given.get("crown_ratio", canopy.crown_ratio),
            assets=np.asarray(assets, np.float64),
        )

    def _make_weather(self, land: Land, generator: np.random.Generator) -> Weather:
        own = dict(self.wind)
        kind = str(own.pop("type", "constant"))
        if kind not in WINDS:
            raise UsageError(f"there is no wind of type {kind!r}{nearest(kind, WINDS)}; known: {', '.join(WINDS)}")
        check_names(WINDS[kind], f"wind of type {kind!r}", own)
        changes, speed, direction = WINDS[kind](land, self.minutes, generator, **own)
        times, moistures = self._moistures(land)
        together = np.union1d(changes, times)
        wind = np.maximum(np.searchsorted(changes, together, side="right") - 1, 0)
        wet = np.maximum(np.searchsorted(times, together, side="right") - 1, 0)
        kept = moistures if len(moistures) == 1 else [moistures[k] for k in wet]
        return Weather(together, np.asarray(speed)[wind], np.asarray(direction)[wind], tuple(kept))

    def _moistures(self, land: Land) -> tuple[list[float], list[Moisture]]:
        """The times from which each moisture holds; without ``times`` one holds for good."""
        wet = dict(self.moisture)
        dry_slopes = float(wet.pop("dry_slopes", 0.0))
        times = [float(minute) for minute in wet.pop("times", (0.0,))]
        wrong = [name for name, value in wet.items() if isinstance(value, list | tuple) and len(value) != len(times)]
        if wrong or not times or times != sorted(set(times)):
            raise UsageError(
                f"moisture.times is {times[:5]}; they are rising minutes, as many as moisture.{(*wrong, '…')[0]} has"
            )
        made = []
        for k in range(len(times)):
            now = {name: value[k] if isinstance(value, list | tuple) else value for name, value in wet.items()}
            moisture = fill(_MoistureSettings, now, "moisture")
            for name, value in vars(moisture).items():
                most = 1.0 if name.startswith("dead") else 4.0
                if not 0 <= value <= most:
                    raise UsageError(
                        f"moisture.{name} is {value:g}; it is a part of the dry fuel up to {most:g}, 0.06 for 6 %"
                    )
            made.append(with_moisture(Moisture(**vars(moisture)), land, dry_slopes=dry_slopes))
        return times, made

    def _ignitions(self, land: Land, generator: np.random.Generator) -> tuple[tuple[int, int], ...]:
        own = dict(self.ignition)
        kind = own.pop("type", "random")
        if kind == "fixed":
            given = own.pop("cells", [])
            if not all(isinstance(cell, list | tuple) and len(cell) == 2 for cell in given):
                raise UsageError(f"ignition.cells is {given!r:.80}; a list of rows and columns is wanted: [[5, 7], …]")
            cells = [(int(row), int(column)) for row, column in given]
            wrong = [cell for cell in cells if not (0 <= cell[0] < land.shape[0] and 0 <= cell[1] < land.shape[1])]
            if wrong or not cells:
                raise UsageError(f"ignition.cells is {cells}: rows and columns on the map of {land.shape} are wanted")
            return tuple(cells)
        if kind != "random":
            raise UsageError(f"there is no ignition of type {kind!r}; known: random, fixed")
        part, count = float(own.pop("margin", 0.1)), int(own.pop("count", 1))
        if own:
            raise UsageError(f"ignition of type 'random' does not take {sorted(own)}; known: count, margin")
        if not 0 <= part < 0.5 or count < 1:
            raise UsageError(
                f"ignition.margin and ignition.count are {part:g} and {count}; "
                "a part of the map less than 0.5, and at least 1, are wanted"
            )
        margin = int(part * min(land.shape))
        inside = np.zeros(land.shape, np.bool_)
        inside[margin : land.shape[0] - margin, margin : land.shape[1] - margin] = True
        able = np.flatnonzero(inside & land.burnable)
        if not able.size:
            raise UsageError("nothing on this land can burn, so no fire can begin")
        chosen = generator.choice(able, min(count, able.size), replace=False)
        return tuple((int(cell) // land.shape[1], int(cell) % land.shape[1]) for cell in chosen)


def _without_gaps(name: str, grid: Grid, file: object) -> Array:
    """The values of a map; where it has none, nothing burns, nothing is worth anything, no canopy stands."""
    gaps = ~np.isfinite(grid.values) | np.isin(grid.values, NO_DATA)
    if grid.no_data is not None:
        gaps |= grid.values == grid.no_data
    if not gaps.any():
        return grid.values
    if name not in ("fuel", "assets", "cover"):
        raise UsageError(f"{file} has no data in {gaps.sum():,} cells; fill them first, as gdal_fillnodata does")
    return np.where(gaps, NO_DATA[0] if name == "fuel" else 0, grid.values)


def _checksum(map_file: Path) -> str:
    if not map_file.is_file():
        raise UsageError(f"there is no map {map_file}")
    return hashlib.sha256(map_file.read_bytes()).hexdigest()


def load_scenario(path: str | Path, seed: int = 0, notes: list[str] | None = None) -> Scenario:
    """The scenario of a YAML file, ours or SimFire's; maps are looked for beside it.

    What changes in one of SimFire's joins ``notes``, or the log.
    """
    path = Path(path)
    values = read_yaml(path)
    if not isinstance(values, Mapping):
        raise UsageError(f"{path} holds no settings of a scenario; they are names and values, such as shape: [64, 64]")
    settings = fill(ScenarioSettings, with_simfire({"simulation": values}, notes)["simulation"])
    maps = {name: str(path.parent / str(file)) for name, file in settings.maps.items()}
    return replace(settings, maps=maps).make(seed)


@dataclass(frozen=True)
class _Canopy:
    cover: float = 0.0
    height: float = 10.0
    crown_ratio: float = 0.5


@dataclass(frozen=True)
class _MoistureSettings:
    dead_1h: float = 0.06
    dead_10h: float = 0.07
    dead_100h: float = 0.08
    live_herb: float = 0.60
    live_woody: float = 0.90


@lru_cache(maxsize=16)
def _land(settings: str) -> Land:
    """The land that many scenarios share is made once."""
    made = fill(ScenarioSettings, json.loads(settings))
    return made._make_land(seeded(made.land_seed))


@dataclass(frozen=True)
class Scenario:
    """A fire that is about to begin."""

    settings: ScenarioSettings
    land: Land
    weather: Weather
    ignitions: tuple[tuple[int, int], ...]
    seed: int | None = None

    @cached_property
    def rates(self) -> SpreadRates:
        rates = spread_rates(self.land, self.weather, wind_limit=self.settings.wind_limit)
        embers = fill(Spotting, self.settings.spotting, "spotting")
        return with_embers(rates, self.weather, embers, np.random.default_rng((self.seed or 0, 2)))

    @cached_property
    def benchmark(self) -> BenchmarkFire:
        """The fire that nobody fights."""
        fires = Fires(1, self.land.shape)
        fires.begin(0, self.rates, self.ignitions)
        fires.advance(until=self.settings.minutes)
        return BenchmarkFire(fires.arrival[0], self.rates.duration, self.land.assets)


class BenchmarkFire:
    """Arrival times of the fire without any line, and what had burned by any time."""

    def __init__(self, arrival: Array, duration: Array, assets: Array) -> None:
        self.arrival, self.duration = arrival, duration
        order = np.argsort(arrival, axis=None)
        burnt = np.isfinite(arrival.ravel()[order])
        self._times = arrival.ravel()[order][burnt]
        self._assets = np.concatenate([[0.0], np.cumsum(assets.ravel()[order][burnt])])
        self.cells = int(burnt.sum())
        self.assets = float(self._assets[-1])
        self.end = float((arrival + duration)[np.isfinite(arrival)].max(initial=0.0))

    def burnt(self, minute: float) -> int:
        return int(np.searchsorted(self._times, minute, side="right"))

    def assets_lost(self, minute: float) -> float:
        return float(self._assets[self.burnt(minute)])

    def table(self, step_minutes: float, steps: int) -> Array:
        """[steps + 2, 4]: cells burnt in step 0, 1, … ``steps`` and those still to burn after it; the same of assets.

        The last row is of every later step.
        """
        burnt = np.searchsorted(self._times, np.arange(steps + 1) * step_minutes, side="right")
        table = np.zeros((steps + 2, 4))
        for column, total in ((0, burnt), (2, self._assets[burnt])):
            table[:-1, column] = np.diff(total, prepend=total[0])
            table[:-1, column + 1] = total[-1] - total
        return table


@dataclass(frozen=True)
class SetSettings:
    """Which scenarios are used: how many, from which seeds, and what must be true of them."""

    count: int = setting(0, "how many different scenarios; 0: a new one for every episode")
    seed: int = setting(0, "where the seeds of the set begin")
    split: str = setting("train", "train or eval: the two never share a scenario")
    condition: str = setting("", "what must be true of the fire without agents, such as 50 < elapsed_steps < 150")
    population: int = setting(1000, "how many are tried at most")


class ScenarioSet:
    """Scenarios of one kind by number; those of a counted set satisfy its condition and are kept on disk as seeds."""

    def __init__(self, settings: ScenarioSettings, chosen: SetSettings, *, step_minutes: float = 1.0) -> None:
        if chosen.split not in ("train", "eval"):
            raise UsageError(f"scenarios.split is {chosen.split!r}; it is train or eval")
        for name, least in (("count", 0), ("seed", 0), ("population", 1)):
            if getattr(chosen, name) < least:
                raise UsageError(f"scenarios.{name} is {getattr(chosen, name)}; it must be at least {least}")
        self.settings, self.chosen, self._step = settings, chosen, step_minutes
        self._condition = Condition(chosen.condition, _FACTS) if chosen.condition else None
        self.make = lru_cache(maxsize=max(64, chosen.count))(settings.make)
        self.seeds = self._find() if chosen.count else None

    def scenario(self, number: int) -> Scenario:
        """The scenario of a number drawn for an episode."""
        if self.seeds is not None:
            return self.make(int(self.seeds[number % len(self.seeds)]))
        seed = self._seed(number)
        if self._condition is None:
            return self.make(seed)
        for tried in range(self.chosen.population):
            made = self.make(seed + 2 * tried)
            if self._condition(facts(made, self._step)):
                return made
        raise UsageError(f"none of {self.chosen.population} scenarios satisfies {self.chosen.condition!r}")

    def resampled(self, number: int) -> ScenarioSet:
        """A set of the same kind from other seeds, the ``number``-th."""
        further = self.chosen.seed + number * 2 * self.chosen.population
        return ScenarioSet(self.settings, replace(self.chosen, seed=further), step_minutes=self._step)

    def _seed(self, number: int) -> int:
        # Even seeds are for training, odd ones for evaluation.
        return 2 * (self.chosen.seed + number) + (self.chosen.split == "eval")

    @property
    def hash(self) -> str:
        named = (self.settings.hash, to_mapping(self.chosen), self._step)
        return hashlib.sha256(json.dumps(named, sort_keys=True).encode()).hexdigest()[:16]

    def _find(self) -> Array:
        if self._condition is None:
            return np.array([self._seed(number) for number in range(self.chosen.count)])
        file = cache_dir() / "wildfire" / f"{self.hash}.json"
        try:
            kept = json.loads(file.read_text(encoding="utf-8"))
            if len(kept) == self.chosen.count and all(isinstance(seed, int) for seed in kept):
                return np.array(kept)
        except (OSError, ValueError, TypeError):
            pass  # not there, or damaged: it is found again
        found: list[int] = []
        for number in range(self.chosen.population):
            seed = self._seed(number)
            if self._condition(facts(self.settings.make(seed), self._step)):
                found.append(seed)
                if len(found) == self.chosen.count:
                    break
        if len(found) < self.chosen.count:
            raise UsageError(
                f"only {len(found)} of {self.chosen.population} scenarios satisfy {self.chosen.condition!r}, "
                f"but {self.chosen.count} are wanted; loosen the condition or raise scenarios.population"
            )
        write_file(file, json.dumps(found))
        return np.array(found)


def facts(scenario: Scenario, step_minutes: float = 1.0) -> dict[str, float]:
    """What a condition may ask about the fire without agents."""
    fire = scenario.benchmark
    edge = np.concatenate([fire.arrival[[0, -1]].ravel(), fire.arrival[:, [0, -1]].ravel()])
    return {
        "elapsed_steps": float(np.ceil(fire.end / step_minutes)),
        "elapsed_minutes": fire.end,
        "burned_cells": float(fire.cells),
        "burned_area": fire.cells * scenario.land.cell_size**2 / 10_000,  # hectares
        "burned_part": fire.cells / fire.arrival.size,
        "assets_lost": fire.assets,
        "reaches_edge": float(np.isfinite(edge).any()),
    }
