"""TRPO: its step is the natural gradient, the bound on the divergence holds, the value is fitted apart."""

from __future__ import annotations

import dataclasses

import numpy as np
import pytest
import torch
from gymnasium.spaces import Box, Discrete, MultiDiscrete
from torch import nn
from torch.distributions import Categorical, Normal, kl_divergence

from operant.algorithms import find_algorithm
from operant.algorithms.trpo import conjugate_gradient
from operant.envs import make_env
from operant.errors import UsageError
from operant.models import ModelSettings
from operant.training.collecting import Collector
from operant.training.machin import from_machin, to_machin
from operant.training.sources import make_source

TRPO, Settings = find_algorithm("trpo")


def rollout(env, model=None, **settings):
    vector = make_env(env, 3, seed=1)
    spaces = vector.single_observation_space, vector.single_action_space
    algorithm = TRPO(*spaces, Settings(rollout=40, **settings), model or ModelSettings(hidden=(6,)), 1)
    with torch.no_grad():
        algorithm._flat.tensor += 0.3 * torch.randn(algorithm._flat.tensor.shape, generator=torch.manual_seed(0))
    collector = Collector(vector, algorithm, rng=np.random.default_rng(0))
    collector.reset(0)
    return algorithm, make_source(algorithm, collector, np.random.default_rng(1)).collect(1000)


def test_conjugate_gradients_solve_a_quadratic():
    rng = torch.manual_seed(0)
    half = torch.randn(12, 12, dtype=torch.float64, generator=rng)
    matrix, wanted = half @ half.T + torch.eye(12, dtype=torch.float64), torch.randn(12, dtype=torch.float64)
    found = conjugate_gradient(lambda v: matrix @ v, wanted, 30, 1e-24)
    torch.testing.assert_close(found, torch.linalg.solve(matrix, wanted))
    assert not conjugate_gradient(lambda v: matrix @ v, torch.zeros(12, dtype=torch.float64), 5, 1e-10).any()


def test_the_step_is_the_natural_gradient():
    """Against the Fisher matrix by its definition, the mean of outer products of ∇ log π(a) over all actions."""
    algorithm, batch = rollout("CartPole-v1", damping=0.05, max_kl=1e-5, conjugate_steps=200, conjugate_tolerance=1e-20)
    network = algorithm.network
    policy = list(network.actor.parameters())
    before = torch.cat([one.detach().clone().reshape(-1) for one in policy]).double()
    data = algorithm._prepare(batch)
    advantage = (data.advantage - data.advantage.mean()) / (data.advantage.std(ddof=1) + 1e-8)
    size, fisher, gradient = len(before), 0.0, 0.0
    logs = torch.log_softmax(network.actor(torch.as_tensor(data.obs)), dim=1)
    for row in range(len(data)):
        for action in range(2):
            score = torch.autograd.grad(logs[row, action], policy, retain_graph=True)
            score = torch.cat([one.reshape(-1) for one in score]).double()
            fisher = fisher + logs[row, action].exp().item() * torch.outer(score, score) / len(data)
            if action == data.action[row]:
                gradient = gradient + float(advantage[row]) * score / len(data)
    damped = fisher + 0.05 * torch.eye(size, dtype=torch.float64)
    natural = torch.linalg.solve(damped, gradient)
    expected = natural * torch.sqrt(2e-5 / (natural @ damped @ natural))
    metrics, _ = algorithm.learn(batch)
    moved = torch.cat([one.detach().reshape(-1) for one in policy]).double() - before
    assert metrics["step"] == 1.0
    torch.testing.assert_close(moved, expected, rtol=2e-2, atol=2e-5)


