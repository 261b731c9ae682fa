"""Environments of the user's own: found by import path and entry point, played through the frame."""

from __future__ import annotations

import importlib.metadata
import shutil
import sys
from pathlib import Path

import pytest

from operant.auto import generate_algorithm_config, generate_env_config, generate_training_config, launch
from operant.auto.envs import find_environment, get_available_environments
from operant.errors import UsageError
from operant.tracking import Run

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
