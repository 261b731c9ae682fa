"""The environments: checkers of other libraries, verbs, observations, rewards, exact resume."""

from __future__ import annotations

import math
import sys
import types
import warnings
from typing import Any

import numpy as np
import pytest
from gymnasium.utils.env_checker import check_env

from operant.envs import make_env
from operant.envs.wildfire import Wildfire, WildfireVector
from operant.envs.wildfire.attributes import ATTRIBUTES
from operant.envs.wildfire.rendering import draw_frame
from operant.envs.wildfire.rewards import REWARDS, Outcome
from operant.envs.wildfire.verbs import AGENT, TOOLS
from operant.errors import UsageError
from operant.testing import EnvironmentContract

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


class TestVector(EnvironmentContract):
    steps = 150

    def build(self) -> WildfireVector:
        return WildfireVector(
            3, simulation=RICH, max_episode_steps=40, action_masks=True, scenarios={"count": 5},
            attributes=["fire_map", "elevation", "wind_speed"], normalized_attributes=["elevation"],
        )  # fmt: skip


class TestSingle(EnvironmentContract):
    steps = 60

    def build(self) -> Wildfire:
        return Wildfire(simulation=SMALL, max_episode_steps=25)


def play(env: Any, steps: int, seed: int = 0) -> list[Any]:
    generator = np.random.default_rng(seed)
    taken = []
    for _ in range(steps):
        step = env.step(generator.integers(env.single_action_space.n, size=env.num_envs))
        taken.append(step)
    return taken


@pytest.mark.parametrize(
    "settings",
    [
        {},
        {"window": 3, "action_masks": True, "attributes": ["fire_map", "slope"], "normalized_attributes": ["slope"]},
        {"num_agents": 2, "action_space": "multi_discrete", "window": 2},
        {"num_agents": 2, "reward": "assets"},
    ],
)
def test_gymnasium_accepts_it(settings: dict[str, Any]) -> None:
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", message=".*alternative render modes.*")
        warnings.filterwarnings("ignore", message=".*recommend using a symmetric and normalized space.*")
        check_env(Wildfire(simulation=RICH, **settings))


def test_stable_baselines_accepts_it() -> None:
    from stable_baselines3.common.env_checker import check_env as check_for_sb3

    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", category=UserWarning)  # the observation is no picture
        check_for_sb3(Wildfire(simulation=SMALL))


@pytest.mark.long  # RLlib takes seven seconds to import
def test_rllib_accepts_it() -> None:
    from ray.rllib.env.wrappers.pettingzoo_env import ParallelPettingZooEnv
    from ray.rllib.utils.pre_checks.env import check_multiagent_environments

    from operant.envs.wildfire.parallel import WildfireParallel

    check_multiagent_environments(ParallelPettingZooEnv(WildfireParallel(num_agents=2, simulation=SMALL)))


def test_pettingzoo_accepts_it() -> None:
    pytest.importorskip("pettingzoo")
    from operant.envs.wildfire.parallel import WildfireParallel

    with warnings.catch_warnings():
        # Its own tests warn of each other, and of agents that see and earn the same.
        warnings.filterwarnings("ignore", category=DeprecationWarning)
        warnings.filterwarnings("ignore", category=UserWarning)
        from pettingzoo.test import parallel_api_test, parallel_seed_test

        for settings in ({}, {"window": 2, "num_agents": 3, "action_masks": True}):
            parallel_api_test(WildfireParallel(simulation=SMALL, **settings), num_cycles=150)
            parallel_seed_test(lambda chosen=settings: WildfireParallel(simulation=SMALL, **chosen), num_cycles=30)


@pytest.mark.parametrize("simulation", [SMALL, RICH, {**RICH, "land_seed": None}])
@pytest.mark.parametrize("scaled", [False, True])
def test_all_attributes_keep_their_bounds(simulation: dict[str, Any], scaled: bool) -> None:
    names = list(ATTRIBUTES)
    env = WildfireVector(
        3,
        seed=1,
        simulation=simulation,
        attributes=names,
        normalized_attributes=names if scaled else [],
        num_agents=1,
        interactions=["none", *TOOLS],
    )
    low, high = env.single_observation_space.low, env.single_observation_space.high  # type: ignore[attr-defined]
    for obs in [env.reset(), *(step.obs for step in play(env, 60))]:
        assert obs.dtype == np.float32
        tolerance = 1e-5 * np.maximum(1.0, np.abs(high))
        assert (obs >= low - tolerance).all() and (obs <= high + tolerance).all()
    if scaled:
        assert low.min() == 0 and high.max() == 1


@pytest.mark.parametrize("settings", [{}, {"simulation": RICH, "window": 2, "action_masks": True}])
def test_rows_do_what_single_environments_do(settings: dict[str, Any]) -> None:
    settings = {"simulation": SMALL, "agent_speed": 2, **settings}
    env = WildfireVector(3, seed=5, **settings)
    first, steps = env.reset(), play(env, 90)
    for row in range(3):
        alone = WildfireVector(1, seed=5 + row, **settings)
        assert (alone.reset() == first[row : row + 1]).all()
        generator = np.random.default_rng(0)
        for step in steps:
            action = generator.integers(env.single_action_space.n, size=3)[row : row + 1]
            own = alone.step(action)
            assert (own.obs[0] == step.obs[row]).all() and own.reward[0] == step.reward[row]
            assert (own.terminated[0], own.truncated[0]) == (step.terminated[row], step.truncated[row])


