"""Modules that have modes and draw numbers: evaluation mode outside of updates, numbers from the training's seed."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch import nn

from operant.tracking import Run
from operant.training import load_policy, resume, train
from operant.training.checkpoints import CheckpointStore


class Dropping(nn.Module):
    """Dropout and BatchNorm; with a value beside it for PPO and A2C."""

    def __init__(self, outputs: int = 2, value: bool = False) -> None:
        super().__init__()
        self.body = nn.Sequential(nn.Linear(4, 16), nn.BatchNorm1d(16), nn.ReLU(), nn.Dropout(0.5))
        self.head = nn.Linear(16, outputs)
        self.value = nn.Linear(16, 1) if value else None

    def forward(self, obs: torch.Tensor) -> Any:
        hidden = self.body(obs)
        return self.head(hidden) if self.value is None else (self.head(hidden), self.value(hidden))


class Noisy(Dropping):
    """Draws when it acts, too."""

    def forward(self, obs: torch.Tensor) -> Any:
        return super().forward(obs + 0.1 * torch.randn(4))


def config(algorithm: str, network: type = Dropping, **changes: Any) -> dict[str, Any]:
    settings: dict[str, Any] = {
        "ppo": {"rollout": 40, "minibatch": 20, "epochs": 2},
        "a2c": {"rollout": 20},
        "dqn": {"batch": 16, "learning_starts": 40, "target_every": 50},
    }[algorithm]
    return {
        "total_steps": 240,
        "env": {"id": "CartPole-v1", "num_envs": 1},
        "algorithm": {"name": algorithm, **settings},
        "model": {"network": network, "arguments": {"value": algorithm != "dqn"}},
        "evaluation": {"episodes": 2, "every": 120},
        "checkpoint": {"every": 120, "keep": 9},
        **changes,
    }


def final_state(root: Path) -> Any:
    return CheckpointStore(Run.open("last", root).folder / "checkpoints").load()[1]["algorithm"]


@pytest.mark.parametrize("network", [Dropping, Noisy])
@pytest.mark.parametrize("algorithm", ["ppo", "a2c", "dqn"])
def test_a_resume_is_exact(algorithm: str, network: type, tmp_path: Path) -> None:
    result = train(config(algorithm, network), root=tmp_path)
    assert result.exact
    whole = final_state(tmp_path)
    torch.manual_seed(2)  # what else is drawn does not matter
    resume("last", step=120, root=tmp_path)
    np.testing.assert_equal(final_state(tmp_path), whole)


@pytest.mark.parametrize("algorithm", ["ppo", "dqn"])
def test_the_same_seed_gives_the_same_weights_whatever_else_is_drawn(algorithm: str, tmp_path: Path) -> None:
    states = []
    for seed in (1, 2):
        torch.manual_seed(seed)
        train(config(algorithm, Noisy), root=tmp_path / str(seed))
        states.append(final_state(tmp_path / str(seed)))
    np.testing.assert_equal(states[0], states[1])


def test_dropout_does_not_act_in_a_loaded_policy(tmp_path: Path) -> None:
    train(config("ppo"), root=tmp_path)
    policy = load_policy("last", tmp_path)
    assert not any(layer.training for layer in policy.policy.network.modules())
    obs = np.random.default_rng(0).normal(size=(64, 4)).astype(np.float32)
    outputs = [policy.policy._policy_output(obs) for _ in range(3)]
    np.testing.assert_array_equal(outputs[0], outputs[1])
    np.testing.assert_array_equal(outputs[0], outputs[2])
    assert len({int(one) for one in policy.act(obs)}) >= 1
