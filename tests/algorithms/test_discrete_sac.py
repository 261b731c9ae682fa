"""Discrete SAC: its gradient against autograd, targets by hand, both paths, masks."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from gymnasium import spaces
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import nn

from operant.algorithms.discrete_sac import DiscreteSAC, DiscreteSACSettings, policy_gradient, softmax
from operant.errors import UsageError
from operant.models import ModelSettings

ROW = spaces.Box(-9, 9, (5,), np.float32)


def transitions(rng, rows=16):
    return {
        "obs": rng.standard_normal((rows, 5)).astype(np.float32),
        "next_obs": rng.standard_normal((rows, 5)).astype(np.float32),
        "action": rng.integers(4, size=rows),
        "reward": rng.standard_normal(rows).astype(np.float32),
        "terminated": rng.random(rows) < 0.2,
    }


@settings(max_examples=30, deadline=None)
@given(
    rows=st.integers(1, 20), masked=st.booleans(), temperature=st.sampled_from([0.01, 1.0]), seed=st.integers(0, 2**31)
)
def test_the_policys_gradient_is_that_of_autograd(rows, masked, temperature, seed):
    rng = np.random.default_rng(seed)
    logits = torch.tensor(rng.standard_normal((rows, 4)), requires_grad=True)
    q = rng.standard_normal((rows, 4))
    mask = rng.random((rows, 4)) < 0.6 if masked else None
    if mask is not None:
        mask[:, 1] = True
    allowed = logits if mask is None else torch.where(torch.as_tensor(mask), logits, -1e8)
    log = torch.log_softmax(allowed, dim=1)
    each = (log.exp() * (temperature * log - torch.as_tensor(q))).sum(dim=1)
    each.mean().backward()
    loss, gradient = policy_gradient(*softmax(logits.detach().numpy(), mask), q, temperature)
    np.testing.assert_allclose(loss, each.detach(), rtol=1e-9, atol=1e-12)
    np.testing.assert_allclose(gradient, logits.grad, rtol=1e-7, atol=1e-12)


def test_targets_by_hand():
    """Equal logits: V = mean of the smaller values + α log 4; after a termination the reward alone."""
    agent = DiscreteSAC(ROW, spaces.Discrete(4), DiscreteSACSettings(gamma=0.5), ModelSettings(hidden=(8,)))
    agent._flat.array[:] = 0.0
    agent._followed.target_flat.array[:] = 0.0
    for critic, values in zip(agent._targets, ([1.0, 2.0, 3.0, 4.0], [4.0, 3.0, 2.0, 1.0]), strict=True):
        critic.q[-1].bias.data[:] = torch.tensor(values)
    batch = transitions(np.random.default_rng(0), rows=2)
    batch["terminated"] = np.array([False, True])
    expected = batch["reward"] + np.array([0.5, 0.0]) * ((1 + 2 + 2 + 1) / 4 + 0.1 * np.log(4))
    np.testing.assert_allclose(agent._next_values(batch, 0.1), expected, rtol=1e-6)
    only = np.array([[False, True, False, False]] * 2)
    expected = batch["reward"] + np.array([0.5, 0.0]) * 2.0  # one choice has no entropy
    np.testing.assert_allclose(agent._next_values({**batch, "next_mask": only}, 0.1), expected, rtol=1e-6)


@pytest.mark.parametrize("masked", [False, True])
def test_both_paths_make_the_same_steps(masked):
    pair = [
        DiscreteSAC(
            ROW,
            spaces.Discrete(4),
            DiscreteSACSettings(learning_rate=1e-2, actor_every=2, decrease_rate=0.5),
            ModelSettings(hidden=(40, 33), activation="relu", orthogonal=False, fused=fused),
        )
        for fused in (True, False)
    ]
    assert [one.path.split()[0] for one in pair] == ["fused", "torch"]
    rng = np.random.default_rng(0)
    for _ in range(4):
        batch = transitions(rng)
        if masked:
            batch["mask"] = batch["next_mask"] = np.array([[True, True, False, True]] * 16)
        metrics = [one.learn(batch)[0] for one in pair]
        for key in metrics[0]:
            assert metrics[0][key] == pytest.approx(metrics[1][key], rel=2e-3, abs=1e-4), key
        for flats in ("_flat", "_critic_flat"):
            one, other = (getattr(agent, flats).array for agent in pair)
            np.testing.assert_allclose(one, other, rtol=1e-3, atol=3e-5)


def test_the_temperature_aims_at_an_entropy_that_a_mask_allows():
    """Else it would grow without end, until nothing but chance is worth anything."""
    settings = DiscreteSACSettings(temperature_rate=0.1, learning_rate=1e-9)
    two = np.array([[True, True, False, False]] * 16)
    for mask, possible in ((None, 4), (two, 2), (np.eye(4, dtype=bool)[[0, 1] * 8], 1)):
        agent = DiscreteSAC(ROW, spaces.Discrete(4), settings, ModelSettings(hidden=(8,)))
        agent._flat.array[:] = 0.0  # all that is allowed is alike
        before, batch = agent._log_temperature.value, transitions(np.random.default_rng(0))
        metrics, _ = agent.learn(batch if mask is None else {**batch, "mask": mask, "next_mask": mask})
        assert metrics["entropy"] == pytest.approx(np.log(possible), abs=1e-6)
        change = agent._log_temperature.value - before
        assert change < 0 if possible > 1 else abs(change) < 0.1001
    own = DiscreteSAC(ROW, spaces.Discrete(4), DiscreteSACSettings(target_entropy=0.5), ModelSettings(hidden=(8,)))
    assert own._target_entropy(two) == 0.5


def test_continuous_actions_are_refused():
    with pytest.raises(UsageError, match="discrete_sac chooses one of n actions"):
        DiscreteSAC(ROW, spaces.Box(-1, 1, (2,), np.float32))


@pytest.mark.parametrize("name", ["state_noise", "layer_norm"])
def test_what_is_for_continuous_actions_is_refused(name):
    with pytest.raises(UsageError, match=f"model.{name} is for continuous actions"):
        DiscreteSAC(spaces.Box(-1, 1, (3,)), spaces.Discrete(2), None, ModelSettings(**{name: True}))


def chain():
    return nn.Sequential(nn.Linear(5, 8), nn.BatchNorm1d(8), nn.ReLU(), nn.Linear(8, 4))


def test_one_critic_that_was_given_serves_as_several_and_all_of_it_is_saved():
    settings, model = DiscreteSACSettings(learning_rate=1e-2), ModelSettings(actor=chain(), critic=chain())
    agent = DiscreteSAC(ROW, spaces.Discrete(4), settings, model)
    modules = [critic.q for part in (agent._critics, agent._targets) for critic in part]
    assert len({id(one) for one in modules}) == 4 and not any(one is model.critic for one in modules)
    rng = np.random.default_rng(0)
    before = agent._critic_flat.array.copy()
    for _ in range(3):
        agent.learn(transitions(rng))
    assert (agent._critic_flat.array != before).any()
    again = DiscreteSAC(ROW, spaces.Discrete(4), settings, ModelSettings(actor=chain(), critic=chain()))
    again.load_state_dict(agent.state_dict())
    for _ in range(2):
        batch = transitions(rng)
        agent.learn(batch), again.learn(batch)
    for name, value in agent.weights().items():
        np.testing.assert_array_equal(again.weights()[name], value)


@pytest.mark.parametrize(
    ("model", "message"),
    [
        (
            {"actor": nn.Linear(5, 3)},
            r"model\.actor must give an output of shape \(2, 4\) for 2 observations, not \(2, 3",
        ),
        ({"critic": nn.Linear(5, 1)}, r"model\.critic must give an output of shape \(2, 4\)"),
        ({"actor": nn.Linear(7, 4)}, r"model\.actor cannot take observations of Box.*RuntimeError"),
    ],
)
def test_own_modules_that_do_not_fit_are_told_before_anything_begins(model, message):
    with pytest.raises(UsageError, match=message):
        DiscreteSAC(ROW, spaces.Discrete(4), None, ModelSettings(**model))
