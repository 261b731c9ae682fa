"""Models, optimizers, criteria, schedules, buffers: named in every way, and doing what they would do in torch."""

from __future__ import annotations

import sys
import types

import gymnasium
import numpy as np
import pytest
import torch
from gymnasium import spaces
from tests.auto import networks
from torch import nn

from operant.algorithms.on_policy import Prepared
from operant.auto import (
    RLGymContActDataset,
    RLGymDiscActDataset,
    assert_and_get_valid_criterion,
    assert_and_get_valid_lr_scheduler,
    assert_and_get_valid_optimizer,
    check_config,
    generate_algorithm_config,
    launch,
)
from operant.auto.frames import frame_class
from operant.auto.parts import prepare_parts, resolve_names
from operant.data import ReplayBuffer
from operant.envs import make_env
from operant.errors import UsageError
from operant.tracking import Run


class Local(networks.QNet):
    pass


def frame_with(algorithm="DQN", env="CartPole-v1", **frame_config):
    env = make_env(env, 1)
    config = frame_class(algorithm).generate_config({"frame_config": frame_config})
    return frame_class(algorithm).init_from_config(config, env.single_observation_space, env.single_action_space)


def prepared(algorithm="DQN", **frame_config):
    config = generate_algorithm_config(algorithm, {"env": "openai_gym", "frame_config": frame_config})
    return prepare_parts(check_config(resolve_names(config, globals())))


def batch(rows=32):
    rng = np.random.default_rng(0)
    obs = {name: rng.standard_normal((rows, 4)).astype(np.float32) for name in ("obs", "next_obs")}
    return {
        **obs,
        "action": rng.integers(2, size=rows),
        "reward": rng.standard_normal(rows).astype(np.float32),
        "terminated": rng.random(rows) < 0.1,
    }


@pytest.mark.parametrize("given", [networks.QNet, "tests.auto.networks.QNet", "tests.auto.networks:QNet", "Local"])
def test_a_model_is_named_in_every_way(given):
    found = prepared(models=[given, given]).model.network["class"]
    assert issubclass(found, networks.QNet)


class Halved(torch.optim.SGD):
    pass


def test_a_class_is_found_by_the_words_of_machin():
    assert assert_and_get_valid_optimizer("Adam") is torch.optim.Adam
    assert assert_and_get_valid_optimizer("Halved") is Halved
    assert assert_and_get_valid_lr_scheduler("StepLR") is torch.optim.lr_scheduler.StepLR
    assert assert_and_get_valid_criterion("torch.nn.MSELoss") is nn.MSELoss
    for find, wrong in (
        (assert_and_get_valid_optimizer, "Adamm"),
        (assert_and_get_valid_optimizer, nn.MSELoss),
        (assert_and_get_valid_criterion, 3),
        (assert_and_get_valid_lr_scheduler, None),
    ):
        with pytest.raises(UsageError, match=r"frame_config\."):
            find(wrong)


def test_the_datasets_of_machin_play_a_gymnasium_environment():
    frame = frame_with()
    episode = next(RLGymDiscActDataset(frame, gymnasium.make("CartPole-v1"), render_every_episode=0))
    assert episode.total_reward == len(episode) > 5
    with pytest.raises(UsageError, match="RLGymDataset takes all"):
        RLGymContActDataset(frame, gymnasium.make("CartPole-v1"))
    actor = frame_with("PPO", "Pendulum-v1")
    episode = next(RLGymContActDataset(actor, gymnasium.make("Pendulum-v1"), None))
    assert len(episode) == 200 and episode.observations[-1]["truncated"]


def test_names_of_modules_that_did_not_call_are_not_searched():
    helper = types.ModuleType("helper_of_the_test")
    exec("def ask(launch, config):\n    return launch(config)", helper.__dict__)
    config = generate_algorithm_config("DQN", {"frame_config": {"models": ["Local", "Local"]}, "env": "openai_gym"})
    with pytest.raises(
        UsageError, match="'Local' was not found: tried 'Local' in the calling module 'helper_of_the_test'"
    ):
        helper.ask(launch, config)


