"""Distributions of returns: projections and losses against their definitions, and noisy layers."""

from __future__ import annotations

import dataclasses

import numpy as np
import pytest
import torch
from gymnasium.spaces import Box, Discrete
from hypothesis import given
from hypothesis import strategies as st
from torch import nn

from operant.algorithms import find_algorithm
from operant.algorithms.distributional import categorical_gradient, project, quantile_gradient
from operant.errors import UsageError
from operant.models import ModelSettings
from operant.models.noisy import NoisyLinear, draw_noise
from operant.training.dialects import from_di_engine, to_di_engine
from operant.training.machin import from_machin, to_machin

OBS, ACTIONS = Box(-1, 1, (3,)), Discrete(2)


def make(name, model=None, **settings):
    kind, settings_class = find_algorithm(name)
    return kind(OBS, ACTIONS, settings_class(**settings), model or ModelSettings(hidden=(8,), activation="relu"), 3)


def batch(rows=6, seed=0):
    rng = np.random.default_rng(seed)
    return {
        "obs": rng.normal(size=(rows, 3)).astype(np.float32),
        "next_obs": rng.normal(size=(rows, 3)).astype(np.float32),
        "action": rng.integers(2, size=rows),
        "reward": rng.normal(size=rows).astype(np.float32),
        "discount": np.where(np.arange(rows) % 3 == 0, 0.0, 0.9).astype(np.float32),
        "weight": rng.uniform(0.2, 1.0, rows).astype(np.float32),
    }


@given(st.integers(2, 30), st.integers(0, 10_000), st.floats(-3, 3), st.floats(0, 1))
def test_a_projection_keeps_mass_and_mean(atoms, seed, reward, discount):
    support = np.linspace(-8.0, 8.0, atoms)
    probability = np.random.default_rng(seed).dirichlet(np.ones(atoms), 4)
    found = project(probability, np.full(4, reward), np.full(4, discount), support)
    assert (found >= 0).all()
    np.testing.assert_allclose(found.sum(axis=1), 1.0)
    moved = np.clip(reward + discount * support, -8.0, 8.0)
    np.testing.assert_allclose(found @ support, probability @ moved, atol=1e-9)


def test_a_projection_worked_by_hand():
    # Atoms 0, 1, 2; R = 0.5, γ = 0.5: they go to 0.5, 1 and 1.5. Half of what goes to 0.5 falls on 0, half on 1.
    found = project(np.array([[0.2, 0.5, 0.3]]), np.array([0.5]), np.array([0.5]), np.array([0.0, 1.0, 2.0]))
    np.testing.assert_allclose(found, [[0.1, 0.1 + 0.5 + 0.15, 0.15]])
    # An end: all mass at the reward; beyond the bounds: all at the last atom.
    found = project(np.full((2, 3), 1 / 3), np.array([1.0, 9.0]), np.zeros(2), np.array([0.0, 1.0, 2.0]))
    np.testing.assert_allclose(found, [[0, 1, 0], [0, 0, 1]])


def test_the_categorical_gradient_is_that_of_the_cross_entropy():
    rng = np.random.default_rng(0)
    logits = torch.tensor(rng.normal(size=(5, 7)), requires_grad=True)
    target = rng.dirichlet(np.ones(7), 5)
    loss = nn.functional.cross_entropy(logits, torch.tensor(target), reduction="none")
    loss.sum().backward()
    gradient, divergence = categorical_gradient(logits.detach().numpy(), target)
    np.testing.assert_allclose(gradient, logits.grad, atol=1e-12)
    entropy = -(target * np.log(target)).sum(axis=1)
    np.testing.assert_allclose(divergence, loss.detach().numpy() - entropy, atol=1e-12)


def quantile_huber(theta, target):
    """Equation 10, pair by pair."""
    u = target[:, :, None] - theta[:, None, :]
    levels = (torch.arange(theta.shape[1], dtype=torch.float64) + 0.5) / theta.shape[1]
    huber = torch.where(u.abs() <= 1.0, 0.5 * u.square(), u.abs() - 0.5)
    return ((levels - (u.detach() < 0).double()).abs() * huber).mean(dim=1).sum(dim=1)


