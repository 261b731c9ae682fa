"""Spotting: embers that the wind carries ahead of the front, where they set new cells on fire."""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np

from operant.envs.vector import Array
from operant.envs.wildfire.physics.spread import SpreadRates
from operant.envs.wildfire.weather import Weather
from operant.errors import UsageError
from operant.settings import setting


@dataclass(frozen=True)
class Spotting:
    """How often and how far embers fly. A cell throws at most one that takes, when fire reaches it.

    A statistical model, not one of lofting and burn-out: distances are exponential and grow with the wind.
    """

    probability: float = setting(0.0, "that an ember of a burning cell sets another on fire; 0: no spotting")
    distance: float = setting(300.0, "mean metres that embers fly in a wind of 10 m/s; half of it in 5 m/s")
    spread: float = setting(10.0, "degrees, the standard deviation around where the wind blows")
    delay: float = setting(5.0, "minutes from the cell's ignition to that of the cell where its ember lands")
    intensity: float = setting(500.0, "kW/m of the head below which a cell throws no embers")

    def __post_init__(self) -> None:
        if not 0 <= self.probability <= 1:
            raise UsageError(f"spotting.probability is {self.probability}; it is between 0 and 1")
        if self.delay <= 0 or self.distance <= 0:
            raise UsageError(f"spotting.delay and spotting.distance are {self.delay} and {self.distance}; both are > 0")


def with_embers(
    rates: SpreadRates, weather: Weather, spotting: Spotting, generator: np.random.Generator
) -> SpreadRates:
    """``rates`` with the cell that each cell's ember would set on fire: one draw for all weathers, lines and agents."""
    if not spotting.probability:
        return rates
    weathers, height, width = rates.rate.shape
    thrown = generator.random((height, width)) < spotting.probability
    far = generator.exponential(spotting.distance / 10.0, (height, width)) / rates.cell_size  # for each m/s
    aside = np.radians(generator.normal(0.0, spotting.spread, (height, width)))
    row, column = np.mgrid[:height, :width]
    embers: Array = np.full(rates.rate.shape, -1)
    for k in range(weathers):
        angle = np.radians(np.asarray(weather.wind_direction[k]) + 180.0) + aside
        cells = far * np.asarray(weather.wind_speed[k])
        to_row, to_column = np.rint(row - cells * np.cos(angle)), np.rint(column + cells * np.sin(angle))
        lands = (to_row >= 0) & (to_row < height) & (to_column >= 0) & (to_column < width)
        lands &= thrown & (rates.intensity[k] >= spotting.intensity) & ((to_row != row) | (to_column != column))
        embers[k][lands] = (to_row * width + to_column)[lands]
    return replace(rates, embers=embers, ember_delay=spotting.delay)
