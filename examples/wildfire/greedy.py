"""A fire that nobody fights, beside one with an agent that cuts a line across the way of its head."""

from __future__ import annotations

import numpy as np

from operant.envs.wildfire import Wildfire

SETTINGS = {
    "simulation": {
        "shape": [48, 48],
        "minutes": 400,
        "fuel": {"type": "uniform", "model": "GR2"},
        "wind": {"type": "constant", "speed": 5, "direction": 270},  # from the west
        "ignition": {"type": "fixed", "cells": [[24, 6]]},
    },
    "agent_speed": 2,  # steps of the agent in a minute
    "agent_initialization_method": "manual",
    "initial_agent_positions": [[4, 24]],
}
DOWN, LINE = 2, 5  # `action % movements` is the movement, `action // movements` the interaction


def fight(env: Wildfire, *, dig: bool) -> dict[str, float]:
    """The agent walks south, 18 cells east of the ignition, with or without its tool."""
    env.reset(seed=0)
    ended = False
    while not ended:
        _, _, terminated, truncated, info = env.step(DOWN + LINE if dig else DOWN)
        ended = terminated or truncated
    return info


def main() -> None:
    env = Wildfire(**SETTINGS)
    for dig in (False, True):
        info = fight(env, dig=dig)
        print(f"{'with a line' if dig else 'alone'}: {info['burned_area']:.0f} ha burned, "
              f"{info['area_saved_part']:.0%} saved in {info['minutes']:.0f} minutes")  # fmt: skip
    benchmark = env.world.scenarios[0].benchmark
    print(
        f"the head reaches the eastern edge after {np.nanmin(benchmark.arrival[:, -1]):.0f} minutes if nobody fights it"
    )


if __name__ == "__main__":
    main()
