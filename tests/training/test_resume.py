"""A training that was interrupted and resumed equals one that was not, bit by bit; bad checkpoints are sentences."""

from __future__ import annotations

import functools
import importlib.util
import json
import os
import shutil

import numpy as np
import pytest
import torch
from torch import nn

from operant.data import chunks
from operant.tracking import Run
from operant.training import CheckpointError, CheckpointStore, resume, train

PPO = {"name": "ppo", "rollout": 16, "minibatch": 24, "epochs": 2}
A2C = {"name": "a2c"}
TRPO = {"name": "trpo", "rollout": 16, "minibatch": 24, "value_epochs": 2}
DQN = {"name": "dqn", "train_every": 16, "updates": 4, "learning_starts": 50, "buffer": 300, "batch": 16}
TD3 = {"name": "td3", "train_every": 8, "learning_starts": 64, "batch": 16, "buffer": 500, "noise": "ou"}
SAC = {"name": "sac", "train_every": 8, "learning_starts": 64, "batch": 16, "buffer": 500, "prioritized": True}

CARTPOLE = {"id": "CartPole-v1", "num_envs": 4}
PENDULUM = {"id": "Pendulum-v1", "num_envs": 4, "normalize_obs": True, "normalize_reward": True}
GYMNASIUM = {"id": "CartPole-v1", "num_envs": 2, "wrappers": ["gymnasium.wrappers:NormalizeReward"]}
MASKED = {"id": "operant.envs.identity:MaskedIdentity", "num_envs": 3}
DICT = {"id": "operant.envs.identity:DictIdentity", "num_envs": 3}
HOPPER = {"id": "Hopper-v5", "num_envs": 2}


class Interrupted(Exception):
    pass


def interrupt_at(step):
    def make(training):
        def stop(ctx):
            if training.env_step >= step:
                raise Interrupted

        return stop

    return make


def final_state(root, run_id):
    _, state = CheckpointStore(Run.open(run_id, root).folder / "checkpoints").load()
    return state


def assert_same(one, other, path=""):
    assert type(one) is type(other), path
    if isinstance(one, dict):
        assert one.keys() == other.keys(), path
        for key in one:
            assert_same(one[key], other[key], f"{path}.{key}")
    elif isinstance(one, list):
        assert len(one) == len(other), path
        for number, (left, right) in enumerate(zip(one, other, strict=True)):
            assert_same(left, right, f"{path}.{number}")
    elif isinstance(one, np.ndarray):
        np.testing.assert_array_equal(one, other, err_msg=path)
    else:
        assert one == other or (one != one and other != other), path


@pytest.mark.parametrize(
    ("algorithm", "env"),
    [
        (PPO, CARTPOLE),
        (PPO, PENDULUM),
        (PPO, GYMNASIUM),
        (PPO, MASKED),
        (PPO, HOPPER),
        (A2C, CARTPOLE),
        (A2C, PENDULUM),
        (A2C, GYMNASIUM),
        (A2C, DICT),
        (A2C, HOPPER),
        (TRPO, PENDULUM),
        (DQN, CARTPOLE),
        (DQN, GYMNASIUM),
        (DQN, MASKED),
        ({**DQN, "name": "rainbow", "prioritized": True}, CARTPOLE),
        ({**DQN, "name": "qrdqn", "quantiles": 9}, GYMNASIUM),
        (TD3, PENDULUM),
        (SAC, PENDULUM),
        (SAC, HOPPER),
        ({**SAC, "name": "discrete_sac"}, MASKED),
    ],
    ids=lambda one: (
        f"{one.get('name') or one['id'].rpartition(':')[2]}{'+' if one.get('prioritized') else ''}"
        + ("-gymnasium" if one.get("wrappers") else "")
    ),
)
def test_resumed_equals_uninterrupted(root, algorithm, env, **model):
    if env is HOPPER and not all(importlib.util.find_spec(name) for name in ("mujoco", "imageio")):
        pytest.skip("Gymnasium's MuJoCo tasks need mujoco and imageio")
    config = {
        "total_steps": 640,
        "env": env,
        "algorithm": algorithm,
        "model": {"hidden": [16], "activation": "relu" if algorithm["name"] == "dqn" else "tanh", **model},
        "evaluation": {"every": 200, "episodes": 2},
        "checkpoint": {"every": 150},
    }
    if env is HOPPER:
        config["env"] = {**env, "arguments": {"max_episode_steps": 40}}
    whole = train(config, root=root)
    assert whole.exact
    with pytest.raises(Interrupted):
        train({**config, "callbacks": [interrupt_at(400)]}, root=root)
    broken = Run.open("last", root)
    assert broken.status == "ERROR"
    # What a callback is cannot be saved; the resumed training goes on without it.
    resumed = resume(broken.id, ["callbacks=[]"], root=root)
    assert resumed.steps == whole.steps
    one, other = final_state(root, whole.run_id), final_state(root, resumed.run_id)
    for state in (one, other):
        state["config"].pop("callbacks")
        # File names hold the checksum of their contents; the manifests must agree apart from how rows were cut.
        state.get("replay", {}).pop("tail", None)
        state.get("replay", {}).pop("chunks", None)
    assert_same(one, other)
    assert whole.evaluations == resumed.evaluations
    history = Run.open(resumed.run_id, root).scalars("evaluation/return")
    assert list(history["step"]) == [step for step, _ in whole.evaluations]


