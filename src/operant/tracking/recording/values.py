"""What a caller may hand over: numbers, tags, steps, tensors; and the sentences for what is none of these."""

from __future__ import annotations

import math
import operator
import os
from collections.abc import Mapping
from typing import Any

from operant.errors import UsageError

STEP_MIN, STEP_MAX = -(2**63), 2**63 - 1


def as_tag(tag: object) -> str:
    if not isinstance(tag, str):
        raise UsageError(f"tag must be a string, got {type(tag).__name__}: {_short(tag)}")
    if not tag:
        raise UsageError("tag must not be empty")
    return str(tag)


def as_step(step: object) -> int:
    try:
        number = operator.index(_item(step))  # ints, numpy ints, one-element integer tensors
    except (TypeError, ValueError):
        number = _whole_float(step)
    if not STEP_MIN <= number <= STEP_MAX:
        raise UsageError(f"step must fit into 64 bits, got {number}")
    return number


def _whole_float(step: object) -> int:
    value = _item(step)
    if isinstance(value, float) and value.is_integer():
        return int(value)
    raise UsageError(f"step must be a whole number or None, got {type(step).__name__}: {_short(step)}")


def as_number(value: object, name: str = "value") -> float:
    """A float from any number: Python's, numpy's, or a tensor of one element."""
    if isinstance(value, (str, bytes)):
        raise UsageError(f"{name} must be a number, got {type(value).__name__}: {_short(value)}")
    try:
        found = _item(value)
        return found if type(found) is float else float(found)
    except OverflowError:
        return math.inf if found > 0 else -math.inf
    except (TypeError, ValueError, RuntimeError):
        shape = getattr(value, "shape", None)
        of = f" of shape {tuple(shape)}" if shape is not None else f": {_short(value)}"
        raise UsageError(
            f"{name} must be one number, got {type(value).__name__}{of}"
            + ("; add_array and add_histogram take many" if shape is not None else "")
        ) from None


def as_array(values: object) -> Any:
    """A numpy array from numpy, a tensor (on any device, with or without gradient) or a list."""
    import numpy as np

    detach = getattr(values, "detach", None)
    if detach is None:
        return np.asarray(values)
    tensor = detach().cpu()
    return np.asarray(tensor.float() if "bfloat16" in str(tensor.dtype) else tensor)


def as_plain(value: Any) -> Any:
    """``value`` as JSON can hold it; whatever JSON does not know becomes its text."""
    if value is None or isinstance(value, (bool, int, float, str)):
        return value if type(value) in (bool, int, float, str) or value is None else _base(value)
    if isinstance(value, Mapping):
        return {str(key): as_plain(item) for key, item in value.items()}
    if isinstance(value, (list, tuple, set, frozenset, range)):
        return [as_plain(item) for item in value]
    if isinstance(value, os.PathLike):
        return os.fspath(value)
    if hasattr(value, "tolist"):
        return as_plain(value.tolist())
    return str(value)


def _base(value: Any) -> Any:
    """An enum member or a subclass of a plain type, as that plain type."""
    value = getattr(value, "value", value)
    for kind in (bool, int, float, str):
        if isinstance(value, kind):
            return kind(value)
    return str(value)


def _item(value: Any) -> Any:
    item = getattr(value, "item", None)
    return value if item is None else item()


def _short(value: object) -> str:
    text = repr(value)
    return text if len(text) <= 60 else text[:57] + "..."
