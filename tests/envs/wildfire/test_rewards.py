"""What agents are paid for, and what is told of a fire at its end."""

from __future__ import annotations

import math
import sys
import types
from typing import Any

import numpy as np
import pytest
from tests.envs.wildfire.fires import RICH, deterministic, ring

from operant.envs.wildfire import Wildfire, WildfireVector
from operant.envs.wildfire.rewards import REWARDS, Outcome
from operant.errors import UsageError


def test_a_fire_that_is_enclosed_goes_out_and_what_is_saved_is_the_return() -> None:
    env = deterministic(reward="area_saved")
    env.reset(seed=0)
    ring(env, 2)
    total, ended = 0.0, False
    while not ended:
        _, reward, ended, truncated, info = env.step(0)
        total += reward
        assert not truncated
    assert info["burned_area"] == pytest.approx(9 * 0.09)
    assert info["area_saved_part"] == pytest.approx(total)
    assert total > 0.5 and info["time_gained"] > 0


def test_only_lines_in_the_way_of_the_fire_earn_a_bonus() -> None:
    def first_reward(start: list[int], cells: list[list[int]]) -> float:
        fuel = {"simulation": {"ignition": {"type": "fixed", "cells": cells}}}
        env = deterministic(reward="area_saved", agent_speed=4, initial_agent_positions=[start], **fuel)
        env.reset(seed=0)
        return float(env.step(5)[1])  # a line in the agent's cell, while the fire waits for its turn

    assert first_reward([7, 8], [[7, 7]]) > 0
    assert first_reward([0, 0], [[14, 14]]) == 0


def test_what_a_line_spares_is_paid_when_it_is_laid() -> None:
    settings = {"simulation": RICH, "attributes": ["time_to_fire"], "normalized_attributes": []}
    env = WildfireVector(3, seed=2, reward="area_spared", interactions=["none", "fireline", "wetline"], **settings)
    env.reset()
    total, generator = np.zeros(3), np.random.default_rng(0)
    while True:
        ahead = env.world.projection.time.copy()
        step = env.step(generator.integers(15, size=3))
        total += step.reward
        if step.final_obs is not None:
            break
        burnt, end = env.world.fires.burnt, env.world.fires.clock[:, None, None]
        laid = env.world.fires.factor < 1
        assert (np.asarray(step.obs)[burnt, 0] == 0).all()
        np.testing.assert_array_equal(burnt & ~laid, (ahead <= end) & ~laid)
    fires = [fire["area_saved_part"] for fire in step.info["fires"]]
    assert total[step.done] == pytest.approx(fires, abs=1e-9)
    assert max(fires) > 0


@pytest.mark.parametrize("name", REWARDS)
def test_rewards_are_finite_and_nought_for_idle_agents_unless_simple(name: str) -> None:
    env = deterministic(reward=name, simulation={"assets": {"type": "houses"}})
    env.reset(seed=0)
    total, done = 0.0, False
    while not done:
        _, reward, terminated, truncated, _ = env.step(0)
        total += reward
        done = terminated or truncated
    assert math.isfinite(total)
    assert (total < 0) if name == "simple" else (total == pytest.approx(0.0))


def negative_burnt(outcome: Outcome) -> Any:
    return -outcome.new_burnt.astype(float)


def test_a_reward_of_ones_own(monkeypatch: pytest.MonkeyPatch) -> None:
    module = types.ModuleType("rewards_of_mine")
    module.negative_burnt = negative_burnt  # type: ignore[attr-defined]
    monkeypatch.setitem(sys.modules, "rewards_of_mine", module)
    env = deterministic(reward="rewards_of_mine:negative_burnt")
    env.reset(seed=0)
    rewards = [env.step(0)[1] for _ in range(100)]
    assert -sum(rewards) == env.world.burnt[0] - 1 > 5
    module.total = lambda outcome: float(outcome.new_burnt.sum())  # type: ignore[attr-defined]
    env = deterministic(reward="rewards_of_mine:total")
    env.reset(seed=0)
    with pytest.raises(UsageError, match="one number for each"):
        env.step(0)
    for name, message in (
        ("area_save", "area_saved"),
        ("rewards_of_mine:nothing", "nothing"),
        ("no_such:x", "no_such"),
    ):
        with pytest.raises(UsageError, match=message):
            Wildfire(reward=name)
