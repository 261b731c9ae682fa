"""DQN with memory: sequences from replay give what acting gave, targets against a slow form of their definition."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from torch import nn

from operant.algorithms import find_algorithm
from operant.algorithms._q_sequences import renewed, sequence_targets, with_last
from operant.data.batches import sample_batch
from operant.data.trees import tree_map
from operant.envs import make_env
from operant.errors import UsageError
from operant.models import ModelSettings
from operant.training.collecting import Collector
from operant.training.sources import make_source

DQN, Settings = find_algorithm("dqn")


class Summing(nn.Module):
    """A module of one's own: remembers a GRU's state beside the sum of what it saw."""

    def __init__(self):
        super().__init__()
        self.cell, self.q = nn.GRUCell(4, 6), nn.Linear(7, 2)

    def initial_state(self, rows):
        return {"memory": torch.zeros(rows, 6), "sum": torch.zeros(rows, 1)}

    def forward(self, obs, state):
        memory, total = self.cell(obs, state["memory"]), state["sum"] + obs.sum(dim=1, keepdim=True)
        return self.q(torch.cat([memory, total], dim=1)), {"memory": memory, "sum": total}


SIZES = {"sequence": 6, "burn_in": 4}
MODELS = {
    "lstm": ModelSettings(hidden=(7,), activation="relu", recurrent="lstm", recurrent_size=5, **SIZES),
    "gru": ModelSettings(hidden=(), recurrent="gru", recurrent_size=5, **SIZES),
    "own": ModelSettings(network=Summing, **SIZES),
}


def collected(name, **settings):
    """An algorithm and a replay of its short episodes; nothing has been learned yet."""
    env = make_env("CartPole-v1", 2, seed=1, max_episode_steps=15)
    spaces = env.single_observation_space, env.single_action_space
    algorithm = DQN(*spaces, Settings(**{"batch": 40, "learning_starts": 10_000, **settings}), MODELS[name], 1)
    collector = Collector(env, algorithm, rng=np.random.default_rng(0))
    collector.reset(0)
    source = make_source(algorithm, collector, np.random.default_rng(1))
    for _ in range(80):
        source.collect(1000)
    return algorithm, source


@pytest.mark.parametrize("name", MODELS)
def test_sequences_give_what_acting_gave(name):
    algorithm, source = collected(name)
    batch = sample_batch(source.buffer, 40, np.random.default_rng(2), length=6, burn_in=4)
    network, there = algorithm.network, batch["mask"]
    assert there[4].all() and not there[:4].all() and not there[5:].all()
    length = there[4:].sum(axis=0)
    with torch.no_grad():
        state = renewed(network, batch, 4, None)
        # Nothing has changed since these steps were made: what is renewed is what was stored.
        tree_map(lambda one, other: np.testing.assert_allclose(one, other[4], atol=1e-5), state, batch["state"])
        found = network.unroll(with_last(batch, 4, length, None), state, (7, 40)).reshape(7, 40, -1)
        for column in range(40):
            walked = tree_map(lambda part, column=column: torch.as_tensor(part[4, column])[None], batch["state"])
            for t in range(length[column]):
                q, walked = network.step(torch.as_tensor(batch["obs"][4 + t, column])[None], walked)
                np.testing.assert_allclose(found[t, column], q[0], atol=1e-5)
            q, _ = network.step(torch.as_tensor(batch["next_obs"][3 + length[column], column])[None], walked)
            np.testing.assert_allclose(found[length[column], column], q[0], atol=1e-5)


def test_targets_worked_by_hand():
    # One sequence of three steps that ends by termination, one of two steps that goes on (its third row is no step).
    reward = np.array([[1.0, 10.0], [2.0, 20.0], [4.0, 99.0]])
    discount = np.array([[0.5, 0.5], [0.5, 0.5], [0.0, 0.5]])
    value = np.array([[8.0, 8.0], [16.0, 16.0], [32.0, 32.0]])
    found = sequence_targets(reward, discount, value, np.array([3, 2]), 2)
    np.testing.assert_allclose(found[:, 0], [1 + 0.5 * 2 + 0.25 * 16, 2 + 0.5 * 4, 4])
    np.testing.assert_allclose(found[:2, 1], [10 + 0.5 * 20 + 0.25 * 16, 20 + 0.5 * 16])
    np.testing.assert_allclose(sequence_targets(reward, discount, value, np.array([3, 2]), 1)[0], [5.0, 14.0])


def test_an_update_is_one_step_down_the_loss_of_all_steps():
    """The gradient against one that walks through each sequence by itself."""
    algorithm, source = collected("lstm", n_step=2, loss="squared", max_gradient_norm=1e9)
    batch = sample_batch(source.buffer, 12, np.random.default_rng(3), length=6, burn_in=4)
    network, length = algorithm.network, batch["mask"][4:].sum(axis=0)
    loss, count, sizes = 0.0, 0, []
    for column in range(12):
        state, qs, nexts = torch.as_tensor(batch["state"][4, column])[None], [], []
        for t in range(4, 4 + length[column]):
            q, state = network.step(torch.as_tensor(batch["obs"][t, column])[None], state)
            with torch.no_grad():
                nexts.append(network.step(torch.as_tensor(batch["next_obs"][t, column])[None], state)[0].max().item())
            qs.append(q[0, batch["action"][t, column]])
        rewards, discounts = batch["reward"][4:, column], batch["discount"][4:, column]
        target = sequence_targets(
            *(np.asarray(one)[: len(qs), None] for one in (rewards, discounts, nexts)), length[column : column + 1], 2
        )[:, 0]
        errors = [(q - float(y)) for q, y in zip(qs, target, strict=True)]
        loss = loss + sum(one.square() for one in errors)
        count += len(errors)
        each = np.abs([one.item() for one in errors])
        sizes.append(0.9 * each.max() + 0.1 * each.mean())
    expected = torch.autograd.grad(loss / count, list(network.parameters()))
    _, found = algorithm._gradient(batch)
    for one, parameter in zip(expected, network.parameters(), strict=True):
        torch.testing.assert_close(parameter.grad, one, rtol=1e-3, atol=1e-5)
    np.testing.assert_allclose(found, sizes, rtol=1e-3)


def test_what_cannot_be_is_said():
    env = make_env("CartPole-v1", 1)
    spaces = env.single_observation_space, env.single_action_space
    with pytest.raises(UsageError, match="noisy is not for networks with memory"):
        DQN(*spaces, Settings(noisy=True), ModelSettings(recurrent="lstm"), 0)
    with pytest.raises(UsageError, match="no form with memory"):
        find_algorithm("c51")[0](*spaces, None, ModelSettings(recurrent="lstm"), 0)
    with pytest.raises(UsageError, match="no form with memory"):
        find_algorithm("qrdqn")[0](*spaces, None, ModelSettings(network=Summing), 0)
