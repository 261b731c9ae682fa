"""An environment that was saved goes on, in another object, as if nothing had happened."""

from __future__ import annotations

import importlib.util
import json
import warnings
from collections.abc import Callable
from typing import Any

import gymnasium
import numpy as np
import pytest
from gymnasium import wrappers

from operant.envs import VectorEnv, make_env
from operant.envs.identity import MaskedIdentity
from operant.envs.rng import generator_state, pack_pcg64, restore_generator, unpack_pcg64
from operant.errors import UsageError

needs_mujoco = pytest.mark.skipif(
    not all(importlib.util.find_spec(name) for name in ("mujoco", "imageio")), reason="MuJoCo is not installed"
)
needs_box2d = pytest.mark.skipif(not importlib.util.find_spec("Box2D"), reason="Box2D is not installed")

# MuJoCo 4 warns of an attribute in Gymnasium's own models, Gymnasium of its own v4.
pytestmark = [pytest.mark.filterwarnings("ignore:.*out of date"), pytest.mark.filterwarnings("ignore:.*settotalmass")]


def through_json(state: Any, arrays: dict[str, Any], path: str = "") -> Any:
    """What a checkpoint does: arrays to one place, the rest through JSON."""
    if isinstance(state, np.ndarray):
        assert state.dtype != object
        arrays[path] = state.copy()
        return {"array": path}
    if isinstance(state, dict):
        return {name: through_json(value, arrays, f"{path}/{name}") for name, value in state.items()}
    return json.loads(json.dumps(state))


def from_json(state: Any, arrays: dict[str, Any]) -> Any:
    if isinstance(state, dict):
        if set(state) == {"array"}:
            return arrays[state["array"]]
        return {name: from_json(value, arrays) for name, value in state.items()}
    return state


def assert_goes_on_exactly(make: Callable[[], VectorEnv], *, before: int = 60, after: int = 150) -> None:
    env = make()
    env.reset(5)
    rng = np.random.default_rng(0)

    def actions() -> Any:
        space = env.single_action_space
        if env.action_mask is not None:
            return np.array([rng.choice(np.flatnonzero(row)) for row in env.action_mask])
        if isinstance(space, gymnasium.spaces.Discrete):
            return rng.integers(space.n, size=env.num_envs)
        if isinstance(space, gymnasium.spaces.MultiDiscrete):
            return rng.integers(space.nvec, size=(env.num_envs, len(space.nvec)))
        assert isinstance(space, gymnasium.spaces.Box)
        return rng.uniform(-1, 1, (env.num_envs, *space.shape)).astype(np.float32) * np.minimum(space.high, 1)

    for _ in range(before):
        step = env.step(actions())
    arrays: dict[str, Any] = {}
    saved = from_json(through_json(env.save_state(), arrays), arrays)
    resumed = make()
    assert env.exact, env.inexact_reason
    np.testing.assert_equal(resumed.load_state(saved), step.obs)
    np.testing.assert_equal(resumed.action_mask, env.action_mask)
    for _ in range(after):
        chosen = actions()
        expected, found = env.step(chosen), resumed.step(chosen)
        np.testing.assert_equal(found.obs, expected.obs)
        np.testing.assert_equal(found.final_obs, expected.final_obs)
        np.testing.assert_array_equal(found.reward, expected.reward)
        np.testing.assert_array_equal(found.done, expected.done)
        np.testing.assert_equal(found.episodes, expected.episodes)
    env.close()
    resumed.close()


CLASSIC = ["CartPole-v1", "Acrobot-v1", "MountainCar-v0", "MountainCarContinuous-v0", "Pendulum-v1"]


@pytest.mark.parametrize("name", CLASSIC)
@pytest.mark.parametrize("vectorized", [True, False])
def test_classics(name: str, vectorized: bool) -> None:
    assert_goes_on_exactly(lambda: make_env(name, 3, vectorized=vectorized, max_episode_steps=40))


@pytest.mark.parametrize("name", ["FrozenLake-v1", "Taxi-v3", "Blackjack-v1", "CliffWalking-v1"])
def test_toy_text(name: str) -> None:
    assert_goes_on_exactly(lambda: make_env(name, 3))


@pytest.mark.parametrize("kind", ["Discrete", "MultiDiscrete", "Continuous", "Dict", "Masked", "Memory"])
def test_identity_tasks(kind: str) -> None:
    assert_goes_on_exactly(lambda: make_env(f"operant.envs.identity:{kind}Identity", 3))


@needs_mujoco
@pytest.mark.parametrize("name", ["HalfCheetah-v5", "Hopper-v5", "Ant-v5", "Swimmer-v5", "Reacher-v5"])
def test_mujoco(name: str) -> None:
    assert_goes_on_exactly(lambda: make_env(name, 2), before=37, after=100)


MUJOCO = ["Ant", "HalfCheetah", "Hopper", "Humanoid", "HumanoidStandup", "InvertedDoublePendulum", "InvertedPendulum"]


@needs_mujoco
@pytest.mark.long
@pytest.mark.parametrize("version", ["v4", "v5"])
@pytest.mark.parametrize("task", [*MUJOCO, "Reacher", "Swimmer", "Walker2d", "Pusher"])
def test_every_mujoco_task_for_long(task: str, version: str) -> None:
    if (task, version) == ("Pusher", "v4"):
        pytest.skip("Gymnasium's Pusher-v4 refuses MuJoCo 3 and later")
    assert_goes_on_exactly(lambda: make_env(f"{task}-{version}", 2), before=333, after=1500)


