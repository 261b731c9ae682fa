"""Runs where pyretechnics is installed: the fire of a map that benchmarks/wildfire.py wrote, by its level set.

With ``lines`` [steps, 2] in the file it burns on minute by minute, a line laid and the map seen in each step.
"""

from __future__ import annotations

import sys
import time
from typing import Any

import numpy as np
import pyretechnics.eulerian_level_set as level_set
from pyretechnics.space_time_cube import SpaceTimeCube

UNBURNABLE = 91


def main(given: str, written: str) -> None:
    case = np.load(given)
    rows, columns = case["fuel"].shape
    minutes, cell = int(case["minutes"]), float(case["cell_size"])
    shape = (minutes, rows, columns)

    def upright(value: Any) -> Any:
        return np.ascontiguousarray(value[::-1], np.float32) if np.ndim(value) else float(value)  # row 0 is the south

    fuel = upright(case["fuel"])  # the cube looks into this very array
    numbers = {
        "canopy_cover": 0, "canopy_height": 0, "canopy_base_height": 0, "canopy_bulk_density": 0,
        "fuel_moisture_dead_1hr": 0.06, "fuel_moisture_dead_10hr": 0.07, "fuel_moisture_dead_100hr": 0.08,
        "fuel_moisture_live_herbaceous": 0.6, "fuel_moisture_live_woody": 0.9, "foliar_moisture": 0.9,
        "wind_speed_10m": upright(case["wind_speed"] * 3.6), "upwind_direction": upright(case["wind_direction"]),
        "slope": upright(case["slope"]), "aspect": upright(case["aspect"]), "fuel_model": fuel,
    }  # fmt: skip
    cubes = {name: SpaceTimeCube(shape, value) for name, value in numbers.items()}
    row, column = case["ignition"]
    state = level_set.SpreadState(shape).ignite_cell((rows - 1 - int(row), int(column)))

    def burn(state: Any, start: float, duration: float) -> Any:
        return level_set.spread_fire_with_phi_field(
            cubes, state, (1, cell, cell), start, duration, use_wind_limit=False, surface_lw_ratio_model="behave"
        )["spread_state"]

    if "lines" in case:
        lines = case["lines"].tolist()
        state = burn(state, 0.0, 0.01)  # what is done once
        begin = time.process_time()
        for step, (line_row, line_column) in enumerate(lines):
            fuel[rows - 1 - line_row, line_column] = UNBURNABLE
            state = burn(state, float(step), 1.0)
            np.asarray(state.get_full_matrices()["time_of_arrival"]).sum()
        cpu = time.process_time() - begin
    else:
        begin = time.process_time()
        state = burn(state, 0.0, minutes - 1)
        cpu = time.process_time() - begin
    arrival = np.asarray(state.get_full_matrices()["time_of_arrival"])[::-1]
    np.savez(written, arrival=np.where(arrival < 0, np.inf, arrival), cpu=cpu)


if __name__ == "__main__":
    main(*sys.argv[1:])
