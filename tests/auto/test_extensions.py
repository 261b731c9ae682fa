"""Environments of the user's own: found by import path and entry point, played through the frame."""

from __future__ import annotations

import importlib.metadata
import shutil
import sys
from pathlib import Path

import numpy as np
import pytest

from operant.auto import generate_algorithm_config, generate_env_config, generate_training_config, launch
from operant.auto.envs import find_environment, get_available_environments
from operant.auto.saving import load_checkpoint_file
from operant.cli import main
from operant.errors import UsageError
from operant.tracking import Run
from operant.training.playback import load_policy

EXAMPLES = Path(__file__).parents[2] / "examples" / "auto"


@pytest.fixture
def corridor(tmp_path, monkeypatch):
    """The example's module in a folder of its own, which is the current one."""
    folder = tmp_path / "mine"
    folder.mkdir()
    shutil.copy(EXAMPLES / "corridor.py", folder)
    monkeypatch.chdir(folder)
    (folder / ".operant").mkdir()
    monkeypatch.delitem(sys.modules, "corridor", raising=False)
    yield folder
    sys.modules.pop("corridor", None)


def config_of(algorithm="DQN", **others):
    settings = {"learning_rate": 1e-3, "update_rate": 0.01, "update_steps": None, "epsilon_decay": 0.998}
    if algorithm != "DQN":
        settings = {"actor_learning_rate": 3e-3, "critic_learning_rate": 3e-3, "rollout": 128}
    config = generate_env_config("corridor", generate_algorithm_config(algorithm, {"frame_config": settings}))
    config = generate_training_config("trial", 20, 400, config, early_stopping_patience=None)
    return {**config, "stop_reward": 0.8, "gpus": None, **others}


@pytest.mark.parametrize("algorithm", ["DQN", "PPO"])
def test_the_examples_environment_is_learned(corridor, algorithm):
    result = launch(config_of(algorithm))
    assert result.best_reward == pytest.approx(0.85) and result.exact
    run = Run.open(result.run_id)
    assert len(run.scalars("corridor/steps")) == result.episodes  # what the dataset logs


def test_a_resumed_launch_of_an_extension_is_exact(corridor):
    config = config_of(max_episodes=60, stop_reward=None)
    whole = launch(config)
    launch({**config, "root_dir": "parts", "max_episodes": 40})
    # Without schedules over the whole training, its length does not matter for the part before.
    resumed = launch({**config, "root_dir": "parts"}, resume=True)
    assert resumed.steps == whole.steps and resumed.rewards == whole.rewards


def test_a_dataset_that_cannot_be_saved_is_said_to_be_inexact(corridor):
    text = (corridor / "corridor.py").read_text()
    (corridor / "corridor.py").write_text(
        text.replace("def state_dict", "def other").replace("def load_state", "def more")
    )
    said = []
    result = launch(config_of(max_episodes=20), say=said.append)
    assert not result.exact and "inexact" in Run.open(result.run_id).tags
    assert any("resume is inexact" in one for one in said)


def test_an_entry_point_is_an_environment(corridor, monkeypatch):
    point = importlib.metadata.EntryPoint("hallway", "corridor", "operant.auto.envs")
    monkeypatch.syspath_prepend(str(corridor))
    monkeypatch.setattr("operant.auto.envs.entry_points", lambda group: [point])
    assert get_available_environments() == ["hallway", "openai_gym"]
    assert find_environment("hallway").generate_env_config()["env"] == "corridor"


def test_what_is_no_environment(corridor):
    (corridor / "half_an_env.py").write_text("def launch(config, callbacks=None):\n    pass\n")
    with pytest.raises(UsageError, match="no function generate_env_config"):
        find_environment("half_an_env")
    with pytest.raises(UsageError, match="there is no environment module 'no_such_env'"):
        find_environment("no_such_env")


def test_a_launch_must_return_its_result(corridor):
    text = (corridor / "corridor.py").read_text()
    (corridor / "corridor.py").write_text(text.replace("    return launch_dataset(", "    launch_dataset("))
    with pytest.raises(TypeError, match="must return its LaunchResult"):
        launch(config_of(max_episodes=20))


