"""Launches: Machin's config, exact resume, early stopping, what is kept, and every kind of space."""

from __future__ import annotations

import os
import shutil
import signal
import sys
from pathlib import Path

import numpy as np
import pytest
import torch
from lightning.pytorch import Callback
from tests.auto import networks

from operant.auto import generate_algorithm_config, generate_env_config, generate_training_config, launch, read_config
from operant.auto.command import main
from operant.auto.config import config_of_preset
from operant.auto.saving import load_checkpoint_file, pack, unpack
from operant.errors import UsageError
from operant.tracking import Run
from operant.training.checkpoints import CheckpointError
from operant.training.playback import load_policy

EXAMPLE = Path(__file__).parents[2] / "examples" / "auto" / "declarative"


class Interrupted(Exception):
    pass


class InterruptAt(Callback):
    def __init__(self, epoch):
        self.epoch = epoch

    def on_train_epoch_start(self, trainer, pl_module):
        if trainer.current_epoch == self.epoch:
            raise Interrupted


def final_state(result):
    state = unpack(load_checkpoint_file(result.last_checkpoint), "it")
    for one in (state, state.get("collector", {})):
        one.pop("config", None)
    # File names hold the checksum of their contents; the manifests must agree apart from how rows were cut.
    for key in ("tail", "chunks"):
        state.get("replay", {}).pop(key, None)
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


def test_machins_config_runs_unchanged(tmp_path, monkeypatch, capsys):
    shutil.copytree(EXAMPLE, tmp_path / "there")
    monkeypatch.delitem(sys.modules, "qnet", raising=False)
    monkeypatch.setattr(sys, "path", list(sys.path))
    assert main(["launch", "--config", str(tmp_path / "there" / "config.json")]) == 0
    out = capsys.readouterr().out
    assert "gpus is [0], but this machine has no GPU: training on the CPU" in out or torch.cuda.is_available()
    assert "stopped early after epoch" in out and "early_stopping_patience" in out
    assert Path("trial/model/best.ckpt").is_file() and Path("trial/model/last.ckpt").is_file()
    run = Run.open("last")
    assert run.status == "FINISHED"
    assert any("stopped early" in one.text for one in run.text("log"))
    assert len(run.scalars("total_reward")) == len(run.scalars("evaluation/return")) >= 4


PENDULUM = {"env_name": "Pendulum-v1", "arguments": {"max_episode_steps": 20}}


@pytest.mark.parametrize(
    ("algorithm", "frame_config", "train"),
    [
        ("DQN", {"learning_starts": 10, "replay_size": 60, "epsilon_decay": 0.99}, {}),
        ("DQN", {"learning_starts": 10, "prioritized": True, "n_step": 3, "optimizer": "AdamW"}, {"num_envs": 2}),
        ("PPO", {"anneal_learning_rate": True}, {"num_envs": 4}),
        ("A2C", {"lr_scheduler": "StepLR", "lr_scheduler_args": [1, 0.5]}, {"num_envs": 2, "normalize_obs": True}),
        ("DQN", {"learning_starts": 10, "update_rate": 0.1, "update_steps": None}, {"act_kwargs": {"epsilon": 0.3}}),
        ("SAC", {"learning_starts": 20}, {**PENDULUM, "num_envs": 2}),
        ("DDPGPer", {"learning_starts": 20}, {**PENDULUM, "act_kwargs": {"noise_param": {"sigma": 0.5}, "mode": "ou"}}),
    ],
    ids=["dqn", "dqn-prioritized-adamw", "ppo", "a2c-scheduled", "dqn-episodes", "sac", "ddpg-prioritized-episodes"],
)
def test_a_resumed_launch_equals_one_that_was_not_interrupted(make_config, tmp_path, algorithm, frame_config, train):
    test = {key: train[key] for key in ("env_name", "arguments") if key in train}
    config = make_config(algorithm, frame_config, train, test, max_episodes=18)
    whole = launch({**config, "root_dir": str(tmp_path / "whole")})
    assert whole.exact and whole.epochs >= 3 and whole.episodes >= 18
    broken = {**config, "root_dir": str(tmp_path / "broken")}
    with pytest.raises(Interrupted):
        launch(broken, [InterruptAt(2)])
    assert Run.open("last").status == "ERROR"
    resumed = launch(broken, resume=True)
    assert resumed.root_dir == tmp_path / "broken"
    assert resumed.rewards == whole.rewards and resumed.steps == whole.steps
    assert_same(final_state(whole), final_state(resumed))
    history, expected = (Run.open(one.run_id).scalars("total_reward") for one in (resumed, whole))
    np.testing.assert_array_equal(history["value"], expected["value"])
    np.testing.assert_array_equal(history["step"], expected["step"])