@pytest.mark.parametrize(
    ("frame_config", "message"),
    [
        ({"models": ["no_such_module.QNet"] * 2}, "tried to import 'no_such_module.QNet'"),
        ({"models": ["QNet"] * 2}, "was not found"),
        ({"models": ["tests.auto.networks.QNet"]}, "a list of 2"),
        ({"models": [networks.QNet, networks.Actor]}, "a copy of the first"),
        ({"models": [networks.QNet] * 2, "model_kwargs": [{"width": 3}, {}]}, "same arguments"),
        ({"models": [int, int]}, "class of nn.Module"),
        ({"model_kwargs": [{"width": 3}] * 2}, "models are null"),
        ({"models": [networks.QNet] * 2, "model": {"hidden": [3]}}, "both models and model"),
        ({"model": {"hiden": [3]}}, "did you mean 'hidden'"),
        ({"replay_device": "disk"}, "device is auto, cpu, cuda"),
        ({"replay_buffer": "Queue"}, "was not found"),
        ({"replay_buffer": networks.QNet}, "ReplayBuffer or a class of it"),
        ({"optimizer": networks.QNet}, "torch.optim.Optimizer"),
        ({"criterion": int}, "a loss module"),
        ({"criterion": "HuberLoss", "criterion_kwargs": {"gamma": 1}}, "could not be made"),
        ({"lr_scheduler_args": [3]}, "but no lr_scheduler"),
        ({"visualize_dir": "here"}, "visualize is false"),
    ],
    ids=str,
)
def test_mistakes_are_sentences(frame_config, message):
    with pytest.raises(UsageError, match=message):
        prepared(**frame_config)


@pytest.mark.parametrize(
    ("frame_config", "message"),
    [
        ({"replay_buffer": "ReplayBuffer"}, "does not learn from replay"),
        ({"criterion": "L1Loss"}, "trained by the squared error"),
        ({"replay_size": 5}, "a rollout has 2048 steps"),
    ],
    ids=str,
)
def test_what_an_algorithm_cannot_do_is_refused_with_a_reason(frame_config, message):
    with pytest.raises(UsageError, match=message):
        prepared("PPO", **frame_config)


def test_what_an_algorithm_does_anyway_is_accepted():
    prepared("PPO", replay_size=500_000, criterion="MSELoss")
    prepared("A2C", actor_update_times=1, critic_update_times=1)
    with pytest.raises(UsageError, match="one update of each rollout"):
        prepared("A2C", actor_update_times=5)


@pytest.mark.parametrize(
    ("models", "message"),
    [
        ([networks.TupleActor, networks.Critic], "logits or means of shape"),
        ([networks.Actor, networks.QNet], "cannot take observations|shape"),
    ],
)
def test_networks_of_the_wrong_form_are_found_before_anything_begins(models, message):
    with pytest.raises((UsageError, RuntimeError), match=message):
        frame_with("PPO", models=models)
    with pytest.raises(UsageError, match=r"action values of shape \(2, 2\)"):
        frame_with(models=[networks.QNet] * 2, model_args=[[4, 3]] * 2)
    with pytest.raises(UsageError, match="cannot take observations"):
        frame_with(models=[networks.QNet] * 2, model_args=[[5]] * 2)


@pytest.mark.parametrize("optimizer", ["SGD", "AdamW", torch.optim.RMSprop, "tests.auto.networks.Plain"])
def test_an_optimizer_steps_as_it_does_in_torch(optimizer):
    frame = frame_with(
        models=[networks.QNet] * 2,
        optimizer=optimizer,
        learning_rate=0.01,
        criterion="MSELoss",
        gradient_max="Infinity",
    )
    algorithm, data = frame.algorithm, batch()
    twin = networks.QNet()
    twin.load_state_dict(algorithm.network.q.state_dict())
    kind = frame.parts.optimizer
    own = kind(twin.parameters(), lr=0.01)
    for _ in range(3):
        target = torch.from_numpy(algorithm._targets(data))
        chosen = twin(torch.from_numpy(data["obs"])).gather(1, torch.from_numpy(data["action"])[:, None])[:, 0]
        own.zero_grad()
        nn.functional.mse_loss(chosen, target).backward()
        own.step()
        algorithm.learn(data)
        for name, value in algorithm.network.q.state_dict().items():
            torch.testing.assert_close(value, twin.state_dict()[name])
    saved = algorithm.optimizer.state_dict()
    again = frame_with(models=[networks.QNet] * 2, optimizer=optimizer).algorithm.optimizer
    again.load_state_dict(saved)
    assert str(again.inner.state_dict()["state"]) == str(algorithm.optimizer.inner.state_dict()["state"])


def test_an_optimizer_that_cannot_step_on_a_gradient_says_so():
    frame = frame_with(optimizer="LBFGS")
    with pytest.raises(UsageError, match="LBFGS cannot step on a given gradient"):
        frame.algorithm.learn(batch())


