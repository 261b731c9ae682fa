"""The vectorised classics against Gymnasium's, bit by bit, through ends and resets."""

from __future__ import annotations

from typing import Any

import gymnasium
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from operant.envs import Step, VectorEnv, make_env
from operant.envs.classics import CLASSICS

pytestmark = pytest.mark.filterwarnings("ignore:.*out of date")  # CartPole-v0

NAMES = list(CLASSICS)


def actions_for(env: VectorEnv, rng: np.random.Generator, obs: Any, style: str) -> np.ndarray[Any, Any]:
    """Random actions, also beyond their bounds, or such that a mountain car gets to its goal."""
    space, count = env.single_action_space, env.num_envs
    if style == "pump" and obs.shape[1] == 2:
        forward = obs[:, 1] >= 0
        if isinstance(space, gymnasium.spaces.Discrete):
            return np.where(forward, 2, 0)
        return np.where(forward, 1.0, -1.0).astype(np.float32)[:, None]
    if isinstance(space, gymnasium.spaces.Discrete):
        return rng.integers(space.n, size=count)
    assert isinstance(space, gymnasium.spaces.Box)
    return (rng.uniform(-1.5, 1.5, (count, 1)) * space.high).astype(np.float32)


def assert_same(ours: Step, theirs: Step, name: str) -> None:
    np.testing.assert_array_equal(ours.obs, theirs.obs)
    assert ours.obs.dtype == theirs.obs.dtype == np.float32
    np.testing.assert_array_equal(ours.terminated, theirs.terminated)
    np.testing.assert_array_equal(ours.truncated, theirs.truncated)
    if name == "Pendulum-v1":  # the square of a float32 torque: C's powf is not correctly rounded, ours is
        np.testing.assert_allclose(ours.reward, theirs.reward, rtol=1e-7, atol=1e-9)
    else:
        np.testing.assert_array_equal(ours.reward, theirs.reward)
    assert (ours.final_obs is None) == (theirs.final_obs is None)
    if ours.final_obs is not None:
        np.testing.assert_array_equal(ours.final_obs, theirs.final_obs)
        a, b = ours.episodes, theirs.episodes
        assert a is not None and b is not None
        np.testing.assert_array_equal(a.env, b.env)
        np.testing.assert_array_equal(a.lengths, b.lengths)
        np.testing.assert_allclose(a.returns, b.returns, rtol=1e-7, atol=1e-9)


@pytest.mark.parametrize(
    ("name", "style"),
    [*((name, "random") for name in NAMES), ("MountainCar-v0", "pump"), ("MountainCarContinuous-v0", "pump")],
)
def test_thousands_of_steps_are_gymnasiums(name: str, style: str) -> None:
    ours, theirs = make_env(name, 5, seed=7), make_env(name, 5, seed=7, vectorized=False)
    assert ours.single_observation_space == theirs.single_observation_space
    assert ours.single_action_space == theirs.single_action_space
    assert ours.max_episode_steps == theirs.max_episode_steps
    obs = ours.reset()
    np.testing.assert_array_equal(obs, theirs.reset())
    rng = np.random.default_rng(0)
    ends = 0
    for _ in range(1100):
        actions = actions_for(ours, rng, obs, style)
        step = ours.step(actions)
        assert_same(step, theirs.step(actions), name)
        obs = step.obs
        ends += int(step.done.sum())
    assert ends >= 5


@given(name=st.sampled_from(NAMES), seed=st.integers(0, 2**31), num_envs=st.integers(1, 20), limit=st.integers(1, 30))
@settings(max_examples=40)
def test_any_seed_width_and_limit(name: str, seed: int, num_envs: int, limit: int) -> None:
    ours = make_env(name, num_envs, max_episode_steps=limit)
    theirs = make_env(name, num_envs, vectorized=False, max_episode_steps=limit)
    obs = ours.reset(seed)
    np.testing.assert_array_equal(obs, theirs.reset(seed))
    rng = np.random.default_rng(seed)
    for _ in range(40):
        actions = actions_for(ours, rng, obs, "random")
        step = ours.step(actions)
        assert_same(step, theirs.step(actions), name)
        obs = step.obs
    np.testing.assert_array_equal(ours.reset(), theirs.reset())  # without a seed the random numbers go on


@pytest.mark.parametrize("name", NAMES)
def test_a_row_does_not_depend_on_the_others(name: str) -> None:
    few, many = make_env(name, 2, seed=3), make_env(name, 9, seed=3)
    obs, rng = many.reset(), np.random.default_rng(0)
    few.reset()
    for _ in range(300):
        actions = actions_for(many, rng, obs, "random")
        obs = many.step(actions).obs
        np.testing.assert_array_equal(few.step(actions[:2]).obs, obs[:2])


@pytest.mark.parametrize(
    ("name", "options"),
    [
        ("CartPole-v1", {"sutton_barto_reward": True}),
        ("Pendulum-v1", {"g": 9.81}),
        ("MountainCar-v0", {"goal_velocity": 0.01}),
        ("MountainCarContinuous-v0", {"goal_velocity": 0.02}),
    ],
)
def test_options_are_those_of_gymnasium(name: str, options: dict[str, Any]) -> None:
    ours, theirs = make_env(name, 3, seed=1, **options), make_env(name, 3, seed=1, vectorized=False, **options)
    obs, rng = ours.reset(), np.random.default_rng(0)
    theirs.reset()
    for _ in range(400):
        actions = actions_for(ours, rng, obs, "pump")
        step = ours.step(actions)
        assert_same(step, theirs.step(actions), name)
        obs = step.obs


@pytest.mark.parametrize("name", NAMES)
def test_there_is_a_picture(name: str) -> None:
    env = make_env(name, 2, seed=0)
    env.reset()
    frame = env.render_frame(1)
    assert frame.ndim == 3 and frame.shape[2] == 3 and frame.dtype == np.uint8
    for _ in range(15):
        env.step(np.zeros((2, *(env.single_action_space.shape or ())), env.single_action_space.dtype))
    assert (env.render_frame(1) != frame).any()


@pytest.mark.long
@pytest.mark.parametrize("name", NAMES)
def test_a_hundred_thousand_steps_are_gymnasiums(name: str) -> None:
    ours, theirs = make_env(name, 20, seed=11), make_env(name, 20, seed=11, vectorized=False)
    obs, rng = ours.reset(), np.random.default_rng(1)
    theirs.reset()
    for i in range(5000):
        actions = actions_for(ours, rng, obs, "pump" if i // 500 % 2 else "random")
        step = ours.step(actions)
        assert_same(step, theirs.step(actions), name)
        obs = step.obs