class SignalAt(Callback):
    """Sends a signal to its own process at the end of some pass."""

    def __init__(self, count, number):
        self.count, self.number = count, number

    def on_train_batch_end(self, trainer, pl_module, outputs, batch, batch_idx):
        self.count -= 1
        if self.count == 0:
            os.kill(os.getpid(), self.number)


@pytest.mark.parametrize(
    ("algorithm", "number", "raised"), [("DQN", signal.SIGINT, KeyboardInterrupt), ("PPO", signal.SIGTERM, SystemExit)]
)
def test_a_signal_saves_in_the_middle_of_an_epoch(make_config, tmp_path, monkeypatch, capfd, algorithm, number, raised):
    monkeypatch.setattr("operant.auto.learners._PASS", 8)
    config = make_config(algorithm, {"learning_starts": 10} if algorithm == "DQN" else {}, max_episodes=9)
    whole = launch({**config, "root_dir": str(tmp_path / "whole")})
    broken = {**config, "root_dir": str(tmp_path / "broken")}
    launch({**broken, "root_dir": str(tmp_path / "saved")}, [SignalAt(3, signal.SIGUSR1)])
    before = signal.getsignal(number)
    with pytest.raises(raised):
        launch(broken, [SignalAt(3, number)])
    assert signal.getsignal(number) is before
    place = tmp_path / "broken"
    command = f"operant auto launch --config {place}/config/config.json --checkpoint {place}/model/last.ckpt"
    assert capfd.readouterr().err.splitlines()[-1].endswith(f"go on with: {command}")
    resumed = launch(broken, resume=place / "model" / "last.ckpt")
    assert resumed.rewards == whole.rewards and resumed.steps == whole.steps
    assert_same(final_state(whole), final_state(resumed))


def test_the_best_checkpoint_can_be_resumed_too(make_config, tmp_path):
    config = make_config(frame_config={"learning_starts": 10, "replay_size": 100}, max_episodes=15)
    first = launch(config)
    resumed = launch(config, resume=first.checkpoint)
    assert resumed.rewards == first.rewards and resumed.steps == first.steps
    assert resumed.root_dir == first.root_dir


def test_only_replay_that_a_checkpoint_needs_is_kept(make_config):
    result = launch(make_config(frame_config={"replay_size": 64}, max_episodes=30))
    kept = {path.name for path in (result.root_dir / "model" / "replay").glob("replay-*")}
    needed = set()
    for path in (result.root_dir / "model").glob("*.ckpt"):
        manifest = unpack(load_checkpoint_file(path), "it")["replay"]
        needed |= {entry["file"] for entry in [*manifest["chunks"], manifest["tail"]]} | {manifest["pending"]}
    # The files of the checkpoint before the last one go with the next save.
    assert needed <= kept and len(kept) <= 2 * len(needed)


class Hostile:
    def __reduce__(self):
        return (Path.touch, (Path("harm"),))


def test_a_hostile_checkpoint_is_not_executed(make_config):
    config = make_config()
    result = launch(config)
    loaded = load_checkpoint_file(result.last_checkpoint)
    torch.save({**loaded, "operant": Hostile()}, result.last_checkpoint)
    with pytest.raises(CheckpointError, match="it was not loaded"):
        launch(config, resume=True)
    assert not Path("harm").exists()


