"""Several learners that make each update together, each from its own rows: as one with all of them would."""

from __future__ import annotations

from typing import Protocol

import numpy as np

from operant.algorithms.contracts import Array


class Team(Protocol):
    """The learners of one training. All call `total` in the same order."""

    rank: int
    size: int

    def total(self, values: Array) -> Array:
        """The sum of what all learners give, the same bits for each of them."""
        ...


class Shares:
    """Whose rows are whose when rollouts of all learners lie side by side [T, N₁ + N₂ + …].

    ``advantage`` [rows] is that of all learners, so that minibatches are scaled as if one had them.
    """

    def __init__(self, team: Team, advantage: Array, steps: int, width: int) -> None:
        widths = np.zeros(team.size)
        widths[team.rank] = width
        widths = team.total(widths)
        together, before = int(widths.sum()), int(widths[: team.rank].sum())
        self.rows = steps * together
        own = (np.arange(steps)[:, None] * together + before + np.arange(width)).reshape(-1)
        self._own_row = np.full(self.rows, -1)
        self._own_row[own] = np.arange(len(own))
        everywhere = np.zeros(self.rows, advantage.dtype)
        everywhere[own] = advantage
        self.advantage = team.total(everywhere)

    def of(self, index: Array) -> tuple[Array, Array]:
        """Of some rows of all, which are this learner's: where they stand among them, and their numbers here."""
        here = self._own_row[index]
        place = np.flatnonzero(here >= 0)
        return place, here[place]
