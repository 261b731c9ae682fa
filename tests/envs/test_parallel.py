"""Parallel environments of PettingZoo: who is there, what each meets, ends, masks, exact states; and what is wrong."""

from __future__ import annotations

import os
import subprocess
import sys

import numpy as np
import pytest

from operant.envs import make_env
from operant.envs.parallel import AgentSteps, ParallelVectorEnv
from operant.envs.toys import AgentsIdentity, Gates, Higher
from operant.errors import UsageError
from operant.testing.environments import assert_same

IDENTITY = "operant.envs.toys:AgentsIdentity"


def some_actions(env: ParallelVectorEnv, rng: np.random.Generator) -> dict[str, np.ndarray]:
    actions = {}
    for agent, space in env.action_spaces.items():
        if hasattr(space, "n"):
            actions[agent] = rng.integers(int(space.n), size=env.num_envs)
        else:
            shape = (env.num_envs, *space.shape)
            actions[agent] = rng.uniform(space.low, space.high, shape).astype(space.dtype)
    return actions


def make(target, num_envs=2, **arguments) -> ParallelVectorEnv:
    env = make_env(target, num_envs, seed=3, **arguments)
    assert isinstance(env, ParallelVectorEnv)
    return env


def test_a_module_with_parallel_env_is_an_environment() -> None:
    pytest.importorskip("mpe2")
    env = make("mpe2.simple_spread_v3", max_cycles=4)
    obs = env.reset(7)
    assert env.agents == ("agent_0", "agent_1", "agent_2") and obs["agent_1"].shape == (2, 18)
    from mpe2 import simple_spread_v3

    plain = simple_spread_v3.parallel_env(max_cycles=4)
    seen, _ = plain.reset(seed=8)  # environment i gets seed + i
    np.testing.assert_array_equal(obs["agent_2"][1], seen["agent_2"])
    rng = np.random.default_rng(0)
    for turn in range(4):
        actions = some_actions(env, rng)
        step = env.step(actions)
        seen, rewards, _, truncated, _ = plain.step({agent: int(actions[agent][1]) for agent in plain.agents})
        np.testing.assert_allclose(step.info["agents"].reward[1], [rewards[agent] for agent in env.agents])
        np.testing.assert_array_equal(step.next_obs["agent_0"][1], seen["agent_0"])
        assert step.truncated.all() == (turn == 3) == all(truncated.values()) and not step.terminated.any()
    assert step.episodes is not None and step.info["agent_returns"].shape == (2, 3)
    np.testing.assert_allclose(step.episodes.returns, step.info["agent_returns"].sum(axis=1))
    assert (step.obs["agent_0"] != step.next_obs["agent_0"]).any()
    env.close()


def test_without_a_screen_nothing_complains_of_it() -> None:
    without = {name: value for name, value in os.environ.items() if "DISPLAY" not in name and "SDL" not in name}
    making = "from operant.envs import make_env; make_env('mpe2.simple_spread_v3').reset(0)"
    done = subprocess.run([sys.executable, "-c", making], env=without, capture_output=True, text=True, check=True)
    assert "XDG_RUNTIME_DIR" not in done.stderr


def test_agents_come_and_go() -> None:
    env = make(AgentsIdentity, 2, coming=True, going=True, length=6)
    obs = env.reset(0)
    there = [[obs["present"][agent][0] for agent in env.agents]]
    for turn in range(6):
        right = {agent: obs[agent].argmax(axis=1) for agent in env.agents}
        step = env.step(right)
        told: AgentSteps = step.info["agents"]
        np.testing.assert_array_equal(told.present[0], there[-1])
        np.testing.assert_array_equal(told.reward[0], np.asarray(there[-1], float))
        # agent_1 joins in turn 1 and leaves after turn 3, other_0 would come in turn 2 and leave after turn 1.
        assert told.terminated[0].tolist() == [False, turn == 3, False]
        assert told.truncated[0].tolist() == [turn == 5, False, False]
        if turn == 3:
            assert step.final_obs is not None and not step.done.any()
            assert step.final_obs["agent_1"][0].any() and not step.obs["agent_1"][0].any()
            np.testing.assert_array_equal(step.final_obs["agent_0"], step.obs["agent_0"])
        assert step.done.all() == (turn == 5)
        obs = step.obs
        there.append([obs["present"][agent][0] for agent in env.agents])
    assert there == [[1, 0, 0], [1, 1, 0], [1, 1, 0], [1, 1, 0], [1, 0, 0], [1, 0, 0], [1, 0, 0]]
    assert step.info["agent_returns"][0].tolist() == [6.0, 3.0, 0.0] and step.episodes.returns.tolist() == [9.0, 9.0]


def test_rewards_of_some_agents_make_up_the_return() -> None:
    env = make(Higher, 2)
    env.count(["second"])
    env.reset(0)
    step = env.step({"first": np.array([4, 0]), "second": np.array([0, 4])})
    assert step.reward.tolist() == [-1.0, 1.0] and step.info["agents"].reward.tolist() == [[1.0, -1.0], [-1.0, 1.0]]


