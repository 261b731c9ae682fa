"""Continuous actions by the verbs of Machin: in the environment's units for the user, between −1 and 1 in replay."""

from __future__ import annotations

import dataclasses
import json
import math

import numpy as np
import pytest
from gymnasium import spaces

from operant.auto import generate_algorithm_config, get_available_algorithms, launch
from operant.auto.command import main
from operant.auto.config import check_config
from operant.auto.frames import frame_class
from operant.errors import UsageError
from operant.training import load_config
from operant.training.machin import to_machin

BOX = spaces.Box(np.array([-2.0, 0.0], np.float32), np.array([2.0, 10.0], np.float32))
ROW = spaces.Box(-1, 1, (3,), np.float32)


def make(name, **frame_config):
    config = generate_algorithm_config(
        name, {"frame_config": {"model": {"hidden": [8]}, "batch_size": 4, **frame_config}}
    )
    return frame_class(name).init_from_config(config, ROW, BOX)


@pytest.mark.parametrize(
    ("name", "algorithm", "prioritized"),
    [("HDDPG", "ddpg", False), ("DDPGPer", "ddpg", True), ("DQNPer", "dqn", True), ("TD3", "td3", False)],
)
def test_machins_frames_are_settings(name, algorithm, prioritized):
    assert name.upper() in get_available_algorithms()
    config = generate_algorithm_config(name)
    assert config["frame"] == name.upper()
    plan = check_config({"env": "openai_gym", **config})
    assert (plan.algorithm, plan.settings.prioritized) == (algorithm, prioritized)
    assert (
        algorithm == "dqn"
        or {"q_increase_rate", "update_rate", "critic_learning_rate"} <= config["frame_config"].keys()
    )


MACHINS_OWN = {
    "DQN": {
        "batch_size": 100,
        "criterion": "MSELoss",
        "discount": 0.99,
        "epsilon_decay": 0.9999,
        "gradient_max": math.inf,
        "learning_rate": 0.001,
        "mode": "double",
        "optimizer": "Adam",
        "replay_size": 500_000,
        "update_rate": 0.005,
        "update_steps": None,
    },
    "DDPG": {"actor_learning_rate": 5e-4, "critic_learning_rate": 1e-3, "update_rate": 0.001, "batch_size": 100},
    "HDDPG": {"q_increase_rate": 1.0, "q_decrease_rate": 1.0, "update_rate": 0.005, "actor_learning_rate": 5e-4},
    "DDPGPer": {"update_rate": 0.001, "replay_size": 500_000, "prioritized": True},
    "DQNPer": {"update_rate": 0.005, "epsilon_decay": 0.9999, "prioritized": True},
    "TD3": {"update_rate": 0.001, "update_steps": None, "gradient_max": math.inf},
    "SAC": {"target_entropy": None, "initial_entropy_alpha": 1.0, "alpha_learning_rate": 1e-3, "update_rate": 0.005},
    "PPO": {"surrogate_loss_clip": 0.2, "gae_lambda": 1.0, "entropy_weight": None, "batch_size": 100},
    "TRPO": {"kl_max_delta": 0.01, "conjugate_iterations": 10, "hv_mode": "fim", "gae_lambda": 1.0, "batch_size": 100},
    "RAINBOW": {"update_rate": 0.001, "reward_future_steps": 3, "epsilon_decay": 0.9999, "batch_size": 100},
    "GAIL": {"discriminator_update_times": 1, "discriminator_learning_rate": 1e-3, "surrogate_loss_clip": 0.2},
    "GAIL_TRPO": {"expert_trajectory_path": "trajectory.data", "expert_replay_size": 500_000, "kl_max_delta": 0.01},
    "MADDPG": {"critic_visible_actors": None, "sub_policy_num": 0, "update_rate": 0.001, "replay_size": 500_000},
    "A2C": {"value_weight": 0.5, "normalize_advantage": True, "actor_learning_rate": 1e-3, "batch_size": 100},
}