def test_a_job_that_is_started_again_goes_on_exactly(root, tmp_path, monkeypatch):
    config = {
        "total_steps": 640,
        "env": CARTPOLE,
        "algorithm": PPO,
        "model": {"hidden": [16]},
        "evaluation": {"every": 200, "episodes": 2},
        "checkpoint": {"every": 150},
    }
    whole = train(config, root=root)
    run = tmp_path / "jobs" / "0" / "run"
    monkeypatch.setenv("OPERANT_RUN_DIR", str(run))
    monkeypatch.setenv("OPERANT_RUN_ID", "search/0")
    with pytest.raises(Interrupted):
        train({**config, "callbacks": [interrupt_at(400)]})
    monkeypatch.setenv("OPERANT_RESTART", "1")  # as the wrapper says when a cluster has preempted it
    monkeypatch.setenv("OPERANT_RESUME_FROM", str(run / "checkpoints"))
    store = CheckpointStore(run / "checkpoints")
    newest, state = store.load()
    del state["rng"]
    store.save(newest, state)
    resumed = train(config)
    assert f"checkpoint of step {newest} lacks 'rng'; the one before it serves" in str(Run(run).text("log"))
    assert resumed.evaluations == whole.evaluations
    assert list(Run(run).scalars("evaluation/return")["step"]) == [step for step, _ in whole.evaluations]


@pytest.mark.parametrize("algorithm", [PPO, A2C, SAC], ids=["ppo", "a2c", "sac"])
def test_noise_by_state_is_resumed_too(root, algorithm):
    test_resumed_equals_uninterrupted(root, algorithm, PENDULUM, state_noise=True)


@pytest.mark.parametrize(
    ("algorithm", "env"),
    [(PPO, CARTPOLE), (A2C, CARTPOLE), (DQN, CARTPOLE), (SAC, PENDULUM)],
    ids=["ppo", "a2c", "dqn", "sac"],
)
def test_what_a_policy_remembers_is_resumed_too(root, algorithm, env):
    test_resumed_equals_uninterrupted(root, algorithm, env, recurrent="lstm", recurrent_size=8, sequence=6)


class Remembering(nn.Module):
    """A policy of one's own that remembers, for Pendulum."""

    def __init__(self):
        super().__init__()
        self.cell, self.policy = nn.GRUCell(3, 5), nn.Linear(5, 2)

    def initial_state(self, rows):
        return {"memory": torch.zeros(rows, 5)}

    def forward(self, obs, state):
        memory = self.cell(obs, state["memory"])
        return self.policy(memory), {"memory": memory}


def test_what_a_policy_of_ones_own_remembers_is_resumed_too(root, monkeypatch):
    monkeypatch.setattr("tests.training.test_resume.resume", functools.partial(resume, trust=True))
    test_resumed_equals_uninterrupted(root, SAC, PENDULUM, actor=Remembering, sequence=6, recurrent_size=8)


class Unsavable:
    def __new__(cls, **kwargs):
        import gymnasium

        class Odd(gymnasium.Wrapper):
            pass

        return Odd(gymnasium.make("CartPole-v1", **kwargs))


def test_an_environment_that_cannot_be_saved_makes_the_run_inexact(root):
    config = {"total_steps": 100, "env": {"id": Unsavable, "num_envs": 2}, "algorithm": A2C}
    result = train(config, root=root)
    assert not result.exact
    run = Run.open(result.run_id, root)
    assert "inexact" in run.tags


@pytest.fixture
def saved(root):
    store = CheckpointStore(root / "checkpoints", keep=3)
    for step in (1, 2):
        state = {"weights": np.arange(5.0), "nested": {"count": step, "list": [1, np.float32(2.5)]}}
        if step == 2:
            state["replay"] = {"tail": {"file": chunks.write(store.replay_folder, "0-5", {"row": np.arange(5)})}}
        store.save(step, state)
    return store


def _change_count(path):
    path.write_text(path.read_text().replace('"count": 2', '"count": 3'))


def _flip_a_bit(path, where):
    content = bytearray(path.read_bytes())
    content[content.rindex(where)] ^= 1
    path.write_bytes(content)


def _become_file(path):
    shutil.rmtree(path)
    path.write_text("")


