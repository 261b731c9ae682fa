"""Wind and moisture that change in time and from place to place, and how fast fire spreads in them."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from operant.envs.vector import Array
from operant.envs.wildfire.land import Land
from operant.envs.wildfire.physics.fuels import fuel_table
from operant.envs.wildfire.physics.rothermel import FEET, Moisture, fire_behaviour, fuel_bed, wind_adjustment
from operant.envs.wildfire.physics.spread import SpreadRates
from operant.errors import UsageError

_FT_MIN = 60.0 / FEET  # of one m/s
_TEN_METRES = 1.15  # wind at 10 m over wind at 20 ft
_MOST_CHANGES = 100_000  # of the wind in a fire
_KW_M = 3.46414  # of one Btu/ft/s


@dataclass(frozen=True)
class Weather:
    """What holds from each of the times ``changes`` on. Speeds and directions are numbers or maps for each of them.

    :param wind_speed: m/s at 10 m above ground, [K] or [K, H, W].
    :param wind_direction: degrees clockwise from north, where the wind comes from, [K] or [K, H, W].
    """

    changes: Array  # [K] minutes
    wind_speed: Array
    wind_direction: Array
    moisture: tuple[Moisture, ...]  # one for all times, or one for each

    def __post_init__(self) -> None:
        count = len(self.changes)
        if not count or (np.diff(self.changes) <= 0).any():
            raise UsageError(f"the weather changes at {self.changes}; these must be rising times")
        for name in ("wind_speed", "wind_direction"):
            if len(getattr(self, name)) != count:
                raise UsageError(f"{name} holds {len(getattr(self, name))} values for {count} times")
        if len(self.moisture) not in (1, count):
            raise UsageError(f"moisture holds {len(self.moisture)} values for {count} times")
        if (np.asarray(self.wind_speed) < 0).any():
            raise UsageError("wind_speed must not be negative; turn wind_direction instead")
        if not (np.isfinite(self.wind_speed).all() and np.isfinite(self.wind_direction).all()):
            raise UsageError("wind_speed and wind_direction must be numbers")

    def at(self, minute: Array) -> Array:
        """Which of the times holds at ``minute``."""
        return np.maximum(np.searchsorted(self.changes, minute, side="right") - 1, 0)

    def mean_wind(self, which: int) -> tuple[float, float]:
        """Over the map, from the ``which``-th time on: m/s, and the degrees it comes from."""
        angle = np.radians(np.asarray(self.wind_direction[which]))
        speed = np.asarray(self.wind_speed[which])
        east, north = float(np.mean(speed * np.sin(angle))), float(np.mean(speed * np.cos(angle)))
        return math.hypot(east, north), math.degrees(math.atan2(east, north)) % 360


def spread_rates(land: Land, weather: Weather, *, wind_limit: bool = False) -> SpreadRates:
    """Rothermel's rates in every cell, whenever the weather changes."""
    table = fuel_table()
    shelter = wind_adjustment(
        table.depth[land.rows],
        cover=land.cover,
        height=np.asarray(land.height) / FEET,
        crown_ratio=land.crown_ratio,
    )
    shape = (len(weather.changes), *land.shape)
    rate, heading, eccentricity, intensity = (np.empty(shape) for _ in range(4))
    bed = None
    for k in range(len(weather.changes)):
        if bed is None or len(weather.moisture) > 1:
            moisture = weather.moisture[min(k, len(weather.moisture) - 1)]
            if any(np.ndim(value) for value in vars(moisture).values()):
                bed = fuel_bed(table, moisture, rows=land.rows)
            else:
                bed = fuel_bed(table, moisture).at(land.rows)  # the same for all cells of one model
        blows_to = np.radians(np.asarray(weather.wind_direction[k]) + 180.0)
        midflame = np.asarray(weather.wind_speed[k]) / _TEN_METRES * _FT_MIN * shelter
        head = fire_behaviour(bed, midflame, land.slope, blows_to - land.upslope, wind_limit=wind_limit)
        rate[k] = np.where(land.burnable, head.rate * FEET, 0.0)
        heading[k] = (land.upslope + head.heading) % (2 * np.pi)
        eccentricity[k] = head.eccentricity
        intensity[k] = np.where(land.burnable, head.fireline_intensity * _KW_M, 0.0)
    assert bed is not None
    return SpreadRates(
        cell_size=land.cell_size,
        changes=np.asarray(weather.changes, np.float64),
        rate=rate,
        heading=heading,
        eccentricity=eccentricity,
        intensity=intensity,
        residence=np.where(land.burnable, bed.residence_time, 0.0),
    )


# Wind: (land, minutes, generator) and settings -> times, speeds, directions.

Wind = tuple[Array, Array, Array]