@pytest.mark.parametrize(
    ("criterion", "kwargs", "expected"),
    [
        ("L1Loss", {}, lambda error: error.abs()),
        (
            "HuberLoss",
            {"delta": 0.5},
            lambda error: torch.where(error.abs() < 0.5, error**2 / 2, 0.5 * (error.abs() - 0.25)),
        ),
        ("tests.auto.networks.CubicLoss", {}, lambda error: error.abs() ** 3),
        (networks.CubicLoss(), {}, lambda error: error.abs() ** 3),
    ],
    ids=["L1Loss", "HuberLoss", "by-name", "made"],
)
def test_a_criterion_decides_the_gradient(criterion, kwargs, expected):
    frame = frame_with(criterion=criterion, criterion_kwargs=kwargs, gradient_max="Infinity", model={"hidden": [8]})
    algorithm, data = frame.algorithm, batch()
    target = torch.from_numpy(algorithm._targets(data))
    chosen = algorithm._q.tensors(data["obs"]).gather(1, torch.from_numpy(data["action"])[:, None])[:, 0]
    wanted = torch.autograd.grad(expected(chosen - target).mean(), list(algorithm.network.parameters()))
    algorithm.learn(data)
    for parameter, gradient in zip(algorithm.network.parameters(), wanted, strict=True):
        torch.testing.assert_close(parameter.grad, gradient, rtol=1e-4, atol=1e-6)


def test_a_schedule_scales_the_rate_once_for_each_epoch(make_config):
    frame = frame_with(
        lr_scheduler="StepLR", lr_scheduler_args=[2], lr_scheduler_kwargs={"gamma": 0.1}, learning_rate=0.5
    )
    rates = []
    frame.algorithm.optimizer.inner.step = rates.append
    for _ in range(5):
        frame.algorithm.optimizer.step(0.5)
        frame.update_lr_scheduler()
    assert rates == pytest.approx([0.5, 0.5, 0.05, 0.05, 0.005])
    plateau = frame_with(
        lr_scheduler="ReduceLROnPlateau", lr_scheduler_kwargs={"mode": "max", "patience": 0, "factor": 0.5}
    )
    for reward in (5.0, 4.0):
        plateau.update_lr_scheduler(reward)
    assert plateau.schedule.factor == pytest.approx(0.5)
    own = {"lr_scheduler": "StepLR", "lr_scheduler_args": [1, 0.0]}  # after the first epoch nothing moves any more
    run = Run.open(launch(make_config(frame_config=own)).run_id)
    assert len(run.scalars("total_reward"))


@pytest.mark.parametrize("frame", ["DDPG", "SAC", "DISCRETE_SAC"])
def test_optimizer_and_schedule_of_policy_and_critics(frame):
    parts = {
        "optimizer": "SGD",
        "lr_scheduler": "StepLR",
        "lr_scheduler_args": [1],
        "lr_scheduler_kwargs": {"gamma": 0.0},
    }
    rates = {"actor_learning_rate": 0.01, "critic_learning_rate": 0.1, "batch_size": 4}
    action_space = spaces.Discrete(2) if frame == "DISCRETE_SAC" else spaces.Box(-1, 1, (2,), np.float32)
    config = {"frame": frame, "env": "openai_gym", "frame_config": {**parts, **rates}}
    made = [frame_class(frame).init_from_config(config, spaces.Box(-1, 1, (3,)), action_space) for _ in range(2)]
    algorithm, rng = made[0].algorithm, np.random.default_rng(0)
    batch = {
        "obs": rng.standard_normal((4, 3), np.float32),
        "next_obs": rng.standard_normal((4, 3), np.float32),
        "action": np.zeros(4, np.int64) if frame == "DISCRETE_SAC" else rng.uniform(-1, 1, (4, 2)).astype(np.float32),
        "reward": np.ones(4, np.float32),
        "terminated": np.zeros(4, bool),
    }
    before, critics = algorithm.weights(), algorithm._critic_flat.array.copy()
    algorithm.learn(batch)
    np.testing.assert_allclose(algorithm._critic_flat.array, critics - 0.1 * algorithm._critic_flat.grad, atol=1e-7)
    assert any((before[name] != value).any() for name, value in algorithm.weights().items())
    made[0].update_lr_scheduler()
    after = algorithm.weights()
    made[1].load_state_dict(made[0].state_dict())  # the schedule is saved with them
    for one in made:
        one.algorithm.learn(batch)
        assert all((after[name] == value).all() for name, value in one.algorithm.weights().items())


