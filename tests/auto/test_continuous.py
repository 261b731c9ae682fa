"""Continuous actions by the verbs of Machin: in the environment's units for the user, between −1 and 1 in replay."""

from __future__ import annotations

import numpy as np
import pytest
from gymnasium import spaces

from operant.auto import generate_algorithm_config, get_available_algorithms
from operant.auto.config import check_config
from operant.auto.frames import frame_class
from operant.errors import UsageError

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
    [("pink", (0, 1), "mode is uniform, normal"), ("normal", (0, 1, 2), "which is no noise of the mode 'normal'")],
)
def test_noise_that_is_none_is_refused(mode, param, message):
    with pytest.raises(UsageError, match=message):
        make("TD3").act_with_noise({"state": np.zeros((1, 3), np.float32)}, noise_param=param, mode=mode)


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
