"""Given the random numbers that Stable-Baselines3 draws, a training of ours is one of its own: each step, each update.

What is replaced here is which numbers are drawn (first weights, actions, minibatches), and nothing else.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest
import torch
from stable_baselines3 import DQN, PPO
from stable_baselines3.common.callbacks import BaseCallback
from stable_baselines3.common.env_util import make_vec_env

from operant.envs import make_env
from operant.training.collecting import Collector
from operant.training.config import TrainConfig
from operant.training.making import make_algorithm
from operant.training.sources import Source, make_source

Episodes = list[tuple[int, float, int]]
SEED = 3
ENV = {"id": "CartPole-v1", "max_episode_steps": 30}  # so short that many episodes are truncated


@pytest.fixture(autouse=True)
def _global_numbers() -> Iterator[None]:
    """SB3 seeds the generators of the whole process and draws from them."""
    before = np.random.get_state()
    with torch.random.fork_rng(devices=[]):
        yield
    np.random.set_state(before)


class Ended(BaseCallback):
    """When training episodes ended, their returns and lengths."""

    def __init__(self) -> None:
        super().__init__()
        self.episodes: Episodes = []

    def _on_step(self) -> bool:
        for info in self.locals["infos"]:
            if "episode" in info:
                self.episodes.append((self.num_timesteps, float(info["episode"]["r"]), int(info["episode"]["l"])))
        return True


def train_theirs(model: Any, steps: int) -> Episodes:
    """Train; the generators of the process are then again as they were before."""
    numbers, more = np.random.get_state(), torch.get_rng_state()
    ended = Ended()
    model.learn(steps, callback=ended)
    np.random.set_state(numbers)
    torch.set_rng_state(more)
    return ended.episodes


def make_ours(num_envs: int, **config: Any) -> Source:
    arguments = {name: value for name, value in ENV.items() if name != "id"}
    env = make_env(ENV["id"], num_envs, seed=SEED, vectorized=False, **arguments)
    about = {"id": ENV["id"], "num_envs": num_envs, "arguments": arguments}
    algorithm = make_algorithm(env, TrainConfig.from_mapping({"env": about, "seed": SEED, **config}))
    collector = Collector(env, algorithm, rng=np.random.default_rng(0))
    return make_source(algorithm, collector, np.random.default_rng(0))


def train_ours(source: Source, steps: int) -> Episodes:
    episodes: Episodes = []
    env, made = source.collector.env, [0]
    plain = env.step

    def step(actions: Any) -> Any:
        made[0] += env.num_envs
        found = plain(actions)
        ended = found.episodes
        if ended is not None:
            episodes.extend((made[0], float(r), int(n)) for r, n in zip(ended.returns, ended.lengths, strict=True))
        return found

    env.step = step  # type: ignore[method-assign]
    source.collector.reset(SEED)
    while source.collector.env_step < steps:
        source.learn(source.collect(steps), steps)
    return episodes


@pytest.mark.parametrize("fused", [True, False])
def test_ppo(fused: bool) -> None:
    rows, rollout, minibatch, steps = 4, 64, 32, 2048
    model = PPO(
        "MlpPolicy",
        make_vec_env(ENV["id"], rows, SEED, env_kwargs={"max_episode_steps": 30}),
        n_steps=rollout,
        batch_size=minibatch,
        n_epochs=4,
        gamma=0.999,
        gae_lambda=0.98,
        ent_coef=0.01,
        seed=SEED,
        device="cpu",
    )
    theirs = dict(model.policy.named_parameters())
    pairs = {
        f"{network}.{layer}.{kind}": theirs[f"{head}.{kind}" if layer == 4 else f"mlp_extractor.{body}.{layer}.{kind}"]
        for network, body, head in (("actor", "policy_net", "action_net"), ("critic", "value_net", "value_net"))
        for layer in (0, 2, 4)
        for kind in ("weight", "bias")
    }
    source = make_ours(
        rows,
        algorithm={
            "name": "ppo", "rollout": rollout, "minibatch": minibatch, "epochs": 4, "gamma": 0.999, "gae_lambda": 0.98,
            "entropy_weight": 0.01,
        },
        model={"hidden": [64, 64], "activation": "tanh", "fused": fused},
    )  # fmt: skip
    algorithm: Any = source.algorithm
    algorithm.load_weights({name: parameter.detach().numpy() for name, parameter in pairs.items()})

    def choose(logits: Any, _noise: Any) -> Any:
        return torch.distributions.Categorical(logits=torch.from_numpy(logits)).sample().numpy()

    def in_parts(count: int, minibatch: int) -> Any:
        place = np.random.permutation(count)
        order = place % rollout * rows + place // rollout  # SB3 has the steps of an environment side by side
        return np.split(order, count // minibatch)

    algorithm._head.choose, algorithm._in_parts = choose, in_parts
    expected = train_theirs(model, steps)
    assert len(expected) > 60 and any(length == 30 for _, _, length in expected)
    assert train_ours(source, steps) == expected
    for name, weight in algorithm.weights().items():
        np.testing.assert_allclose(weight, pairs[name].detach().numpy(), atol=2e-3, err_msg=name)


@pytest.mark.parametrize("fused", [True, False])
def test_dqn(fused: bool) -> None:
    steps = 800
    model = DQN(
        "MlpPolicy",
        make_vec_env(ENV["id"], 1, SEED, env_kwargs={"max_episode_steps": 30}),
        learning_rate=1e-3,
        batch_size=32,
        buffer_size=2000,
        learning_starts=0,
        target_update_interval=50,
        train_freq=4,
        gradient_steps=-1,
        exploration_fraction=0.5,
        exploration_final_eps=0.1,
        policy_kwargs={"net_arch": [64, 64]},
        seed=SEED,
        device="cpu",
    )
    source: Any = make_ours(
        1,
        algorithm={
            "name": "dqn", "learning_rate": 1e-3, "batch": 32, "buffer": 2000, "learning_starts": 0, "target_every": 50,
            "train_every": 4, "updates": 0, "double": False, "exploration_fraction": 0.5, "exploration_end": 0.1,
        },
        model={"hidden": [64, 64], "activation": "relu", "orthogonal": False, "fused": fused},
    )  # fmt: skip
    algorithm: Any = source.algorithm
    pairs = dict(zip(algorithm.weights(), model.q_net.parameters(), strict=True))
    algorithm.load_weights({name: parameter.detach().numpy() for name, parameter in pairs.items()})
    algorithm._copy_to_target(1.0)
    any_action = np.random.default_rng(0)
    shares = iter([0.0])  # SB3 has no share of random actions yet when it makes its first step

    def explore(obs: Any, _rng: Any, _rows: int, mask: Any, _epsilon: Any) -> Any:
        if np.random.rand() < next(shares, algorithm._epsilon):
            return any_action.integers(2, size=1)
        return algorithm._greedy(algorithm._exploring_q, obs, mask)

    def draw(count: int, _rng: Any) -> Any:
        chosen = np.random.randint(0, len(source.buffer), size=count)
        np.random.randint(0, 1, size=count)  # of which environment
        return chosen

    algorithm._explore, source.buffer.draw = explore, draw
    theirs = np.random.default_rng(0)
    model.action_space.sample = lambda: int(theirs.integers(2))
    expected = train_theirs(model, steps)
    assert len(expected) > 20
    assert train_ours(source, steps) == expected
    for name, weight in algorithm.weights().items():
        np.testing.assert_allclose(weight, pairs[name].detach().numpy(), atol=2e-3, err_msg=name)
