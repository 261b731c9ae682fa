"""Rewards by name, and by import path: functions from what happened in a step to one number for each fire."""

from __future__ import annotations

import importlib
from collections.abc import Callable
from typing import NamedTuple

import numpy as np

from operant.envs.vector import Array
from operant.errors import UsageError, nearest
from operant.importing import modules_from_here


class Outcome(NamedTuple):
    """What one agent step changed in N fires. Cells are counts; ``bench`` is the fire of the same scenario unfought."""

    cells: int  # of the map
    spread: Array  # [N] bool: whether the fire moved on in this step, or only agents did
    ended: Array  # [N] bool: the fire is out
    burning: Array  # [N]
    new_burnt: Array  # [N] cells that began to burn
    bench_new_burnt: Array  # [N] the same of the benchmark fire
    bench_rest: Array  # [N] cells that the benchmark fire would still burn
    bench_burnt: Array  # [N] cells that it burns in all; at least 1
    new_lost: Array  # [N] value of assets that began to burn
    bench_new_lost: Array
    bench_lost_rest: Array
    assets: Array  # [N] value of all assets of the map
    laid: Array  # [N] cells of line laid where the benchmark fire comes
    spared: Array  # [N] cells that will not burn now, by this step's lines; counted for rewards with ``looks_ahead``
    agents: int
    agent_speed: int


Reward = Callable[[Outcome], Array]


def simple(outcome: Outcome) -> Array:
    """Minus the part of the map that burns, whenever the fire moves."""
    return np.where(outcome.spread, -outcome.burning / outcome.cells, 0.0)


def area_saved(outcome: Outcome) -> Array:
    """Cells that burn less than in the benchmark fire, in parts of all it burns; a small bonus for lines in its way.

    Summed over an episode that ends with the fire this is the part of the benchmark's area that was saved, and the
    bonus, which is less than 1 / (agents x speed): lines elsewhere pay nothing, however small the fire.
    """
    saved = outcome.spread * (outcome.bench_new_burnt - outcome.new_burnt + outcome.ended * outcome.bench_rest)
    if outcome.agent_speed > 1:
        saved += ~outcome.spread * (outcome.laid / (outcome.agents * outcome.agent_speed))
    return np.asarray(saved / outcome.bench_burnt)


def area_saved_v2(outcome: Outcome) -> Array:
    """`area_saved`, never below 0."""
    return np.maximum(area_saved(outcome), 0.0)


def area_spared(outcome: Outcome) -> Array:
    """Cells that will not burn any more because of this step's lines, in parts of what the benchmark fire burns.

    The sum over an episode is that of `area_saved`, paid when a line is laid and not when the fire fails to come: much
    easier to learn from. It costs a look ahead to the end of the fire for each line in its way.
    """
    return np.asarray(outcome.spared / outcome.bench_burnt)


area_spared.looks_ahead = True  # type: ignore[attr-defined]


def assets(outcome: Outcome) -> Array:
    """Value that burns less than in the benchmark fire, in parts of all value on the map."""
    rest = np.where(outcome.ended, outcome.bench_lost_rest, 0.0)
    saved = np.where(outcome.spread, outcome.bench_new_lost - outcome.new_lost + rest, 0.0)
    return np.asarray(saved / np.where(outcome.assets > 0, outcome.assets, 1.0))


REWARDS: dict[str, Reward] = {
    "simple": simple,
    "area_saved": area_saved,
    "area_saved_v2": area_saved_v2,
    "area_spared": area_spared,
    "assets": assets,
}


def find_reward(name: str) -> Reward:
    """A reward of ours by its name, or ``package.module:function``."""
    if name in REWARDS:
        return REWARDS[name]
    module_name, _, attribute = name.partition(":")
    if not attribute:
        raise UsageError(
            f"there is no reward {name!r}{nearest(name, REWARDS)}; known: {', '.join(REWARDS)}, or module:function"
        )
    try:
        with modules_from_here():
            found = getattr(importlib.import_module(module_name), attribute, None)
    except ModuleNotFoundError as error:
        raise UsageError(f"the reward {name!r} cannot be imported: {error}") from None
    if not callable(found):
        raise UsageError(f"the module {module_name!r} has no function {attribute!r} to reward with")
    reward: Reward = found
    return reward
