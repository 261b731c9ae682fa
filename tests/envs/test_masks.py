"""Masks are found wherever an environment says which actions are allowed, at every moment of an episode."""

from __future__ import annotations

from typing import Any

import gymnasium
import numpy as np
import pytest
from gymnasium import spaces
from gymnasium.vector import AsyncVectorEnv, AutoresetMode

from operant.envs import GymnasiumVectorAdapter, make_env
from operant.envs.identity import MaskedIdentity
from operant.errors import UsageError


class Ladder(gymnasium.Env[Any, Any]):
    """On rung r only action r % 3 is allowed; ends after five steps, truncated or (``fall``) terminated."""

    observation_space: Any = spaces.Box(0, 99, (1,), np.float32)
    action_space: Any = spaces.Discrete(3)

    def __init__(self, fall: bool = False) -> None:
        self.fall = fall

    def reset(self, *, seed: int | None = None, options: Any = None) -> tuple[Any, dict[str, Any]]:
        super().reset(seed=seed)
        self.rung, self.steps = int(self.np_random.integers(3)), 0
        return self.see(), self.tell()

    def step(self, action: Any) -> tuple[Any, float, bool, bool, dict[str, Any]]:
        assert action == self.rung % 3, "a masked action was taken"
        self.rung, self.steps = self.rung + 1, self.steps + 1
        end = self.steps == 5
        return self.see(), 1.0, end and self.fall, end and not self.fall, self.tell()

    def see(self) -> Any:
        return np.array([self.rung], np.float32)

    def tell(self) -> dict[str, Any]:
        return {}

    def allowed(self) -> Any:
        return [one == self.rung % 3 for one in range(3)]


class InInfo(Ladder):
    def tell(self) -> dict[str, Any]:
        return {"action_mask": np.array(self.allowed(), np.int8)}


class Listed(Ladder):
    def tell(self) -> dict[str, Any]:
        return {"action_mask": self.allowed()}


class ByMethod(Ladder):
    def action_masks(self) -> Any:
        return self.allowed()


class ByAttribute(Ladder):
    @property
    def action_mask(self) -> Any:
        return self.allowed()


class InObs(Ladder):
    observation_space = spaces.Dict({"rung": Ladder.observation_space, "action_mask": spaces.MultiBinary(3)})

    def see(self) -> Any:
        return {"rung": super().see(), "action_mask": np.array(self.allowed(), np.int8)}


def wrapped(**kwargs: Any) -> gymnasium.Env[Any, Any]:
    return gymnasium.wrappers.TimeLimit(ByMethod(**kwargs), 100)


KINDS = [InInfo, Listed, ByMethod, ByAttribute, InObs, wrapped]


def rungs(obs: Any) -> Any:
    return (obs["rung"] if isinstance(obs, dict) else obs)[:, 0].astype(int)


def expected(obs: Any) -> Any:
    return np.arange(3) == (rungs(obs) % 3)[:, None]


@pytest.mark.parametrize(("kind", "workers"), [(kind, 0) for kind in KINDS] + [(InInfo, 2), (ByMethod, 2), (InObs, 2)])
def test_masks_are_found_at_resets_after_steps_and_at_ends(kind: Any, workers: int) -> None:
    env = make_env(kind, 4, workers=workers, seed=0)
    obs = env.reset()
    ends = 0
    for _ in range(12):
        np.testing.assert_array_equal(env.action_mask, expected(obs))
        step = env.step(env.action_mask.argmax(axis=1))
        obs = step.obs
        assert (step.final_mask is None) == (step.final_obs is None)
        if step.final_obs is not None:
            ends += 1
            np.testing.assert_array_equal(step.final_mask, expected(step.final_obs))
            assert not np.array_equal(rungs(step.final_obs), rungs(obs))
    assert ends == 2
    env.close()


@pytest.mark.parametrize("workers", [0, 1])
def test_where_an_episode_terminated_nothing_is_forbidden(workers: int) -> None:
    """A target of zero times minus infinity is not a number."""
    env = make_env(InInfo, 1, workers=workers, seed=0, fall=True)
    env.reset()
    for _ in range(5):
        step = env.step(env.action_mask.argmax(axis=1))
    assert step.terminated.all() and step.final_mask is not None and step.final_mask.all()
    env.close()


