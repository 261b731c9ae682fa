"""Learners that make each update together, each from its own rows: as one that has all of them."""

from __future__ import annotations

import threading
from typing import Any

import gymnasium
import numpy as np
import pytest

from operant.algorithms import PPO, PPOSettings
from operant.data.batches import merge_rollouts
from operant.models import ModelSettings

STEPS, WIDTHS = 12, (3, 5)


class Threads:
    """A team of threads of this process."""

    def __init__(self, size: int) -> None:
        self.size, self._given, self._barrier = size, dict[int, Any](), threading.Barrier(size, timeout=60)

    def member(self, rank: int) -> Any:
        team = self

        class Member:
            size = team.size

            def __init__(self) -> None:
                self.rank = rank

            def total(self, values: Any) -> Any:
                team._given[rank] = values
                team._barrier.wait()
                result = team._given[0].copy()
                for other in range(1, team.size):
                    result += team._given[other]
                team._barrier.wait()
                return result

        return Member()


def rollout(width: int, seed: int) -> dict[str, Any]:
    rng = np.random.default_rng(seed)
    truncated = rng.random((STEPS, width)) < 0.1
    at = np.flatnonzero(truncated.reshape(-1))
    return {
        "obs": rng.normal(size=(STEPS + 1, width, 4)).astype(np.float32),
        "action": rng.integers(2, size=(STEPS, width)),
        "reward": rng.normal(size=(STEPS, width)).astype(np.float32),
        "terminated": (rng.random((STEPS, width)) < 0.1) & ~truncated,
        "truncated": truncated,
        "final_obs": rng.normal(size=(len(at), 4)).astype(np.float32) if len(at) else np.zeros((0, 0), np.float32),
        "final_at": at,
        "mask": None,
    }


def ppo(settings: PPOSettings, fused: bool) -> PPO:
    space = gymnasium.spaces.Box(-1.0, 1.0, (4,), np.float32)
    model = ModelSettings(hidden=(16, 16), fused=fused)
    return PPO(space, gymnasium.spaces.Discrete(2), settings, model, seed=3)


@pytest.mark.parametrize("fused", [True, False])
@pytest.mark.parametrize(
    "settings",
    [
        PPOSettings(minibatch=20, epochs=3),
        PPOSettings(minibatch=7, epochs=2, normalize_advantage=False),  # the last minibatch has 5 rows
        PPOSettings(minibatch=1000, epochs=4),
        PPOSettings(minibatch=2, epochs=1),  # minibatches of which a learner has no row
        PPOSettings(minibatch=20, epochs=20, learning_rate=0.01, target_kl=0.001),
    ],
    ids=["minibatches", "uneven", "whole", "tiny", "target_kl"],
)
def test_an_update_together_is_that_of_one_with_all_rows(settings: PPOSettings, fused: bool) -> None:
    parts = [[rollout(width, 10 * round_ + rank) for rank, width in enumerate(WIDTHS)] for round_ in range(2)]
    alone = ppo(settings, fused)
    told = [alone.learn(merge_rollouts(both))[0] for both in parts]
    team, members = Threads(2), [ppo(settings, fused) for _ in WIDTHS]
    metrics: dict[int, Any] = {}

    def learn(rank: int) -> None:
        members[rank].team = team.member(rank)
        metrics[rank] = [members[rank].learn(both[rank])[0] for both in parts]

    threads = [threading.Thread(target=learn, args=(rank,)) for rank in range(2)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    first, second, expected = (one.weights() for one in (*members, alone))
    before = ppo(settings, fused).weights()
    for name, value in expected.items():
        np.testing.assert_array_equal(first[name], second[name])
        np.testing.assert_allclose(first[name], value, atol=3e-5)
    assert any(np.abs(expected[name] - before[name]).max() > 1e-3 for name in before)
    assert [one["updates"] for one in metrics[0]] == [one["updates"] for one in told]
    if settings.target_kl is not None:
        assert told[0]["updates"] < 20 * 5
