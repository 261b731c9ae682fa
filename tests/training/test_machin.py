"""Machin's words for settings, in both directions."""

from __future__ import annotations

import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from operant.algorithms import find_algorithm
from operant.errors import UsageError
from operant.training.machin import from_machin, to_machin

DQN, PPO, A2C, TD3, SAC = (find_algorithm(name)[1] for name in ("dqn", "ppo", "a2c", "td3", "sac"))

dqn_settings = st.builds(
    DQN,
    train_every=st.integers(1, 64),
    updates=st.integers(0, 8),
    batch=st.integers(1, 512),
    gamma=st.floats(0, 1),
    learning_rate=st.floats(1e-6, 1),
    double=st.booleans(),
    dueling=st.booleans(),
    target_every=st.integers(1, 1000),
    target_rate=st.floats(0.001, 1),
    loss=st.sampled_from(["huber", "squared"]),
    max_gradient_norm=st.one_of(st.just(math.inf), st.floats(0.1, 10)),
    optimizer=st.sampled_from(["adam", "rmsprop"]),
)
on_policy = {
    "rollout": st.integers(1, 512),
    "gamma": st.floats(0, 1),
    "gae_lambda": st.floats(0, 1),
    "learning_rate": st.floats(1e-6, 1),
    "entropy_weight": st.floats(0, 1),
    "value_weight": st.floats(0, 1),
    "normalize_advantage": st.booleans(),
    "anneal_learning_rate": st.booleans(),
}
ppo_settings = st.builds(PPO, minibatch=st.integers(2, 64), epochs=st.integers(1, 9), clip=st.floats(0, 1), **on_policy)
a2c_settings = st.builds(A2C, **on_policy)
control = {
    "batch": st.integers(1, 512),
    "learning_rate": st.floats(1e-6, 0.1),
    "actor_learning_rate": st.one_of(st.none(), st.floats(0.2, 1)),
    "target_every": st.integers(1, 9),
    "target_rate": st.floats(0.001, 1),
    "increase_rate": st.floats(0, 1),
    "critics": st.integers(1, 3),
    "prioritized": st.booleans(),
}
td3_settings = st.builds(TD3, noise=st.sampled_from(["ou", "uniform"]), smoothing=st.floats(0, 1), **control)
sac_settings = st.builds(
    SAC, temperature=st.floats(0.1, 9), target_entropy=st.one_of(st.none(), st.floats(-9, 9)), **control
)


@given(st.one_of(dqn_settings, ppo_settings, a2c_settings, td3_settings, sac_settings))
def test_there_and_back(settings):
    again, parts = from_machin(type(settings), to_machin(settings))
    assert again == settings
    assert set(parts) <= {"criterion"}  # of algorithms whose value is always trained by the squared error


@given(st.floats(0.9, 0.99999))
def test_epsilon_falls_as_machins_does(decay):
    settings, _ = from_machin(DQN, {"epsilon_decay": decay})
    for steps in (1, 10, 100):
        assert math.exp(-steps / settings.exploration_decay) == pytest.approx(decay**steps)
    assert to_machin(settings)["epsilon_decay"] == pytest.approx(decay)


def test_target_networks():
    soft, _ = from_machin(DQN, {"update_rate": 0.005, "update_steps": None})
    assert (soft.target_every, soft.target_rate) == (1, 0.005)
    hard, _ = from_machin(DQN, {"update_rate": None, "update_steps": 50})
    assert (hard.target_every, hard.target_rate) == (50, 1.0)
    none, _ = from_machin(DQN, {"mode": "vanilla", "update_rate": 0.005})
    assert none.target_every == 0 and not none.double
    assert not from_machin(DQN, {"mode": "fixed_target"})[0].double


def test_the_sign_of_the_entropy_weight():
    assert from_machin(PPO, {"entropy_weight": -0.01})[0].entropy_weight == 0.01
    assert from_machin(PPO, {"entropy_weight": None})[0].entropy_weight == 0.0


def test_actor_and_critic_are_trained_together():
    same = {"actor_learning_rate": 0.1, "critic_learning_rate": 0.1}
    assert from_machin(A2C, same)[0].learning_rate == 0.1
    with pytest.raises(UsageError, match="trained together"):
        from_machin(PPO, {"actor_update_times": 5, "critic_update_times": 10})


def test_own_criteria_and_optimizers_are_parts():
    settings, parts = from_machin(DQN, {"criterion": "L1Loss", "optimizer": "SGD"})
    assert parts == {"criterion": "L1Loss", "optimizer": "SGD"} and settings.optimizer == "adam"
    _, parts = from_machin(DQN, {"criterion": "HuberLoss", "criterion_kwargs": {"delta": 2.0}})
    assert parts["criterion"] == "HuberLoss"  # with an argument it is no longer ours
    assert from_machin(DQN, {"criterion": "HuberLoss"}) == (from_machin(DQN, {})[0], {})


def test_settings_without_a_word_of_machins_keep_their_own():
    settings, _ = from_machin(DQN, {"n_step": 3, "dueling": True})
    assert settings.n_step == 3 and settings.dueling
    assert to_machin(settings)["n_step"] == 3
    with pytest.raises(UsageError, match="did you mean 'n_step'"):
        from_machin(DQN, {"nstep": 3})
