"""Runs where SimFire is installed: CPU-seconds of steps of one minute on a square map, a line laid and the map seen.

    python _simfire.py SIZE STEPS

Flat land, chaparral and one wind, nothing drawn. It prints CPU-seconds, the steps made (fewer where the fire goes out)
and the cells that burned.
"""

from __future__ import annotations

import os
import random
import sys
import time

os.environ.update(SDL_VIDEODRIVER="dummy", MPLBACKEND="Agg")

import numpy as np
from simfire.sim.simulation import FireSimulation
from simfire.utils.config import Config


def settings(size: int) -> dict[str, object]:
    middle = f"({size // 2}, {size // 2})"
    return {
        "area": {"screen_size": [size, size], "pixel_scale": 50},
        "display": {"fire_size": 2, "control_line_size": 2, "agent_size": 4, "rescale_factor": 1},
        "simulation": {
            "update_rate": 1, "runtime": "15h", "headless": True, "draw_spread_graph": False, "record": False,
            "save_data": False, "data_type": "npy", "sf_home": "~/.simfire",
        },
        "mitigation": {"ros_attenuation": False},
        "operational": {
            "seed": None, "latitude": 39.67, "longitude": 119.8, "height": 2000, "width": 2000, "resolution": 30,
            "year": 2020,
        },
        "terrain": {
            "topography": {"type": "functional", "functional": {"function": "flat"}},
            "fuel": {
                "type": "functional",
                "functional": {"function": "chaparral", "chaparral": {"seed": 1113}},
                "burn_probability": {"type": "functional", "functional": {"function": "flat"}},
            },
        },
        "fire": {
            "fire_initial_position": {"type": "static", "static": {"position": middle}, "random": {"seed": 1}},
            "max_fire_duration": 4,
            "diagonal_spread": True,
        },
        "environment": {"moisture": 0.03},
        "wind": {"function": "simple", "simple": {"speed": 7, "direction": 90.0}},
    }  # fmt: skip


def main(size: int, steps: int) -> None:
    random.seed(0)
    simulation = FireSimulation(Config(config_dict=settings(size)))
    line = simulation.get_actions()["fireline"]
    simulation.run(1)
    begin, made, burns = time.process_time(), 0, True
    while burns and made < steps:
        made += 1
        simulation.update_mitigation([(random.randrange(size), random.randrange(size), line)])
        seen, burns = simulation.run(1)
        np.asarray(seen, np.float32).sum()
        edges = np.concatenate([seen[[0, -1]].ravel(), seen[:, [0, -1]].ravel()])
        burns = bool(burns) and not np.isin(edges, (1, 2)).any()
    print(time.process_time() - begin, made, int(np.isin(seen, (1, 2)).sum()))


if __name__ == "__main__":
    main(int(sys.argv[1]), int(sys.argv[2]))
