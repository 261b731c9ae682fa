"""Policies with memory: what is learned from whole sequences is what was computed step by step while acting."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from torch import nn

from operant.algorithms import find_algorithm
from operant.data.batches import replace_rows, rollout_batch
from operant.data.sequences import Sequences, split_rollout
from operant.envs import make_env
from operant.errors import UsageError
from operant.framework import Context
from operant.models import ModelSettings
from operant.training import load_policy, train
from operant.training.collecting import Collector
from operant.training.middleware import gae_estimator
from operant.training.sources import make_source


class Counting(nn.Module):
    """A module of one's own that remembers: a GRU's state beside the number of steps so far."""

    def __init__(self, inputs: int = 4, outputs: int = 2) -> None:
        super().__init__()
        self.cell = nn.GRUCell(inputs + 1, 5)
        self.policy = nn.Linear(5, outputs)
        self.value = nn.Linear(5, 1)

    def initial_state(self, rows):
        return {"memory": torch.zeros(rows, 5), "steps": torch.zeros(rows, 1)}

    def forward(self, obs, state):
        memory = self.cell(torch.cat([obs, 0.1 * state["steps"]], dim=1), state["memory"])
        return self.policy(memory), self.value(memory), {"memory": memory, "steps": state["steps"] + 1}


BUILT = {"hidden": (6,), "recurrent_size": 5, "sequence": 7}
MODELS = {
    "lstm": ModelSettings(recurrent="lstm", **BUILT),
    "gru": ModelSettings(recurrent="gru", **BUILT),
    "own": ModelSettings(network=Counting, sequence=7),
}


def rollout(model, env="CartPole-v1", name="ppo", steps=40, **arguments):
    """An algorithm and a rollout of it, in which episodes are cut off and (CartPole) end."""
    vector = make_env(env, 3, seed=1, max_episode_steps=15, **arguments)
    kind, settings = find_algorithm(name)
    algorithm = kind(vector.single_observation_space, vector.single_action_space, settings(rollout=steps), model, 1)
    with torch.no_grad():
        algorithm._flat.tensor += 0.3 * torch.randn(
            algorithm._flat.tensor.shape, generator=torch.Generator().manual_seed(0)
        )
    collector = Collector(vector, algorithm, rng=np.random.default_rng(0))
    collector.reset(0)
    source = make_source(algorithm, collector, np.random.default_rng(1))
    source.collect(1000)  # so that the next one begins in the middle of episodes
    return algorithm, source.collect(1000)


def _tree(function, tree):
    return {key: function(value) for key, value in tree.items()} if isinstance(tree, dict) else function(tree)


def one_step(network, obs, state):
    """Policy output, value and next state of single steps, by the module's plain definition."""
    if isinstance(network.actor, Counting):
        policy, value, after = network.actor(obs, state)
        return policy, value[:, 0], after
    end = network.actor_memory.state_size
    outs, states = [], []
    for memory, before in ((network.actor_memory, state[:, :end]), (network.critic_memory, state[:, end:])):
        size, layer = memory.size, memory.layer
        pair = (before[None, :, :size].contiguous(), before[None, :, size:].contiguous())
        out, after = layer(obs[None], pair if isinstance(layer, nn.LSTM) else before[None].contiguous())
        outs.append(out[0])
        states.append(torch.cat(after, dim=2)[0] if isinstance(layer, nn.LSTM) else after[0])
    return network.actor(outs[0]), network.critic(outs[1])[:, 0], torch.cat(states, dim=1)


def walk(algorithm, batch, dtype=torch.float32):
    """Outputs and values [T, N] and values of what each step truly led to, one step after the other."""
    network = algorithm.network
    convert = lambda part: torch.as_tensor(np.array(part), dtype=dtype)  # noqa: E731
    state = _tree(lambda part: convert(part[0]), batch["state"])
    finals = dict(zip(batch["final_at"].tolist(), batch["final_obs"], strict=True))
    done = batch["terminated"] | batch["truncated"]
    steps, rows = done.shape
    outputs, values, following = [], [], np.zeros((steps, rows))
    for t in range(steps):
        policy, value, state = one_step(network, convert(batch["obs"][t]), state)
        outputs.append(policy)
        values.append(value)
        led_to = np.stack([finals.get(t * rows + n, batch["obs"][t + 1, n]) for n in range(rows)])
        following[t] = one_step(network, convert(led_to), state)[1].detach()
        start = _tree(convert, algorithm.initial_state(rows))
        ended = torch.from_numpy(done[t])[:, None]
        state = (
            {key: torch.where(ended, start[key], value) for key, value in state.items()}
            if isinstance(state, dict)
            else torch.where(ended, start, state)
        )
    return torch.stack(outputs), torch.stack(values), following


