"""SAC with memory: what it learns from sequences against a walk through each of them; a task that needs memory."""

from __future__ import annotations

import copy
from typing import Any, ClassVar

import numpy as np
import pytest
import torch
from torch import nn

from operant.algorithms import find_algorithm
from operant.algorithms._q_sequences import sequence_targets
from operant.algorithms.sac import squashed_log_prob
from operant.data.batches import sample_batch
from operant.data.trees import tree_map
from operant.envs import make_env
from operant.errors import UsageError
from operant.models import ModelSettings
from operant.testing import AlgorithmContract
from operant.training import train
from operant.training.collecting import Collector
from operant.training.sources import make_source

SAC, Settings = find_algorithm("sac")
LONG = pytest.mark.long
SIZES = {"sequence": 6, "burn_in": 4}


class Counting(nn.Module):
    """A policy of one's own that remembers: a GRU's state beside the number of steps so far."""

    def __init__(self, inputs: int = 3, outputs: int = 1) -> None:
        super().__init__()
        self.cell = nn.GRUCell(inputs + 1, 5)
        self.policy = nn.Linear(5, 2 * outputs)

    def initial_state(self, rows):
        return {"memory": torch.zeros(rows, 5), "steps": torch.zeros(rows, 1)}

    def forward(self, obs, state):
        memory = self.cell(torch.cat([obs, 0.1 * state["steps"]], dim=1), state["memory"])
        return self.policy(memory), {"memory": memory, "steps": state["steps"] + 1}


MODELS = {
    "lstm": ModelSettings(hidden=(7,), activation="relu", recurrent="lstm", recurrent_size=5, **SIZES),
    "gru": ModelSettings(hidden=(), recurrent="gru", recurrent_size=5, **SIZES),
    "own": ModelSettings(actor=Counting, hidden=(7,), recurrent_size=5, **SIZES),
}


def stored(batch, t, column):
    """The state that was stored at a step of a sequence, as tensors of one row."""
    return tree_map(lambda part: torch.as_tensor(part[t, column])[None], batch["state"])


class TestContract(AlgorithmContract):
    name = "sac"
    settings: ClassVar[dict[str, Any]] = {"train_every": 12, "batch": 8, "learning_starts": 24, "buffer": 300}
    model: ClassVar[dict[str, Any]] = {
        "hidden": [8],
        "recurrent": "gru",
        "recurrent_size": 6,
        "sequence": 5,
        "burn_in": 2,
    }
    envs = ("operant.envs.identity:ContinuousIdentity", "Pendulum-v1")


def collected(name="lstm", **settings):
    """An algorithm and a replay of its short episodes; nothing has been learned yet."""
    env = make_env("Pendulum-v1", 2, seed=1, max_episode_steps=15)
    chosen = Settings(**{"batch": 40, "learning_starts": 1000, **settings})
    algorithm = SAC(env.single_observation_space, env.single_action_space, chosen, MODELS[name], 1)
    collector = Collector(env, algorithm, rng=np.random.default_rng(0))
    collector.reset(0)
    source = make_source(algorithm, collector, np.random.default_rng(1))
    for _ in range(60):
        source.collect(1000)
    return algorithm, source


@pytest.mark.parametrize("name", MODELS)
def test_sequences_give_what_acting_gave(name) -> None:
    algorithm, source = collected(name)
    batch = sample_batch(source.buffer, 20, np.random.default_rng(2), length=6, burn_in=4)
    network = algorithm.network
    with torch.no_grad():
        for column in range(20):
            length = batch["mask"][4:, column].sum()
            rows = torch.as_tensor(batch["obs"][4 : 4 + length, column])
            state = stored(batch, 4, column)
            found = network.unroll(rows, state, (int(length), 1))
            for t in range(length):
                output, state = network.step(rows[t : t + 1], state)
                np.testing.assert_allclose(found[t], output[0], atol=1e-5)
                if t + 1 < length:  # what was stored is what acting left behind
                    kept = stored(batch, 5 + t, column)
                    tree_map(lambda one, other: np.testing.assert_allclose(one, other, atol=1e-5), state, kept)


