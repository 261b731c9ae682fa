"""Replay that processes of its own hold."""

from __future__ import annotations

import os
import signal
from pathlib import Path
from typing import Any

import numpy as np
import psutil
import pytest
from tests.machine import spawned
from tests.training.test_remote import DQN, Killer, config, root

from operant.data import PrioritizedReplayBuffer
from operant.errors import UsageError
from operant.tracking import Run
from operant.training import load_config, resume, train
from operant.training.shards import put_together, share_out

__all__ = ["root"]  # a fixture
APEX = {**DQN, "name": "apex_dqn"}


def filled(capacity: int, rows: int, seed: int) -> PrioritizedReplayBuffer:
    rng = np.random.default_rng(seed)
    buffer = PrioritizedReplayBuffer(capacity, 1, alpha=1.0, epsilon=0.0, jit=False)
    for number in range(rows):
        obs = np.array([[seed, number]], np.float32)
        none = np.zeros(1, bool)
        buffer.add(obs, np.zeros(1, np.int64), np.zeros(1, np.float32), none, none, obs + 1.0)
    drawn = buffer.transitions(np.arange(rows))
    buffer.update_priorities(drawn["index"], rng.uniform(0.1, 3.0, rows), drawn["generation"])
    return buffer


def test_a_batch_of_shards_is_drawn_and_weighed_as_from_one_buffer() -> None:
    shards, rng, size, beta = [filled(64, 60, 0), filled(64, 20, 1)], np.random.default_rng(2), 16, 0.7
    masses = [one.mass for one in shards]
    times = [np.zeros(60), np.zeros(20)]
    rounds = 500
    for _ in range(rounds):
        for seen, shard, count in zip(times, shards, share_out(masses, size, rng), strict=True):
            if count:
                np.add.at(seen, shard.sample(count, rng)["obs"][:, 1].astype(int), 1)
    for seen, shard in zip(times, shards, strict=True):
        expected = rounds * size * shard.masses(np.arange(len(seen))) / sum(masses)
        np.testing.assert_allclose(seen, expected, rtol=0.6)
        assert seen.sum() == pytest.approx(expected.sum(), rel=0.03)
    parts = [
        {"obs": one.sample(4, rng)["obs"], "mass": one.masses(np.arange(4)), "index": np.arange(4)} for one in shards
    ]
    batch = put_together([dict(part) for part in parts], sum(masses), beta)
    probability = np.concatenate([part["mass"] for part in parts]) / sum(masses)
    weight = (80 * probability) ** -beta
    np.testing.assert_allclose(batch["weight"], weight / weight.max(), rtol=1e-5)


def test_late_priorities_of_steps_that_were_overwritten_are_left_alone() -> None:
    buffer = filled(16, 16, 0)
    drawn = buffer.sample(8, np.random.default_rng(0))
    for number in range(16):  # while somebody learned from them
        obs = np.array([[9, number]], np.float32)
        none = np.zeros(1, bool)
        buffer.add(obs, np.zeros(1, np.int64), np.zeros(1, np.float32), none, none, obs + 1.0)
    before = buffer.mass
    buffer.update_priorities(drawn["index"], np.full(8, 1000.0), drawn["generation"])
    assert buffer.mass == before


class ShardKiller(Killer):
    def point(self, step: int, rate: float, mean: float) -> None:
        self.left -= 1
        if self.left == 0:
            # Workers are started before shards.
            newest = sorted(spawned(), key=lambda one: psutil.Process(one.pid).create_time())
            os.kill(newest[-1].pid, signal.SIGKILL)


def settings(steps: int, **other: Any) -> dict[str, Any]:
    return config(APEX, steps, replay_shards=2, **other)


@pytest.mark.long
def test_shards_hold_replay_and_the_loss_of_one_is_told(root: Path) -> None:
    looking_on = ShardKiller(after=60)
    result = train(settings(8_000), observer=looking_on, root=root)
    assert result.final_return >= 18.0
    run = Run.open(result.run_id, root)
    told = [one for one in looking_on.said_sentences if "of replay is replaced" in one]
    assert len(told) == 1 and "steps in it are lost" in told[0] and run.latest("workers/lost").value > 0
    assert run.latest("replay/ratio").value == pytest.approx(16.0, abs=2.5)
    rows = [run.latest(f"replay/{shard}/rows").value for shard in (0, 1)]
    assert all(one > 0 for one in rows) and sum(rows) <= result.steps
    more = resume(result.run_id, [f"total_steps={result.steps + 500}", "evaluation.every=20000"], root=root)
    saved = [run.latest(f"replay/{shard}/rows").value for shard in (0, 1)]
    assert more.final_return >= 18.0 and sum(saved) >= sum(rows)  # what was saved came back
    assert not spawned()


def test_shards_that_make_no_sense_are_refused() -> None:
    with pytest.raises(UsageError, match="and workers that fill them"):
        load_config("cartpole-dqn", ["replay_shards=2"])
    with pytest.raises(UsageError, match="learn from replay"):
        load_config("cartpole-ppo", ["replay_shards=2", "workers=2"])
