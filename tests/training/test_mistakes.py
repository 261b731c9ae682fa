"""What cannot be trained or resumed is told in one sentence that names the cause; what only looks so, works."""

from __future__ import annotations

import math
from pathlib import Path
from typing import Any

import gymnasium
import numpy as np
import pytest
from gymnasium import spaces

from operant.algorithms import DivergedError, find_algorithm
from operant.envs import make_env
from operant.errors import UsageError
from operant.tracking import Run
from operant.training import load_policy, resume, train
from operant.training.sources import learn_from

SHORT: dict[str, Any] = {"total_steps": 200, "evaluation": {"episodes": 2, "every": 200}, "checkpoint": {"every": 100}}
PPO = {"name": "ppo", "rollout": 25}
DQN = {"name": "dqn", "learning_starts": 20, "batch": 32}


class Room(gymnasium.Env[Any, Any]):
    """Stay inside; observations are numbers until step ``bad``."""

    observation_space: Any = spaces.Box(-1, 1, (2,), np.float32)
    action_space: Any = spaces.Discrete(2)

    def __init__(self, bad: int = 10**9, value: float = math.nan) -> None:
        self.bad, self.value = bad, value
        self.total = 0

    def reset(self, *, seed: int | None = None, options: Any = None) -> tuple[Any, dict[str, Any]]:
        super().reset(seed=seed)
        self.steps = 0
        return np.zeros(2, np.float32), {}

    def step(self, action: Any) -> tuple[Any, float, bool, bool, dict[str, Any]]:
        self.steps += 1
        self.total += 1
        obs = self.np_random.random(2, np.float32)
        if self.total >= self.bad:
            obs[1] = self.value
        return obs, 1.0, False, self.steps == 10, {}


class BadRewards(Room):
    def step(self, action: Any) -> tuple[Any, float, bool, bool, dict[str, Any]]:
        obs, _, *rest = super().step(action)
        return np.nan_to_num(obs), float(obs[1]), *rest  # type: ignore[return-value]


def bad_vector(num_envs: int = 1) -> Any:
    env = make_env("CartPole-v1", num_envs)
    step = env.step

    def with_bad_rewards(actions: Any) -> Any:
        taken = step(actions)
        return taken._replace(reward=np.full(num_envs, np.inf))

    env.step = with_bad_rewards  # type: ignore[method-assign]
    return env


@pytest.mark.filterwarnings("ignore::RuntimeWarning")
@pytest.mark.parametrize("algorithm", [PPO, DQN, {"name": "a2c"}], ids=["ppo", "dqn", "a2c"])
@pytest.mark.parametrize("value", [math.nan, math.inf])
def test_an_observation_that_is_not_finite_is_the_environments(
    algorithm: dict[str, Any], value: float, tmp_path: Path
) -> None:
    config = {**SHORT, "env": {"id": Room, "arguments": {"bad": 40, "value": value}}, "algorithm": algorithm}
    with pytest.raises(DivergedError, match=rf"the environment gave observations that are not finite \({value} at"):
        train(config, root=tmp_path)


@pytest.mark.filterwarnings("ignore::RuntimeWarning")
@pytest.mark.parametrize("algorithm", [PPO, DQN], ids=["ppo", "dqn"])  # a Huber loss has a finite gradient even there
def test_a_reward_that_is_not_finite_is_the_environments(algorithm: dict[str, Any], tmp_path: Path) -> None:
    config = {**SHORT, "env": {"id": BadRewards, "arguments": {"bad": 40}}, "algorithm": algorithm}
    with pytest.raises(UsageError, match="BadRewards gave the reward nan in step 10 of an episode"):
        train(config, root=tmp_path)
    with pytest.raises(DivergedError, match="the environment gave rewards that are not finite"):
        train({**SHORT, "env": {"id": bad_vector}, "algorithm": algorithm}, root=tmp_path)