@given(st.integers(1, 20), st.integers(1, 20), st.integers(0, 10_000), st.sampled_from([0.1, 1.0, 30.0]))
def test_the_quantile_gradient_is_that_of_all_pairs(count, targets, seed, scale):
    rng = np.random.default_rng(seed)
    theta = torch.tensor(scale * rng.normal(size=(4, count)), requires_grad=True)
    target = scale * rng.normal(size=(4, targets))
    loss = quantile_huber(theta, torch.tensor(target))
    loss.sum().backward()
    gradient, found = quantile_gradient(theta.detach().numpy(), target)
    np.testing.assert_allclose(found, loss.detach(), atol=1e-9 * scale**2)
    np.testing.assert_allclose(gradient, theta.grad, atol=1e-9 * scale)


def test_a_quantile_loss_worked_by_hand():
    # One row, quantiles at 0.25 and 0.75: θ = (0, 2); targets 0.5 and 4.
    # θ₁: u = 0.5, 4 -> 0.25·(0.125 + 3.5)/2; θ₂: u = −1.5, 2 -> (0.25·1.0 + 0.75·1.5)/2.
    gradient, loss = quantile_gradient(np.array([[0.0, 2.0]]), np.array([[4.0, 0.5]]))
    np.testing.assert_allclose(loss, [0.25 * 3.625 / 2 + (0.25 * 1.0 + 0.75 * 1.5) / 2])
    np.testing.assert_allclose(gradient, [[-0.25 * 1.5 / 2, (0.25 - 0.75) / 2]])


@pytest.mark.parametrize("name", ["c51", "qrdqn", "rainbow"])
@pytest.mark.parametrize("noisy", [False, True])
@pytest.mark.parametrize("dueling", [False, True])
def test_both_paths_learn_alike(name, noisy, dueling):
    """The gradients in closed form are those of autograd through the same network with the same noise."""
    learned = []
    for fused in (True, False):
        model = ModelSettings(hidden=(8,), activation="relu", fused=fused)
        algorithm = make(name, model, noisy=noisy, dueling=dueling, learning_rate=0.01, target_every=5)
        assert ("fused" in algorithm.path) == fused
        for number in range(4):
            algorithm.set_progress(number * 3, 100)
            metrics, priorities = algorithm.learn(batch(seed=number))
        learned.append((algorithm.weights(), priorities, metrics["q_mean"]))
    for name_of, value in learned[0][0].items():
        np.testing.assert_allclose(value, learned[1][0][name_of], atol=2e-5, err_msg=name_of)
    np.testing.assert_allclose(learned[0][1], learned[1][1], rtol=1e-3)
    assert learned[0][2] == pytest.approx(learned[1][2], rel=1e-3)


@pytest.mark.parametrize("name", ["c51", "qrdqn"])
def test_a_known_distribution_is_learned(name):
    """One state, two actions; the reward of one is 0 or 4 by chance, that of the other 1: means and spread."""
    extent = {"value_min": 0.0, "value_max": 5.0, "atoms": 6} if name == "c51" else {"quantiles": 8}
    algorithm = make(name, learning_rate=0.02, **extent)
    rng = np.random.default_rng(0)
    for number in range(600):
        action = rng.integers(2, size=32)
        reward = np.where(action == 0, 4.0 * rng.integers(2, size=32), 1.0).astype(np.float32)
        obs = np.zeros((32, 3), np.float32)
        algorithm.settings = dataclasses.replace(algorithm.settings, learning_rate=0.02 if number < 300 else 0.001)
        algorithm.learn(
            {"obs": obs, "next_obs": obs, "action": action, "reward": reward, "discount": np.zeros(32, np.float32)}
        )
    outputs = algorithm._q.values(np.zeros((1, 3), np.float32))
    np.testing.assert_allclose(algorithm._expected(outputs)[0], [2.0, 1.0], atol=0.3)
    if name == "c51":
        np.testing.assert_allclose(algorithm._probabilities(outputs)[0, 0], [0.5, 0, 0, 0, 0.5, 0], atol=0.1)
    else:
        risky = np.sort(outputs.reshape(2, 8)[0])
        assert risky[:3].max() < 1.0 and risky[-3:].min() > 3.0


