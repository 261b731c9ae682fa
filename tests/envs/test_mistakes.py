"""What an environment does wrong is told in one sentence that names it."""

from __future__ import annotations

import math
from functools import partial
from typing import Any

import gymnasium
import numpy as np
import pytest
from gymnasium import spaces

from operant.envs import make_env
from operant.envs.making import why_not_found_again
from operant.errors import UsageError


class Room(gymnasium.Env[Any, Any]):
    observation_space: Any = spaces.Box(-1, 1, (4,), np.float32)
    action_space: Any = spaces.Discrete(2)
    seen: Any = np.zeros(4, np.float32)

    def reset(self, *, seed: int | None = None, options: Any = None) -> Any:
        super().reset(seed=seed)
        return self.seen, {}

    def step(self, action: Any) -> Any:
        return self.seen, 1.0, False, False, {}


class FourValues(Room):
    def step(self, action: Any) -> Any:
        return self.seen, 1.0, False, {}


class NoInfo(Room):
    def reset(self, *, seed: int | None = None, options: Any = None) -> Any:
        return self.seen


class PairWithoutInfo(Room):
    observation_space = spaces.Box(-1, 1, (2,), np.float32)

    def reset(self, *, seed: int | None = None, options: Any = None) -> Any:
        return np.zeros(2, np.float32)


class NoSeed(Room):
    def reset(self) -> Any:  # type: ignore[override]
        return self.seen, {}


class Narrow(Room):
    seen = np.zeros(3, np.float32)


class Ragged(Room):
    seen = ([1.0], [2.0, 3.0])


class WordSeen(Room):
    seen = "four"


class PaleBytes(Room):
    observation_space = spaces.Box(0, 255, (4,), np.uint8)
    seen = np.full(4, 0.5)


class NarrowLater(Room):
    def step(self, action: Any) -> Any:
        return self.seen[:3], 1.0, False, False, {}


class LostKey(Room):
    observation_space = spaces.Dict({"a": Room.observation_space, "b": Room.observation_space})
    seen: Any = {"a": Room.seen}  # noqa: RUF012


class WideEntry(Room):
    observation_space = spaces.Dict({"a": Room.observation_space})
    seen: Any = {"a": 0.0}  # noqa: RUF012


class ShortTuple(Room):
    observation_space = spaces.Tuple([Room.observation_space, Room.observation_space])
    seen = (Room.seen,)


class NanReward(Room):
    reward: Any = math.nan

    def step(self, action: Any) -> Any:
        return self.seen, self.reward, False, False, {}


class InfiniteReward(NanReward):
    reward = np.float32(-math.inf)


MISTAKES = [
    (FourValues, "step() that gives four values, as the old Gym had"),
    (partial(gymnasium.wrappers.TimeLimit, FourValues(), 9), "step() that gives four values, as the old Gym had"),
    (NoInfo, "reset() that gives a ndarray instead of a pair"),
    (PairWithoutInfo, "reset() that gives a ndarray instead of a pair"),
    (NoSeed, "reset() without a seed"),
    (Narrow, "Narrow gave at its reset has shape (3,) and dtype float32, but observation_space is Box(-1.0, 1.0, (4,)"),
    (Ragged, "gave at its reset has shape"),
    (WordSeen, "gave at its reset has shape () and dtype <U4"),
    (PaleBytes, "dtype float64, but observation_space is Box(0, 255, (4,), uint8)"),
    (NarrowLater, "gave after a step has shape (3,)"),
    (LostKey, "is a dict with the keys ['a'], but observation_space is a dict of ['a', 'b']"),
    (WideEntry, "gave at its reset['a'] has shape ()"),
    (ShortTuple, "is a tuple, but observation_space is a tuple of [0, 1]"),
    (NanReward, "NanReward gave the reward nan in step 1 of an episode of environment 0: rewards are finite numbers"),
    (InfiniteReward, "gave the reward -inf"),
]


@pytest.mark.parametrize(("kind", "message"), MISTAKES)
def test_a_mistake_is_one_sentence(kind: Any, message: str) -> None:
    env = make_env(kind, 1, seed=0)
    with pytest.raises(UsageError) as caught:
        env.reset()
        env.step(np.zeros(1, int))
    assert message in str(caught.value) and "\n" not in str(caught.value)


def test_a_mistake_in_a_worker_is_the_same_sentence() -> None:
    env = make_env(FourValues, 2, seed=0, workers=2)
    env.reset()
    with pytest.raises(UsageError, match=r"^FourValues has a step"):
        env.step(np.zeros(2, int))
    env.close()


def test_a_shape_that_changes_later_is_told() -> None:
    class Shrinking(Room):
        steps = 0

        def step(self, action: Any) -> Any:
            self.steps += 1
            return self.seen[: 4 if self.steps < 3 else 2], 1.0, False, False, {}

    env = make_env(Shrinking, 2, seed=0)
    env.reset()
    env.step(np.zeros(2, int))
    env.step(np.zeros(2, int))
    with pytest.raises(UsageError, match=r"observation of environment 0 has shape \(2,\)"):
        env.step(np.zeros(2, int))


def test_wider_numbers_of_the_same_kind_are_taken() -> None:
    class Wide(Room):
        seen = np.zeros(4)

    env = make_env(Wide, 1, seed=0)
    assert env.reset().dtype == np.float32


def test_errors_of_the_environments_own_stay_its_own() -> None:
    class Failing(Room):
        def step(self, action: Any) -> Any:
            raise ValueError("no such door")

    env = make_env(Failing, 1, seed=0)
    env.reset()
    with pytest.raises(ValueError, match="no such door"):
        env.step(np.zeros(1, int))


def test_what_is_no_environment_of_gymnasiums() -> None:
    class Old:
        def reset(self) -> None: ...
        def step(self, action: Any) -> None: ...

    with pytest.raises(UsageError, match=r"derive it from gymnasium.Env \(the package shimmy"):
        make_env(Old)


class Outer:
    class Inner(Room):
        pass


@pytest.mark.parametrize("name", [":Room", ":Outer.Inner", ".Room"])
def test_a_class_is_found_by_module_and_name(name: str) -> None:
    assert make_env(f"{__name__}{name}", 1).single_action_space == Room.action_space


def test_what_is_not_found_again_says_why() -> None:
    def local() -> Room:
        return Room()

    assert why_not_found_again("CartPole-v1") == why_not_found_again(Room) == why_not_found_again(Outer.Inner) == ""
    assert "env.id is a lambda" in why_not_found_again(lambda: Room())
    assert "a function inside another" in why_not_found_again(local)
    assert "env.id is a partial" in why_not_found_again(partial(Room))
