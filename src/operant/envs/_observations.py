"""Observations of single environments, gathered into trees of arrays [N, ...]."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
from gymnasium import spaces

from operant.envs.vector import Tree
from operant.errors import UsageError

__all__ = ["copy_tree", "empty", "gather", "set_row"]


def empty(space: spaces.Space[Any], num_envs: int) -> Tree:
    """Zeroed arrays for ``num_envs`` observations of ``space``."""
    if isinstance(space, spaces.Dict):
        return {name: empty(part, num_envs) for name, part in space.spaces.items()}
    if isinstance(space, spaces.Tuple):
        return tuple(empty(part, num_envs) for part in space.spaces)
    if space.shape is None or space.dtype is None:
        raise UsageError(
            f"observations of the space {space} have no fixed shape; "
            "wrap the environment to give a Box, Discrete, MultiDiscrete, MultiBinary, or a Dict or Tuple of them"
        )
    return np.zeros((num_envs, *space.shape), space.dtype)


def set_row(tree: Tree, index: int, obs: Any) -> None:
    """Write one environment's observation into row ``index``."""
    if isinstance(tree, dict):
        for name, part in tree.items():
            set_row(part, index, obs[name])
    elif isinstance(tree, tuple):
        for part, value in zip(tree, obs, strict=True):
            set_row(part, index, value)
    else:
        tree[index] = obs


def gather(space: spaces.Space[Any], observations: Sequence[Any]) -> Tree:
    """Observations of all environments as one tree of new arrays."""
    if isinstance(space, spaces.Box):  # by far the most frequent
        return np.array(observations, space.dtype)
    tree = empty(space, len(observations))
    for index, obs in enumerate(observations):
        set_row(tree, index, obs)
    return tree


def copy_tree(tree: Tree) -> Tree:
    if isinstance(tree, dict):
        return {name: copy_tree(part) for name, part in tree.items()}
    if isinstance(tree, tuple):
        return tuple(copy_tree(part) for part in tree)
    return tree.copy()