def _become_pipe(path):
    path.unlink()
    os.mkfifo(path)


def _become_folder(path):
    path.unlink()
    path.mkdir()


def test_a_checkpoint_comes_back_as_it_was(saved):
    step, state = saved.load()
    assert step == 2
    assert state["nested"] == {"count": 2, "list": [1, 2.5]}
    np.testing.assert_array_equal(state["weights"], np.arange(5.0))


@pytest.mark.parametrize(
    ("damage", "message"),
    [
        (lambda path: (path / "state.npz").write_bytes((path / "state.npz").read_bytes()[:-9]), "checksum"),
        (lambda path: (path / "state.json").write_text('{"form'), "cut short"),
        (lambda path: (path / "state.json").write_text(json.dumps({"format": "other"})), "not of the format"),
        (lambda path: (path / "state.npz").unlink(), "is missing"),
        (lambda path: (path / "state.json").unlink(), "is missing"),
        (lambda path: _become_file(path), "cannot be read"),
        (lambda path: _change_count(path / "state.json"), "was changed"),
        (lambda path: (path / "state.json").write_text("[" * 200_000), "not JSON"),
        (lambda path: _become_folder(path / "state.json"), "cannot be read"),
        (lambda path: _become_folder(path / "state.npz"), "cannot be read"),
        (lambda path: _become_pipe(path / "state.json"), "no regular file"),
        (lambda path: _become_pipe(path / "state.npz"), "no regular file"),
        (lambda path: _become_pipe(next((path.parent / "replay").iterdir())), "is damaged"),
        (lambda path: next((path.parent / "replay").iterdir()).unlink(), "is missing"),
        (lambda path: next((path.parent / "replay").iterdir()).write_bytes(b"PK"), "is damaged"),
        (lambda path: _flip_a_bit(next((path.parent / "replay").iterdir()), b"row.npy"), "is damaged"),
        (lambda path: _flip_a_bit(next((path.parent / "replay").iterdir()), b"\x04\0\0\0\0\0\0\0"), "is damaged"),
    ],
)
def test_a_damaged_checkpoint_is_a_sentence_and_the_one_before_serves(saved, damage, message):
    damage(saved.folder / "step-000000000002")
    with pytest.raises(CheckpointError, match=message):
        saved.load(2)
    assert saved.load()[0] == 1
    (note,) = saved.notes
    assert note.startswith("the checkpoint before it serves, of step 1: ")
    saved.save(2, {"count": 2})
    assert saved.load()[0] == 2


def test_an_earlier_checkpoint_without_a_checksum_is_read_and_told(saved):
    path = saved.folder / "step-000000000002" / "state.json"
    document = json.loads(path.read_text())
    del document["own_sha256"]
    path.write_text(json.dumps(document))
    with pytest.raises(CheckpointError, match="was changed"):
        saved.load(2)
    path.write_text(json.dumps({**document, "format": "operant-checkpoint-1"}))
    assert saved.load()[0] == 2
    assert "no checksum of its own" in saved.notes[0]


@pytest.mark.parametrize("key", ["config", "doctor", "algorithm", "last.checkpoint"])
def test_a_checkpoint_that_lacks_something_gives_way_to_the_one_before(root, key):
    config = {"total_steps": 200, "env": CARTPOLE, "algorithm": A2C, "checkpoint": {"every": 100}}
    run_id = train(config, root=root).run_id
    run = Run.open(run_id, root)
    store = CheckpointStore(run.folder / "checkpoints")
    newest, state = store.load()
    group, _, name = key.rpartition(".")
    del (state[group] if group else state)[name]
    store.save(newest, state)
    with pytest.raises(CheckpointError, match=f"step {newest} "):
        resume(run_id, root=root, step=newest)
    assert resume(run_id, ["total_steps=300"], root=root).steps >= 300
    run.refresh()
    said = " ".join(str(one) for one in run.text("log"))
    assert f"checkpoint of step {newest} " in said and "the one before it serves" in said


def test_a_draft_left_by_a_kill_is_cleared(saved):
    (saved.folder / ".step-000000000003.abc").mkdir()
    saved.save(3, {})
    assert not list(saved.folder.glob(".step-*"))


def test_no_checkpoint_and_no_pickle(tmp_path):
    with pytest.raises(CheckpointError, match="there is no checkpoint"):
        CheckpointStore(tmp_path / "none").load()
    with pytest.raises(TypeError, match="does not take"):
        CheckpointStore(tmp_path).save(1, {"object": object()})
    assert CheckpointStore(tmp_path).steps() == []


def test_only_the_newest_are_kept(tmp_path):
    store = CheckpointStore(tmp_path, keep=2)
    for step in (10, 20, 30):
        store.save(step, {})
    assert store.steps() == [20, 30]
    assert not [path for path in tmp_path.iterdir() if path.name.startswith(".")]