@pytest.mark.parametrize("name", MACHINS_OWN)
def test_machins_own_values_there_and_back(name):
    given = generate_algorithm_config(name, defaults="machin")["frame_config"]
    assert {key: given[key] for key in MACHINS_OWN[name]} == MACHINS_OWN[name]
    plan = check_config({"env": "openai_gym", "frame": name, "frame_config": given})
    again = to_machin(plan.settings)
    for key, value in MACHINS_OWN[name].items():
        assert again[key] == (value if value is None or isinstance(value, (str, bool)) else pytest.approx(value)), key
    mine = generate_algorithm_config(name, {"frame_config": {"discount": 0.5}}, "machin")["frame_config"]
    assert mine["discount"] == 0.5 and mine["batch_size"] == 100


def test_defaults_are_somebodys():
    with pytest.raises(UsageError, match="those of operant or machin"):
        generate_algorithm_config("SAC", defaults="mine")
    for name in ("C51", "QRDQN"):  # Machin has neither
        with pytest.raises(UsageError, match=f"no defaults of Machin's are known for {name}"):
            generate_algorithm_config(name, defaults="machin")


@pytest.mark.parametrize(
    ("frame", "key", "value", "message"),
    [
        ("MADDPG", "sub_policy_num", "x", "frame_config.sub_policy_num is a whole number from 0 up, got 'x'"),
        ("MADDPG", "sub_policy_num", 1.5, "frame_config.sub_policy_num is a whole number from 0 up, got 1.5"),
        ("MADDPG", "sub_policy_num", -1, "frame_config.sub_policy_num is a whole number from 0 up, got -1"),
        ("TRPO", "hv_mode", "fisher", "frame_config.hv_mode is fim or direct, not 'fisher'"),
        ("GAIL", "entropy_weight", "much", "frame_config.entropy_weight is a number or null, got 'much'"),
    ],
)
def test_what_machins_keys_may_be_is_said(frame, key, value, message):
    with pytest.raises(UsageError, match=f"^{message}$"):
        check_config({"env": "openai_gym", "frame": frame, "frame_config": {key: value}})


@pytest.mark.parametrize(
    ("name", "preset"), [("SAC", "pendulum-sac"), ("HDDPG", "pendulum-ddpg"), ("DQNPer", "cartpole-dqn")]
)
def test_the_command_writes_what_was_measured(capsys, name, preset):
    assert main(["generate", "--algo", name, "--print"]) == 0
    config = json.loads(capsys.readouterr().out)
    measured = load_config(preset)
    settings = check_config(config).settings
    assert settings == dataclasses.replace(measured.algorithm_settings, prioritized=settings.prioritized)
    assert settings.prioritized == (name == "DQNPer") and config["frame"] == name.upper()
    assert config["train_env_config"]["env_name"] == config["test_env_config"]["env_name"] == measured.env.id
    assert config["frame_config"]["model"]["hidden"] == list(measured.model.hidden)


def test_a_config_with_machins_own_values_is_launched(capsys):
    assert main(["generate", "--algo", "HDDPG", "--defaults", "machin", "--print"]) == 0
    config = json.loads(capsys.readouterr().out)
    assert config["train_env_config"]["env_name"] == "Pendulum-v1" and config["frame_config"]["batch_size"] == 100
    for key in ("train_env_config", "test_env_config"):
        config[key] |= {"arguments": {"max_episode_steps": 20}, "render_every_episode": None}
    config["train_env_config"]["act_kwargs"] = {"noise_param": [0.0, 0.2], "mode": "normal"}
    config["test_env_config"]["episodes"] = 2
    config["frame_config"] |= {"q_increase_rate": 0.5, "model": {"hidden": [8]}}
    result = launch({**config, "gpus": None, "max_episodes": 8, "episode_per_epoch": 4})
    assert result.episodes == 8 and result.steps == 160
    assert main(["generate", "--preset", "pendulum-sac", "--defaults", "machin"]) == 1
    assert "leave --defaults out" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("mode", "param", "deviation"),
    [
        ("uniform", (-0.3, 0.3), 0.3 / 3**0.5),
        ("normal", (0.0, 0.2), 0.2),
        ("clipped_normal", (0.0, 0.2, -0.2, 0.2), 0.143),
    ],
)
def test_noise_is_in_the_environments_units(mode, param, deviation):
    frame = make("DDPG")
    state = {"state": np.zeros((4000, 3), np.float32)}
    noisy = frame.act_with_noise(state, noise_param=param, mode=mode).numpy()
    assert (noisy - frame.act(state).numpy()).std(axis=0) == pytest.approx([deviation] * 2, rel=0.06)
    halved = frame.act_with_noise(state, noise_param=param, mode=mode, ratio=0.5).numpy()
    assert (halved - frame.act(state).numpy()).std() == pytest.approx(deviation / 2, rel=0.06)
    with frame.without_noise():
        np.testing.assert_array_equal(frame.act_with_noise(state, noise_param=param, mode=mode), frame.act(state))
    far = frame.act_with_noise(state, noise_param=(50.0, 60.0)).numpy()
    np.testing.assert_array_equal(far, np.tile(BOX.high, (4000, 1)))


