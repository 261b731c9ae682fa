"""A3C's gradients and Ape-X's exploration."""

from __future__ import annotations

import numpy as np
import pytest
from gymnasium import spaces

from operant.algorithms.a3c import A3C, A3CSettings
from operant.algorithms.apex import ApexDDPG, ApexDQN, levels
from operant.errors import UsageError
from operant.models.settings import ModelSettings
from operant.testing import AlgorithmContract
from operant.training.collecting import Collector, Rollout

DISCRETE = AlgorithmContract.envs[:3]
CONTINUOUS = ("operant.envs.identity:ContinuousIdentity", "Pendulum-v1")
REPLAY = {"train_every": 6, "learning_starts": 12, "batch": 8, "buffer": 200}
SPACES = spaces.Box(-1, 1, (3,), np.float32), spaces.Discrete(3)


@pytest.mark.parametrize("fused", [True, False])
def test_a_gradient_from_elsewhere_is_learned_from_like_its_rollout(fused):
    from operant.envs import make_env

    here, worker, server = (
        A3C(*SPACES, A3CSettings(entropy_weight=0.01), ModelSettings(hidden=(8,), fused=fused), seed)
        for seed in (1, 2, 1)
    )
    worker.load_weights(here.weights())
    collector = Collector(make_env("operant.envs.identity:DiscreteIdentity", 4), here, rng=np.random.default_rng(0))
    collector.reset(0)
    rollout = Rollout(collector, 5).collect()
    before = worker.weights()
    sent = worker.digest(rollout)
    assert all(np.array_equal(before[name], value) for name, value in worker.weights().items())
    metrics, _ = server.learn(sent)
    here.learn(rollout)
    assert metrics["entropy"] > 0.0
    for name, value in here.weights().items():
        np.testing.assert_array_equal(value, server.weights()[name])


def test_levels_are_a_ladder_over_all_environments():
    np.testing.assert_allclose(
        np.concatenate([levels(0.4, 0.4**8, worker, 2, 2) for worker in range(2)]),
        [0.4 ** (1 + 7 * place / 3) for place in range(4)],
    )
    np.testing.assert_allclose(levels(2.0, 0.5, 0, 1, 1), [2.0])


def test_each_environment_explores_at_its_own_level():
    policy = ApexDQN(*SPACES)
    policy.explore_as(0, 2)
    obs, rng = np.zeros((2, 3), np.float32), np.random.default_rng(0)
    greedy = policy.act(obs, explore=False, rng=rng).action
    drawn = np.array([policy.act(obs, explore=True, rng=rng).action != greedy for _ in range(3000)])
    # A third of random actions are the greedy one.
    wanted = [0.4 * 2 / 3, 0.4 ** (1 + 7 / 3) * 2 / 3]
    np.testing.assert_allclose(drawn.mean(axis=0), wanted, atol=0.03)
    with pytest.raises(UsageError, match="noise on actions"):
        ApexDDPG.Settings(noise="parameter")


class TestA3C(AlgorithmContract):
    name = "a3c"


class TestApexDQN(AlgorithmContract):
    name = "apex_dqn"
    settings = {**REPLAY, "target_every": 20}  # noqa: RUF012
    envs = DISCRETE


class TestApexDDPG(AlgorithmContract):
    name = "apex_ddpg"
    settings = REPLAY
    envs = CONTINUOUS