def test_a_buffer_of_ones_own(make_config):
    networks.CountingBuffer.added = 0
    result = launch(make_config(frame_config={"replay_buffer": "tests.auto.networks.CountingBuffer"}))
    assert networks.CountingBuffer.added == result.steps
    assert prepared(replay_buffer="PrioritizedReplayBuffer").settings.prioritized
    made = ReplayBuffer(50, 1, gamma=0.99)
    launch(make_config(frame_config={"replay_buffer": made}, max_episodes=3))
    assert 0 < len(made) <= 50  # it was used itself, not a copy


def test_visualize_writes_the_graph(make_config, tmp_path):
    result = launch(
        make_config(frame_config={"visualize": True, "visualize_dir": str(tmp_path / "graphs")}, max_episodes=3)
    )
    text = (tmp_path / "graphs" / "network.dot").read_text()
    assert text.startswith("digraph") and "Linear" in text and "in_features=4" in text
    assert "network.dot" in Run.open(result.run_id).files


def test_act_kwargs_reach_the_verbs(make_config, monkeypatch):
    from operant.algorithms.dqn import DQN

    seen = []
    original = DQN.actor

    def actor(self, rng, steps, rows, *, epsilon=None):
        seen.append(epsilon)
        return original(self, rng, steps, rows, epsilon=epsilon)

    monkeypatch.setattr(DQN, "actor", actor)
    launch(make_config(train={"act_kwargs": {"epsilon": 0.25}}, max_episodes=3))
    assert 0.25 in seen
    with pytest.raises(UsageError, match="act_kwargs"):
        launch(make_config(train={"act_kwargs": {"epsilom": 0.25}}, max_episodes=3))
    with pytest.raises(UsageError, match="exclude each other"):
        launch(make_config(train={"act_kwargs": {"epsilon": 0.25}, "num_envs": 4}))


def test_verbs():
    frame = frame_with()
    state = {"state": torch.zeros(3, 4)}
    assert frame.act_discrete(state).shape == (3, 1)
    assert torch.equal(frame.act_discrete_with_noise(state, epsilon=0.0), frame.act_discrete(state))
    assert len({int(frame.act_discrete_with_noise({"state": torch.zeros(1, 4)}, epsilon=1.0)) for _ in range(50)}) == 2
    with frame.without_noise():
        assert torch.equal(frame.act_discrete_with_noise(state), frame.act_discrete(state))
    masked = {**state, "action_mask": np.array([[True, False]] * 3)}
    assert frame.act_discrete(masked).sum() == 0
    with pytest.raises(UsageError, match="a state is a dict"):
        frame.act(torch.zeros(3, 4))
    with pytest.raises(UsageError, match="updates everything"):
        frame.update(update_target=False)
    ppo = frame_with("PPO")
    action, log_prob, entropy = ppo.act(state)
    assert action.shape == log_prob.shape == entropy.shape == (3,)
    with pytest.raises(UsageError, match="acts by `act`"):
        ppo.act_discrete(state)
    with pytest.raises(UsageError, match="has no spaces yet"):
        frame_class("DQN").init_from_config(frame_class("DQN").generate_config()).act(state)
    with pytest.raises(UsageError, match="not of DQN"):
        frame_class("DQN").init_from_config(frame_class("PPO").generate_config())
    from operant.auto.frames import PPO

    assert PPO.generate_config()["frame"] == "PPO" and sys.modules["operant.auto.frames"].DQN.algorithm_name == "DQN"


def test_a_policy_with_state_noise_says_how_likely_its_actions_are():
    frame = frame_with("PPO", "Pendulum-v1", model={"hidden": [8], "state_noise": True})
    state = {"state": torch.from_numpy(np.random.default_rng(0).standard_normal((3, 3), np.float32))}
    action, log_prob, entropy = frame.act(state)
    assert action.shape == (3, 1) and log_prob.shape == entropy.shape == (3,)
    obs = frame.algorithm.adapter.adapt(state["state"].numpy())
    part = Prepared(obs, action.numpy(), None, *[np.zeros(3, np.float32)] * 4)
    torch.testing.assert_close(log_prob, frame.algorithm._torch_forward(part)[0].detach())


def test_a_policy_with_memory_is_not_for_frames():
    frame = frame_with("PPO", model={"recurrent": "gru"})
    with pytest.raises(UsageError, match="train policies with memory by `operant train`"):
        frame.act({"state": np.zeros((1, 4), np.float32)})
