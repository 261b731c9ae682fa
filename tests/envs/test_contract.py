"""Our environments pass the contract, and those that break it are caught."""

from __future__ import annotations

from typing import Any

import gymnasium
import numpy as np
import pytest
from gymnasium import spaces

from operant.envs import VectorEnv, make_env
from operant.errors import UsageError
from operant.testing import EnvironmentContract

OURS = {
    "cartpole": lambda: make_env("CartPole-v1", 3, max_episode_steps=40),
    "pendulum": lambda: make_env("Pendulum-v1", 2, max_episode_steps=30),
    "mountain_car": lambda: make_env("MountainCar-v0", 2, max_episode_steps=50),
    "frozen_lake": lambda: gymnasium.make("FrozenLake-v1"),
    "taxi": lambda: gymnasium.make("Taxi-v3", max_episode_steps=30),
    "masked": lambda: make_env("operant.envs.identity:MaskedIdentity", 3),
    "dict": lambda: make_env("operant.envs.identity:DictIdentity", 3),
    "several": lambda: make_env("operant.envs.identity:MultiDiscreteIdentity", 3),
    "memory": lambda: make_env("operant.envs.identity:MemoryIdentity", 3),
    "positions": lambda: make_env("operant.envs.positions:MountainCarContinuousPositions", 2, max_episode_steps=50),
    "adapted": lambda: make_env(gymnasium.make_vec("CartPole-v1", 2, vectorization_mode="async")),
    "workers": lambda: make_env("CartPole-v1", 3, workers=2, max_episode_steps=40),
}


@pytest.mark.parametrize("name", [name for name in OURS if name not in ("adapted", "workers")])
class TestOurs(EnvironmentContract):
    steps = 120

    @pytest.fixture(autouse=True)
    def _named(self, name: str) -> None:
        self.name = name

    def build(self) -> gymnasium.Env[Any, Any] | VectorEnv:
        return OURS[self.name]()


class TestAdapted(EnvironmentContract):
    steps = 60

    def build(self) -> VectorEnv:
        return OURS["adapted"]()


class TestWorkers(EnvironmentContract):
    steps = 60

    def build(self) -> VectorEnv:
        return OURS["workers"]()


class Lamp(gymnasium.Env[Any, Any]):
    """On or off by chance; right unless a subclass says otherwise."""

    observation_space: Any = spaces.Box(0, 1, (2,), np.float32)
    action_space: Any = spaces.Discrete(2)

    def reset(self, *, seed: int | None = None, options: Any = None) -> tuple[Any, dict[str, Any]]:
        super().reset(seed=seed)
        self.light, self.steps = self.np_random.random(2, np.float32), 0
        return self.light.copy(), {}

    def step(self, action: Any) -> tuple[Any, float, bool, bool, dict[str, Any]]:
        self.steps += 1
        self.light[:] = self.np_random.random(2, np.float32)
        return self.light.copy(), 1.0, self.steps == 9, False, {}

    def save_state(self) -> dict[str, Any]:
        return {"light": self.light.copy(), "steps": self.steps}

    def load_state(self, state: dict[str, Any]) -> None:
        self.light, self.steps = state["light"].copy(), state["steps"]


class TestLamp(EnvironmentContract):
    steps = 60

    def build(self) -> gymnasium.Env[Any, Any]:
        return Lamp()


class Bright(Lamp):
    observation_space = spaces.Box(0, 0.1, (2,), np.float32)


class Unseeded(Lamp):
    def reset(self, *, seed: int | None = None, options: Any = None) -> tuple[Any, dict[str, Any]]:
        return super().reset()


class Fixed(Lamp):
    def reset(self, *, seed: int | None = None, options: Any = None) -> tuple[Any, dict[str, Any]]:
        return super().reset(seed=5 if seed is None else seed)


class Forgetful(Lamp):
    def save_state(self) -> dict[str, Any]:
        return super().save_state() | {"steps": 0}


class Timed(Lamp):
    spec: Any = gymnasium.envs.registration.EnvSpec("Timed-v0", max_episode_steps=9)  # and yet it terminates


class Halting(Lamp):
    def reset(self, *, seed: int | None = None, options: Any = None) -> tuple[Any, dict[str, Any]]:
        obs, _ = super().reset(seed=seed)
        return obs, {"action_mask": [True, False]}

    def step(self, action: Any) -> tuple[Any, float, bool, bool, dict[str, Any]]:
        *rest, _ = super().step(action)
        return *rest, {"action_mask": [False, False]}  # type: ignore[return-value]


class Reused(VectorEnv):
    """Writes every step into the arrays that it gave before."""

    num_envs = 2
    single_observation_space = Lamp.observation_space
    single_action_space = Lamp.action_space

    def __init__(self) -> None:
        self.inside = make_env(Lamp, 2)
        self.obs = np.zeros((2, 2), np.float32)

    def reset(self, seed: int | None = None) -> Any:
        self.obs[:] = self.inside.reset(seed)
        return self.obs

    def step(self, actions: Any) -> Any:
        step = self.inside.step(actions)
        self.obs[:] = step.obs
        return step._replace(obs=self.obs)

    def render_frame(self, index: int = 0) -> Any:
        raise NotImplementedError

    def save_state(self) -> dict[str, Any]:
        return self.inside.save_state()

    def load_state(self, state: dict[str, Any]) -> Any:
        return self.inside.load_state(state)


@pytest.mark.parametrize(
    ("kind", "test"),
    [
        (Bright, "test_observations_are_of_the_space"),
        (Unseeded, "test_a_seed_is_repeated"),
        (Fixed, "test_a_reset_without_a_seed_goes_on"),
        (Forgetful, "test_a_saved_state_goes_on_exactly_where_that_is_said"),
        (Timed, "test_a_time_limit_truncates_and_does_not_terminate"),
        (Halting, "test_masks_are_there_always_or_never_and_allow_something"),
        (Reused, "test_what_it_gave_is_not_changed_afterwards"),
    ],
)
def test_what_breaks_the_contract_is_caught(kind: Any, test: str) -> None:
    suite = type("Made", (EnvironmentContract,), {"build": lambda self: kind(), "steps": 60})()
    with pytest.raises((AssertionError, UsageError)):
        getattr(suite, test)()
