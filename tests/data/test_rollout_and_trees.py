from __future__ import annotations

import numpy as np
import pytest

from operant.data import (
    RolloutBuffer,
    tree_flatten,
    tree_map,
    tree_stack,
    tree_structure,
    tree_unflatten,
)
from operant.errors import UsageError


def test_trees_come_back_from_their_leaves() -> None:
    tree = {"a": np.arange(3), "b": (np.ones(2), {"c": np.zeros((2, 2))})}
    leaves = tree_flatten(tree)
    assert list(leaves) == ["a", "b/0", "b/1/c"]
    np.testing.assert_equal(tree_unflatten(tree_structure(tree), leaves), tree)
    np.testing.assert_equal(tree_unflatten(tree_structure(np.ones(3)), tree_flatten(np.ones(3))), np.ones(3))
    stacked = tree_stack([tree, tree_map(lambda leaf: leaf + 1, tree)])
    np.testing.assert_equal(stacked["b"][1]["c"], np.stack([np.zeros((2, 2)), np.ones((2, 2))]))


def test_a_rollout_gives_every_step_once() -> None:
    buffer = RolloutBuffer(5, 3)
    for epoch in range(2):
        for t in range(5):
            number = np.arange(3) + 3 * t + 100 * epoch
            buffer.add(obs={"x": number[:, None] / 2, "y": number.astype(np.uint8)}, action=number, reward=number * 1.0)
        assert buffer.full
        buffer["advantage"] = buffer["action"] * 10
        batches = list(buffer.minibatches(4, np.random.default_rng(epoch)))
        assert [len(batch["action"]) for batch in batches] == [4, 4, 4, 3]
        whole = tree_map(lambda *parts: np.concatenate(parts), *batches)
        assert sorted(whole["action"].tolist()) == list(range(100 * epoch, 100 * epoch + 15))
        assert whole["action"].tolist() != sorted(whole["action"].tolist())
        np.testing.assert_array_equal(whole["obs"]["x"][:, 0], whole["action"] / 2)
        np.testing.assert_array_equal(whole["advantage"], whole["action"] * 10)
        assert (whole["reward"].dtype, whole["obs"]["y"].dtype) == (np.float32, np.uint8)
        assert buffer.data["obs"]["x"].shape == (5, 3, 1)
        buffer.clear()
        assert len(buffer) == 0


def test_mistakes_are_named() -> None:
    buffer = RolloutBuffer(2, 1)
    buffer.add(obs=np.zeros((1, 2)), action=np.zeros(1))
    with pytest.raises(UsageError, match=r"no field 'actoin' \(did you mean 'action'"):
        buffer.add(obs=np.zeros((1, 2)), actoin=np.zeros(1))
    with pytest.raises(UsageError, match="holds 1 of 2"):
        next(buffer.minibatches(1, np.random.default_rng(0)))
    with pytest.raises(UsageError, match="must begin with"):
        buffer["value"] = np.zeros((3, 1))
    buffer.add(obs=np.zeros((1, 2)), action=np.zeros(1))
    with pytest.raises(UsageError, match="full"):
        buffer.add(obs=np.zeros((1, 2)), action=np.zeros(1))
    with pytest.raises(UsageError, match="Python objects"):
        RolloutBuffer(1, 1).add(info=np.array([{}]))
