"""Steps of past policies, to be drawn again and again: a ring of rows, one row for each step of N environments."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np

from operant.data import chunks
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

_MADE_HERE = {"next_obs", "index", "generation", "final_at", "weight", "mask", "first"}
_OF_THE_END = {"obs", "reward", "terminated", "truncated"}  # fields of a batch that are not those of its first step


class ReplayBuffer:
    """The last ``capacity`` transitions of ``num_envs`` environments, with n-step returns made when they are drawn.

    An observation is stored once: what follows a step is the observation of the next row. Only where an episode ended
    (or the next ``add`` does not continue the last one) is the last observation kept apart. An n-step return never
    crosses such an end; ``discount`` is gamma to the number of steps taken, and 0 if they ended in termination, so that
    the target is always ``reward + discount * value(next_obs)``.
    """

    def __init__(self, capacity: int, num_envs: int = 1, *, n_step: int = 1, gamma: float = 0.99) -> None:
        if capacity < num_envs or num_envs < 1:
            raise UsageError(f"a buffer of {capacity} transitions holds not one step of {num_envs} environments")
        if n_step < 1:
            raise UsageError(f"n_step is {n_step}; it must be at least 1")
        self.num_envs = num_envs
        self.n_step = n_step
        self.gamma = gamma
        self.rows = capacity // num_envs
        self._ring = self.rows + 1  # one more: the observation that follows the newest step
        self._written = 0  # rows ever written; the next goes to `_written % _ring`
        self._structure: dict[str, Any] = {}
        # Observations have arrays of their own. All else of a step lies together in one record: a random one then costs
        # one access to memory that is in no cache, not six. Beside what was given it holds the number of its row
        # (`generation`) and where the last observation of its episode is kept (`final_at`; -1: the episode goes on).
        self._steps: Array = np.zeros(0)  # [ring * N]
        self._arrays: dict[str, Array] = {}  # [ring * N, ...] by path: observations, and views of the records' fields
        self._obs_paths: list[str] = []
        self._copied: list[str] = []  # fields that a batch has as they are at its first step
        self._generation: Array = np.zeros(0)
        self._final_at: Array = np.zeros(0)
        self._powers_of = (0.0, 0)
        self._kept_powers: Array = np.zeros(0)
        self._finals: dict[str, Array] = {}  # [F, ...], grows
        self._free: list[int] = []
        self._saved: chunks.Saved = {}

    @property
    def capacity(self) -> int:
        return self.rows * self.num_envs

    def __len__(self) -> int:
        return min(self._written, self.rows) * self.num_envs

    # Writing.

    def add(
        self,
        obs: Tree,
        action: Tree,
        reward: Array,
        terminated: Array,
        truncated: Array,
        next_obs: Tree,
        **extras: Tree,
    ) -> None:
        """Store one step of each environment: trees of arrays [N, ...].

        ``next_obs`` is what truly followed the action (``step.next_obs``), also at the end of an episode. Steps
        that are n-step ones already come with their ``discount``, which batches then have instead of gamma.
        """
        terminated, truncated = np.asarray(terminated, np.bool_), np.asarray(truncated, np.bool_)
        fields = {"obs": obs, "action": action, "reward": reward, "terminated": terminated, "truncated": truncated}
        leaves = tree_flatten(fields | extras)
        following = tree_flatten(next_obs, "obs")
        if not self._structure:
            self._allocate(fields | extras)
        if leaves.keys() != self._arrays.keys() or len(following) != len(self._obs_paths):
            self._complain(leaves.keys() | following.keys())
        self._cut_where_not_continued(leaves)
        row = self._slots(self._written)
        pending = self._slots(self._written + 1)
        for path, leaf in leaves.items():
            self._arrays[path][row] = leaf
        self._generation[row] = self._written
        if self._written + 1 >= self._ring:  # that row held the oldest step, which is not to be drawn any more
            self._forget_finals(pending)
        for path in self._obs_paths:
            self._arrays[path][pending] = following[path]
        self._written += 1
        (ended,) = (terminated | truncated).nonzero()
        if ended.size:
            self._keep_finals(row.start + ended, pending.start + ended)

    def _slots(self, row: int) -> slice:
        first = row % self._ring * self.num_envs
        return slice(first, first + self.num_envs)

    def _allocate(self, fields: dict[str, Tree]) -> None:
        taken = sorted(_MADE_HERE & fields.keys())
        if taken:
            raise UsageError(f"a step must not have the fields {taken}; batches have others of these names")
        if "discount" in fields and self.n_step != 1:
            raise UsageError(f"steps have a discount of their own, but the buffer has n_step={self.n_step}: give it 1")
        self._allocate_spec(tree_spec(fields), {name: tree_structure(field, name) for name, field in fields.items()})

    def _allocate_spec(self, spec: Any, structure: dict[str, Any]) -> None:
        self._structure = structure
        self._obs_paths = [path for path in spec if path == "obs" or path.startswith("obs/")]
        own: list[Any] = [("generation", np.int64), ("final_at", np.int32)]
        fields = [(path, dtype, shape) for path, (shape, dtype) in spec.items() if path not in self._obs_paths]
        size = self._ring * self.num_envs
        self._steps = np.zeros(size, np.dtype(own + fields, align=True))
        self._arrays = tree_zeros({path: spec[path] for path in self._obs_paths}, (size,))
        self._arrays |= {path: self._steps[path] for path, _, _ in fields}
        self._copied = [name for name in structure if name not in _OF_THE_END]
        self._generation, self._final_at = self._steps["generation"], self._steps["final_at"]
        self._final_at[:] = -1
        self._grow_finals(max(16, self.num_envs))

    def _complain(self, given: Any) -> None:
        for path in given:
            if path not in self._arrays:
                raise UsageError(
                    f"the buffer has no field {path!r}{nearest(path, self._arrays)}; the first step had none"
                )
        missing = sorted(self._arrays.keys() - given)
        raise UsageError(f"the step lacks {missing}, which the first one had")

    def _cut_where_not_continued(self, leaves: dict[str, Any]) -> None:
        """Keep the last observation of episodes that the coming step does not continue: a reset from outside."""
        if not self._written:
            return
        expected = self._slots(self._written)
        broken: Array | None = None
        for path in self._obs_paths:
            stored = self._arrays[path][expected]
            differs = stored != np.asarray(leaves[path], stored.dtype)
            if differs.any():
                where = differs.reshape(self.num_envs, -1).any(axis=1)
                broken = where if broken is None else broken | where
        if broken is None:
            return
        last = self._slots(self._written - 1)
        broken &= self._final_at[last] < 0
        where = np.flatnonzero(broken)
        if where.size:
            self._keep_finals(last.start + where, expected.start + where)

    # Last observations of episodes, in an array that grows, with a stack of free places.

    def _grow_finals(self, more: int) -> None:
        size = len(next(iter(self._finals.values()))) if self._finals else 0
        for path in self._obs_paths:
            array = self._arrays[path]
            grown = np.zeros((size + more, *array.shape[1:]), array.dtype)
            if size:
                grown[:size] = self._finals[path]
            self._finals[path] = grown
        self._free.extend(range(size + more - 1, size - 1, -1))

    def _keep_finals(self, slots: Array, sources: Array) -> None:
        self._put_finals(slots, {path: self._arrays[path][sources] for path in self._obs_paths})

    def _put_finals(self, slots: Array, observations: dict[str, Array]) -> None:
        if len(self._free) < slots.size:
            self._grow_finals(max(slots.size, len(self._finals[self._obs_paths[0]])))
        places = np.array([self._free.pop() for _ in range(slots.size)], np.int32)
        for path in self._obs_paths:
            self._finals[path][places] = observations[path]
        self._final_at[slots] = places

    def _forget_finals(self, slots: slice) -> None:
        places = self._final_at[slots]
        kept = places[places >= 0]
        if kept.size:
            self._free.extend(kept.tolist())
            places[:] = -1

    # Reading.

    def sample(self, batch_size: int, rng: np.random.Generator) -> dict[str, Tree]:
        """``batch_size`` transitions [B, ...], drawn uniformly, as ``transitions`` describes."""
        return self.transitions(self.draw(batch_size, rng))

    def draw(self, batch_size: int, rng: np.random.Generator) -> Array:
        """Slots [B] of stored steps, drawn uniformly."""
        if not self._written:
            raise UsageError("the buffer is empty; add steps before drawing from it")
        return self._oldest_first(rng.integers(len(self), size=batch_size))

    def _oldest_first(self, offset: Array) -> Array:
        """Slots of the steps with these numbers, where 0 is the oldest."""
        first = (self._written - min(self._written, self.rows)) * self.num_envs
        return np.asarray((offset + first) % (self._ring * self.num_envs))

    def _after(self, slot: Array) -> Array:
        following = slot + self.num_envs
        return np.where(following >= self._ring * self.num_envs, slot - self.rows * self.num_envs, following)

    def transitions(self, slot: Array) -> dict[str, Tree]:
        """n-step transitions that begin at these slots.

        ``obs, action`` and extras of the first step; ``reward``: discounted sum; ``next_obs``: what followed the last;
        ``discount``: what the value of ``next_obs`` counts; ``terminated, truncated``: how the last step ended;
        ``index, generation``: for ``update_priorities``. At the newest steps fewer than n may be there yet.
        """
        if self.n_step == 1:
            steps = ends = self._steps.take(slot)
            last, reward, discount = slot, steps["reward"], self._discount(steps)
        else:
            steps, ends, last, reward, discount = self._n_steps(slot)
        discount[ends["terminated"]] = 0.0
        batch = {"obs": self._obs(slot)}
        for name in self._copied:
            batch[name] = self._of_records(name, steps)
        batch["reward"] = np.ascontiguousarray(reward, np.float32)
        batch["next_obs"] = self._next_obs(*self._after_last(last, ends["final_at"]))
        batch["discount"] = discount
        batch["terminated"] = np.ascontiguousarray(ends["terminated"])
        batch["truncated"] = np.ascontiguousarray(ends["truncated"])
        batch["index"] = slot
        batch["generation"] = np.ascontiguousarray(steps["generation"])
        return batch

    def _discount(self, steps: Array) -> Array:
        """What the value of the observation behind single steps counts, terminations aside."""
        if "discount" in self._structure:
            return np.array(steps["discount"], np.float32)
        return np.full(steps.size, self.gamma, np.float32)

    def _n_steps(self, slot: Array) -> tuple[Array, Array, Array, Array, Array]:
        """First and last step of each n-step transition, slot of the last, discounted reward, gamma^(steps taken)."""
        ahead = np.arange(self.n_step)[:, None]
        rows = self._steps.take(slot + ahead * self.num_envs, mode="wrap")  # [n, B]
        generation = rows["generation"]
        follows = generation[1:] == generation[0] + ahead[1:]  # not so after the newest step
        follows &= rows["final_at"][:-1] < 0
        further = np.logical_and.accumulate(follows, axis=0).sum(axis=0)
        powers = self._powers()
        # Added one after the other, as the compiled code does; what comes after the last step is not looked at.
        returns = np.add.accumulate(rows["reward"] * powers[:-1, None], axis=0)
        reward = returns[further, np.arange(slot.size)]
        last = slot + further * self.num_envs
        ends = self._steps.take(last, mode="wrap")
        return rows[0], ends, last, reward, powers[1 + further].astype(np.float32)

    def _powers(self) -> Array:
        """Gamma to the power of 0, 1, …, n, by multiplication: how exact a power is differs between processors."""
        key = (self.gamma, self.n_step)
        if key != self._powers_of:
            self._powers_of = key
            self._kept_powers = np.multiply.accumulate([1.0, *[self.gamma] * self.n_step])
        return self._kept_powers

    def _obs(self, slot: Array) -> Tree:
        leaves = {path: self._arrays[path].take(slot, axis=0) for path in self._obs_paths}
        return tree_unflatten(self._structure["obs"], leaves)

    def _after_last(self, slot: Array, final_at: Array) -> tuple[Array, Array, Array]:
        """What `_next_obs` takes, from the slots of last steps."""
        (ended,) = (final_at >= 0).nonzero()
        return slot + self.num_envs, ended, final_at[ended]

    def _next_obs(self, following: Array, ended: Array, kept_at: Array) -> Tree:
        """The observations at these slots; those numbered ``ended`` are last ones of episodes, kept apart."""
        leaves = {}
        for path in self._obs_paths:
            leaves[path] = self._arrays[path].take(following, axis=0, mode="wrap")
            if ended.size:
                leaves[path][ended] = self._finals[path].take(kept_at, axis=0)
        return tree_unflatten(self._structure["obs"], leaves)

    def _field(self, name: str, slot: Array) -> Tree:
        """A field of the steps at these slots."""
        structure = self._structure[name]
        if isinstance(structure, str):
            return self._arrays[structure][slot]
        paths = [path for path in self._arrays if path.startswith(f"{name}/")]
        return tree_unflatten(structure, {path: self._arrays[path][slot] for path in paths})

    def _of_records(self, name: str, steps: Array) -> Tree:
        structure = self._structure[name]
        if isinstance(structure, str):
            return np.ascontiguousarray(steps[structure])
        paths = [path for path in self._arrays if path.startswith(f"{name}/")]
        return tree_unflatten(structure, {path: np.ascontiguousarray(steps[path]) for path in paths})

    def sample_sequences(
        self, batch_size: int, length: int, rng: np.random.Generator, *, burn_in: int = 0
    ) -> dict[str, Tree]:
        """``batch_size`` runs of steps [burn_in + length, B, ...] from within episodes, as ``sequences`` describes."""
        return self.sequences(self.draw(batch_size, rng), length, burn_in=burn_in)

    def sequences(self, slot: Array, length: int, *, burn_in: int = 0) -> dict[str, Tree]:
        """Runs of single steps; those at ``slot`` come at position ``burn_in``, what led to them before.

        ``mask`` is true for steps of the same episode that are stored: false before its beginning, after its end and
        after the newest step. ``first`` marks the step at which a recurrent state is to be set, to zero or to what an
        extra field remembers. All other fields are [burn_in + length, B, ...], ``discount`` is for one step.
        """
        total = burn_in + length
        slots = np.empty((total, slot.size), np.int64)
        mask = np.zeros((total, slot.size), np.bool_)
        slots[burn_in], mask[burn_in] = slot, True
        stored = min(self._written, self.rows)
        generation = self._generation[slot]
        age = self._written - generation  # 1 for the newest step
        for t in range(burn_in - 1, -1, -1):
            before = slots[t + 1] - self.num_envs
            slots[t] = np.where(before < 0, before + self._ring * self.num_envs, before)
            mask[t] = mask[t + 1] & (age + burn_in - t <= stored) & (self._final_at[slots[t]] < 0)
        for t in range(burn_in + 1, total):
            slots[t] = self._after(slots[t - 1])
            mask[t] = mask[t - 1] & (age + burn_in - t >= 1) & (self._final_at[slots[t - 1]] < 0)
        # What is masked out is some valid step, so that no garbage reaches a model.
        flat = np.where(mask, slots, slot).reshape(-1)
        steps = self._steps.take(flat)
        whole = {name: self._of_records(name, steps) for name in self._structure if name != "obs"}
        whole |= {"obs": self._obs(flat), "next_obs": self._next_obs(*self._after_last(flat, steps["final_at"]))}
        batch: dict[str, Tree] = tree_map(lambda leaf: leaf.reshape(total, -1, *leaf.shape[1:]), whole)
        discount = self._discount(steps).reshape(total, -1)
        batch["discount"] = np.where(batch["terminated"], np.float32(0.0), discount)
        first = mask.copy()
        first[1:] &= ~mask[:-1]
        return batch | {"mask": mask, "first": first, "index": slot, "generation": generation}

    @property
    def mass(self) -> float:
        """What all steps together count when one is drawn; alike, each counts 1."""
        return float(len(self))

    def masses(self, index: Array) -> Array:
        """What each of these steps counts."""
        return np.ones(len(index))

    def update_priorities(self, index: Array, priority: Array, generation: Array) -> None:
        """Nothing here; a prioritised buffer draws in proportion to them."""

    # Checkpoints.

    def save_chunks(self, folder: Path) -> dict[str, Any]:
        """Write what is new since the last call into ``folder``; returns the manifest that ``load`` needs (JSON)."""
        oldest = self._written - min(self._written, self.rows)
        manifest: dict[str, Any] = {
            "rows": self.rows,
            "num_envs": self.num_envs,
            "written": self._written,
            "structure": self._structure,
            "spec": {path: [list(array.shape[1:]), array.dtype.str] for path, array in self._arrays.items()},
        }
        if self._written:
            manifest |= chunks.save(folder, self._saved, oldest, self._written, self.rows, self._rows_as_arrays)
            manifest["pending"] = chunks.write(folder, "pending", self._pending_arrays())
        return manifest

    def load(self, folder: Path, manifest: dict[str, Any]) -> None:
        """Become the buffer that was saved: same contents in the same slots, so the same draws."""
        for name in ("rows", "num_envs"):
            if manifest[name] != getattr(self, name):
                raise UsageError(f"the saved buffer has {name}={manifest[name]}, this one {getattr(self, name)}")
        self._structure, self._arrays, self._finals, self._free = {}, {}, {}, []
        self._written = 0
        if not manifest["written"]:
            return
        spec = {path: (tuple(shape), dtype) for path, (shape, dtype) in manifest["spec"].items()}
        self._allocate_spec(spec, manifest["structure"])
        self._written = manifest["written"]
        oldest = self._written - min(self._written, self.rows)
        chunks.load(folder, self._saved, manifest, oldest, self._put_rows)
        pending = chunks.read(folder, manifest["pending"])
        for path in self._obs_paths:
            self._arrays[path][self._slots(self._written)] = pending[path]

    def _pending_arrays(self) -> dict[str, Array]:
        return {path: self._arrays[path][self._slots(self._written)] for path in self._obs_paths}

    def _row_slots(self, first: int, end: int) -> Array:
        rows = np.arange(first, end) % self._ring
        return (rows[:, None] * self.num_envs + np.arange(self.num_envs)).reshape(-1)

    def _rows_as_arrays(self, first: int, end: int) -> dict[str, Array]:
        """Rows ``first`` to ``end`` (counted from the first ever stored) as arrays by name."""
        slots = self._row_slots(first, end)
        final_at = self._final_at[slots]
        ended = np.flatnonzero(final_at >= 0)
        arrays = {f"step:{path}": array[slots] for path, array in self._arrays.items()}
        arrays |= {f"final:{path}": array.take(final_at[ended], axis=0) for path, array in self._finals.items()}
        return arrays | {"ended": ended}

    def _put_rows(self, first: int, end: int, arrays: dict[str, Array], oldest: int) -> None:
        """The inverse of ``_rows_as_arrays``, for those rows that are not older than ``oldest``."""
        skip = max(0, oldest - first) * self.num_envs
        slots = self._row_slots(first, end)
        for path, array in self._arrays.items():
            array[slots[skip:]] = arrays[f"step:{path}"][skip:]
        self._generation[slots[skip:]] = np.repeat(np.arange(first, end), self.num_envs)[skip:]
        kept = np.flatnonzero(arrays["ended"] >= skip)
        if kept.size:
            finals = {path: arrays[f"final:{path}"][kept] for path in self._obs_paths}
            self._put_finals(slots[arrays["ended"][kept]], finals)
