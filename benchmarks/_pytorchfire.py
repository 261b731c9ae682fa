"""Runs where pytorchfire is installed: CPU-seconds of steps on a square map, a line laid and the map seen in each."""

from __future__ import annotations

import sys
import time

import torch
from pytorchfire import WildfireModel


def main(size: int, steps: int) -> None:
    torch.set_num_threads(1)
    ignition = torch.zeros(size, size, dtype=torch.bool)
    ignition[size // 2, size // 2] = True
    model = WildfireModel(
        {
            "p_veg": torch.zeros(size, size),
            "p_den": torch.zeros(size, size),
            "wind_velocity": torch.full((size, size), 5.0),
            "wind_towards_direction": torch.full((size, size), 20.0),
            "slope": torch.zeros(size, size, 3, 3),
            "initial_ignition": ignition,
        }
    )
    lines = torch.randint(size, (steps + 5, 2), generator=torch.Generator().manual_seed(0)).tolist()
    with torch.no_grad():
        for step, (row, column) in enumerate(lines):
            if step == 5:
                begin = time.process_time()
            model.p_veg[row, column] = -1.0  # nothing spreads into it
            model.compute()
            model.state.float()
    print(time.process_time() - begin)


if __name__ == "__main__":
    main(int(sys.argv[1]), int(sys.argv[2]))
