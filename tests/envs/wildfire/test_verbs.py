"""What agents can do: lines, movements, tools, masks, and the frame of the wind."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pytest
from tests.envs.wildfire.fires import deterministic

from operant.envs.wildfire import Wildfire
from operant.envs.wildfire.verbs import TOOLS


def test_a_line_is_laid_before_the_step_and_steps_end_at_the_edge() -> None:
    env = deterministic()
    env.reset(seed=0)
    obs, *_ = env.step(5 + 3)  # fireline, left
    assert obs[2, 3, 0] == TOOLS["fireline"].code
    assert env.world.position[0, 0].tolist() == [2, 2]
    for _ in range(4):
        env.step(3)
    assert env.world.position[0, 0].tolist() == [2, 0]


TURNS = [np.array(turn) for turn in (
    [[1, 0], [0, 1]], [[1, 0], [0, -1]], [[-1, 0], [0, 1]], [[-1, 0], [0, -1]],
    [[0, 1], [1, 0]], [[0, 1], [-1, 0]], [[0, -1], [1, 0]], [[0, -1], [-1, 0]],
)]  # fmt: skip


def turned(turn: Any, **settings: Any) -> Wildfire:
    """A fire in a wind that blows north and a little to the east, and an agent beside it, on a map that is turned."""

    def place(row: int, column: int) -> list[int]:
        return (turn @ (row - 7, column - 7) + 7).tolist()  # type: ignore[no-any-return]

    row, column = turn @ (-math.cos(0.4), math.sin(0.4))
    wind = {"type": "constant", "speed": 6.0, "direction": math.degrees(math.atan2(-column, row)) % 360}
    return deterministic(
        simulation={"minutes": 40, "wind": wind, "ignition": {"type": "fixed", "cells": [place(9, 6)]}},
        attributes=["fire_map", "threat"],
        initial_agent_positions=[place(5, 4)],
        movements=["up", "down", "left", "right", "up_right"],
        interactions=["fireline"],
        action_masks=True,
        window=5,
        reward="area_spared",
        **settings,
    )


@pytest.mark.parametrize("turn", TURNS)
def test_in_the_frame_of_the_wind_all_directions_look_alike(turn: Any) -> None:
    env, other = turned(TURNS[0], frame="wind"), turned(turn, frame="wind")
    obs, info = env.reset(seed=0)
    assert obs[5 + 4, 5 + 2, 0] == 1  # the fire, below the agent and to its right
    same, same_info = other.reset(seed=0)
    for action in (3, 3, 4, 1, 3, 3, 1, 1, 2, 0, 3):
        np.testing.assert_allclose(same, obs, atol=1e-6)
        assert (info["action_mask"] == same_info["action_mask"]).all()
        obs, reward, *_, info = env.step(action)
        same, same_reward, *_, same_info = other.step(action)
        assert same_reward == pytest.approx(reward)
    assert (obs[..., 0] == TOOLS["fireline"].code).sum() > 5
    state = other.save_state()
    loaded = turned(turn, frame="wind")
    loaded.reset(seed=0)
    loaded.load_state(state)
    np.testing.assert_array_equal(loaded.step(1)[0], other.step(1)[0])


def test_without_it_they_do_not() -> None:
    env, other = turned(TURNS[0]), turned(TURNS[3])
    assert not np.allclose(env.reset(seed=0)[0], other.reset(seed=0)[0])


def test_agents_take_several_steps_while_fire_takes_one() -> None:
    env = deterministic(agent_speed=4, step_minutes=2.0)
    env.reset(seed=0)
    clocks = [env.step(0) and float(env.world.fires.clock[0]) for _ in range(9)]
    assert clocks == [0, 0, 0, 2, 2, 2, 2, 4, 4]


def test_tools_have_widths_and_take_time() -> None:
    env = deterministic(interactions=["none", "air_drop", "crew"], movements=["none"])
    env.reset(seed=0)
    obs, *_ = env.step(1)
    assert (obs[..., 0] == TOOLS["air_drop"].code).sum() == 5 * 5
    env.world.position[0, 0] = [12, 3]
    assert not env.action_masks()[1]
    for _ in range(TOOLS["air_drop"].every - 1):
        obs, *_ = env.step(1)
    assert (obs[..., 0] == TOOLS["air_drop"].code).sum() == 5 * 5
    assert env.action_masks()[1]
    obs, *_ = env.step(1)
    assert (obs[..., 0] == TOOLS["air_drop"].code).sum() == 5 * 5 * 2


def test_masks_forbid_what_is_vain() -> None:
    env = deterministic(action_masks=True, initial_agent_positions=[[0, 7]])
    _, info = env.reset(seed=0)
    up, down = 1, 2
    assert not info["action_mask"][up] and info["action_mask"][down] and info["action_mask"][5]
    *_, info = env.step(5)
    assert not info["action_mask"][5:].any()  # the cell has its line
    assert info["action_mask"][0]


@pytest.mark.parametrize("jit", [True, False])
def test_of_two_tools_in_one_cell_the_first_agents_counts(jit: bool) -> None:
    env = deterministic(
        num_agents=3, initial_agent_positions=[[2, 3], [2, 3], [0, 0]], interactions=["wetline", "air_drop"], jit=jit
    )
    env.reset(seed=0)
    env.step([5, 0, 0])
    codes = env.world.status[0]
    assert (codes == TOOLS["air_drop"].code).sum() == 5 * 5 and codes[2, 3] == TOOLS["air_drop"].code
    assert codes[0, 0] == TOOLS["wetline"].code and env.world.fires.factor[0, 0, 0] == TOOLS["wetline"].keeps
    assert env.metrics()["line_cells"] == 5 * 5 + 1