def by_step(rows, batch):
    steps, envs = batch["reward"].shape
    return rows.reshape(envs, steps, *rows.shape[1:]).swapaxes(0, 1)


@pytest.mark.parametrize("name", MODELS)
def test_sequences_give_what_acting_gave(name):
    algorithm, batch = rollout(MODELS[name])
    assert batch["truncated"].any() and (batch["terminated"] & ~batch["truncated"]).any()
    outputs, values, following = walk(algorithm, batch)
    data = algorithm._prepare(batch)
    np.testing.assert_allclose(by_step(data.value, batch), values.detach(), atol=1e-5)
    wanted = torch.log_softmax(outputs, 2).gather(2, torch.from_numpy(batch["action"])[:, :, None])[:, :, 0]
    np.testing.assert_allclose(by_step(data.log_prob, batch), wanted.detach(), atol=1e-5)
    going = ~batch["terminated"]
    np.testing.assert_allclose(
        algorithm._next_values(batch, by_step(data.value, batch))[going], following[going], atol=1e-5
    )
    # And what `act` says of the same steps, one by one, with the state handed back and forth.
    state = _tree(lambda part: part[0], batch["state"])
    for t in range(len(batch["reward"])):
        out = algorithm.act(batch["obs"][t], state, explore=False, rng=np.random.default_rng(0))
        log_prob, _ = algorithm._log_prob(batch["obs"][t], batch["action"][t], None, state)
        np.testing.assert_allclose(log_prob, by_step(data.log_prob, batch)[t], atol=1e-5)
        state = replace_rows(out.state, algorithm.initial_state(3), batch["terminated"][t] | batch["truncated"][t])


def test_noise_by_state_is_a_function_of_what_is_remembered():
    model = ModelSettings(recurrent="lstm", state_noise=True, log_std=-1.0, **BUILT)
    algorithm, batch = rollout(model, "Pendulum-v1")
    data = algorithm._prepare(batch)
    state = batch["state"]
    for t in (0, 11, 39):
        log_prob, _ = algorithm._log_prob(batch["obs"][t], batch["action"][t], None, state[t])
        np.testing.assert_allclose(log_prob, by_step(data.log_prob, batch)[t], rtol=1e-4)


@pytest.mark.parametrize("name", MODELS)
def test_gradients_are_those_of_autograd_through_whole_rollouts(name):
    """Ends of episodes inside a rollout stop gradients; nothing else does, as long as a sequence may be."""
    model = ModelSettings(**{**vars(MODELS[name]), "sequence": 100})
    algorithm, batch = rollout(model)
    algorithm.network.double()  # outside the flat vector from here on
    weight = torch.from_numpy(np.random.default_rng(0).normal(size=batch["reward"].shape))
    data = algorithm._prepare(
        {**batch, "obs": batch["obs"].astype(float), "state": _tree(lambda a: a.astype(float), batch["state"])}
    )
    data.obs = data.obs.astype(float)
    log_prob, entropy, value = algorithm._torch_forward(data)
    flat_weight = weight.T.reshape(-1)
    parameters = list(algorithm.network.parameters())
    found = torch.autograd.grad(((log_prob + 0.1 * entropy + value) * flat_weight).sum(), parameters)
    outputs, values, _ = walk(algorithm, batch, torch.float64)
    logs = torch.log_softmax(outputs, 2)
    chosen = logs.gather(2, torch.from_numpy(batch["action"])[:, :, None])[:, :, 0]
    entropies = -(logs.exp() * logs).sum(dim=2)
    wanted = torch.autograd.grad(((chosen + 0.1 * entropies + values) * weight).sum(), parameters)
    for one, other in zip(found, wanted, strict=True):
        torch.testing.assert_close(one, other, rtol=1e-8, atol=1e-10)


