"""Several agents through the launcher: a generated MADDPG config, networks of one's own, exact resume, films."""

from __future__ import annotations

import numpy as np
import pytest
from torch import nn

from operant.auto import launch, read_config
from operant.auto.command import main
from operant.auto.saving import load_checkpoint_file, unpack
from operant.errors import UsageError
from operant.tracking import Run
from operant.training import load_policy


class Actor(nn.Sequential):
    def __init__(self):
        super().__init__(nn.Linear(3, 8), nn.ReLU(), nn.Linear(8, 2))


class Critic(nn.Module):
    """Machin's form: what all see and what all do."""

    def __init__(self):
        super().__init__()
        self.layers = nn.Sequential(nn.Linear(10, 8), nn.ReLU(), nn.Linear(8, 1))

    def forward(self, state, action):
        import torch

        return self.layers(torch.cat([state, action], dim=1))


def test_a_generated_config_is_launched_and_goes_on_exactly(tmp_path, monkeypatch) -> None:
    monkeypatch.chdir(tmp_path)
    assert main(["generate", "--algo", "MADDPG", "--env", "openai_gym", "--output", "config.json"]) == 0
    config = read_config("config.json")
    assert config["train_env_config"]["env_name"] == "mpe2.simple_spread_v3"
    assert config["frame_config"]["critic_visible_actors"] is None and config["frame_config"]["sub_policy_num"] == 0
    config |= {"max_episodes": 24, "episode_per_epoch": 8, "early_stopping_patience": None}
    config["frame_config"] |= {"batch_size": 16, "learning_starts": 20, "sub_policy_num": 1}
    config["frame_config"] |= {"models": [Actor, Actor, Critic, Critic], "critic_visible_actors": [[0, 1], [1, 0]]}
    for key in ("train_env_config", "test_env_config"):
        config[key] |= {"env_name": "operant.envs.toys:Gates", "render_every_episode": 16}
    root = tmp_path / ".operant"
    root.mkdir()
    whole = launch({**config, "root_dir": str(tmp_path / "whole")}, root=root)
    part = {**config, "root_dir": str(tmp_path / "part")}
    launch({**part, "max_episodes": 16}, root=root)
    again = launch(part, root=root, resume=True)

    def state(result):
        found = unpack(load_checkpoint_file(result.last_checkpoint), "it")
        return {key: found[key] for key in ("algorithm", "rng", "agents", "train_iter")}

    np.testing.assert_equal(state(again), state(whole))
    assert list((tmp_path / "whole" / "log" / "images").glob("*.gif"))
    run = Run.open(whole.run_id, root)
    assert run.latest("evaluation/agents/runner/return") is not None
    actions, _ = load_policy(whole.run_id, root, trust=True).act_from({"keeper": np.zeros((1, 3), np.float32)}, None)
    assert set(actions) == {"keeper", "runner"}


def test_agents_that_share_a_policy_can_be_launched(tmp_path, monkeypatch) -> None:
    monkeypatch.chdir(tmp_path)
    env = {"env_name": "operant.envs.toys:Gates", "render_every_episode": None}
    config = {
        "frame": "PPO",
        "frame_config": {"rollout": 8},
        "env": "openai_gym",
        "train_env_config": env,
        "test_env_config": env,
        "max_episodes": 20,
        "episode_per_epoch": 10,
        "root_dir": str(tmp_path / "trial"),
    }
    (tmp_path / ".operant").mkdir()
    assert launch(config).episodes >= 20
    with pytest.raises(UsageError, match="which one process collects for and learns"):
        launch({**config, "num_processes": 3, "root_dir": str(tmp_path / "other")})