@pytest.mark.parametrize(
    ("target", "arguments"),
    [
        (IDENTITY, {"coming": True, "going": True}),
        ("operant.envs.toys:Gates", {}),
        ("mpe2.simple_spread_v3", {"continuous_actions": True, "max_cycles": 7}),
        ("operant.envs.wildfire.parallel:WildfireParallel", {"simulation": {"shape": [8, 8]}, "action_masks": True}),
    ],
)
def test_a_saved_state_goes_on_exactly(target: str, arguments: dict) -> None:
    pytest.importorskip("mpe2" if "mpe2" in target else "pettingzoo")
    env, other, rng = make(target, **arguments), make(target, **arguments), np.random.default_rng(5)
    env.reset(1)
    for _ in range(17):
        env.step(some_actions(env, rng))
    state = env.save_state()
    assert env.exact
    obs = other.load_state(state)
    assert_same(obs, env._obs, "other observations after loading")
    for number in range(17):
        actions = some_actions(env, rng)
        one, two = env.step(actions), other.step(actions)
        assert_same(one[:5], two[:5], f"the loaded environment differs in step {number}")
    env.close()
    other.close()


class Forgetful(AgentsIdentity):
    def reset(self, seed=None, options=None):
        return super().reset(None, options)


def test_what_does_not_repeat_itself_is_found_out() -> None:
    env, other = make(Forgetful, choices=50, other=50), make(Forgetful, choices=50, other=50)
    env.reset(1)
    env.step({agent: np.zeros(2, int) for agent in env.agents})
    obs = other.load_state(env.save_state())
    assert not other.exact and "does not repeat" in other.inexact_reason
    assert obs["present"]["agent_0"].all()
    other.step({agent: np.zeros(2, int) for agent in env.agents})


def test_masks_of_infos_come_with_the_observations() -> None:
    env = make(AgentsIdentity, masked=True, coming=True, going=True, choices=4, other=5)
    obs = env.reset(0)
    for _ in range(30):
        for agent in env.agents:
            mask, there = obs["action_mask"][agent], obs["present"][agent]
            assert mask.dtype == np.bool_ and (mask.sum(axis=1) == np.where(there, 2, mask.shape[1])).all()
        step = env.step({agent: obs["action_mask"][agent].argmax(axis=1) for agent in env.agents})
        assert step.final_obs is None or step.final_obs["action_mask"].keys() == obs["action_mask"].keys()
        obs = step.obs


class Late(AgentsIdentity):
    def step(self, actions):
        self._masked, told = False, super().step(actions)
        self._masked = True
        return *told[:4], {agent: self._tell(agent) for agent in told[0]}


class Silent(Gates):
    def step(self, actions):
        return {}, *super().step(actions)[1:]


class Infinite(Gates):
    def step(self, actions):
        seen, rewards, *rest = super().step(actions)
        return seen, dict.fromkeys(rewards, float("inf")), *rest


class Nobody(Gates):
    def __init__(self):
        super().__init__()
        self.possible_agents = []


class Empty(Gates):
    def _there(self):
        return []


class Turns(Gates):
    agent_iter = None


def test_what_is_wrong_is_said() -> None:
    actions = {"keeper": np.zeros(2, int), "runner": np.zeros(2, int)}
    for kind, message in (
        (Silent, "gave no observation to keeper"),
        (Infinite, "gave keeper the reward inf in environment 0"),
    ):
        env = make(kind)
        with pytest.raises(UsageError, match="before it was reset"):
            env.step(actions)
        env.reset(0)
        with pytest.raises(UsageError, match=message):
            env.step(actions)
    with pytest.raises(UsageError, match="possible_agents is empty"):
        make(Nobody)
    late = make(Late)
    late.reset(0)
    with pytest.raises(UsageError, match="gave agent_0 an action_mask, but nobody had one at the first reset"):
        late.step({agent: np.zeros(2, int) for agent in late.agents})
    with pytest.raises(UsageError, match="began an episode without any agent"):
        make(Empty).reset(0)
    with pytest.raises(UsageError, match="its agents act in turn"):
        make_env(Turns)
    env = make(Gates)
    env.reset(0)
    with pytest.raises(UsageError, match=r"a mapping of actions, one entry for each of \['keeper', 'runner'\]"):
        env.step(np.zeros(2))
    with pytest.raises(UsageError, match=r"actions of shape \(2,\) of runner, not \(3,\)"):
        env.step({**actions, "runner": np.zeros(3, int)})
    with pytest.raises(UsageError, match="has nothing to call 'parallel_env'"):
        make_env("operant.envs.toys")
    with pytest.raises(UsageError, match="saved state is of other environments"):
        env.load_state({"kind": "in_process"})
    with pytest.raises(UsageError, match=r"has several agents, which are stepped in one process: env.workers is 0"):
        make_env("operant.envs.toys:Gates", 2, workers=2).reset(0)