def test_sequences_cover_a_rollout_once_and_never_cross_an_end():
    rng = np.random.default_rng(0)
    for steps, rows, longest in ((1, 1, 1), (7, 3, 2), (30, 4, 8), (20, 2, 100)):
        done = rng.random((steps, rows)) < 0.2
        state = np.arange(steps * rows).reshape(steps, rows)  # t·N+n
        sequences = split_rollout(done, state, longest)
        assert sequences.length.sum() == steps * rows and sequences.length.max() <= longest
        chosen = rng.permutation(len(sequences))
        seen, parts = sequences.take(chosen)
        np.testing.assert_array_equal(np.sort(seen), np.arange(steps * rows))
        np.testing.assert_array_equal(parts.place.reshape(-1)[parts.at], np.arange(steps * rows))
        ended = done.T.reshape(-1)
        for number, (length, first) in enumerate(zip(parts.length, parts.state, strict=True)):
            run = seen[parts.place[:length, number]]
            assert run[0] == first % rows * steps + first // rows and (np.diff(run) == 1).all()
            assert not ended[run[:-1]].any()


def test_minibatches_are_whole_sequences():
    algorithm, batch = rollout(MODELS["lstm"])
    data = algorithm._prepare(batch)
    parts = algorithm._minibatches(data, None)
    assert sum(len(part) for part in parts) == len(data) == 120
    assert len(parts) == 2 and all(isinstance(part.sequences, Sequences) for part in parts)


def test_who_has_no_memory_says_so():
    with pytest.raises(UsageError, match=r"TD3 has no form with memory: leave model\.recurrent empty"):
        env = make_env("Pendulum-v1", 1)
        kind, _ = find_algorithm("td3")
        kind(env.single_observation_space, env.single_action_space, None, MODELS["lstm"])
    with pytest.raises(UsageError, match=r"model\.recurrent is 'ltsm' \(did you mean 'lstm'\?\)"):
        rollout(ModelSettings(recurrent="ltsm"))
    with pytest.raises(UsageError, match="a module of your own remembers if it has initial_state"):
        ModelSettings(recurrent="lstm", network=Counting)


def test_a_loaded_policy_hands_its_state_back_and_forth(tmp_path):
    config = {
        "total_steps": 120,
        "env": {"id": "CartPole-v1", "num_envs": 2},
        "algorithm": {"name": "ppo", "rollout": 30, "epochs": 1},
        "model": {"hidden": [8], "recurrent": "lstm", "recurrent_size": 8},
        "evaluation": {"episodes": 1, "every": 120},
    }
    train(config, root=tmp_path)
    policy, other = (load_policy("last", tmp_path) for _ in range(2))
    obs = seen = policy.env.reset(3)
    other.env.reset(3)
    state, ends = None, 0
    while ends < 3:
        action, state = other.act_from(seen, state)
        one, same = policy.play(obs), other.env.step(action)
        obs, seen = one.obs, same.obs
        np.testing.assert_array_equal(obs, seen)
        ends += int(one.done[0])
        state = None if one.done[0] else state
    with pytest.raises(UsageError, match="this policy has memory: act_from"):
        policy.act(obs)


@pytest.mark.parametrize(
    ("name", "of", "columns"),
    [("CartPole", "CartPole-v1", [0, 2]), ("Pendulum", "Pendulum-v1", [0, 1])],
)
def test_tasks_without_velocities_are_the_same_tasks(name, of, columns):
    told, whole = make_env(f"operant.envs.positions:{name}Positions", 3, seed=2), make_env(of, 3, seed=2)
    assert told.max_episode_steps == whole.max_episode_steps
    np.testing.assert_array_equal(told.reset(2), whole.reset(2)[:, columns])
    rng = np.random.default_rng(0)
    for _ in range(60):
        action = rng.integers(2, size=3) if name == "CartPole" else rng.uniform(-2, 2, size=(3, 1)).astype(np.float32)
        one, other = told.step(action), whole.step(action)
        np.testing.assert_array_equal(one.obs, other.obs[:, columns])
        np.testing.assert_array_equal(one.reward, other.reward)
        if other.final_obs is not None:
            np.testing.assert_array_equal(one.final_obs[one.done], other.final_obs[other.done][:, columns])


def test_middleware_learns_with_memory_from_trajectories():
    algorithm, _ = rollout(MODELS["lstm"])
    collector = Collector(make_env("CartPole-v1", 3, seed=0), algorithm, rng=np.random.default_rng(0))
    collector.reset(0)
    steps = collector.trajectory(20)
    assert steps[0]["state"].shape == (3, 20)
    metrics, _ = algorithm.learn(rollout_batch(steps))
    assert np.isfinite(metrics["policy_loss"])
    with pytest.raises(UsageError, match=r"let `learn` estimate them"):
        gae_estimator(algorithm, 0.9, 0.9)(Context(trajectory=steps))