@pytest.mark.parametrize(
    ("damage", "message"),
    [
        (lambda path: path.write_bytes(path.read_bytes()[:1000]), "cut short or no checkpoint"),
        (lambda path: path.write_bytes(b""), "cut short or no checkpoint"),
        (lambda path: torch.save({"state_dict": {}}, path), "was not made by"),
        (lambda path: torch.save([1], path), "not a checkpoint"),
        (lambda path: _change_arrays(path), "checksum differs"),
        (lambda path: _flip_a_bit_of_the_weights(path), "was changed"),
        (lambda path: torch.save({"operant": dict.fromkeys(("run", "step", "document", "arrays"))}, path), "not made"),
        (lambda path: _leave_out(path, "rewards"), "lacks 'rewards'"),
    ],
    ids=["half", "empty", "other", "list", "changed", "flipped", "kinds", "key"],
)
def test_a_damaged_checkpoint_is_a_sentence(make_config, damage, message):
    config = make_config(max_episodes=3)
    damage(launch(config).last_checkpoint)
    with pytest.raises(CheckpointError, match=message):
        launch(config, resume=True)


def _flip_a_bit_of_the_weights(path):
    content = bytearray(path.read_bytes())
    weights = next(iter(load_checkpoint_file(path)["state_dict"].values()))
    content[content.index(weights.numpy().tobytes())] ^= 1
    path.write_bytes(content)


def _leave_out(path, key):
    loaded = load_checkpoint_file(path)
    state = unpack(loaded, "it")
    del state[key]
    torch.save({**loaded, "operant": pack(loaded["operant"]["step"], loaded["operant"]["run"], state)}, path)


def _change_arrays(path):
    loaded = load_checkpoint_file(path)
    loaded["operant"]["arrays"][200] += 1
    torch.save(loaded, path)


def test_nothing_is_overwritten(make_config, tmp_path):
    said = []
    config = make_config(max_episodes=3)
    first = launch(config)
    second = launch(config, say=said.append)
    assert (first.root_dir, second.root_dir) == (tmp_path / "trial", tmp_path / "trial-2")
    assert "holds a training already" in said[0]
    with pytest.raises(UsageError, match="nothing to resume"):
        launch({**config, "root_dir": str(tmp_path / "none")}, resume=True)


def test_early_stopping_counts_epochs_without_a_better_reward(make_config):
    config = make_config(frame_config={"learning_starts": 10**6}, early_stopping_patience=2, max_episodes=60)
    result = launch(config)  # nothing is learned, so every evaluation is the same
    assert result.stopped_early and result.epochs == 3
    reached = launch({**config, "stop_reward": 1.0})
    assert reached.stopped_early and reached.epochs == 1
    assert any("stop_reward 1" in one.text for one in Run.open(reached.run_id).text("log"))


def test_what_is_kept(make_config):
    config = make_config(train={"render_every_episode": 4}, test={"render_every_episode": 2})
    result = launch(config)
    films = sorted(path.name.rpartition("-")[0] for path in (result.root_dir / "log" / "images").glob("*.gif"))
    assert films == ["test_episode"] * 3 + ["train_episode"] * 2
    run = Run.open(result.run_id)
    assert {"train_episode", "test_episode"} <= {one.tag for one in run.media()}
    kept = read_config(result.root_dir / "config" / "config.json")
    assert kept["frame_config"]["batch_size"] == 16
    policy = load_policy(result.run_id)  # `operant view` shows the best one
    assert policy.mean_return == result.best_reward == max(result.rewards)
    loaded = load_checkpoint_file(result.checkpoint)
    assert set(loaded["state_dict"]) == {f"network.{name}" for name in policy.policy.weights()}


def test_films_change_nothing(make_config, tmp_path):
    plain = launch({**make_config(), "root_dir": str(tmp_path / "a")})
    filmed = launch({**make_config(train={"render_every_episode": 2}), "root_dir": str(tmp_path / "b")})
    assert plain.rewards == filmed.rewards and plain.steps == filmed.steps


def test_limits_are_in_episodes(make_config):
    result = launch(make_config(episode_per_epoch=4, max_episodes=10))
    assert result.epochs in (2, 3) and 10 <= result.episodes < 14  # a round of 32 steps may end several
    many = launch(make_config("A2C", train={"num_envs": 30}, episode_per_epoch=1, max_episodes=40))
    assert 40 <= many.episodes < 80  # a pass of thirty environments may end many episodes at once


def test_callbacks_of_the_user_are_called(make_config):
    class Count(Callback):
        batches = 0

        def on_train_batch_end(self, trainer, pl_module, outputs, batch, batch_idx):
            self.batches += 1
            pl_module.log("mine", 1.0, on_epoch=True, on_step=False, batch_size=1)

    count = Count()
    result = launch(make_config(), [count])
    assert count.batches == result.epochs  # a training step is one pass of the task, and short epochs are one pass
    assert len(Run.open(result.run_id).scalars("mine"))


