"""Observations of single environments, checked and gathered into trees of arrays [N, ...]."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
from gymnasium import spaces

from operant.envs.vector import Tree
from operant.errors import UsageError


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


def check(space: spaces.Space[Any], obs: Any, name: str) -> None:
    """Refuse an observation that is not of its space; ``name`` says whose it is. Other floats or integers pass."""
    if isinstance(space, spaces.Dict | spaces.Tuple):
        parts: dict[Any, Any] = space.spaces if isinstance(space, spaces.Dict) else dict(enumerate(space.spaces))
        wanted = dict if isinstance(space, spaces.Dict) else tuple
        if not isinstance(obs, wanted) or (set(obs) if wanted is dict else set(range(len(obs)))) < set(parts):
            keys = f" with the keys {sorted(obs)}" if isinstance(obs, dict) else ""
            raise UsageError(
                f"{name} is a {type(obs).__name__}{keys}, but observation_space is a {wanted.__name__} of {list(parts)}"
            )
        for key, part in parts.items():
            check(part, obs[key], f"{name}[{key!r}]")
        return
    try:
        array = np.asarray(obs)
    except ValueError:  # rows of different lengths
        array = np.empty(0, object)
    kind = np.dtype(space.dtype or object).kind
    cut = kind in "iub" and array.dtype.kind not in "iub"  # a picture in 0…1 would be black as bytes
    if array.shape != space.shape or array.dtype.kind not in "iubf" or cut:
        raise UsageError(f"{name} has shape {array.shape} and dtype {array.dtype}, but observation_space is {space}")


def row_of(tree: Tree, index: int) -> Any:
    """What one environment has of a tree of arrays [N, ...]."""
    if isinstance(tree, dict):
        return {name: row_of(part, index) for name, part in tree.items()}
    if isinstance(tree, tuple):
        return tuple(row_of(part, index) for part in tree)
    return tree[index]


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
        try:
            rows = np.array(observations, space.dtype)
        except ValueError:
            rows = np.empty(0)
        if rows.shape[1:] != space.shape:
            for index, obs in enumerate(observations):
                check(space, obs, f"the observation of environment {index}")
        return rows
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
