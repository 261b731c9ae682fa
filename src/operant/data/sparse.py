"""Replay of agents that come and go: a row has a place for each agent that there may be, and only those present are
drawn. A step says by its field ``present`` [N] who was there."""

from __future__ import annotations

import numpy as np

from operant.data.prioritized import PrioritizedReplayBuffer
from operant.data.replay import ReplayBuffer
from operant.data.trees import Array
from operant.errors import UsageError

_TRIES = 8  # draws before the places of all present agents are looked up: enough unless hardly anybody is there


class SparseReplayBuffer(ReplayBuffer):
    """Draws uniformly among the steps of agents that were present."""

    def draw(self, batch_size: int, rng: np.random.Generator) -> Array:
        slot, present = super().draw(batch_size, rng), self._arrays["present"]
        for _ in range(_TRIES):
            absent = np.flatnonzero(~present[slot])
            if not absent.size:
                return slot
            slot[absent] = super().draw(absent.size, rng)
        absent = np.flatnonzero(~present[slot])
        if absent.size:
            everyone = self._oldest_first(np.arange(len(self)))
            there = everyone[present[everyone]]
            if not there.size:
                raise UsageError("the buffer holds no step of an agent that was present")
            slot[absent] = rng.choice(there, absent.size)
        return slot


class SparsePrioritizedReplayBuffer(PrioritizedReplayBuffer):
    """Draws by priority; who was absent has none."""

    def _enter_new_rows(self) -> None:
        first = max(self._entered, self._written - self.rows)
        super()._enter_new_rows()
        slots = self._row_slots(first, self._written)
        if slots.size:
            absent = slots[~self._arrays["present"][slots]]
            if absent.size:
                self._tree.set(absent, 0.0)