def test_the_policy_of_episodes_played_one_by_one_can_be_watched(make_config, capsys):
    """What `operant view` plays acts as the frame did."""
    config = make_config(train={"act_kwargs": {"epsilon": 0.3}}, frame_config={"learning_starts": 10})
    result = launch(config)
    policy = load_policy(result.run_id)
    assert policy.mean_return == result.best_reward and policy.step <= result.steps
    kept = load_checkpoint_file(result.checkpoint)["state_dict"]
    for name, value in policy.policy.weights().items():
        np.testing.assert_array_equal(value, kept[f"network.{name}"].numpy())
    assert main(["view", result.run_id, "--no-window"]) == 0
    assert (Run.open(result.run_id).folder / "view.gif").is_file() and "returns here" in capsys.readouterr().out


ENVIRONMENT = """
import gymnasium, numpy as np

class Street(gymnasium.Env):
    render_mode = 'rgb_array'
    observation_space = gymnasium.spaces.Box(-1.0, 1.0, (2,))
    action_space = gymnasium.spaces.Discrete(2)

    def __init__(self, length=1):
        self.length = length

    def reset(self, *, seed=None, options=None):
        self.place = 0
        return np.array([0.0, 1.0], np.float32), {}

    def step(self, action):
        self.place += 1 if action else -1
        over = abs(self.place) >= self.length
        return np.array([self.place / self.length, 1.0], np.float32), float(self.place), over, False, {}

    def render(self):
        return np.full((8, 8, 3), 100, np.uint8)
"""


def test_an_extension_says_in_what_its_policy_can_be_watched(corridor, capsys):
    text = (corridor / "corridor.py").read_text()
    (corridor / "street.py").write_text(ENVIRONMENT)
    result = launch(config_of(max_episodes=20, stop_reward=None))
    assert main(["view", result.run_id]) == 1
    said = capsys.readouterr().err
    assert "it learned from the episodes of CorridorDataset" in said and "(`viewed_in`)" in said
    assert (Run.open(result.run_id).folder / "best" / "weights.safetensors").is_file() and "weights.safetensors" in said

    spaces = "self.action_space = spaces.Discrete(2)\n"
    viewed = "        self.viewed_in = {'id': 'street:Street', 'arguments': {'length': length}}\n"
    (corridor / "corridor.py").write_text(text.replace(spaces, spaces + viewed))
    del sys.modules["corridor"]
    importlib.invalidate_caches()
    result = launch(config_of(max_episodes=20, stop_reward=None))
    assert main(["view", result.run_id, "--no-window"]) == 0
    assert f"evaluated at {result.best_reward:.2f}" in capsys.readouterr().out
    sys.modules.pop("street", None)


def test_a_network_that_cannot_be_made_again_is_told(make_config, capsys):
    from torch import nn

    class Local(nn.Module):
        def __init__(self):
            super().__init__()
            self.layer = nn.Linear(4, 2)

        def forward(self, state):
            return self.layer(state)

    config = make_config(frame_config={"models": [Local, Local], "learning_starts": 10})
    result = launch(config)
    assert main(["view", result.run_id, "--no-window"]) == 1
    said = capsys.readouterr().err
    assert "its network cannot be made again from here" in said and "weights.safetensors" in said


def test_a_run_without_a_policy_is_told(capsys):
    from operant import SummaryWriter

    with SummaryWriter("plain", system_metrics=False) as writer:
        writer.add_scalar("x", 1.0, 0)
    assert main(["view", writer.run_id, "--no-window"]) == 1
    assert f"run {writer.run_id} has no policy to show" in capsys.readouterr().err


def test_a_learner_of_lightning_is_a_training_too(make_config, tmp_path):
    """`Training.evaluate`, which a callback or a middleware of one's own may call, works in a `VectorLearner`."""
    from operant import SummaryWriter
    from operant.auto.config import check_config
    from operant.auto.envs.openai_gym import GymTestEnv
    from operant.auto.learners import VectorLearner
    from operant.auto.parts import prepare_parts, training_config
    from operant.framework import Context

    plan = check_config(make_config("PPO"))
    parts = prepare_parts(plan)
    config = training_config(plan, parts, {"id": "CartPole-v1", "num_envs": 2}, 2)
    with SummaryWriter("learner", system_metrics=False) as writer:
        learner = VectorLearner(config, GymTestEnv(episodes=2), plan, parts, writer, tmp_path)
        learner.begin()
        ctx = Context()
        ctx.finish = True
        learner.evaluate(ctx)
        reward, best = learner.end_epoch()
        learner.close()
    assert reward == learner.evaluations[0][1] == learner.evaluations[1][1] and not best
