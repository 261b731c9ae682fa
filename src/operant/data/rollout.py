"""Steps of the present policy, in order: [T, N], used for a few epochs and then forgotten."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from operant.data.trees import (
    Array,
    Tree,
    tree_flatten,
    tree_map,
    tree_spec,
    tree_structure,
    tree_unflatten,
    tree_zeros,
)
from operant.errors import UsageError, nearest

__all__ = ["RolloutBuffer"]


class RolloutBuffer:
    """``num_steps`` steps of ``num_envs`` environments. Memory is taken at the first ``add`` and kept."""

    def __init__(self, num_steps: int, num_envs: int) -> None:
        if num_steps < 1 or num_envs < 1:
            raise UsageError(f"{num_steps} steps of {num_envs} environments make no rollout; both must be at least 1")
        self.num_steps = num_steps
        self.num_envs = num_envs
        self._arrays: dict[str, Array] = {}
        self._structure: dict[str, object] = {}
        self._filled = 0

    def __len__(self) -> int:
        return self._filled

    @property
    def full(self) -> bool:
        return self._filled == self.num_steps

    def add(self, **fields: Tree) -> None:
        """Store one step: trees of arrays [N, ...], the same names every time."""
        if self.full:
            raise UsageError(f"the rollout is full: {self.num_steps} steps; clear() it before the next one")
        leaves = tree_flatten(fields)
        if not self._structure:
            self._arrays = tree_zeros(tree_spec(fields), (self.num_steps, self.num_envs))
            self._structure = {name: tree_structure(field, name) for name, field in fields.items()}
        for path, leaf in leaves.items():
            if path not in self._arrays:
                raise UsageError(
                    f"the rollout has no field {path!r}{nearest(path, self._arrays)}; the first step had none"
                )
            self._arrays[path][self._filled] = leaf
        self._filled += 1

    def clear(self) -> None:
        self._filled = 0

    def __getitem__(self, name: str) -> Tree:
        """A field, [T, N, ...]: the array itself, no copy."""
        if name not in self._structure:
            raise UsageError(f"the rollout has no field {name!r}{nearest(name, self._structure)}")
        return tree_unflatten(self._structure[name], self._arrays)

    def __setitem__(self, name: str, value: Array) -> None:
        """Add or replace a whole field [T, N, ...], such as advantages."""
        if value.shape[:2] != (self.num_steps, self.num_envs):
            raise UsageError(f"{name!r} has shape {value.shape}; it must begin with {(self.num_steps, self.num_envs)}")
        self._structure[name] = name
        self._arrays[name] = value

    @property
    def data(self) -> dict[str, Tree]:
        """All fields, [T, N, ...], without copies."""
        return {name: self[name] for name in self._structure}

    def flat(self) -> dict[str, Tree]:
        """All fields, [T * N, ...], without copies."""
        merged: dict[str, Tree] = tree_map(lambda a: a.reshape(-1, *a.shape[2:]), self.data)
        return merged

    def minibatches(self, batch_size: int, rng: np.random.Generator) -> Iterator[dict[str, Tree]]:
        """All steps once, in random order, in batches; the last one may be smaller."""
        if not self.full:
            raise UsageError(f"the rollout holds {self._filled} of {self.num_steps} steps; fill it first")
        order = rng.permutation(self.num_steps * self.num_envs)
        # One gather for the whole epoch and slices of it cost less than a gather for each minibatch.
        shuffled = tree_map(lambda a: a.take(order, axis=0), self.flat())
        for first in range(0, order.size, batch_size):
            yield tree_map(lambda a, first=first: a[first : first + batch_size], shuffled)
