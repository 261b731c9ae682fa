"""How fire burns and spreads: fuel models, Rothermel's equations, and fronts that run over maps."""

from __future__ import annotations

from operant.envs.wildfire.physics.fuels import FuelTable, fuel_number, fuel_table
from operant.envs.wildfire.physics.rothermel import Moisture, fire_behaviour, fuel_bed
from operant.envs.wildfire.physics.spread import Fires, SpreadRates

__all__ = ["Fires", "FuelTable", "Moisture", "SpreadRates", "fire_behaviour", "fuel_bed", "fuel_number", "fuel_table"]
