"""The environments: checkers of other libraries, observations, many as one alone, exact resume."""

from __future__ import annotations

import warnings
from typing import Any

import numpy as np
import pytest
from gymnasium.utils.env_checker import check_env
from tests.envs.wildfire.fires import RICH, SMALL, deterministic, play

from operant.envs import make_env
from operant.envs.wildfire import Wildfire, WildfireVector
from operant.envs.wildfire.attributes import ATTRIBUTES
from operant.envs.wildfire.verbs import TOOLS
from operant.errors import UsageError
from operant.testing import EnvironmentContract


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
    from ray.rllib.algorithms.ppo import PPOConfig
    from ray.rllib.env.single_agent_env_runner import SingleAgentEnvRunner
    from ray.rllib.env.wrappers.pettingzoo_env import ParallelPettingZooEnv
    from ray.rllib.utils.pre_checks.env import check_multiagent_environments

    from operant.envs.wildfire.parallel import WildfireParallel

    for settings in ({}, {"window": 2, "num_agents": 3, "action_masks": True}):
        check_multiagent_environments(ParallelPettingZooEnv(WildfireParallel(simulation=SMALL, **settings)))
    # Of one agent it has no check but its own use of it.
    land = {**SMALL, "shape": [10, 10]}  # of this shape it has a network of its own
    config = PPOConfig().environment(lambda given: Wildfire(simulation=land, max_episode_steps=20))
    runner = SingleAgentEnvRunner(config=config.env_runners(num_envs_per_env_runner=2))
    try:
        episodes = runner.sample(num_episodes=4, random_actions=True)
        assert [len(episode) for episode in episodes] == [20] * 4
        assert all(episode.is_truncated and episode.get_infos(-1)["minutes"] == 20 for episode in episodes)
    finally:
        runner.stop()


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


SEVERAL: dict[str, Any] = {
    "num_agents": 3,
    "interactions": ["none", *TOOLS],
    "agent_speed": 2,
    "reward": "assets",
    "simulation": {**RICH, "wind": SMALL["wind"], "shape": [9, 13]},
    "max_episode_steps": 60,
}


@pytest.mark.parametrize("settings", [{"simulation": SMALL}, SEVERAL])
def test_without_numba_it_is_the_same(settings: dict[str, Any]) -> None:
    one, other = (WildfireVector(2, seed=3, jit=jit, **settings) for jit in (True, False))
    assert (one.reset() == other.reset()).all()
    for left, right in zip(play(one, 150), play(other, 150), strict=True):
        assert (left.obs == right.obs).all() and (left.reward == right.reward).all()
        assert left.info.get("fires") == right.info.get("fires")
    assert {name: values.tolist() for name, values in one.world.save_state().items() if name != "fires"} == {
        name: values.tolist() for name, values in other.world.save_state().items() if name != "fires"
    }


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


def test_it_is_truncated_at_its_limit() -> None:
    env = deterministic(max_episode_steps=5)
    env.reset(seed=0)
    ends = [env.step(0)[2:4] for _ in range(5)]
    assert ends == [(False, False)] * 4 + [(False, True)]


@pytest.mark.parametrize("jit", [True, False])
def test_what_comes_after_the_last_minute_changes_nothing(jit: bool) -> None:
    env = deterministic(simulation={"minutes": 30}, max_episode_steps=60, jit=jit)
    env.reset(seed=0)
    rewards = [env.step(0)[1] for _ in range(45)]
    assert rewards[:30] == [0.0] * 30 and max(rewards[30:]) == 0.0  # it burns on and nobody else's does


def test_metrics_of_ended_episodes_come_with_the_step() -> None:
    env = WildfireVector(2, seed=0, simulation=SMALL, max_episode_steps=3)
    env.reset()
    steps = play(env, 3)
    assert "fires" not in steps[1].info
    assert [fire["minutes"] for fire in steps[2].info["fires"]] == [3.0, 3.0]


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"attributes": ["fire_mapp"]}, "fire_map"),
        ({"normalized_attributes": ["slope"]}, "slope"),
        ({"movements": ["north"]}, "movement"),
        ({"interactions": ["fire_line"]}, "fireline"),
        ({"agent_speed": 0}, "agent_speed"),
        ({"initial_agent_positions": [[0, 99]], "agent_initialization_method": "manual"}, "99"),
        ({"initial_agent_positions": [[1]], "agent_initialization_method": "manual"}, "a row and a column"),
        ({"agent_sped": 1}, "agent_speed"),
        ({"step_minutes": float("nan")}, "step_minutes"),
        ({"max_episode_steps": 0}, "max_episode_steps"),
        ({"resample_interval": -1}, "resample_interval"),
        ({"scenarios": {"count": -1}}, "scenarios.count"),
        ({"frame": "sun", "window": 3}, "map, wind"),
        ({"frame": "wind"}, "window"),
        ({"simulation": {"cell_sise": 1}}, "cell_size"),
    ],
)
def test_mistakes_are_told(settings: dict[str, Any], message: str) -> None:
    with pytest.raises(UsageError, match=message):
        Wildfire(**settings)


@pytest.mark.parametrize("jit", [True, False])
def test_actions_that_do_not_exist_are_refused(jit: bool) -> None:
    env = deterministic(jit=jit)
    env.reset(seed=0)
    pairs = deterministic(action_space="multi_discrete", jit=jit)
    pairs.reset(seed=0)
    for one, wrong, message in (
        (env, 10, "10 actions"),
        (env, -1, "10 actions"),
        (env, 1.5, "whole numbers"),
        (env, [0, 1], "1 for each fire"),
        (pairs, [5, 0], "5 movements and 2 interactions"),
        (pairs, [0, -1], "5 movements and 2 interactions"),
    ):
        with pytest.raises(UsageError, match=message):
            one.step(wrong)
    with pytest.raises(UsageError, match="before it was reset"):
        deterministic(jit=jit).step(0)
    with pytest.raises(UsageError, match="'scenario' is 'first'"):
        env.reset(options={"scenario": "first"})
    pairs.step([4, 1])
    assert pairs.world.status[0, 2, 3] == TOOLS["fireline"].code and pairs.world.position[0, 0].tolist() == [2, 4]