@pytest.mark.filterwarnings("ignore::RuntimeWarning")
def test_c51_tells_of_a_reward_that_is_not_a_number() -> None:
    c51 = find_algorithm("c51")[0](Room.observation_space, Room.action_space, None, None, 0)
    rows = np.zeros((4, 2), np.float32)
    batch = {"obs": rows, "next_obs": rows, "action": np.zeros(4, np.int64), "discount": np.full(4, 0.99, np.float32)}
    with pytest.raises(DivergedError, match="the environment gave rewards that are not finite"):
        learn_from(c51, {**batch, "reward": np.array([0.0, np.nan, 0.0, 0.0], np.float32)})


@pytest.mark.filterwarnings("ignore::RuntimeWarning")
def test_a_learning_rate_is_blamed_only_where_the_data_are_sound(tmp_path: Path) -> None:
    config = {**SHORT, "env": {"id": Room}, "algorithm": {**PPO, "learning_rate": 1e30, "max_gradient_norm": 1e30}}
    with pytest.raises(DivergedError, match="lower learning rate"):
        train(config, root=tmp_path)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ("env.normalize_obs=true", "saved with env.normalize_obs=False and cannot go on with env.normalize_obs=True"),
        ("env.normalize_reward=true", "env.normalize_reward"),
        ("env.num_envs=3", "env.num_envs=1"),
        ("model.hidden=[8]", r"model.hidden=\[64, 64\] and cannot go on with model.hidden=\[8\]"),
        ("model.activation=relu", "model.activation"),
        ("algorithm.name=dqn", "algorithm.name=ppo"),
    ],
)
def test_a_resume_in_another_shape_is_refused(change: str, message: str, tmp_path: Path, saved: Path) -> None:
    with pytest.raises(UsageError, match=message) as caught:
        resume("last", ["total_steps=400", change], root=saved)
    assert "\n" not in str(caught.value)


def test_a_resume_with_other_heads_is_refused(tmp_path: Path) -> None:
    train({**SHORT, "env": {"id": Room}, "algorithm": {**DQN, "name": "rainbow", "batch": 8}}, root=tmp_path)
    for change in ("algorithm.atoms=21", "algorithm.dueling=false", "algorithm.noisy=false"):
        with pytest.raises(UsageError, match=f"cannot go on with {change}".replace("false", "False")):
            resume("last", ["total_steps=400", change], root=tmp_path)


@pytest.fixture(scope="module")
def saved(tmp_path_factory: pytest.TempPathFactory) -> Path:
    root = tmp_path_factory.mktemp("saved")
    train({**SHORT, "env": {"id": Room}, "algorithm": PPO}, root=root)
    return root


def test_a_class_is_found_again(saved: Path) -> None:
    assert resume("last", ["total_steps=300"], root=saved).steps == 300
    assert load_policy("last", saved).env.name == f"{__name__}:Room"
    tags = Run.open("last", saved).tags
    assert "not-resumable" not in tags


def test_a_lambda_trains_and_is_marked(tmp_path: Path) -> None:
    train({**SHORT, "env": {"id": lambda: Room()}, "algorithm": PPO}, root=tmp_path)
    run = Run.open("last", tmp_path)
    assert "not-resumable" in run.tags
    assert any(one.text.startswith("this run cannot be resumed: env.id is a lambda") for one in run.text("log"))
    with pytest.raises(UsageError, match="a lambda"):
        resume("last", ["total_steps=300"], root=tmp_path)
    # Named now, it goes on.
    assert resume("last", ["total_steps=300", f"env.id={__name__}:Room"], root=tmp_path).steps == 300


def test_evaluation_uses_fewer_workers_where_it_plays_fewer_episodes(tmp_path: Path) -> None:
    config = {**SHORT, "env": {"id": "CartPole-v1", "num_envs": 3, "workers": 3}, "algorithm": PPO}
    result = train(config, root=tmp_path)
    assert result.steps >= 200
    said = [one.text for one in Run.open("last", tmp_path).text("log")]
    assert any(one.startswith("environments in 3 workers, started in") for one in said)
