"""Small fires for tests."""

from __future__ import annotations

from typing import Any

import numpy as np

from operant.envs.wildfire import Wildfire

SMALL: dict[str, Any] = {
    "shape": [14, 18],
    "minutes": 120,
    "wind": {"type": "constant", "speed": [2, 8], "direction": [0, 359]},
}
RICH: dict[str, Any] = {
    **SMALL,
    "terrain": {"type": "hills"},
    "fuel": {"type": "patches", "models": ["GR2", "GS2", "SH5", "NB8"], "weights": [4, 3, 2, 1]},
    "wind": {"type": "gusts", "speed": [2, 8], "direction": [0, 359], "strength": 0.6},
    "moisture": {"dry_slopes": 0.5},
    "assets": {"type": "houses", "value": 3.0},
}


def play(env: Any, steps: int, seed: int = 0) -> list[Any]:
    """Take random actions."""
    generator, space = np.random.default_rng(seed), env.single_action_space
    count = space.nvec if space.shape else space.n
    return [env.step(generator.integers(count, size=(env.num_envs, *space.shape))) for _ in range(steps)]


def deterministic(**settings: Any) -> Wildfire:
    """Grass without wind that is lit in the middle, and an agent that starts in one place."""
    simulation = {
        "shape": [15, 15],
        "minutes": 200,
        "wind": {"type": "constant", "speed": 0.0},
        "fuel": {"type": "uniform", "model": "GR2"},
        "ignition": {"type": "fixed", "cells": [[7, 7]]},
        **settings.pop("simulation", {}),
    }
    return Wildfire(
        simulation=simulation,
        **{
            "attributes": ["fire_map"],
            "normalized_attributes": [],
            "agent_initialization_method": "manual",
            "initial_agent_positions": [[2, 3]],
            **settings,
        },
    )


def ring(env: Wildfire, radius: int) -> None:
    """Enclose the middle of the map by lines."""
    around = [(7 + r, 7 + c) for r in range(-radius, radius + 1) for c in range(-radius, radius + 1)
              if max(abs(r), abs(c)) == radius]  # fmt: skip
    env.world.fires.slow(0, *zip(*around, strict=True), 0.0)
