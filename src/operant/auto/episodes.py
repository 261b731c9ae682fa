"""Episodes as extensions store them, turned into what algorithms learn from."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

from operant.errors import UsageError, nearest
from operant.models.observations import MASK_KEY, ObservationAdapter
from operant.models.spaces import ActionSpec

__all__ = ["rollout_of", "rows_of", "with_masks"]

_NEEDED = ("state", "action", "next_state", "reward", "terminal")
_KNOWN = (*_NEEDED, "truncated")


def rows_of(episode: list[dict[str, Any]], adapter: ObservationAdapter, actions: ActionSpec) -> list[dict[str, Any]]:
    """One row for each transition: obs, action, reward, terminated, truncated, next_obs.

    A last transition that is no terminal was cut off: the value of what follows it counts.
    """
    rows = []
    for number, step in enumerate(episode):
        _check(step, number)
        row = {
            "obs": _observation(step["state"], adapter),
            "action": _action(step["action"], actions),
            "reward": np.float32(np.asarray(step["reward"]).reshape(()).item()),
            "terminated": bool(step["terminal"]),
            "truncated": bool(step.get("truncated", False)) and not bool(step["terminal"]),
            "next_obs": _observation(step["next_state"], adapter),
        }
        for key, state in (("mask", step["state"]), ("next_mask", step["next_state"])):
            if isinstance(state, Mapping) and MASK_KEY in state:
                row[key] = np.asarray(state[MASK_KEY], bool).reshape(-1)
        rows.append(row)
    if rows and not rows[-1]["terminated"]:
        rows[-1]["truncated"] = True
    return rows


def with_masks(row: dict[str, Any]) -> dict[str, Any]:
    """A row for replay: masks lie beside the observation, where `unmasked` finds them again."""
    if "mask" not in row:
        return row
    plain = {key: value for key, value in row.items() if key not in ("mask", "next_mask")}
    plain["obs"] = {"obs": row["obs"], "mask": row["mask"]}
    plain["next_obs"] = {"obs": row["next_obs"], "mask": row.get("next_mask", np.ones_like(row["mask"]))}
    return plain


def rollout_of(rows: list[dict[str, Any]]) -> dict[str, Any]:
    """Rows of whole episodes as a rollout of one environment: see `OnPolicy` for its keys."""
    cut = [number for number, row in enumerate(rows) if row["truncated"]]
    return {
        "obs": _stack([row["obs"] for row in rows] + [rows[-1]["next_obs"]]),
        "action": np.stack([row["action"] for row in rows])[:, None],
        "reward": np.array([[row["reward"]] for row in rows], np.float32),
        "terminated": np.array([[row["terminated"]] for row in rows]),
        "truncated": np.array([[row["truncated"]] for row in rows]),
        "final_obs": _stack([rows[number]["next_obs"] for number in cut], False)
        if cut
        else np.zeros((0, 0), np.float32),
        "final_at": np.array(cut, np.int64),
        "mask": np.stack([row["mask"] for row in rows])[:, None] if "mask" in rows[0] else None,
    }


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
    """One adapted observation, without a leading axis; given with one of length 1 or without."""
    if isinstance(state, Mapping):
        values = {key: np.asarray(value) for key, value in state.items() if key != MASK_KEY}
        raw: Any = values["state"] if values.keys() == {"state"} else values
    else:
        raw = np.asarray(state)
    batched = _with_axis(raw, adapter)
    adapted = adapter.adapt(batched)
    return {key: part[0] for key, part in adapted.items()} if isinstance(adapted, dict) else adapted[0]


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


def _stack(parts: list[Any], with_rows: bool = True) -> Any:
    if isinstance(parts[0], dict):
        return {key: _stack([part[key] for part in parts], with_rows) for key in parts[0]}
    stacked = np.stack(parts)
    return stacked[:, None] if with_rows else stacked
