"""From steps to batches: the one place where what was collected takes the form that algorithms learn from.

A step is a dict of arrays [N, …] of N environments: obs, action, reward, terminated, truncated, next_obs, and maybe
mask, next_mask and further fields. A trajectory is a list of steps; an episode a dict of arrays [L, …].
"""

from __future__ import annotations

import os
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from operant._util.files import open_regular, replacing
from operant.data.chunks import read_arrays
from operant.data.minari import is_minari, read_minari
from operant.data.prioritized import PrioritizedReplayBuffer
from operant.data.replay import ReplayBuffer
from operant.data.trees import Array, Tree, tree_leaves, tree_map, tree_stack
from operant.errors import OperantError, UsageError

Steps = Sequence[dict[str, Any]]
_PLAIN = ("obs", "action", "reward", "terminated", "truncated", "next_obs")
_NOT_EXTRA = {*_PLAIN, "mask", "next_mask"}


def rollout_batch(steps: Steps) -> dict[str, Any]:
    """A trajectory as a rollout [T, N, …]: ``obs`` has a row more, last observations of cut episodes lie apart."""
    rows = len(steps[0]["reward"])
    final_obs, final_at = [], []
    for t, step in enumerate(steps):
        cut = np.flatnonzero(step["truncated"] & ~step["terminated"])
        if cut.size:
            final_obs.append(take_rows(step["next_obs"], cut))
            final_at.append(t * rows + cut)
    batch = {name: tree_stack([step[name] for step in steps]) for name in _fields(steps) if name != "obs"}
    return batch | {
        "obs": tree_stack([*(step["obs"] for step in steps), steps[-1]["next_obs"]]),
        "mask": np.stack([step["mask"] for step in steps]) if "mask" in steps[0] else None,
        **finals(final_obs, final_at),
    }