def _constant(
    land: Land, minutes: float, generator: np.random.Generator, *,
    speed: float | Sequence[float] = 5.0, direction: float | Sequence[float] = 270.0,
) -> Wind:  # fmt: skip
    """One wind for all places and times; two numbers are a range from which it is drawn."""
    return (
        np.zeros(1),
        np.array([_drawn("speed", speed, generator)]),
        np.array([_drawn("direction", direction, generator)]),
    )


def _gusts(
    land: Land, minutes: float, generator: np.random.Generator, *,
    speed: float | Sequence[float] = 5.0, direction: float | Sequence[float] = 270.0,
    every: float = 10.0, strength: float = 0.3, turn: float = 15.0,
) -> Wind:  # fmt: skip
    """Speed and direction wander around their means: new every ``every`` minutes, half of it kept from the last.

    ``strength`` is the standard deviation of the speed in parts of its mean, ``turn`` that of the direction in degrees.
    """
    if not (every > 0 and minutes / every <= _MOST_CHANGES):
        raise UsageError(
            f"wind.every is {every}; it is minutes from gust to gust, of which there are at most {_MOST_CHANGES:,}"
        )
    mean, towards = _drawn("speed", speed, generator), _drawn("direction", direction, generator)
    changes = np.arange(0.0, max(minutes, every), every)
    wander = np.clip(generator.standard_normal((2, len(changes))), -3.0, 3.0)
    for k in range(1, len(changes)):
        wander[:, k] = 0.5 * wander[:, k - 1] + np.sqrt(0.75) * wander[:, k]
    return changes, mean * np.maximum(1.0 + strength * wander[0], 0.0), (towards + turn * wander[1]) % 360.0


def _over_terrain(
    land: Land, minutes: float, generator: np.random.Generator, *,
    speed: float | Sequence[float] = 5.0, direction: float | Sequence[float] = 270.0,
    speed_up: float = 0.5, deflection: float = 0.5,
) -> Wind:  # fmt: skip
    """Faster on ridges, slower in valleys, turned along slopes that stand across it.

    A rule of thumb, not a flow model: ``speed_up`` is the gain from mean height to the top; the part of the wind that
    blows against a slope of 45 degrees is weakened by ``deflection``.
    """
    mean, comes_from = _drawn("speed", speed, generator), np.radians(_drawn("direction", direction, generator))
    spread = land.elevation - land.elevation.mean()
    largest = np.abs(spread).max()
    faster = 1.0 + (speed_up * spread / largest if largest > 0 else 0.0)
    north, east = -np.cos(comes_from), -np.sin(comes_from)
    up_north, up_east = land.gradient
    against = np.maximum(north * up_north + east * up_east, 0.0)
    length = np.maximum(land.slope, 1e-9)
    weaker = deflection * against / np.maximum(length, 1.0) / length
    to_north, to_east = north - weaker * up_north, east - weaker * up_east
    speeds = np.maximum(mean * faster * np.hypot(to_north, to_east), 0.0)
    return np.zeros(1), speeds[None], (np.degrees(np.arctan2(to_east, to_north))[None] + 180.0) % 360.0


def _given(
    land: Land, minutes: float, generator: np.random.Generator, *,
    times: Sequence[float], speed: Any, direction: Any,
) -> Wind:  # fmt: skip
    """A table: from each of ``times`` (minutes) on, one speed and direction."""
    if not len(times) == len(speed) == len(direction):
        raise UsageError(
            f"wind has {len(times)} times, {len(speed)} speeds and {len(direction)} directions; one each is wanted"
        )
    return np.asarray(times, float), np.asarray(speed, float), np.asarray(direction, float)


WINDS: dict[str, Callable[..., Wind]] = {
    "constant": _constant,
    "gusts": _gusts,
    "terrain": _over_terrain,
    "table": _given,
}


def with_moisture(moisture: Moisture, land: Land, *, dry_slopes: float = 0.0) -> Moisture:
    """Dead fuel drier on slopes that face south and wetter on those that face north: ``dry_slopes`` at 45 degrees."""
    if not dry_slopes:
        return moisture
    north, _ = land.gradient  # a slope that rises to the north faces south
    factor = np.clip(1.0 - dry_slopes * north, 0.2, 2.0)
    return Moisture(
        moisture.dead_1h * factor,
        moisture.dead_10h * factor,
        moisture.dead_100h * factor,
        np.full(land.shape, float(moisture.live_herb)),
        np.full(land.shape, float(moisture.live_woody)),
    )


def _drawn(name: str, value: float | Sequence[float], generator: np.random.Generator) -> float:
    if isinstance(value, int | float):
        return float(value)
    match value:
        case [int() | float() as low, int() | float() as high] if low <= high:
            return float(generator.uniform(low, high))
    raise UsageError(f"wind.{name} is {value!r:.80}; it is a number, or two of which the first is not the larger")