def test_the_test_environment_is_evaluated(make_config):
    longer = launch(make_config(frame_config={"learning_starts": 10**6}, test={"arguments": {"max_episode_steps": 3}}))
    assert longer.rewards == (3.0,) * 3


@pytest.mark.parametrize(
    ("algorithm", "env", "limits"),
    [
        ("PPO", "Pendulum-v1", {"max_episode_steps": 20}),
        ("A2C", "Pendulum-v1", {"max_episode_steps": 20}),
        ("PPO", "operant.envs.identity:DictIdentity", {}),
        ("DQN", "operant.envs.identity:DictIdentity", {}),
        ("PPO", "operant.envs.identity:MultiDiscreteIdentity", {}),
        ("DQN", "operant.envs.identity:MaskedIdentity", {}),
    ],
)
@pytest.mark.parametrize("one_by_one", [False, True], ids=["together", "one-by-one"])
def test_every_kind_of_space(make_config, monkeypatch, algorithm, env, limits, one_by_one):
    if one_by_one:  # what act_kwargs would choose
        from operant.auto.datasets import gym_env_dataset_creator, launch_dataset
        from operant.auto.envs import openai_gym

        monkeypatch.setattr(
            openai_gym, "launch", lambda config, callbacks: launch_dataset(config, gym_env_dataset_creator)
        )
    spaces = {"env_name": env, "arguments": limits}
    result = launch(make_config(algorithm, {"learning_starts": 10} if algorithm == "DQN" else {}, spaces, spaces))
    assert result.episodes >= 9 and np.isfinite(result.rewards).all()


def test_autograd_and_closed_form_gradients_learn_alike(make_config, tmp_path):
    """Lightning clears gradients at times; the vector that the algorithm keeps them in must stay theirs."""
    own = {"learning_rate": 1e-3, "update_rate": 0.05, "update_steps": None, "learning_starts": 10}
    rewards, moved = [], []
    for fused in (True, False):
        model = {"hidden": [16], "fused": fused}
        config = make_config(frame_config={**own, "model": model}, root_dir=str(tmp_path / str(fused)))
        result = launch(config)
        rewards.append(result.rewards)
        moved.append(load_checkpoint_file(result.last_checkpoint)["state_dict"])
    assert rewards[0] == rewards[1]
    for name, value in moved[0].items():
        torch.testing.assert_close(value, moved[1][name], rtol=1e-3, atol=1e-4)


def cartpole(algorithm, seed, root_dir):
    if algorithm == "PPO":
        config, episodes = config_of_preset("cartpole-ppo"), 400
    else:
        settings = {"learning_rate": 5e-4, "batch_size": 64, "update_rate": 0.005, "update_steps": None}
        settings |= {"epsilon_decay": 0.999, "replay_size": 20_000, "model": {"hidden": [64, 64]}}
        config, episodes = {"frame_config": settings}, 500
    config = generate_env_config("openai_gym", generate_algorithm_config(algorithm, config))
    config = generate_training_config(str(root_dir), 20, episodes, config, early_stopping_patience=None)
    for key in ("train_env_config", "test_env_config"):
        config[key]["render_every_episode"] = None
    return {**config, "gpus": None, "seed": seed}


@pytest.mark.parametrize("seed", [*(pytest.param(one, marks=pytest.mark.long) for one in (3, 4)), 5])
@pytest.mark.parametrize("algorithm", ["DQN", "PPO"])
def test_cartpole_is_solved(tmp_path, algorithm, seed):
    result = launch({**cartpole(algorithm, seed, tmp_path / "trial"), "stop_reward": 475})
    assert result.best_reward >= 475


def test_models_by_name(make_config):
    names = ["tests.auto.networks.QNet"] * 2
    result = launch(
        make_config(frame_config={"models": names, "model_args": [[4], [4]], "model_kwargs": [{"width": 8}] * 2})
    )
    weights = load_checkpoint_file(result.checkpoint)["state_dict"]
    assert weights["network.q.layers.0.weight"].shape == (8, 4)
    assert isinstance(load_policy(result.run_id).policy.network.q, networks.QNet)
