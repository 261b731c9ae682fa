from __future__ import annotations

import numpy as np
import pytest

from operant.data import (
    tree_flatten,
    tree_leaves,
    tree_map,
    tree_spec,
    tree_stack,
    tree_structure,
    tree_unflatten,
    tree_zeros,
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


def test_what_cannot_be_stored_is_named() -> None:
    with pytest.raises(UsageError, match="'info' holds Python objects"):
        tree_spec({"info": np.array([{}])})
    with pytest.raises(UsageError, match="nothing to stack"):
        tree_stack([])


def test_leaves_have_paths_and_zeros_follow_a_spec() -> None:
    tree = {"obs": {"a": np.ones((2, 3)), "b": (np.zeros(2, np.int64), np.ones(2, np.bool_))}, "done": np.ones(2)}
    paths = dict(tree_leaves(tree))
    assert list(paths) == ["obs/a", "obs/b/0", "obs/b/1", "done"]
    assert next(iter(tree_leaves(np.ones(2))))[0] == ""
    zeros = tree_zeros(tree_spec(tree), (5, 2))
    assert {path: (one.shape, one.dtype.kind) for path, one in zeros.items()} == {
        "obs/a": ((5, 2, 3), "f"),
        "obs/b/0": ((5, 2), "i"),
        "obs/b/1": ((5, 2), "b"),
        "done": ((5, 2), "f"),
    }
    assert not any(one.any() for one in zeros.values())
