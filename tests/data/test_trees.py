from __future__ import annotations

import numpy as np
import pytest

from operant.data import (
    tree_flatten,
    tree_map,
    tree_spec,
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


def test_what_cannot_be_stored_is_named() -> None:
    with pytest.raises(UsageError, match="'info' holds Python objects"):
        tree_spec({"info": np.array([{}])})
    with pytest.raises(UsageError, match="nothing to stack"):
        tree_stack([])
