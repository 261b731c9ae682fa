"""What is learned from: trees of arrays, replay."""

from __future__ import annotations

from operant.data.chunks import prune_chunks
from operant.data.prioritized import PrioritizedReplayBuffer
from operant.data.replay import ReplayBuffer
from operant.data.sum_tree import SumTree
from operant.data.trees import (
    tree_flatten,
    tree_leaves,
    tree_map,
    tree_spec,
    tree_stack,
    tree_structure,
    tree_unflatten,
    tree_zeros,
)

__all__ = [
    "PrioritizedReplayBuffer",
    "ReplayBuffer",
    "SumTree",
    "prune_chunks",
    "tree_flatten",
    "tree_leaves",
    "tree_map",
    "tree_spec",
    "tree_stack",
    "tree_structure",
    "tree_unflatten",
    "tree_zeros",
]
