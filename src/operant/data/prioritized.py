"""Replay in proportion to priority (Schaul et al. 2016, arXiv 1511.05952)."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np

from operant.data import chunks, compiled
from operant.data.replay import ReplayBuffer
from operant.data.sum_tree import SumTree
from operant.data.trees import Array, Tree
from operant.errors import UsageError


class PrioritizedReplayBuffer(ReplayBuffer):
    """P(i) = p_i^alpha / sum p^alpha (eq. 1); weight (N P(i))^-beta over the largest of the batch (section 3.4).

    New steps get the highest priority seen. Batches are stratified: one draw from each of B equal parts of the sum.

    :param jit: compile the loops with numba: the same bits, sooner. None: if numba is installed.
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
        jit: bool | None = None,
    ) -> None:
        super().__init__(capacity, num_envs, n_step=n_step, gamma=gamma)
        self._kernels, self.path = (None, "numpy") if jit is False else compiled.kernels()
        if jit and self._kernels is None:
            raise UsageError(f"jit=True needs numba: pip install 'operant[jit]'; here it is {self.path}")
        self.alpha = alpha
        self.beta = beta  # of the next batch; raise it towards 1 as training goes on
        self.epsilon = epsilon
        self._highest = 1.0  # p^alpha
        self._tree = SumTree(self._ring * num_envs, self._kernels)
        self._entered = 0  # rows of which the tree knows

    def sample(self, batch_size: int, rng: np.random.Generator) -> dict[str, Tree]:
        """As the uniform buffer, with importance weights ``weight`` [B]."""
        slot, weight = self._draw(batch_size, rng)
        batch = self.transitions(slot)
        batch["weight"] = weight
        return batch

    def transitions(self, slot: Array) -> dict[str, Tree]:
        arrays = self._arrays
        if self._kernels is None or arrays["reward"].dtype != np.float32 or "discount" in arrays:
            return super().transitions(slot)
        count = slot.size
        # Made here, one by one: numba takes twice as long to hand over a new array, numpy to unpack one of two rows.
        generation, following = np.empty(count, np.int64), np.empty(count, np.int64)
        ended, kept_at = np.empty(count, np.int64), np.empty(count, np.int64)
        reward, discount = np.empty(count, np.float32), np.empty(count, np.float32)
        terminated, truncated = np.empty(count, np.bool_), np.empty(count, np.bool_)
        ends = self._kernels.follow(
            slot,
            self.num_envs,
            self._powers(),
            self._generation,
            self._final_at,
            arrays["reward"],
            arrays["terminated"],
            arrays["truncated"],
            generation,
            reward,
            discount,
            terminated,
            truncated,
            following,
            ended,
            kept_at,
        )
        batch = {"obs": self._obs(slot)}
        for name in self._copied:
            batch[name] = self._field(name, slot)
        batch["reward"] = reward
        batch["next_obs"] = self._next_obs(following, ended[:ends], kept_at[:ends])
        batch["discount"] = discount
        batch["terminated"] = terminated
        batch["truncated"] = truncated
        batch["index"] = slot
        batch["generation"] = generation
        return batch

    def sample_sequences(
        self, batch_size: int, length: int, rng: np.random.Generator, *, burn_in: int = 0
    ) -> dict[str, Tree]:
        slot, weight = self._draw(batch_size, rng)
        return self.sequences(slot, length, burn_in=burn_in) | {"weight": weight}

    def draw(self, batch_size: int, rng: np.random.Generator) -> Array:
        return self._draw(batch_size, rng)[0]

    def _draw(self, batch_size: int, rng: np.random.Generator) -> tuple[Array, Array]:
        """Slots and their importance weights."""
        if not self._written:
            raise UsageError("the buffer is empty; add steps before drawing from it")
        self._enter_new_rows()
        slot, mass, least = self._tree.draw(rng.random(batch_size))
        # N and the sum cancel when divided by the largest weight, which is that of the smallest mass.
        mass /= least
        return slot, np.asarray(mass**-self.beta, dtype=np.float32)

    @property
    def mass(self) -> float:
        self._enter_new_rows()
        return self._tree.total

    def masses(self, index: Array) -> Array:
        return self._tree.get(index)

    def update_priorities(self, index: Array, priority: Array, generation: Array) -> None:
        """Set the priorities of steps drawn earlier; those that have been overwritten since are left alone."""
        if not index.size:
            return
        priority = np.asarray(priority, np.float64)
        highest = _highest(priority) if self._kernels is None else self._kernels.highest(priority)
        if highest < 0:
            raise UsageError("priorities must be finite and not negative; a loss that is NaN or infinite makes others")
        self._enter_new_rows()
        oldest = self._written - self.rows
        if oldest > 0 and np.minimum.reduce(generation) < oldest:
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


def _highest(priority: Array) -> float:
    """The highest priority, or -1 if one of them is negative, infinite or not a number."""
    # A ufunc's own reduce: the methods `max` and `min` take half as long again for arrays this small.
    highest = float(np.maximum.reduce(priority))
    return highest if highest < np.inf and np.minimum.reduce(priority) >= 0 else -1.0  # a NaN makes comparisons false