def merge_rollouts(rollouts: Sequence[dict[str, Any]]) -> dict[str, Any]:
    """Rollouts of several groups of environments side by side [T, N₁ + N₂ + …, …]."""
    if len(rollouts) == 1:
        return rollouts[0]
    widths = [one["reward"].shape[1] for one in rollouts]
    merged = {
        name: None if part is None else tree_map(lambda *leaves: np.concatenate(leaves, axis=1), *parts)
        for name, part in rollouts[0].items()
        if name not in ("final_obs", "final_at")
        for parts in [[one[name] for one in rollouts]]
    }
    final_obs, final_at = [], []
    for one, width, before in zip(rollouts, widths, np.cumsum([0, *widths]), strict=False):
        if len(one.get("final_at", ())):
            final_obs.append(one["final_obs"])
            final_at.append(one["final_at"] // width * sum(widths) + before + one["final_at"] % width)
    return merged | finals(final_obs, final_at) if "final_at" in rollouts[0] else merged


def split_episodes(steps: Steps, quota: Array) -> list[dict[str, Any]]:
    """The first `quota[n]` episodes of each environment n from a trajectory that began with an episode everywhere."""
    whole = tree_stack(list(steps))
    done = whole["terminated"] | whole["truncated"]
    episodes = []
    for row, wanted in enumerate(quota):
        first = 0
        for end in np.flatnonzero(done[:, row])[:wanted]:
            part = slice(first, end + 1)
            episodes.append(tree_map(lambda leaf, part=part, row=row: leaf[part, row], whole))
            first = end + 1
    return episodes


def episode_batch(episodes: Steps) -> dict[str, Any]:
    """Whole episodes one behind the other [B, …], with the ``length`` [E] of each."""
    lengths = np.array([len(one["reward"]) for one in episodes])
    ends = np.cumsum(lengths) - 1
    cut = [n for n, one in enumerate(episodes) if one["truncated"][-1] and not one["terminated"][-1]]
    final_obs = [take_rows(episodes[n]["next_obs"], slice(-1, None)) for n in cut]
    names = [*_fields(episodes), *(["mask"] if "mask" in episodes[0] else [])]
    batch = {name: _concatenate([one[name] for one in episodes]) for name in names}
    return {"mask": None, **batch, "length": lengths, **finals(final_obs, [ends[cut]])}


def _fields(steps: Steps) -> list[str]:
    """All but what a batch has in another form."""
    return [name for name in steps[0] if name not in ("next_obs", "mask", "next_mask")]


def finals(obs: list[Any], at: list[Array]) -> dict[str, Any]:
    """Last observations of truncated episodes and their places."""
    if not obs:
        return {"final_obs": np.zeros((0, 0), np.float32), "final_at": np.zeros(0, np.int64)}
    return {"final_obs": _concatenate(obs), "final_at": np.concatenate(at)}


def take_rows(tree: Tree, index: Any) -> Tree:
    return tree_map(lambda part: part[index], tree)


def replace_rows(tree: Tree, other: Tree, where: Array) -> Tree:
    """A tree with the rows of another where `where` [N] is true."""
    return tree_map(lambda old, new: np.where(where.reshape(-1, *[1] * (old.ndim - 1)), new, old), tree, other)


def _concatenate(parts: Sequence[Tree]) -> Tree:
    return tree_map(lambda *leaves: np.concatenate(leaves), *parts)


def add_step(buffer: ReplayBuffer, step: dict[str, Any]) -> None:
    """Put a step of all environments into replay. Masks lie beside the observations there, as a part of them."""
    if len(step) == len(_PLAIN):
        buffer.add(**step)
        return
    obs, next_obs = step["obs"], step["next_obs"]
    mask = step.get("mask")
    if mask is not None:
        next_mask = step.get("next_mask")
        obs = {"obs": obs, "mask": mask}
        next_obs = {"obs": next_obs, "mask": np.ones_like(mask) if next_mask is None else next_mask}
    extras = {name: value for name, value in step.items() if name not in _NOT_EXTRA}
    buffer.add(obs, step["action"], step["reward"], step["terminated"], step["truncated"], next_obs, **extras)


def sample_batch(
    buffer: ReplayBuffer, size: int, rng: np.random.Generator, *, beta: float = 1.0, length: int = 0, burn_in: int = 0
) -> dict[str, Any]:
    """A batch from replay: transitions, or with a `length` sequences; masks are apart again (``mask``, ``next_mask``).

    `beta` says how far importance weights correct for priorities.
    """
    if isinstance(buffer, PrioritizedReplayBuffer):
        buffer.beta = beta
    if length:
        batch = buffer.sample_sequences(size, length, rng, burn_in=burn_in)
    else:
        batch = buffer.sample(size, rng)
    if isinstance(batch["obs"], dict) and set(batch["obs"]) == {"obs", "mask"}:
        # Of sequences `mask` says which steps there are.
        batch["action_mask" if length else "mask"], batch["next_mask"] = batch["obs"]["mask"], batch["next_obs"]["mask"]
        batch["next_obs"] = batch["next_obs"]["obs"]
        batch["obs"] = batch["obs"]["obs"]
    return batch


def read_recorded(
    path: str | Path,
    adapt: Callable[[Any], Any] | None = None,
    from_env: Callable[[Array], Array] | None = None,
) -> dict[str, Any]:
    """Recorded transitions: a dataset of Minari's, or an npz file with the fields of a step as arrays [B, …], in the
    order in which they happened; entries of dict observations are named ``obs/key``.

    :param adapt: makes of observations what networks take; `from_env`: of actions what is learned from.
    """
    recorded = read_minari(path) if is_minari(path) else _read_npz(path)
    missing = [name for name in _PLAIN if name not in recorded]
    if missing:
        raise UsageError(f"{path} has no {', '.join(missing)}; recorded transitions have {', '.join(_PLAIN)}")
    count = len(recorded["reward"]) if np.ndim(recorded["reward"]) else 0
    if not count or any(np.ndim(leaf) == 0 or len(leaf) != count for _, leaf in tree_leaves(recorded)):
        raise UsageError(f"{path} has arrays of different lengths, or none at all; each has a row for each transition")
    for name in ("reward", "terminated", "truncated"):
        if np.ndim(recorded[name]) != 1:
            raise UsageError(f"{name} in {path} has the shape {np.shape(recorded[name])}, not ({count},)")
    for name, leaf in tree_leaves(recorded):
        if leaf.dtype.kind not in "biuf":
            raise UsageError(f"{name} in {path} holds no numbers but {leaf.dtype}")
    _check_finite(recorded, path)
    try:
        with np.errstate(over="ignore"):  # numbers too large for what is learned from are told of below
            if adapt is not None:
                recorded |= {name: adapt(recorded[name]) for name in ("obs", "next_obs")}
            if from_env is not None:
                recorded["action"] = from_env(recorded["action"])
    except (ValueError, TypeError, KeyError, IndexError) as error:
        raise UsageError(f"the steps in {path} do not fit this environment: {error}") from None
    _check_finite({name: recorded[name] for name in ("obs", "action", "next_obs")}, path)
    return recorded


def _check_finite(recorded: Tree, path: str | Path) -> None:
    for name, leaf in tree_leaves(recorded):
        if leaf.dtype.kind == "f" and not (finite := np.isfinite(leaf)).all():
            row = int(np.argmin(finite.reshape(len(leaf), -1).all(axis=1)))
            raise UsageError(f"{name} in {path} is not finite in row {row:,}")


def _read_npz(path: str | Path) -> dict[str, Any]:
    try:
        with os.fdopen(open_regular(Path(path)), "rb") as file:
            arrays = read_arrays(file, packed=True)
    except FileNotFoundError:
        raise UsageError(f"there is no file {path}; `operant record RUN --output {path}` makes it") from None
    except (OperantError, OSError, ValueError) as error:
        raise UsageError(f"{path!s:.200} holds no recorded transitions: {error!s:.200}") from None
    recorded: dict[str, Any] = {}
    for name, array in arrays.items():
        field, _, key = name.partition("/")
        if field in recorded and not (key and isinstance(recorded[field], dict)):
            raise UsageError(f"{path} has {field} as one array and as entries of a dict; it is one of them")
        if key:
            recorded.setdefault(field, {})[key] = array
        else:
            recorded[field] = array
    return recorded


def recorded_rows(steps: Steps) -> dict[str, Any]:
    """Steps as transitions [B, …], in a form that can be recorded."""
    rows: dict[str, Any] = tree_map(lambda leaf: leaf.reshape(-1, *leaf.shape[2:]), tree_stack(list(steps)))
    for name, _ in tree_leaves(rows):
        if name.count("/") > 1 or not name.startswith(_PLAIN):
            raise UsageError(f"transitions are recorded of rows, pictures and dicts of these; there is {name!r}")
    return rows


def make_room(path: Path) -> None:
    """Make the folder in which a recording will lie, if it can lie there."""
    if path.is_dir():
        raise UsageError(f"{path} is a folder; name a file in it, such as {path / 'expert.npz'}")
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise UsageError(f"{path} cannot be written: {error.strerror} ({error.filename})") from None
    if not os.access(path.parent, os.W_OK | os.X_OK):
        raise UsageError(f"{path} cannot be written: {path.parent} is not yours to write in")


def write_recorded(path: Path, steps: Steps) -> int:
    """Write steps as `read_recorded` reads them, whole or not at all; returns how many transitions these are."""
    leaves = dict(tree_leaves(recorded_rows(steps)))
    make_room(path)
    with replacing(path) as beside, beside.open("wb") as file:
        np.savez_compressed(file, allow_pickle=False, **leaves)
    return len(leaves["reward"])


def read_transitions(
    path: str | Path,
    adapt: Callable[[Any], Any],
    *,
    n_step: int = 1,
    gamma: float = 0.99,
    from_env: Callable[[Array], Array] | None = None,
) -> ReplayBuffer:
    """Replay of recorded transitions, read as `read_recorded` does."""
    recorded = read_recorded(path, adapt, from_env)
    count = len(recorded["reward"])
    buffer = ReplayBuffer(count, 1, n_step=n_step, gamma=gamma)
    for row in range(count):
        add_step(buffer, take_rows(recorded, slice(row, row + 1)))
    return buffer