def test_without_numba_it_is_the_same() -> None:
    one, other = (WildfireVector(2, seed=3, simulation=SMALL, jit=jit) for jit in (True, False))
    assert (one.reset() == other.reset()).all()
    for left, right in zip(play(one, 50), play(other, 50), strict=True):
        assert (left.obs == right.obs).all() and (left.reward == right.reward).all()


@pytest.mark.parametrize("target", ["operant.envs.wildfire:Wildfire", "operant.envs.wildfire:WildfireVector"])
def test_it_goes_on_exactly(target: str) -> None:
    settings: dict[str, Any] = {
        "simulation": RICH,
        "interactions": ["none", "scratchline", "air_drop"],
        "attributes": ["fire_map_with_agents", "arrival_time", "bench_fire_map"],
        "normalized_attributes": [],
        "scenarios": {"count": 4},
        "resample_interval": 2,
        "max_episode_steps": 17,
    }
    env = make_env(target, 2, seed=0, **settings)
    env.reset()
    play(env, 45)
    state = env.save_state()
    other = make_env(target, 2, **settings)
    assert env.exact
    assert (other.load_state(state) == env.load_state(state)).all()
    for left, right in zip(play(env, 40, 7), play(other, 40, 7), strict=True):
        assert (left.obs == right.obs).all() and (left.reward == right.reward).all()
        assert (left.truncated == right.truncated).all()


def deterministic(**settings: Any) -> Wildfire:
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


def test_a_line_is_laid_before_the_step_and_steps_end_at_the_edge() -> None:
    env = deterministic()
    env.reset(seed=0)
    obs, *_ = env.step(5 + 3)  # fireline, left
    assert obs[2, 3, 0] == TOOLS["fireline"].code
    assert env.world.position[0, 0].tolist() == [2, 2]
    for _ in range(4):
        env.step(3)
    assert env.world.position[0, 0].tolist() == [2, 0]
    with pytest.raises(UsageError, match="10 actions"):
        env.step(10)


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


def ring(env: Wildfire, radius: int) -> None:
    """Enclose the middle of the map by lines."""
    around = [(7 + r, 7 + c) for r in range(-radius, radius + 1) for c in range(-radius, radius + 1)
              if max(abs(r), abs(c)) == radius]  # fmt: skip
    env.world.fires.slow(0, *zip(*around, strict=True), 0.0)


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


def test_it_is_truncated_at_its_limit() -> None:
    env = deterministic(max_episode_steps=5)
    env.reset(seed=0)
    ends = [env.step(0)[2:4] for _ in range(5)]
    assert ends == [(False, False)] * 4 + [(False, True)]


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
    for name, message in (
        ("area_save", "area_saved"),
        ("rewards_of_mine:nothing", "nothing"),
        ("no_such:x", "no_such"),
    ):
        with pytest.raises(UsageError, match=message):
            Wildfire(reward=name)


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"attributes": ["fire_mapp"]}, "fire_map"),
        ({"normalized_attributes": ["slope"]}, "slope"),
        ({"movements": ["north"]}, "movement"),
        ({"interactions": ["fire_line"]}, "fireline"),
        ({"agent_speed": 0}, "agent_speed"),
        ({"initial_agent_positions": [[0, 99]], "agent_initialization_method": "manual"}, "99"),
        ({"agent_sped": 1}, "agent_speed"),
        ({"frame": "sun", "window": 3}, "map, wind"),
        ({"frame": "wind"}, "window"),
        ({"simulation": {"cell_sise": 1}}, "cell_size"),
    ],
)
def test_mistakes_are_told(settings: dict[str, Any], message: str) -> None:
    with pytest.raises(UsageError, match=message):
        Wildfire(**settings)


def test_agents_are_seen_and_drawn() -> None:
    env = WildfireVector(2, seed=0, simulation=RICH, num_agents=2, normalized_attributes=[])
    obs = env.reset()
    assert (obs >= AGENT).sum((1, 2, 3)).tolist() == [2, 2]
    env.step(np.zeros((2, 2), int))
    frame = env.render_frame(1)
    assert frame.dtype == np.uint8 and frame.shape[2] == 3 and len(np.unique(frame.reshape(-1, 3), axis=0)) > 20


def test_pictures_show_the_fire_that_nobody_fights_beside_this_one() -> None:
    env = deterministic(render_benchmark=True)
    env.reset(seed=0)
    ring(env, 1)
    for _ in range(190):
        env.step(0)
    frame = env.render()
    width = (frame.shape[1] - 6) // 2
    fought, alone = ((half[:-22].max(-1) < 100).sum() for half in (frame[:, :width], frame[:, width + 6 :]))
    assert alone > 2 * fought > 0


def test_a_window_shows_the_frames_that_are_drawn(monkeypatch: pytest.MonkeyPatch) -> None:
    pygame = pytest.importorskip("pygame")
    monkeypatch.setenv("SDL_VIDEODRIVER", "dummy")
    env = deterministic(render_mode="human")
    try:
        env.reset(seed=0)
        env.step(0)
        expected = draw_frame(env.world, 0)
        assert (pygame.surfarray.array3d(pygame.display.get_surface()).swapaxes(0, 1) == expected).all()
    finally:
        env.close()
    assert not pygame.display.get_init()


def test_metrics_of_ended_episodes_come_with_the_step() -> None:
    env = WildfireVector(2, seed=0, simulation=SMALL, max_episode_steps=3)
    env.reset()
    steps = play(env, 3)
    assert "fires" not in steps[1].info
    assert [fire["minutes"] for fire in steps[2].info["fires"]] == [3.0, 3.0]
