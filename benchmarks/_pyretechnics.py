"""Runs where pyretechnics is installed: the fire of a map that benchmarks/wildfire.py wrote, by its level set."""

from __future__ import annotations

import sys
import time

import numpy as np
import pyretechnics.eulerian_level_set as level_set
from pyretechnics.space_time_cube import SpaceTimeCube


def main(given: str, written: str) -> None:
    case = np.load(given)
    rows, columns = case["fuel"].shape
    minutes, cell = int(case["minutes"]), float(case["cell_size"])
    shape = (minutes, rows, columns)

    def cube(value: object) -> SpaceTimeCube:
        # Its row 0 is the south.
        return SpaceTimeCube(shape, np.ascontiguousarray(value[::-1], np.float32) if np.ndim(value) else float(value))

    numbers = {
        "canopy_cover": 0, "canopy_height": 0, "canopy_base_height": 0, "canopy_bulk_density": 0,
        "fuel_moisture_dead_1hr": 0.06, "fuel_moisture_dead_10hr": 0.07, "fuel_moisture_dead_100hr": 0.08,
        "fuel_moisture_live_herbaceous": 0.6, "fuel_moisture_live_woody": 0.9, "foliar_moisture": 0.9,
        "wind_speed_10m": case["wind_speed"] * 3.6, "upwind_direction": case["wind_direction"],
        "slope": case["slope"], "aspect": case["aspect"], "fuel_model": case["fuel"],
    }  # fmt: skip
    cubes = {name: cube(value) for name, value in numbers.items()}
    row, column = case["ignition"]
    state = level_set.SpreadState(shape).ignite_cell((rows - 1 - int(row), int(column)))
    begin = time.process_time()
    done = level_set.spread_fire_with_phi_field(
        cubes, state, (1, cell, cell), 0, minutes - 1, use_wind_limit=False, surface_lw_ratio_model="behave"
    )
    cpu = time.process_time() - begin
    arrival = done["spread_state"].get_full_matrices()["time_of_arrival"][::-1]
    np.savez(written, arrival=np.where(arrival < 0, np.inf, arrival), cpu=cpu)


if __name__ == "__main__":
    main(*sys.argv[1:])
