"""Recorded episodes, behaviour cloning and GAIL."""

from __future__ import annotations

import tempfile
import zipfile
from pathlib import Path
from typing import ClassVar

import numpy as np
import pytest
import torch
from gymnasium.spaces import Box, Discrete
from sklearn.linear_model import LogisticRegression

from operant.algorithms import find_algorithm
from operant.algorithms.imitation import discriminator_loss
from operant.cli import main
from operant.data.batches import read_recorded, write_recorded
from operant.errors import UsageError
from operant.models import ModelSettings
from operant.testing import AlgorithmContract
from operant.training import load_policy, resume, train
from operant.training.machin import from_machin, to_machin

IDENTITY = "operant.envs.identity:DiscreteIdentity"


def record_identity(path, count=600, options=3):
    """What an expert does in DiscreteIdentity: it does what it sees; episodes of 20 steps are cut off."""
    rng = np.random.default_rng(0)
    target = rng.integers(options, size=(count + 1, 1))
    seen = np.eye(options, dtype=np.float32)[target]
    steps = [
        {
            "obs": seen[number],
            "action": target[number],
            "reward": np.ones(1, np.float32),
            "terminated": np.zeros(1, bool),
            "truncated": np.array([number % 20 == 19]),
            "next_obs": seen[number + 1],
        }
        for number in range(count)
    ]
    assert write_recorded(path, steps) == count
    return str(path)


_FOLDER = tempfile.TemporaryDirectory()
EXPERT = record_identity(Path(_FOLDER.name) / "identity.npz")


@pytest.fixture
def expert():
    return EXPERT


class TestBC(AlgorithmContract):
    name = "bc"
    settings: ClassVar = {"expert": EXPERT, "batch": 8, "updates": 3}
    envs = (IDENTITY,)


class TestGAIL(AlgorithmContract):
    name = "gail"
    settings: ClassVar = {"expert": EXPERT, "rollout": 8, "minibatch": 12, "discriminator_batch": 8}
    envs = (IDENTITY,)


class TestTrustRegionGAIL(TestGAIL):
    name = "gail_trpo"


@pytest.mark.parametrize(
    ("name", "steps", "settings"),
    [
        ("bc", 600, {"learning_rate": 0.01}),
        ("gail", 4_000, {"rollout": 32, "epochs": 6, "learning_rate": 3e-3, "gamma": 0.5}),
    ],
)
def test_it_does_as_was_recorded(tmp_path, expert, name, steps, settings):
    """Without the rewards of the task, which reach 20 here."""
    config = {
        "total_steps": steps,
        "env": {"id": IDENTITY, "num_envs": 8},
        "algorithm": {"name": name, "expert": expert, **settings},
        "model": {"hidden": [32]},
        "evaluation": {"every": steps, "episodes": 16},
    }
    if name == "gail":
        config["algorithm"] |= {"discriminator_rate": 3e-3, "discriminator_updates": 20, "minibatch": 64}
    assert train(config, root=tmp_path).final_return >= 18.0


@pytest.mark.parametrize("name", ["bc", "gail", "gail_trpo"])
def test_a_resumed_training_goes_on_exactly(tmp_path, expert, name):
    own = {} if name == "bc" else {"rollout": 10}
    config = {
        "total_steps": 400,
        "env": {"id": IDENTITY, "num_envs": 2},
        "algorithm": {"name": name, "expert": expert, **own},
        "model": {"hidden": [8]},
        "evaluation": {"every": 200, "episodes": 2},
        "checkpoint": {"every": 200},
    }
    whole = train(config, root=tmp_path / "whole")
    train({**config, "total_steps": 200}, root=tmp_path / "part")
    rest = resume("last", ["total_steps=400"], root=tmp_path / "part")
    assert rest.evaluations == whole.evaluations
    first, second = (load_policy("last", tmp_path / one).policy.weights() for one in ("whole", "part"))
    for key, value in first.items():
        np.testing.assert_array_equal(value, second[key])