@pytest.mark.parametrize("name, prioritized", [("lstm", False), ("lstm", True), ("own", False)])
def test_an_update_is_a_step_down_the_losses_of_all_steps(name, prioritized, monkeypatch) -> None:
    """Both gradients against ones that walk through each sequence by itself, with no noise in the actions."""
    algorithm, source = collected(
        name, n_step=2, max_gradient_norm=1e9, prioritized=prioritized, learning_rate=1e-12, temperature=0.3
    )
    monkeypatch.setattr(algorithm, "_draw", lambda rows: np.zeros((rows, 1), np.float32))
    rng = np.random.default_rng(3)
    batch = sample_batch(source.buffer, 12, rng, length=6, burn_in=4, beta=0.5)
    if prioritized:
        batch["weight"] = np.linspace(0.2, 1.0, 12).astype(np.float32)
    network, critics = copy.deepcopy((algorithm.network, algorithm._critics))
    targets = copy.deepcopy(algorithm._target_critics)
    length = batch["mask"][4:].sum(axis=0)
    critic_loss = actor_loss = 0.0
    sizes = []

    def policy(output):
        mean, log_std = output[:, :1], output[:, 1:].clamp(-20.0, 2.0)
        return torch.tanh(mean), squashed_log_prob(torch.zeros_like(mean), log_std, mean)

    for column in range(12):
        count = int(length[column])
        obs = torch.as_tensor(batch["obs"][4 : 4 + count, column])
        last = torch.as_tensor(batch["next_obs"][3 + count, column])[None]
        state = stored(batch, 4, column)
        q_state = target_state = network.critics_part(state)
        qs, values, policies = [], [], []
        with torch.no_grad():
            walked = state
            for row in [*obs.split(1), last]:
                output, walked = network.step(row, walked)
                features, target_state = targets.memory.step(row, target_state)
                action, log_prob = policy(output)
                values.append(float(targets(features, action).amin() - 0.3 * log_prob))
        for t in range(count):
            features, q_state = critics.memory.step(obs[t : t + 1], q_state)
            taken = torch.as_tensor(batch["action"][4 + t, column])[None]
            qs.append(critics(features, taken)[:, 0])
            policies.append(features.detach())
        target = sequence_targets(
            *(
                np.asarray(one, float)[:count, None]
                for one in (batch["reward"][4:, column], batch["discount"][4:, column])
            ),
            np.array(values[1:])[:, None],
            length[column : column + 1],
            2,
        )[:, 0]
        weight = float(batch["weight"][column]) if prioritized else 1.0
        errors = torch.stack([q - float(y) for q, y in zip(qs, target, strict=True)])
        critic_loss = critic_loss + weight * errors.square().sum()
        each = errors.detach().abs().mean(dim=1)
        sizes.append(float(0.9 * each.max() + 0.1 * each.mean()))
        actor_state = state
        for t in range(count):
            output, actor_state = network.step(obs[t : t + 1], actor_state)
            action, log_prob = policy(output)
            actor_loss = actor_loss + (0.3 * log_prob - critics(policies[t], action).amin(dim=0)).sum()
    steps = int(length.sum())
    wanted = torch.autograd.grad(critic_loss / steps, list(critics.parameters()))
    actor_wanted = torch.autograd.grad(actor_loss / steps, list(network.policy.parameters()))
    metrics, found = algorithm.learn(batch)
    np.testing.assert_allclose(found, sizes, rtol=1e-3)
    for one, parameter in zip(wanted, algorithm._critics.parameters(), strict=True):
        np.testing.assert_allclose(parameter.grad, one, rtol=1e-3, atol=1e-5)
    for one, parameter in zip(actor_wanted, algorithm.network.policy.parameters(), strict=True):
        np.testing.assert_allclose(parameter.grad, one, rtol=1e-3, atol=1e-5)
    assert metrics["policy_loss"] == pytest.approx(float(actor_loss.detach()) / steps, rel=1e-3)


@pytest.mark.parametrize("name", ["lstm", "own"])
def test_the_memory_of_critics_learns_with_them(name) -> None:
    algorithm, source = collected(name, learning_starts=10)
    before = {name: value.copy() for name, value in algorithm.weights().items()}
    while source.train_iter < 3:
        source.learn(source.collect(1000), 1000)
    after = algorithm.weights()
    moved = {name for name in before if not np.array_equal(before[name], after[name])}
    assert any(name.startswith("critic_memory.") for name in moved)
    assert any(name.startswith(("policy.memory.", "policy.cell.")) for name in moved)
    followed = dict(algorithm._target_critics.named_parameters())["memory.memory.layer.weight_hh_l0"]
    learned = dict(algorithm._critics.named_parameters())["memory.memory.layer.weight_hh_l0"]
    assert not torch.equal(followed, learned)


@pytest.mark.parametrize("memory", ["gru", pytest.param("lstm", marks=LONG), pytest.param("", marks=LONG)])
def test_it_solves_what_needs_memory_and_not_without(memory, tmp_path) -> None:
    settings = {"name": "sac", "train_every": 16, "batch": 64, "buffer": 5000, "learning_starts": 200}
    settings |= {"learning_rate": 0.01, "target_rate": 0.02, "temperature": 0.05, "learn_temperature": False}
    model = {"hidden": [16], "activation": "relu", "sequence": 4, "burn_in": 0}
    found = train(
        {
            "env": {"id": "operant.envs.identity:ContinuousMemoryIdentity", "num_envs": 8},
            "algorithm": settings,
            "model": {**model, "recurrent": memory, "recurrent_size": 16},
            "total_steps": 3000,
            "evaluation": {"episodes": 64, "every": 3000},
        },
        root=tmp_path,
    ).final_return
    assert found > 0.9 if memory else found < 0.7


def test_a_policy_of_ones_own_that_remembers_solves_what_needs_memory(tmp_path) -> None:
    config = {
        "env": {"id": "operant.envs.identity:ContinuousMemoryIdentity", "num_envs": 8},
        "algorithm": {"name": "sac", "train_every": 16, "batch": 64, "buffer": 5000, "learning_starts": 200}
        | {"learning_rate": 0.01, "target_rate": 0.02, "temperature": 0.05, "learn_temperature": False},
        "model": {"actor": Counting, "arguments": {"inputs": 2, "outputs": 1}, "hidden": [16], "activation": "relu"}
        | {"recurrent_size": 16, "sequence": 4, "burn_in": 0},
        "total_steps": 3000,
        "evaluation": {"episodes": 64, "every": 3000},
    }
    assert train(config, root=tmp_path).final_return > 0.9


def test_what_cannot_be_is_said() -> None:
    env = make_env("Pendulum-v1", 1)
    spaces = env.single_observation_space, env.single_action_space
    with pytest.raises(UsageError, match="state_noise is not for SAC with memory"):
        SAC(*spaces, None, ModelSettings(recurrent="gru", state_noise=True))
    with pytest.raises(UsageError, match="with initial_state the critics are built"):
        SAC(*spaces, None, ModelSettings(actor=Counting, critic=Counting))
    with pytest.raises(UsageError, match="TD3 has no form with memory"):
        find_algorithm("td3")[0](*spaces, None, ModelSettings(recurrent="gru"))
