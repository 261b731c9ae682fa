"""Wildfires: Rothermel's surface fire that spreads over maps, for simulation and as environments to learn on."""

from __future__ import annotations

from operant.envs.wildfire.fuels import fuel_number, fuel_table
from operant.envs.wildfire.rothermel import Moisture
from operant.envs.wildfire.spread import Fires, SpreadRates

__all__ = ["Fires", "Moisture", "SpreadRates", "fuel_number", "fuel_table"]