def test_the_discriminator_is_logistic_regression(tmp_path):
    """A linear one, learned to the end, against scikit-learn's on the same rows."""
    rng = np.random.default_rng(0)
    obs = rng.normal(size=(400, 2)).astype(np.float32) + np.float32(0.6)
    steps = [
        {
            "obs": obs[i : i + 1],
            "action": np.array([int(obs[i, 0] > 0.6)]),
            "reward": np.zeros(1, np.float32),
            "terminated": np.zeros(1, bool),
            "truncated": np.zeros(1, bool),
            "next_obs": obs[i : i + 1],
        }
        for i in range(400)
    ]
    write_recorded(tmp_path / "expert.npz", steps)
    kind, settings = find_algorithm("gail")
    given = settings(
        expert=str(tmp_path / "expert.npz"),
        discriminator_updates=1500,
        discriminator_batch=400,
        discriminator_rate=0.01,
    )
    algorithm = kind(Box(-9, 9, (2,)), Discrete(2), given, ModelSettings(hidden=()), 0)
    others = rng.normal(size=(400, 2)).astype(np.float32)
    actions = algorithm._as_input(rng.integers(2, size=400))
    algorithm._learn_discriminator(others, actions)
    expert = np.concatenate(algorithm._expert, axis=1)
    rows = np.concatenate([expert, np.concatenate([others, actions], axis=1)])
    theirs = LogisticRegression(C=1e6).fit(rows, np.repeat([1, 0], 400))
    with torch.no_grad():
        ours = torch.sigmoid(algorithm._logits(rows[:, :2], rows[:, 2:])).numpy()
    np.testing.assert_allclose(ours, theirs.predict_proba(rows)[:, 1], atol=0.05)
    # The rewards say the same: −log(1 − D).
    np.testing.assert_allclose(algorithm._rewards(rows[:, :2], rows[:, 2:]), -np.log(1 - ours), rtol=1e-3, atol=1e-5)


def test_the_loss_of_the_discriminator_by_hand():
    expert, policy = torch.tensor([0.0, 2.0]), torch.tensor([-1.0])
    by_hand = -(np.log(0.5) + np.log(1 / (1 + np.exp(-2)))) / 2 - np.log(1 - 1 / (1 + np.exp(1)))
    assert discriminator_loss(expert, policy).item() == pytest.approx(by_hand, rel=1e-5)


def test_episodes_of_a_run_are_recorded(tmp_path, capsys, monkeypatch):
    monkeypatch.chdir(tmp_path)
    root = tmp_path / ".operant"
    root.mkdir()
    # SAC has actions between −1 and 1 inside; what is recorded is what the environment got.
    config = {
        "total_steps": 300,
        "env": {"id": "Pendulum-v1", "arguments": {"max_episode_steps": 20}},
        "algorithm": {"name": "sac", "learning_starts": 100, "batch": 16},
        "model": {"hidden": [8]},
        "evaluation": {"episodes": 2, "every": 300},
    }
    run = train(config, root=root).run_id
    assert main(["record", "last", "--episodes", "3", "--root", str(root)]) == 0
    assert "3 episodes, 60 transitions" in capsys.readouterr().out
    found = read_recorded(tmp_path / f"{run}.npz")
    assert found["obs"].shape == (60, 3) and found["action"].shape == (60, 1)
    assert found["truncated"].sum() == 3 and found["truncated"][19] and not found["terminated"].any()
    np.testing.assert_array_equal(found["obs"][1:20], found["next_obs"][:19])
    assert np.abs(found["action"]).max() <= 2.0
    policy = load_policy("last", root)
    np.testing.assert_allclose(policy.act(found["obs"][:5]), found["action"][:5], rtol=1e-5)
    # They are learned from as they are, in the policy's own units.
    cloned = {**config, "algorithm": {"name": "bc", "expert": f"{run}.npz"}, "total_steps": 50}
    train(cloned, root=root)
    assert main(["record", "last", "--episodes", "0", "--root", str(root)]) != 0
    (tmp_path / "file").touch()
    for words, why in (
        (["--seed", "-1"], "--seed is -1; it must be at least 0"),
        (["--output", str(tmp_path)], f"{tmp_path} is a folder; name a file in it"),
        (["--output", str(tmp_path / "file" / "expert.npz")], "cannot be written"),
    ):
        capsys.readouterr()
        assert main(["record", "last", "--episodes", "1", "--root", str(root), *words]) == 1
        assert why in (told := capsys.readouterr().err) and told.count("\n") == 1
    assert main(["view", "last", "--seed", "-1", "--no-window", "--root", str(root)]) == 1


