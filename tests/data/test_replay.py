"""The replay buffer against a slow reference that keeps every step as a Python object."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from operant.data import PrioritizedReplayBuffer, ReplayBuffer, prune_chunks
from operant.errors import OperantError, UsageError


@dataclass
class Transition:
    obs: float
    action: int
    reward: float
    terminated: bool
    truncated: bool
    next_obs: float
    continued: bool = True  # whether the next step of this environment begins where this one ended


class Stream:
    """Environments that end, are cut short and are reset from outside at random; no observation occurs twice."""

    def __init__(self, num_envs: int, seed: int, *, ends: float = 0.15, resets: float = 0.05) -> None:
        self.num_envs = num_envs
        self.rng = np.random.default_rng(seed)
        self.ends, self.resets = ends, resets
        self.fresh = 0
        self.now = [self.new() for _ in range(num_envs)]
        self.history: list[list[Transition]] = []

    def new(self) -> float:
        self.fresh += 1
        return float(self.fresh)

    def step(self) -> dict[str, Any]:
        row = []
        for env in range(self.num_envs):
            if self.history and self.rng.random() < self.resets:
                self.history[-1][env].continued = False
                self.now[env] = self.new()
            following = self.new()
            ended = self.rng.random(2) < self.ends
            step = Transition(
                self.now[env], int(self.rng.integers(5)), float(self.rng.integers(-8, 8)), *map(bool, ended), following
            )
            step.continued = not ended.any()
            self.now[env] = following if step.continued else self.new()
            row.append(step)
        self.history.append(row)
        return {
            "obs": {"a": np.array([[s.obs] for s in row], np.float32), "b": np.array([s.obs for s in row], np.float32)},
            "action": np.array([s.action for s in row]),
            "reward": np.array([s.reward for s in row]),
            "terminated": np.array([s.terminated for s in row]),
            "truncated": np.array([s.truncated for s in row]),
            "next_obs": {
                "a": np.array([[s.next_obs] for s in row], np.float32),
                "b": np.array([s.next_obs for s in row], np.float32),
            },
        }


def reference(stream: Stream, row: int, env: int, n_step: int, gamma: float) -> tuple[Transition, float, float]:
    """The last step of the n-step transition, its discounted reward and the discount of what follows."""
    total, discount = 0.0, 1.0
    for k in range(row, min(row + n_step, len(stream.history))):
        last = stream.history[k][env]
        total += discount * last.reward
        discount *= gamma
        if not last.continued:
            break
    return last, total, 0.0 if last.terminated else discount


def every_slot(buffer: ReplayBuffer) -> np.ndarray[Any, Any]:
    return buffer._oldest_first(np.arange(len(buffer)))


@given(
    num_envs=st.integers(1, 4),
    rows=st.integers(1, 12),
    steps=st.integers(1, 40),
    n_step=st.integers(1, 6),
    gamma=st.sampled_from([0.0, 0.5, 0.9, 1.0]),
    ends=st.sampled_from([0.0, 0.1, 0.5]),
    seed=st.integers(0, 10_000),
)
@settings(max_examples=150)
def test_n_step_transitions_are_those_of_the_reference(
    num_envs: int, rows: int, steps: int, n_step: int, gamma: float, ends: float, seed: int
) -> None:
    stream = Stream(num_envs, seed, ends=ends)
    buffer = ReplayBuffer(rows * num_envs, num_envs, n_step=n_step, gamma=gamma)
    for _ in range(steps):
        buffer.add(**stream.step())
    kept = min(rows, steps)
    assert len(buffer) == kept * num_envs
    batch = buffer.transitions(every_slot(buffer))
    for i in range(len(buffer)):
        row, env = steps - kept + i // num_envs, i % num_envs
        first = stream.history[row][env]
        last, total, discount = reference(stream, row, env, n_step, gamma)
        assert batch["generation"][i] == row
        assert (batch["obs"]["a"][i, 0], batch["obs"]["b"][i]) == (first.obs, first.obs)
        assert batch["action"][i] == first.action
        assert batch["reward"][i] == pytest.approx(total, rel=1e-6, abs=1e-6)
        assert batch["discount"][i] == pytest.approx(discount, rel=1e-6)
        assert (batch["next_obs"]["a"][i, 0], batch["next_obs"]["b"][i]) == (last.next_obs, last.next_obs)
        assert (batch["terminated"][i], batch["truncated"][i]) == (last.terminated, last.truncated)


@pytest.mark.parametrize("kind", [ReplayBuffer, PrioritizedReplayBuffer])
def test_sequences_are_drawn_from_all_that_is_stored(kind: type[ReplayBuffer]) -> None:
    stream = Stream(2, 5)
    buffer = kind(40, 2, gamma=0.9)
    for _ in range(30):
        buffer.add(**stream.step())
    rng = np.random.default_rng(0)
    batch = buffer.sample_sequences(400, 3, rng, burn_in=2)
    assert batch["mask"].shape == (5, 400) and batch["mask"][2].all(), "the step that was drawn is in place"
    again = buffer.sequences(batch["index"], 3, burn_in=2)
    for name in ("reward", "mask", "first", "generation"):
        np.testing.assert_array_equal(batch[name], again[name])
    assert len(set(batch["index"].tolist())) == len(buffer), "each of the forty is drawn sooner or later"
    if kind is PrioritizedReplayBuffer:
        buffer.update_priorities(batch["index"], np.full(400, 1e-3), batch["generation"])
        buffer.update_priorities(batch["index"][:1], np.array([1e6]), batch["generation"][:1])
        drawn = buffer.sample_sequences(200, 3, rng)
        often = drawn["index"] == batch["index"][0]
        assert often.mean() > 0.9
        assert drawn["weight"][often].max() <= drawn["weight"].min() + 1e-6, "what is drawn often weighs least"


@given(
    num_envs=st.integers(1, 3),
    rows=st.integers(1, 12),
    steps=st.integers(1, 40),
    length=st.integers(1, 6),
    burn_in=st.integers(0, 4),
    seed=st.integers(0, 10_000),
)
@settings(max_examples=100)
def test_sequences_stay_within_an_episode(
    num_envs: int, rows: int, steps: int, length: int, burn_in: int, seed: int
) -> None:
    stream = Stream(num_envs, seed)
    buffer = ReplayBuffer(rows * num_envs, num_envs, gamma=0.9)
    for _ in range(steps):
        buffer.add(**stream.step())
    oldest = steps - min(rows, steps)
    batch = buffer.sequences(every_slot(buffer), length, burn_in=burn_in)
    assert batch["reward"].shape == (burn_in + length, len(buffer))
    for i in range(len(buffer)):
        anchor, env = oldest + i // num_envs, i % num_envs
        begin = anchor
        while begin > max(oldest, anchor - burn_in) and stream.history[begin - 1][env].continued:
            begin -= 1
        end = anchor + 1
        while end < min(steps, anchor + length) and stream.history[end - 1][env].continued:
            end += 1
        expected = [begin <= anchor + t - burn_in < end for t in range(burn_in + length)]
        assert batch["mask"][:, i].tolist() == expected
        assert batch["first"][:, i].tolist() == [anchor + t - burn_in == begin for t in range(burn_in + length)]
        for t in np.flatnonzero(batch["mask"][:, i]):
            step = stream.history[anchor + int(t) - burn_in][env]
            assert batch["obs"]["b"][t, i] == step.obs
            assert batch["next_obs"]["b"][t, i] == step.next_obs
            assert batch["reward"][t, i] == step.reward
            assert batch["discount"][t, i] == pytest.approx(0.0 if step.terminated else 0.9)


def test_uniform_draws_reach_every_step_equally_often() -> None:
    stream = Stream(3, 0)
    buffer = ReplayBuffer(30, 3)
    for _ in range(17):
        buffer.add(**stream.step())
    batch = buffer.sample(30_000, np.random.default_rng(0))
    _, counts = np.unique(batch["obs"]["b"], return_counts=True)
    assert counts.size == 30
    assert abs(counts - 1000).max() < 5 * np.sqrt(1000)


def test_flags_may_be_numbers_and_extras_come_back() -> None:
    buffer = ReplayBuffer(10, 2)
    for row in range(12):
        obs = np.full((2, 1), row, np.float32)
        hidden = {"h": np.full((2, 3), row, np.float32)}
        buffer.add(
            obs, np.zeros((2, 2)), [1, 2], [row % 3 == 2, 0], np.array([0.0, row % 4 == 3]), obs + 1, state=hidden
        )
    batch = buffer.transitions(every_slot(buffer))
    np.testing.assert_array_equal(batch["state"]["h"], np.repeat(batch["obs"], 3, axis=1))
    np.testing.assert_array_equal(batch["next_obs"], batch["obs"] + 1)
    assert (batch["discount"] == 0).tolist() == [row % 3 == 2 and env == 0 for row in range(7, 12) for env in range(2)]
    assert (batch["action"].dtype, batch["terminated"].dtype) == (np.float32, np.bool_)


def test_memory_for_last_observations_is_used_again() -> None:
    stream = Stream(2, 0, ends=0.9)
    buffer = ReplayBuffer(20, 2)
    for _ in range(2000):
        buffer.add(**stream.step())
    assert len(buffer._finals["obs/b"]) <= 64


def test_mistakes_are_named() -> None:
    with pytest.raises(UsageError, match="holds not one step of 8"):
        ReplayBuffer(4, 8)
    buffer = ReplayBuffer(4, 1)
    with pytest.raises(UsageError, match="empty"):
        buffer.sample(1, np.random.default_rng(0))
    step = Stream(1, 0).step()
    with pytest.raises(UsageError, match=r"fields \['mask', 'weight'\]"):
        buffer.add(**step, weight=np.zeros(1), mask=np.zeros(1))
    buffer.add(**step)
    with pytest.raises(UsageError, match="no field 'log_prob'"):
        buffer.add(**step, log_prob=np.zeros(1))
    with pytest.raises(UsageError, match=r"lacks \['obs/a'\]"):
        buffer.add(**(step | {"obs": {"b": step["obs"]["b"]}, "next_obs": {"b": step["obs"]["b"]}}))


# Checkpoints.

KINDS: list[Callable[[], ReplayBuffer]] = [
    lambda: ReplayBuffer(600, 2, n_step=3),
    lambda: PrioritizedReplayBuffer(600, 2, n_step=3),
]


def use(buffer: ReplayBuffer, stream: Stream, rng: np.random.Generator, steps: int) -> list[dict[str, Any]]:
    """Add and learn as a trainer does."""
    drawn = []
    for i in range(steps):
        buffer.add(**stream.step())
        if i % 7 == 0:
            batch = buffer.sample(16, rng)
            buffer.update_priorities(batch["index"], rng.random(16), batch["generation"])
            drawn.append(batch)
    return drawn


@pytest.mark.parametrize("make", KINDS)
@pytest.mark.parametrize("before", [0, 1, 5, 6, 299, 301, 1000])
def test_a_loaded_buffer_goes_on_exactly(make: Callable[[], ReplayBuffer], before: int, tmp_path: Path) -> None:
    buffer, stream, rng = make(), Stream(2, 1), np.random.default_rng(1)
    use(buffer, stream, rng, before)
    manifest = json.loads(json.dumps(buffer.save_chunks(tmp_path)))
    resumed = make()
    resumed.load(tmp_path, manifest)
    assert len(resumed) == len(buffer)
    twin, twin_rng = Stream(2, 1), np.random.default_rng(1)
    use(make(), twin, twin_rng, before)
    went_on, resumed_on = use(buffer, stream, rng, 700), use(resumed, twin, twin_rng, 700)
    for a, b in zip(went_on, resumed_on, strict=True):
        np.testing.assert_equal(a, b)


def test_a_checkpoint_writes_only_what_is_new(tmp_path: Path) -> None:
    buffer, stream = ReplayBuffer(64_000, 1), Stream(1, 0)
    for _ in range(10_500):
        buffer.add(**stream.step())
    first = buffer.save_chunks(tmp_path)
    stamps = {path.name: path.stat().st_mtime_ns for path in tmp_path.iterdir()}
    for _ in range(1_000):
        buffer.add(**stream.step())
    second = buffer.save_chunks(tmp_path)
    new = [path for path in tmp_path.iterdir() if path.name not in stamps]
    assert all(path.stat().st_mtime_ns == stamps[path.name] for path in tmp_path.iterdir() if path.name in stamps)
    assert len(new) == 3  # one chunk, the rows after it, the pending observation
    assert prune_chunks(tmp_path, [first, second]) == 0
    assert prune_chunks(tmp_path, [second]) == 2
    ReplayBuffer(64_000, 1).load(tmp_path, second)
    with pytest.raises(OperantError, match="missing"):
        ReplayBuffer(64_000, 1).load(tmp_path, first)


def test_two_branches_of_one_run_share_a_folder(tmp_path: Path) -> None:
    buffer, stream = ReplayBuffer(640, 1), Stream(1, 0)
    for _ in range(55):
        buffer.add(**stream.step())
    start = buffer.save_chunks(tmp_path)
    ends = []
    for seed in (1, 2):
        branch, other = ReplayBuffer(640, 1), Stream(1, seed)
        branch.load(tmp_path, start)
        for _ in range(100):
            branch.add(**other.step())
        ends.append((branch.save_chunks(tmp_path), branch.transitions(every_slot(branch))))
    for manifest, expected in ends:
        loaded = ReplayBuffer(640, 1)
        loaded.load(tmp_path, manifest)
        np.testing.assert_equal(loaded.transitions(every_slot(loaded)), expected)


def test_damaged_and_foreign_files_are_named(tmp_path: Path) -> None:
    buffer, stream = ReplayBuffer(640, 1), Stream(1, 0)
    for _ in range(55):
        buffer.add(**stream.step())
    manifest = buffer.save_chunks(tmp_path)
    path = tmp_path / manifest["chunks"][0]["file"]
    whole = path.read_bytes()
    for damaged in (whole[: len(whole) // 2], b"", whole.replace(whole[300:308], b"\xff" * 8)):
        path.write_bytes(damaged)
        with pytest.raises(OperantError, match=f"{path.name} is damaged"):
            ReplayBuffer(640, 1).load(tmp_path, manifest)
    path.write_bytes(whole)
    with pytest.raises(OperantError, match="no name of such a file"):
        ReplayBuffer(640, 1).load(tmp_path, manifest | {"pending": "../secrets.npz"})
    np.savez(path, allow_pickle=False, something=np.zeros(3))
    with pytest.raises(OperantError, match="does not fit its checkpoint"):
        ReplayBuffer(640, 1).load(tmp_path, manifest)
    with pytest.raises(UsageError, match="rows=640, this one 64"):
        ReplayBuffer(64, 1).load(tmp_path, manifest)