@pytest.mark.parametrize("env", ["CartPole-v1", "Pendulum-v1", "operant.envs.identity:MaskedIdentity"])
@pytest.mark.parametrize("max_kl", [0.001, 0.05])
def test_the_divergence_stays_within_its_bound(env, max_kl):
    algorithm, batch = rollout(env, max_kl=max_kl, damping=0.001)
    batch = {key: value.copy() if isinstance(value, np.ndarray) else value for key, value in batch.items()}
    before = algorithm.weights()
    metrics, _ = algorithm.learn(batch)
    assert 0.0 < metrics["kl"] <= max_kl and metrics["improvement"] > 0.0 and 0.0 < metrics["step"] <= 1.0
    # By torch's own distributions, of the policy before and the one after.
    data, after, found = algorithm._prepare(batch), algorithm.weights(), []
    for weights in (before, after):
        algorithm.load_weights(weights)
        with torch.no_grad():
            policy, _, spread, mask = algorithm._torch_output(data)
        if spread is None:
            found.append(Categorical(logits=policy if mask is None else policy.masked_fill(~mask, -1e8)))
        else:
            found.append(Normal(policy, spread.exp()))
    each = kl_divergence(*found)
    assert (each if each.ndim == 1 else each.sum(dim=1)).mean().item() == pytest.approx(metrics["kl"], rel=1e-2)


def test_where_nothing_fits_the_policy_stays():
    algorithm, batch = rollout("CartPole-v1")
    before = algorithm.weights()
    batch = {**batch, "reward": np.zeros_like(batch["reward"])}
    algorithm.settings = dataclasses.replace(algorithm.settings, normalize_advantage=False, value_epochs=0)
    for name in before:  # values of zero: advantages are zero, and so is the gradient
        if name.startswith("critic"):
            before[name][...] = 0.0
    algorithm.load_weights(before)
    metrics, _ = algorithm.learn(batch)
    assert metrics["step"] == metrics["kl"] == 0.0
    for name, value in algorithm.weights().items():
        np.testing.assert_array_equal(value, before[name])


class Shared(nn.Module):
    """Policy and value behind one layer."""

    def __init__(self):
        super().__init__()
        self.trunk, self.policy, self.value = nn.Linear(4, 8), nn.Linear(8, 2), nn.Linear(8, 1)

    def forward(self, obs):
        features = torch.tanh(self.trunk(obs))
        return self.policy(features), self.value(features)


def test_the_value_leaves_what_the_policy_uses_alone():
    algorithm, batch = rollout("CartPole-v1", ModelSettings(network=Shared))
    data = algorithm._prepare(batch)
    algorithm._step_policy(data)
    before = algorithm.weights()
    algorithm._fit_value(data, 0.01)
    changed = {name for name, value in algorithm.weights().items() if not np.array_equal(value, before[name])}
    assert changed == {"actor.value.weight", "actor.value.bias"}


def test_several_choices_and_machins_words():
    algorithm = TRPO(Box(-1, 1, (3,)), MultiDiscrete([2, 3]), Settings(), ModelSettings(hidden=(4,)), 0)
    logits = torch.randn(5, 5, dtype=torch.float64)
    other = torch.randn(5, 5, dtype=torch.float64)
    found = algorithm._head.divergence(*(algorithm._head.parameters(one, None, None) for one in (logits, other)))
    expected = sum(
        kl_divergence(Categorical(logits=logits[:, part]), Categorical(logits=other[:, part]))
        for part in (slice(0, 2), slice(2, 5))
    )
    torch.testing.assert_close(found, expected)
    given = {"kl_max_delta": 0.02, "conjugate_iterations": 7, "hv_mode": "direct", "critic_update_times": 4}
    settings, _ = from_machin(Settings, given)
    assert (settings.max_kl, settings.conjugate_steps, settings.value_epochs) == (0.02, 7, 4)
    assert from_machin(Settings, to_machin(settings))[0] == settings


def test_what_cannot_be_is_said():
    for wrong in ({"max_kl": 0.0}, {"line_search_shrink": 1.0}, {"conjugate_steps": 0}):
        with pytest.raises(UsageError):
            Settings(**wrong)
    with pytest.raises(UsageError, match="memory"):
        TRPO(Box(-1, 1, (3,)), Discrete(2), Settings(), ModelSettings(recurrent="lstm"), 0)