def test_what_cannot_be_learned_from_is_said(tmp_path, expert):
    kind, settings = find_algorithm("gail")
    with pytest.raises(UsageError, match=r"algorithm\.expert=FILE"):
        kind(Box(-1, 1, (2,)), Discrete(2), settings(), None, 0)
    (tmp_path / "text.npz").write_text("no")
    with pytest.raises(UsageError, match="holds no recorded transitions"):
        kind(Box(-1, 1, (2,)), Discrete(2), settings(expert=str(tmp_path / "text.npz")), None, 0)
    with zipfile.ZipFile(tmp_path / "bomb.npz", "w", zipfile.ZIP_DEFLATED) as archive:
        archive.writestr("reward.npy", b"x")
        archive.filelist[0].file_size = 1 << 60  # what its index says
    for file, why in (
        ("bomb.npz", "of memory are free"),
        (".", "no regular file"),
        ("x" * 5000, "File name too long"),
        ("a\0b", "null byte"),
    ):
        with pytest.raises(UsageError, match=f"holds no recorded transitions: .*{why}"):
            kind(Box(-1, 1, (2,)), Discrete(2), settings(expert=f"{tmp_path}/{file}"), None, 0)
    for other in ("gail", "bc"):
        config = {"env": {"id": "CartPole-v1"}, "algorithm": {"name": other, "expert": expert}, "total_steps": 10}
        with pytest.raises(UsageError, match=r"do not fit this environment: observations have the shape \(3,\)"):
            train(config, root=tmp_path)
        config["env"]["id"] = "Pendulum-v1"
        with pytest.raises(UsageError, match=r"do not fit this environment: actions have the shape \(\)"):
            train(config, root=tmp_path)
    config = {
        "env": {"id": "Pendulum-v1", "normalize_obs": True},
        "algorithm": {"name": "gail", "expert": expert},
        "total_steps": 10,
    }
    rows = {"obs": np.zeros((600, 3)), "next_obs": np.zeros((600, 3)), "action": np.zeros((600, 1), np.float32)}
    np.savez(tmp_path / "p.npz", **(read_recorded(expert) | rows))
    config["algorithm"]["expert"] = str(tmp_path / "p.npz")
    with pytest.raises(UsageError, match="switch it off"):
        train(config, root=tmp_path)


@pytest.mark.parametrize(
    ("name", "change", "why"),
    [
        (
            "obs",
            lambda obs: np.where(np.arange(len(obs))[:, None] == 3, np.nan, obs),
            "obs in .* is not finite in row 3",
        ),
        ("action", lambda action: action + 0.5, "actions are not all whole numbers from 0 to 2"),
        ("action", lambda action: action + 7, "actions are not all whole numbers from 0 to 2"),
        ("reward", lambda reward: reward.astype(str), "reward in .* holds no numbers"),
        ("obs/more", lambda obs: obs, "has obs as one array and as entries of a dict"),
        ("terminated", lambda flags: flags[:, None], r"terminated in .* has the shape \(600, 1\), not \(600,\)"),
        ("reward", lambda reward: np.stack([reward] * 2, 1), r"reward in .* has the shape \(600, 2\), not \(600,\)"),
        ("obs", lambda obs: obs.astype(float) + 1e300, "obs in .* is not finite in row 0"),  # in single precision
    ],
)
@pytest.mark.parametrize("algorithm", ["bc", "gail"])
def test_a_recording_with_a_fault_is_refused_before_anything_is_learned(tmp_path, expert, algorithm, name, change, why):
    recorded = read_recorded(expert)
    np.savez(tmp_path / "faulty.npz", **{**recorded, name: change(recorded[name.partition("/")[0]])})
    config = {
        "env": {"id": IDENTITY},
        "algorithm": {"name": algorithm, "expert": str(tmp_path / "faulty.npz")},
        "total_steps": 10,
    }
    with pytest.raises(UsageError, match=why):
        train(config, root=tmp_path)


def test_machins_words():
    _, settings = find_algorithm("gail")
    found, _ = from_machin(settings, {"expert_trajectory_path": "trajectory.data", "discriminator_update_times": 2})
    assert (found.expert, found.discriminator_updates) == ("trajectory.data", 2)
    assert from_machin(settings, to_machin(found))[0] == found
