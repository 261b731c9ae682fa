"""Runs of steps within episodes, one behind the other, as networks with memory learn from them."""

from __future__ import annotations

from functools import cached_property

import numpy as np

from operant.data.trees import Array, Tree, tree_map


class Sequences:
    """Rows of a batch as sequences: the first `length[0]` rows are the first one, and so on.

    :param state: what a policy remembered before the first step of each [S, …].
    """

    def __init__(self, length: Array, state: Tree) -> None:
        self.length = length
        self.state = state
        self._first = np.cumsum(length) - length

    def __len__(self) -> int:
        return len(self.length)

    @cached_property
    def place(self) -> Array:
        """The row at each step of each sequence [L, S]; behind the end of one its last row stands again."""
        ahead = np.arange(self.length.max())[:, None]
        return np.asarray(self._first + np.minimum(ahead, self.length - 1))

    @cached_property
    def at(self) -> Array:
        """Where each row stands in `place`, flat."""
        number = np.repeat(np.arange(len(self)), self.length)
        return np.asarray((np.arange(len(number)) - self._first[number]) * len(self) + number)

    def take(self, chosen: Array) -> tuple[Array, Sequences]:
        """The rows of some of them, and the sequences that these rows are."""
        length = self.length[chosen]
        ahead = np.arange(length.sum()) - np.repeat(np.cumsum(length) - length, length)
        rows = np.repeat(self._first[chosen], length) + ahead
        return rows, Sequences(length, tree_map(lambda part: part[chosen], self.state))


def split_rollout(done: Array, state: Tree, longest: int) -> Sequences:
    """The sequences in a rollout whose rows are put one environment behind the other: a new one begins after each end
    of an episode (`done` [T, N]) and after `longest` steps. `state` [T, N, …] is what was remembered before each step.
    """
    steps, rows = done.shape
    begins = np.zeros((rows, steps), bool)
    begins[:, 0] = True
    begins[:, 1:] = done[:-1].T
    now = np.arange(steps)
    since = now - np.maximum.accumulate(np.where(begins, now, 0), axis=1)
    first = np.flatnonzero(since % longest == 0)
    length = np.diff(first, append=rows * steps)
    env, step = np.divmod(first, steps)
    return Sequences(length, tree_map(lambda part: part[step, env], state))


def by_environment(tree: Tree) -> Tree:
    """Arrays [T, N, …] as rows [N·T, …], one environment behind the other."""
    return tree_map(lambda part: part.swapaxes(0, 1).reshape(-1, *part.shape[2:]), tree)


def pairs(first: Tree, second: Tree, state: Tree, count: int) -> tuple[Tree, Sequences]:
    """Rows of `count` sequences of two steps."""
    both = tree_map(lambda one, other: np.stack([one, other], axis=1).reshape(-1, *one.shape[1:]), first, second)
    return both, Sequences(np.full(count, 2), state)
