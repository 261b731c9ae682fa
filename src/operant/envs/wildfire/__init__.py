"""Wildfires: Rothermel's surface fire that spreads over maps, for simulation and as environments to learn on."""

from __future__ import annotations

from operant.envs.wildfire.envs import Wildfire, WildfireVector
from operant.envs.wildfire.land import Land
from operant.envs.wildfire.physics import Fires, Moisture, SpreadRates, fuel_number, fuel_table
from operant.envs.wildfire.scenarios import Scenario, ScenarioSet, ScenarioSettings
from operant.envs.wildfire.weather import Weather, spread_rates
from operant.envs.wildfire.world import WildfireSettings

__all__ = [
    "Fires",
    "Land",
    "Moisture",
    "Scenario",
    "ScenarioSet",
    "ScenarioSettings",
    "SpreadRates",
    "Weather",
    "Wildfire",
    "WildfireSettings",
    "WildfireVector",
    "fuel_number",
    "fuel_table",
    "spread_rates",
]
