"""Everything that a learner makes lies on its device, shown with a stand-in for a GPU."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from tests.algorithms.test_imitation import EXPERT
from tests.models.fake_device import FakeGPU, held_tensors, is_there

from operant.errors import UsageError
from operant.tracking import Run
from operant.training import load_policy, resume, train
from operant.training.checkpoints import CheckpointStore
from operant.training.config import TrainConfig

from .test_modules import Dropping

SHORT = {"evaluation": {"episodes": 2}, "total_steps": 400, "log": {"every": 100}}
CONFIGS: dict[str, Any] = {
    "ppo": {"env": {"id": "CartPole-v1", "num_envs": 2}, "algorithm": {"name": "ppo", "rollout": 50, "epochs": 2}},
    "ppo continuous": {
        "env": {"id": "Pendulum-v1", "num_envs": 2, "normalize_obs": True},
        "algorithm": {"name": "ppo", "rollout": 50, "epochs": 2},
        "model": {"state_noise": True},
    },
    "a2c": {"env": {"id": "Pendulum-v1", "num_envs": 2}, "algorithm": {"name": "a2c"}},
    "trpo": {
        "env": {"id": "Pendulum-v1", "num_envs": 2},
        "algorithm": {"name": "trpo", "rollout": 50, "minibatch": 50},
    },
    "gail": {
        "env": {"id": "operant.envs.identity:DiscreteIdentity", "num_envs": 2},
        "algorithm": {"name": "gail", "rollout": 50, "epochs": 2, "expert": EXPERT},
    },
    "lstm": {
        "env": {"id": "CartPole-v1", "num_envs": 2},
        "algorithm": {"name": "ppo", "rollout": 50, "epochs": 2},
        "model": {"recurrent": "lstm", "recurrent_size": 8},
    },
    "masked": {
        "env": {"id": "operant.envs.identity:MaskedIdentity", "num_envs": 2},
        "algorithm": {"name": "a2c", "optimizer": "adam"},
    },
    "dqn": {
        "env": {"id": "CartPole-v1"},
        "algorithm": {"name": "dqn", "prioritized": True, "dueling": True, "target_every": 100, "target_rate": 0.5},
    },
    "rainbow": {"env": {"id": "CartPole-v1"}, "algorithm": {"name": "rainbow", "atoms": 9, "target_every": 100}},
    "qrdqn": {"env": {"id": "CartPole-v1"}, "algorithm": {"name": "qrdqn", "quantiles": 9, "target_every": 100}},
    "dqn with memory": {
        "env": {"id": "CartPole-v1"},
        "algorithm": {"name": "dqn", "target_every": 100},
        "model": {"recurrent": "gru", "recurrent_size": 8, "sequence": 6},
    },
    "sac with memory": {
        "env": {"id": "Pendulum-v1"},
        "algorithm": {"name": "sac", "train_every": 100, "batch": 8},
        "model": {"hidden": [8], "recurrent": "gru", "recurrent_size": 8, "sequence": 6},
    },
    "maddpg": {
        "env": {"id": "operant.envs.toys:AgentsIdentity", "num_envs": 2, "arguments": {"going": True}},
        "algorithm": {"name": "maddpg", "train_every": 100, "batch": 16, "learning_starts": 40, "sub_policies": 2},
    },
    "dropout": {
        "env": {"id": "CartPole-v1"},
        "algorithm": {"name": "dqn", "target_every": 100},
        "model": {"network": Dropping, "arguments": {"outputs": 2}},
    },
}


@pytest.fixture
def gpu(monkeypatch: pytest.MonkeyPatch) -> Any:
    monkeypatch.setattr(torch.cuda, "is_available", lambda: True)
    monkeypatch.setattr(torch.cuda, "device_count", lambda: 1)
    monkeypatch.setattr(torch.cuda, "get_rng_state", lambda device: torch.default_generator.get_state())
    monkeypatch.setattr(torch.cuda, "set_rng_state", lambda state, device: torch.default_generator.set_state(state))
    return FakeGPU()


def weights_of(root: Path) -> dict[str, Any]:
    run = Run.open("last", root)
    return CheckpointStore(run.folder / "checkpoints").load()[1]["algorithm"]["weights"]


@pytest.mark.parametrize("name", CONFIGS)
def test_all_of_a_learner_lies_on_its_device(name: str, gpu: FakeGPU, tmp_path: Path) -> None:
    seen: list[Any] = []

    def keep(training: Any) -> Any:
        seen.append(training)
        return lambda ctx: None

    with gpu:
        train({**SHORT, **CONFIGS[name], "device": "cuda", "callbacks": [keep]}, root=tmp_path / "gpu")
        # (States of random generators are the CPU's, also those of a GPU.)
        tensors = [(path, one) for path, one in held_tensors(seen[0].algorithm) if "'_modes'" not in path]
        assert len(tensors) > 8
        for path, tensor in tensors:
            assert is_there(tensor), f"{path} lies on the CPU"
    run = Run.open("last", tmp_path / "gpu")
    assert seen[0].algorithm.device == "cuda"
    assert "networks: torch (autograd) on cuda" in [one.text for one in run.text("log")]
    # What was learned there is what autograd learns on the CPU, up to the order of sums; and it goes on there.
    model = {"model": {**CONFIGS[name].get("model", {}), "fused": False}}
    train({**SHORT, **CONFIGS[name], **model, "device": "cpu"}, root=tmp_path / "cpu")
    here, there = weights_of(tmp_path / "cpu"), weights_of(tmp_path / "gpu")
    for key, value in here.items():
        np.testing.assert_allclose(there[key], value, rtol=1e-2, atol=1e-4)
    assert resume("last", ["device=cpu", "total_steps=600", "callbacks=[]"], root=tmp_path / "gpu").steps >= 600
    policy = load_policy("last", tmp_path / "gpu")
    assert policy.policy.device == "cpu"


def test_auto_leaves_small_networks_to_the_cpu(gpu: FakeGPU, tmp_path: Path) -> None:
    devices = []

    def keep(training: Any) -> Any:
        devices.append(training.algorithm.device)
        return lambda ctx: None

    with gpu:
        for name in ("ppo", "dropout"):
            train({**SHORT, **CONFIGS[name], "callbacks": [keep]}, root=tmp_path)
    assert devices == ["cpu", "cuda"]


def test_a_device_is_said_once_and_must_be_there(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    config = TrainConfig.from_mapping({"device": "cuda:1"})
    assert config.model.device == "cuda:1" and config.to_mapping()["device"] == "cuda:1"
    assert "device" not in config.to_mapping()["model"]
    with pytest.raises(UsageError, match="device is auto, cpu, cuda"):
        TrainConfig.from_mapping({"device": "tpu"})
    with pytest.raises(UsageError, match=r"model\.device stands at the top"):
        TrainConfig.from_mapping({"model": {"device": "cpu"}})
    monkeypatch.setattr(torch.cuda, "is_available", lambda: False)
    with pytest.raises(UsageError, match="device=cuda needs a CUDA GPU"):
        train({**SHORT, **CONFIGS["ppo"], "device": "cuda"}, root=tmp_path)