@pytest.mark.parametrize("mode", list(AutoresetMode))
@pytest.mark.parametrize("kind", [InInfo, Listed, ByMethod, InObs])
def test_masks_of_gymnasiums_vector_environments(kind: Any, mode: AutoresetMode) -> None:
    env = GymnasiumVectorAdapter(AsyncVectorEnv([kind] * 2, autoreset_mode=mode))
    obs = env.reset(0)
    for _ in range(12):
        np.testing.assert_array_equal(env.action_mask, expected(obs))
        step = env.step(env.action_mask.argmax(axis=1))
        obs = step.obs
        if step.final_obs is not None:
            known = mode != AutoresetMode.SAME_STEP or kind is not ByMethod
            want = expected(step.final_obs) if known else np.ones((2, 3), bool)
            np.testing.assert_array_equal(step.final_mask, want)
    env.close()


def test_a_vectorised_environment_tells_the_final_mask() -> None:
    env = MaskedIdentity(3, seed=0, max_episode_steps=2)
    env.reset()
    env.step(env.target)
    step = env.step(env.target)
    np.testing.assert_array_equal(step.final_mask, step.final_obs["action_mask"].astype(bool))
    assert env.action_mask is not None and not np.array_equal(step.final_mask, env.action_mask)


def test_masks_of_several_choices_lie_side_by_side() -> None:
    class Several(ByMethod):
        action_space = spaces.MultiDiscrete([2, 1])

    env = make_env(Several, 2)
    env.reset()
    assert env.action_mask is not None and env.action_mask.shape == (2, 3)


def test_what_has_no_options_has_no_mask() -> None:
    class Continuous(ByAttribute):
        action_space = spaces.Box(-1, 1, (2,), np.float32)

    env = make_env(Continuous, 2)
    env.reset()
    assert env.action_mask is None


class OnlyLater(Ladder):
    def step(self, action: Any) -> tuple[Any, float, bool, bool, dict[str, Any]]:
        return super().step(self.rung % 3)

    def tell(self) -> dict[str, Any]:
        return {"action_mask": [True] * 3} if self.steps else {}


class OnlyAtReset(Ladder):
    def tell(self) -> dict[str, Any]:
        return {} if self.steps else {"action_mask": self.allowed()}


class TooLong(ByAttribute):
    def allowed(self) -> Any:
        return [True] * 4


class Nothing(ByAttribute):
    def allowed(self) -> Any:
        return [False] * 3


@pytest.mark.parametrize(
    ("kind", "message"),
    [
        (OnlyLater, "after a step, but none at the reset"),
        (OnlyAtReset, "at its reset, but none after a step"),
        (TooLong, r"has 4 entries, and its actions are 3 \(Discrete\(3\)\)"),
        (Nothing, "allows no action at all"),
    ],
)
def test_a_mask_that_cannot_be_is_told(kind: Any, message: str) -> None:
    env = make_env(kind, 1, seed=0)
    with pytest.raises(UsageError, match=message) as caught:
        env.reset()
        mask = env.action_mask
        env.step(np.zeros(1, int) if mask is None else mask.argmax(axis=1))
    assert "\n" not in str(caught.value)


def test_masks_go_on_exactly() -> None:
    class Saved(ByMethod):
        def save_state(self) -> dict[str, Any]:
            return {"rung": self.rung, "steps": self.steps}

        def load_state(self, state: dict[str, Any]) -> None:
            self.rung, self.steps = state["rung"], state["steps"]

    env, other = make_env(Saved, 2, seed=0), make_env(Saved, 2)
    env.reset()
    env.step(env.action_mask.argmax(axis=1))
    obs = other.load_state(env.save_state())
    for _ in range(7):
        np.testing.assert_array_equal(other.action_mask, expected(obs))
        obs = other.step(other.action_mask.argmax(axis=1)).obs
