"""Draws in proportion to priority, and priorities that arrive late."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from operant.data import PrioritizedReplayBuffer, SumTree
from operant.errors import UsageError


def fill(buffer: PrioritizedReplayBuffer, rows: int, first: int = 0) -> None:
    for row in range(first, first + rows):
        obs = np.full((buffer.num_envs, 1), float(row), np.float32)
        nothing = np.zeros(buffer.num_envs, np.bool_)
        number = np.arange(buffer.num_envs) + row * buffer.num_envs
        buffer.add(obs, number, np.zeros(buffer.num_envs), nothing, nothing, obs + 1)


@given(size=st.integers(1, 3000), seed=st.integers(0, 1000), zeros=st.floats(0.0, 0.95))
@settings(max_examples=60)
def test_the_sum_tree_finds_what_a_running_sum_finds(size: int, seed: int, zeros: float) -> None:
    rng = np.random.default_rng(seed)
    tree, weights = SumTree(size), np.zeros(size)
    for _ in range(4):
        index = rng.integers(size, size=rng.integers(1, 200))
        new = np.where(rng.random(index.size) < zeros, 0.0, rng.integers(1, 50, index.size)).astype(float)
        tree.set(index, new)
        for i, weight in zip(index, new, strict=True):
            weights[i] = weight
    weights[0] = 3.0
    tree.set(np.array([0]), 3.0)
    np.testing.assert_array_equal(tree.weights(), weights)
    assert tree.total == weights.sum()
    mass = rng.random(500) * weights.sum()
    found, weight = tree.find(mass)
    np.testing.assert_array_equal(weight, weights[found])
    np.testing.assert_array_equal(found, np.searchsorted(np.cumsum(weights), mass, side="right"))


@given(seed=st.integers(0, 1000))
@settings(max_examples=60)
def test_rounding_never_finds_a_leaf_without_weight(seed: int) -> None:
    rng = np.random.default_rng(seed)
    weights = np.where(rng.random(700) < 0.5, 0.0, 10.0 ** rng.uniform(-12, 6, 700))
    weights[5] = 1.0
    tree = SumTree(700)
    tree.load(weights)
    edges = np.concatenate([np.cumsum(weights), [0.0, tree.total, np.nextafter(tree.total, np.inf)]])
    found, weight = tree.find(np.concatenate([edges, np.nextafter(edges, 0), np.nextafter(edges, np.inf)]))
    assert (found < 700).all()
    assert (weight > 0).all()
    np.testing.assert_array_equal(weight, weights[found])


def test_draws_are_in_proportion_to_priorities() -> None:
    buffer = PrioritizedReplayBuffer(200, 2, alpha=0.7, epsilon=0.0)
    fill(buffer, 130)
    rng = np.random.default_rng(0)
    everything = buffer.transitions(buffer._oldest_first(np.arange(200)))
    priority = rng.random(200) * 10
    buffer.update_priorities(everything["index"], priority, everything["generation"])
    counts = np.zeros(260)
    for _ in range(400):
        np.add.at(counts, buffer.sample(100, rng)["action"], 1)
    expected = np.zeros(260)
    expected[everything["action"]] = 40_000 * priority**0.7 / (priority**0.7).sum()
    assert counts[expected == 0].sum() == 0
    assert (np.abs(counts - expected) < 5 * np.sqrt(expected) + 1e-9).all()


def test_weights_undo_the_bias() -> None:
    buffer = PrioritizedReplayBuffer(100, alpha=1.0, beta=1.0, epsilon=0.0)
    fill(buffer, 100)
    batch = buffer.transitions(buffer._oldest_first(np.arange(100)))
    priority = np.linspace(1, 10, 100)
    buffer.update_priorities(batch["index"], priority, batch["generation"])
    drawn = buffer.sample(50, np.random.default_rng(0))
    # With beta = 1 the weight is 1 / P(i), up to the largest of the batch.
    products = drawn["weight"] * priority[drawn["action"]]
    np.testing.assert_allclose(products, products[0], rtol=1e-6)
    assert drawn["weight"].max() == 1.0


def test_priorities_of_overwritten_steps_are_ignored() -> None:
    buffer = PrioritizedReplayBuffer(10, epsilon=0.0)
    fill(buffer, 10)
    old = buffer.sample(10, np.random.default_rng(0))
    fill(buffer, 6, first=10)
    buffer.update_priorities(old["index"], np.zeros(10), old["generation"])
    drawn = buffer.sample(2000, np.random.default_rng(1))["action"]
    # 6 to 9 are still the steps that were drawn and have priority 0 now; 10 to 15 are new and untouched.
    assert set(drawn.tolist()) == set(range(10, 16))


def test_new_steps_come_with_the_highest_priority() -> None:
    buffer = PrioritizedReplayBuffer(100, alpha=1.0, epsilon=0.0)
    fill(buffer, 50)
    batch = buffer.sample(50, np.random.default_rng(0))
    buffer.update_priorities(batch["index"], np.full(50, 99.0), batch["generation"])
    fill(buffer, 50, first=50)
    drawn = buffer.sample(1000, np.random.default_rng(1))["action"]
    assert (drawn >= 50).mean() == pytest.approx(0.5, abs=0.02)


@pytest.mark.parametrize("bad", [np.nan, np.inf, -1.0])
def test_priorities_that_are_no_priorities_are_refused(bad: float) -> None:
    buffer = PrioritizedReplayBuffer(10)
    fill(buffer, 10)
    batch: dict[str, Any] = buffer.sample(2, np.random.default_rng(0))
    with pytest.raises(UsageError, match="finite and not negative"):
        buffer.update_priorities(batch["index"], np.array([1.0, bad]), batch["generation"])