def test_noise_is_factorised_and_of_the_size_that_is_learned():
    layer = NoisyLinear(400, 300, 0.5)
    rng = np.random.default_rng(0)
    drawn = np.stack([np.outer(*draw_noise([layer], rng)[0]) for _ in range(20)])
    assert abs(drawn.mean()) < 0.01
    # E f(ε)² = E |ε| = √(2/π), and of a product the square of that.
    assert np.square(drawn).mean() == pytest.approx(2 / np.pi, rel=0.05)
    layer.noise = draw_noise([layer], rng)[0]
    x = torch.randn(2, 400)
    weight = layer.weight + layer.weight_std * torch.outer(*map(torch.as_tensor, layer.noise))
    bias = layer.bias + layer.bias_std * torch.as_tensor(layer.noise[0])
    torch.testing.assert_close(layer(x), x @ weight.T + bias)
    layer.noise = None
    torch.testing.assert_close(layer(x), x @ layer.weight.T + layer.bias)


def test_noise_explores_and_the_best_action_has_none():
    algorithm = make("rainbow", noisy_std=5.0)
    obs = np.zeros((1, 3), np.float32)
    rng = np.random.default_rng(0)
    explored = [int(algorithm.act(obs, explore=True, rng=rng).action[0]) for _ in range(40)]
    best = [int(algorithm.act(obs, explore=False, rng=rng).action[0]) for _ in range(40)]
    assert set(explored) == {0, 1} and len(set(best)) == 1


class Probabilities(nn.Module):
    """As Machin's users write it: [B, actions, atoms], behind a softmax."""

    def __init__(self):
        super().__init__()
        self.linear = nn.Linear(3, 2 * 5)

    def forward(self, state):
        return torch.softmax(self.linear(state).reshape(-1, 2, 5), dim=2)


def test_a_module_of_ones_own_may_give_probabilities():
    model = ModelSettings(network=Probabilities)
    algorithm = make("c51", model, atoms=5)
    outputs = algorithm._q.values(batch()["obs"])
    with torch.no_grad():
        expected = algorithm.network.q(torch.as_tensor(batch()["obs"]))
    np.testing.assert_allclose(algorithm._probabilities(outputs), expected, atol=1e-5)
    algorithm.learn(batch())
    with pytest.raises(UsageError, match="must be 8"):
        make("c51", model, atoms=4).learn(batch())
    with pytest.raises(UsageError, match="NoisyLinear"):
        make("rainbow", model, atoms=5)


def test_what_cannot_be_is_said():
    for name, wrong in (
        ("c51", {"atoms": 1}),
        ("c51", {"value_min": 3.0, "value_max": 3.0}),
        ("qrdqn", {"quantiles": 0}),
    ):
        with pytest.raises(UsageError):
            find_algorithm(name)[1](**wrong)


def test_other_systems_words():
    rainbow = find_algorithm("rainbow")[1]
    settings, parts = from_machin(
        rainbow, {"models": ["QNet", "QNet"], "value_min": -1.0, "value_max": 9.0, "reward_future_steps": 5}
    )
    assert (settings.value_min, settings.value_max, settings.n_step, parts["models"]) == (
        -1.0,
        9.0,
        5,
        ["QNet", "QNet"],
    )
    assert from_machin(rainbow, to_machin(settings))[0] == settings
    model = {"obs_shape": 4, "action_shape": 2, "encoder_hidden_size_list": [128, 64]}
    sizes = {"c51": {"v_min": -5, "v_max": 5, "n_atom": 21}, "qrdqn": {"num_quantiles": 32}, "rainbow": {"n_atom": 11}}
    for kind, size in sizes.items():
        main = {
            "policy": {"model": {**model, **size}, "nstep": 3, "learn": {"batch_size": 64}, "collect": {"n_sample": 8}}
        }
        config = from_di_engine(main, {"env": {"type": "cartpole"}, "policy": {"type": kind}})
        assert config["algorithm"]["name"] == kind and config["algorithm"]["n_step"] == 3
        assert config["algorithm"].get("atoms", config["algorithm"].get("quantiles")) in (21, 32, 11)
        back, create = to_di_engine(config)
        assert create["policy"]["type"] == kind
        assert {key: back["policy"]["model"][key] for key in size} == size