STACKS: dict[str, list[Callable[[gymnasium.Env[Any, Any]], gymnasium.Env[Any, Any]]]] = {
    "statistics": [wrappers.RecordEpisodeStatistics],
    "normalise": [wrappers.NormalizeObservation, wrappers.NormalizeReward],
    "stack": [lambda env: wrappers.FrameStackObservation(env, 3)],
    "time": [wrappers.TimeAwareObservation, lambda env: wrappers.DelayObservation(env, 2)],
    "sticky": [lambda env: wrappers.StickyAction(env, 0.3)],
    "plain": [wrappers.FlattenObservation, lambda env: wrappers.TransformReward(env, lambda reward: reward * 2)],
}


@pytest.mark.parametrize("stack", STACKS)
def test_wrappers(stack: str) -> None:
    assert_goes_on_exactly(lambda: make_env("CartPole-v1", 2, wrappers=STACKS[stack]))


class Counter(gymnasium.Env[Any, Any]):
    """A user's own task, with state that nobody knows of."""

    observation_space = gymnasium.spaces.Box(0, 100, (1,), np.float32)
    action_space = gymnasium.spaces.Discrete(2)

    def __init__(self) -> None:
        self.count = 0

    def reset(self, *, seed: int | None = None, options: Any = None) -> tuple[Any, dict[str, Any]]:
        super().reset(seed=seed)
        self.count = int(self.np_random.integers(10))
        return np.array([self.count], np.float32), {}

    def step(self, action: Any) -> tuple[Any, float, bool, bool, dict[str, Any]]:
        self.count += int(action)
        return np.array([self.count], np.float32), 1.0, self.count >= 20, False, {}


class SavedCounter(Counter):
    def save_state(self) -> dict[str, Any]:
        return {"count": self.count}

    def load_state(self, state: dict[str, Any]) -> None:
        self.count = state["count"]


def test_a_task_may_save_itself() -> None:
    assert_goes_on_exactly(lambda: make_env(SavedCounter, 3))


def test_what_cannot_be_saved_says_so_and_begins_anew() -> None:
    env = make_env(Counter, 3, seed=0)
    assert not env.exact
    assert "Counter keeps state" in env.inexact_reason and "save_state()" in env.inexact_reason
    env.reset()
    for _ in range(5):
        env.step(np.ones(3, np.int64))
    saved = env.save_state()
    expected = env.reset()  # the next start, as its random numbers go on
    resumed = make_env(Counter, 3)
    np.testing.assert_array_equal(resumed.load_state(saved), expected)
    episodes = resumed.step(np.zeros(3, np.int64)).episodes
    assert episodes is None


def test_a_wrapper_of_the_users_own_makes_it_inexact() -> None:
    class Mine(gymnasium.Wrapper[Any, Any, Any, Any]):
        pass

    env = make_env("CartPole-v1", 1, wrappers=[Mine])
    assert "Mine keeps state" in env.inexact_reason


@needs_box2d
def test_box2d_is_inexact() -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", DeprecationWarning)  # of SWIG and of pygame's use of pkg_resources
        env = make_env("LunarLander-v3", 2, seed=0)
    assert "LunarLander" in env.inexact_reason
    env.reset()
    resumed = make_env("LunarLander-v3", 2)
    assert resumed.load_state(env.save_state()).shape == (2, 8)


def test_a_state_of_something_else_is_refused() -> None:
    env = make_env("CartPole-v1", 2, seed=0)
    with pytest.raises(UsageError, match="before it is reset"):
        env.save_state()
    env.reset()
    saved = env.save_state()
    for other in (make_env("CartPole-v1", 3), make_env("Acrobot-v1", 2), make_env("CartPole-v1", 2, vectorized=False)):
        with pytest.raises(UsageError, match="the saved state is of"):
            other.load_state(saved)
    plain, wrapped = make_env("CartPole-v1", 1, vectorized=False), make_env("CartPole-v1", 1, wrappers=STACKS["time"])
    plain.reset()
    with pytest.raises(UsageError, match="the saved environment is made of"):
        wrapped.load_state(plain.save_state())


def test_random_generators_go_on() -> None:
    generators = [np.random.default_rng(i) for i in range(3)]
    for generator in generators:
        generator.integers(10, size=3, dtype=np.uint32)
    copies = unpack_pcg64(pack_pcg64(generators))
    restored = [restore_generator(json.loads(json.dumps(generator_state(generator)))) for generator in generators]
    for generator, copy, other in zip(generators, copies, restored, strict=True):
        expected = [generator.random(), generator.integers(10, dtype=np.uint32)]
        assert [copy.random(), copy.integers(10, dtype=np.uint32)] == expected
        assert [other.random(), other.integers(10, dtype=np.uint32)] == expected
    with pytest.raises(UsageError, match="'Nonsense'"):
        restore_generator({"bit_generator": "Nonsense"})


def test_masks_are_those_of_the_present_observation() -> None:
    env = MaskedIdentity(4, seed=0)
    obs = env.reset()
    for _ in range(30):
        np.testing.assert_array_equal(env.action_mask, obs["action_mask"].astype(bool))
        obs = env.step(obs["observation"].argmax(axis=1)).obs
