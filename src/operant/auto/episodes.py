"""Episodes as extensions store them, turned into what algorithms learn from."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

from operant.data import tree_map, tree_stack
from operant.data.batches import episode_batch, rollout_batch
from operant.errors import UsageError, nearest
from operant.models.observations import MASK_KEY, ObservationAdapter
from operant.models.spaces import ActionSpec

_NEEDED = ("state", "action", "next_state", "reward", "terminal")
_KNOWN = (*_NEEDED, "truncated")


def steps_of(episode: list[dict[str, Any]], adapter: ObservationAdapter, actions: ActionSpec) -> list[dict[str, Any]]:
    """The transitions of an episode as steps of one environment: see `operant.data.batches`.

    A last transition that is no terminal was cut off: the value of what follows it counts.
    """
    steps = []
    for number, given in enumerate(episode):
        _check(given, number)
        terminated = bool(given["terminal"])
        step = {
            "obs": _observation(given["state"], adapter),
            "action": _action(given["action"], actions)[None],
            "reward": np.array([np.asarray(given["reward"]).reshape(()).item()], np.float32),
            "terminated": np.array([terminated]),
            "truncated": np.array([bool(given.get("truncated", False)) and not terminated]),
            "next_obs": _observation(given["next_state"], adapter),
        }
        for key, state in (("mask", given["state"]), ("next_mask", given["next_state"])):
            if isinstance(state, Mapping) and MASK_KEY in state:
                step[key] = np.asarray(state[MASK_KEY], bool).reshape(1, -1)
        steps.append(step)
    if steps and not steps[-1]["terminated"][0]:
        steps[-1]["truncated"] = np.array([True])
    return steps


def batch_of(episodes: list[list[dict[str, Any]]], unit: str) -> dict[str, Any]:
    """Episodes as what an algorithm learns from: a rollout of one environment, or whole episodes."""
    if unit == "episode":
        return episode_batch([tree_map(lambda leaf: leaf[:, 0], tree_stack(steps)) for steps in episodes])
    return rollout_batch([step for steps in episodes for step in steps])


def _check(step: Any, number: int) -> None:
    if not isinstance(step, Mapping):
        raise UsageError(f"transition {number} of the episode is a {type(step).__name__}, not a dict")
    for key in step:
        if key not in _KNOWN:
            raise UsageError(f"transition {number} has {key!r}{nearest(str(key), _KNOWN)}; known: {', '.join(_KNOWN)}")
    missing = [key for key in _NEEDED if key not in step]
    if missing:
        raise UsageError(f"transition {number} has no {', '.join(missing)}; it needs {', '.join(_NEEDED)}")


def _observation(state: Any, adapter: ObservationAdapter) -> Any:
    """One adapted observation with a leading axis; given with one of length 1 or without."""
    if isinstance(state, Mapping):
        values = {key: np.asarray(value) for key, value in state.items() if key != MASK_KEY}
        raw: Any = values["state"] if values.keys() == {"state"} else values
    else:
        raw = np.asarray(state)
    return adapter.adapt(_with_axis(raw, adapter))


def _with_axis(raw: Any, adapter: ObservationAdapter) -> Any:
    if isinstance(raw, dict):
        missing = sorted(adapter.parts.keys() - raw.keys())
        if missing:
            raise UsageError(f"a state has no {', '.join(missing)}; the observation space has {sorted(adapter.parts)}")
        return {key: _with_axis(raw[key], part) for key, part in adapter.parts.items()}
    shape = tuple(adapter.space.shape or ())
    if raw.shape == shape:
        return raw[None]
    if raw.shape == (1, *shape):
        return raw
    raise UsageError(f"a state has the shape {raw.shape}; the observation space has {shape}")


def _action(action: Any, spec: ActionSpec) -> Any:
    value = np.asarray(action["action"] if isinstance(action, Mapping) else action)
    size = int(np.prod(spec.shape)) if spec.shape else 1
    if value.size != size:
        raise UsageError(f"an action has the shape {value.shape}; {size} number{'s' if size > 1 else ''} are wanted")
    kind = np.int64 if spec.discrete else np.float32
    flat = value.reshape(-1).astype(kind)
    return flat.reshape(spec.shape) if spec.discrete else flat
