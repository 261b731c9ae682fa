"""Every algorithm solves tasks that any right implementation solves, in a few CPU-seconds; same seed, same weights."""

from __future__ import annotations

import numpy as np
import pytest

from operant.tracking import Run
from operant.training import CheckpointStore, train

ENVS = "operant.envs.identity:"
PPO = {"name": "ppo", "rollout": 32, "minibatch": 64, "epochs": 6, "learning_rate": 3e-3, "gamma": 0.5}
A2C = {"name": "a2c", "rollout": 8, "learning_rate": 3e-3, "gamma": 0.5, "optimizer": "adam"}
TRPO = {"name": "trpo", "rollout": 32, "max_kl": 0.1, "damping": 0.01, "gamma": 0.5}
DQN = {
    "name": "dqn",
    "train_every": 16,
    "updates": 8,
    "learning_starts": 100,
    "batch": 64,
    "buffer": 5000,
    "learning_rate": 2e-3,
    "target_every": 100,
    "gamma": 0.5,
    "exploration_fraction": 0.5,
}
RAINBOW = {
    **{key: value for key, value in DQN.items() if key != "exploration_fraction"},
    **{"name": "rainbow", "value_min": -1.0, "value_max": 3.0},
}
CONTROL = {"train_every": 8, "updates": 4, "learning_starts": 100, "batch": 64, "learning_rate": 3e-3, "gamma": 0.5}


@pytest.fixture
def root(tmp_path):
    folder = tmp_path / ".operant"
    folder.mkdir()
    return folder


def config(env, algorithm, steps, **model):
    relu = algorithm["name"] not in ("ppo", "a2c", "trpo")
    return {
        "total_steps": steps,
        "env": {"id": ENVS + env, "num_envs": 8},
        "algorithm": algorithm,
        "model": {"hidden": [32, 32], "activation": "relu" if relu else "tanh", **model},
        "evaluation": {"every": steps, "episodes": 16},
    }


@pytest.mark.parametrize(
    ("env", "algorithm", "steps", "threshold"),
    [
        ("DiscreteIdentity", PPO, 8_000, 18.0),
        ("MultiDiscreteIdentity", PPO, 10_000, 18.0),
        ("ContinuousIdentity", PPO, 16_000, -1.0),
        ("DictIdentity", PPO, 6_000, 18.0),
        ("MaskedIdentity", PPO, 6_000, 18.0),
        ("DiscreteIdentity", A2C, 12_000, 18.0),
        ("MultiDiscreteIdentity", A2C, 16_000, 18.0),
        ("ContinuousIdentity", A2C, 24_000, -1.0),
        ("DictIdentity", A2C, 8_000, 18.0),
        ("MaskedIdentity", A2C, 8_000, 18.0),
        ("DiscreteIdentity", TRPO, 8_000, 18.0),
        ("DiscreteIdentity", DQN, 6_000, 18.0),
        ("DictIdentity", DQN, 3_500, 18.0),
        ("MaskedIdentity", DQN, 4_000, 18.0),
        ("DiscreteIdentity", {**DQN, "target_every": 0, "double": False}, 6_000, 18.0),
        ("ContinuousIdentity", {"name": "ddpg", **CONTROL}, 4_000, -1.0),
        ("ContinuousIdentity", {"name": "td3", **CONTROL}, 4_000, -1.0),
        ("ContinuousIdentity", {"name": "sac", **CONTROL}, 4_000, -1.0),
        ("MaskedIdentity", {"name": "discrete_sac", **CONTROL}, 4_000, 18.0),
        ("DiscreteIdentity", {**DQN, "dueling": True, "prioritized": True, "n_step": 3}, 8_000, 18.0),
        ("DiscreteIdentity", {**DQN, "name": "c51", "value_min": -1.0, "value_max": 3.0}, 6_000, 18.0),
        ("MaskedIdentity", {**DQN, "name": "qrdqn", "quantiles": 16}, 4_000, 18.0),
        ("DiscreteIdentity", RAINBOW, 8_000, 18.0),
    ],
    ids=lambda one: one if isinstance(one, str) else one["name"] if isinstance(one, dict) else str(one),
)
def test_it_learns(root, env, algorithm, steps, threshold):
    result = train(config(env, algorithm, steps), root=root)
    assert result.final_return >= threshold


@pytest.mark.parametrize(
    ("algorithm", "steps"),
    [
        ({**PPO, "gamma": 0.9}, 10_000),
        ({**A2C, "gamma": 0.9, "learning_rate": 1e-2}, 16_000),
        ({**DQN, "gamma": 0.9, "updates": 2, "batch": 32, "exploration_fraction": 0.3}, 3_000),
    ],
    ids=lambda one: one["name"] if isinstance(one, dict) else "",
)
def test_it_learns_what_only_memory_can(root, algorithm, steps):
    memory = {"recurrent": "gru", "recurrent_size": 16, "hidden": [16]}
    if algorithm["name"] == "dqn":
        memory |= {"sequence": 8, "burn_in": 2}
    result = train(config("MemoryIdentity", algorithm, steps, **memory), root=root)
    assert result.final_return >= 0.95


def weights_of(root, result):
    _, state = CheckpointStore(Run.open(result.run_id, root).folder / "checkpoints").load()
    return state["algorithm"]["weights"]


@pytest.mark.parametrize("algorithm", [PPO, A2C, DQN], ids=lambda one: one["name"])
def test_the_seed_decides_everything(root, algorithm):
    one, same, other = (
        weights_of(root, train({**config("DiscreteIdentity", algorithm, 1000), "seed": seed}, root=root))
        for seed in (1, 1, 2)
    )
    for name, value in one.items():
        np.testing.assert_array_equal(value, same[name])
    assert any((value != other[name]).any() for name, value in one.items())


@pytest.mark.parametrize(
    ("algorithm", "steps"),
    [(PPO, 16_000), (A2C, 24_000), ({"name": "sac", **CONTROL}, 4_000)],
    ids=lambda one: one["name"] if isinstance(one, dict) else "",
)
def test_it_learns_with_noise_by_state(root, algorithm, steps):
    result = train(config("ContinuousIdentity", algorithm, steps, state_noise=True, log_std=-1.0), root=root)
    assert result.final_return >= -1.0


@pytest.mark.parametrize("algorithm", [PPO, A2C, DQN], ids=lambda one: one["name"])
def test_the_torch_path_learns_as_well(root, algorithm):
    result = train(config("DiscreteIdentity", algorithm, 6_000, fused=False), root=root)
    assert result.final_return >= 18.0


def test_cartpole_is_solved_by_ppo(root):
    result = train("cartpole-ppo", ["evaluation.stop_value=475", "evaluation.every=4000"], root=root)
    assert result.best_return >= 475