@pytest.mark.parametrize(
    ("mode", "param", "message"),
    [
        ("pink", (0, 1), "mode is uniform, normal"),
        ("normal", (0, 1, 2), "which is no noise of the mode 'normal'"),
        ("normal", (0, float("nan")), "which makes noise that is not finite"),
        ("uniform", (0, float("inf")), "which is no noise of the mode 'uniform'"),
        ("normal", [(0, 1)], "noise_param has 1 entries, but there are 2 actions"),
    ],
)
def test_noise_that_is_none_is_refused(mode, param, message):
    with pytest.raises(UsageError, match=message):
        make("TD3").act_with_noise({"state": np.zeros((1, 3), np.float32)}, noise_param=param, mode=mode)


def test_noise_of_each_action_as_machin_takes_it():
    frame = make("DDPG")
    state = {"state": np.zeros((4000, 3), np.float32)}
    for mode, param, deviations in (
        ("uniform", [(-0.3, 0.3), (-0.1, 0.1)], [0.3 / 3**0.5, 0.1 / 3**0.5]),
        ("normal", [(0.0, 0.2), (0.0, 0.05)], [0.2, 0.05]),
    ):
        noisy = frame.act_with_noise(state, noise_param=param, mode=mode) - frame.act(state)
        assert noisy.numpy().std(axis=0) == pytest.approx(deviations, rel=0.06)


def test_words_beside_noise_are_checked():
    state = {"state": np.zeros((1, 3), np.float32)}
    with pytest.raises(UsageError, match="ratio is 'half'; it is a finite number"):
        make("TD3").act_with_noise(state, noise_param=(0, 1), ratio="half")
    with pytest.raises(UsageError, match=r"\['noise'\] are not understood: noise_param, ratio, mode and epsilon are"):
        make("TD3").act_with_noise(state, noise=(0, 1))


@pytest.mark.parametrize("name", ["DDPG", "SAC"])
def test_episodes_are_stored_between_minus_one_and_one(name):
    frame = make(name, learning_starts=1)
    rng = np.random.default_rng(0)
    steps = []
    for _ in range(5):
        state = {"state": rng.standard_normal((1, 3)).astype(np.float32)}
        action = frame.act_with_noise(state)
        assert BOX.contains(action.numpy()[0])
        steps.append({"state": state, "action": {"action": action}, "next_state": state, "reward": 1.0, "terminal": 0})
    frame.store_episode(steps)
    given = {tuple(one["state"]["state"][0]): one["action"]["action"].numpy()[0] for one in steps}
    drawn = frame.buffer.sample(8, rng)
    for obs, action in zip(drawn["obs"], drawn["action"], strict=True):
        assert np.abs(action).max() <= 1.0
        np.testing.assert_allclose((action + 1) / 2 * (BOX.high - BOX.low) + BOX.low, given[tuple(obs)], atol=1e-5)
    assert frame.update()["q_loss"] >= 0.0
