"""Replay in proportion to priority (Schaul et al. 2016, arXiv 1511.05952)."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np

from operant.data import chunks
from operant.data.replay import ReplayBuffer
from operant.data.sum_tree import SumTree
from operant.data.trees import Array, Tree
from operant.errors import UsageError

__all__ = ["PrioritizedReplayBuffer"]


class PrioritizedReplayBuffer(ReplayBuffer):
    """P(i) = p_i^alpha / sum p^alpha (eq. 1); weight (N P(i))^-beta over the largest of the batch (section 3.4).

    New steps get the highest priority seen. Batches are stratified: one draw from each of B equal parts of the sum.
    """

    def __init__(
        self,
        capacity: int,
        num_envs: int = 1,
        *,
        n_step: int = 1,
        gamma: float = 0.99,
        alpha: float = 0.6,
        beta: float = 0.4,
        epsilon: float = 1e-6,
    ) -> None:
        super().__init__(capacity, num_envs, n_step=n_step, gamma=gamma)
        self.alpha = alpha
        self.beta = beta  # of the next batch; raise it towards 1 as training goes on
        self.epsilon = epsilon
        self._highest = 1.0  # p^alpha
        self._tree = SumTree(self._ring * num_envs)
        self._entered = 0  # rows of which the tree knows
        self._strata: Array = np.zeros(0)  # 0, 1, …, of the last size of batch

    def sample(self, batch_size: int, rng: np.random.Generator) -> dict[str, Tree]:
        """As the uniform buffer, with importance weights ``weight`` [B]."""
        slot, mass = self._draw(batch_size, rng)
        batch = self.transitions(slot)
        batch["weight"] = self._importance(mass)
        return batch

    def sample_sequences(
        self, batch_size: int, length: int, rng: np.random.Generator, *, burn_in: int = 0
    ) -> dict[str, Tree]:
        slot, mass = self._draw(batch_size, rng)
        return self.sequences(slot, length, burn_in=burn_in) | {"weight": self._importance(mass)}

    def draw(self, batch_size: int, rng: np.random.Generator) -> Array:
        return self._draw(batch_size, rng)[0]

    def _draw(self, batch_size: int, rng: np.random.Generator) -> tuple[Array, Array]:
        """Slots and their p^alpha."""
        if not self._written:
            raise UsageError("the buffer is empty; add steps before drawing from it")
        self._enter_new_rows()
        if len(self._strata) != batch_size:
            self._strata = np.arange(batch_size)
        mass = rng.random(batch_size)
        mass += self._strata
        mass *= self._tree.total / batch_size
        return self._tree.find(mass)

    def _importance(self, mass: Array) -> Array:
        # N and the sum cancel when divided by the largest, which is that of the smallest mass.
        return np.asarray((mass / np.minimum.reduce(mass)) ** -self.beta, dtype=np.float32)

    def update_priorities(self, index: Array, priority: Array, generation: Array) -> None:
        """Set the priorities of steps drawn earlier; those that have been overwritten since are left alone."""
        if not index.size:
            return
        priority = np.asarray(priority, np.float64)
        # A ufunc's own reduce: the methods `max` and `min` take half as long again for arrays this small.
        highest = float(np.maximum.reduce(priority))
        if not (highest < np.inf and np.minimum.reduce(priority) >= 0):  # a NaN makes comparisons false
            raise UsageError("priorities must be finite and not negative; a loss that is NaN or infinite makes others")
        self._enter_new_rows()
        oldest = self._written - self.rows
        if np.minimum.reduce(generation) < oldest:
            kept = generation >= oldest
            index, priority = index[kept], priority[kept]
            if not index.size:
                return
        self._highest = max(self._highest, (highest + self.epsilon) ** self.alpha)
        self._tree.set(index, (priority + self.epsilon) ** self.alpha)

    def _enter_new_rows(self) -> None:
        """Tell the tree of rows added since the last draw: all at once costs no more than one."""
        if self._entered == self._written:
            return
        first = max(self._entered, self._written - self.rows)
        self._tree.set(self._row_slots(first, self._written), self._highest)
        self._tree.set(self._row_slots(self._written, self._written + 1), 0.0)  # only an observation lies there
        self._entered = self._written

    def save_chunks(self, folder: Path) -> dict[str, Any]:
        """As the uniform buffer. Priorities change everywhere, so they are written whole: 8 bytes for each step."""
        self._enter_new_rows()
        weights = {"weights": self._tree.weights(), "highest": np.array(self._highest)}
        return super().save_chunks(folder) | {"priorities": chunks.write(folder, "priorities", weights)}

    def load(self, folder: Path, manifest: dict[str, Any]) -> None:
        if "priorities" not in manifest:
            raise UsageError("the saved buffer has no priorities; it was saved by a buffer without them")
        super().load(folder, manifest)
        saved = chunks.read(folder, manifest["priorities"])
        self._tree.load(saved["weights"])
        self._highest = float(saved["highest"])
        self._entered = self._written
