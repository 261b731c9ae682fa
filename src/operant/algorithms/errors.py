"""What can go wrong while learning."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

from operant.errors import OperantError


class DivergedError(OperantError):
    """A gradient was not a number; the weights are still those from before it."""

    def __init__(self, cause: str = "") -> None:
        super().__init__(
            cause
            or "the gradient is not finite (NaN or infinite); the weights are those of the last good step. "
            "A lower learning rate, a limit on the gradient or scaled rewards usually help"
        )


def explain_divergence(batch: Any) -> DivergedError:
    """The error with its cause, where a batch shows that the environment gave what is not finite."""
    if not isinstance(batch, Mapping) or _where_not_finite(batch.get("action"), "") is not None:
        return DivergedError()  # a policy that acts like that has diverged itself; what follows is no wonder
    for name, what in (("obs", "observation"), ("next_obs", "observation"), ("final_obs", "observation")):
        found = _where_not_finite(batch.get(name), what)
        if found is not None:
            return DivergedError(f"the environment gave {found}; the weights are those of the last good step")
    found = _where_not_finite(batch.get("reward"), "reward")
    return (
        DivergedError()
        if found is None
        else DivergedError(f"the environment gave {found}; the weights are those of the last good step")
    )


def _where_not_finite(tree: Any, what: str) -> str | None:
    """In words, the first number of a tree of arrays that is not finite."""
    if isinstance(tree, Mapping):
        return next(filter(None, (_where_not_finite(part, f"{what}[{key!r}]") for key, part in tree.items())), None)
    array = np.asarray(tree)
    if array.dtype.kind != "f" or np.isfinite(array).all():
        return None
    place = np.argwhere(~np.isfinite(array))[0]
    count = int((~np.isfinite(array)).sum())
    return f"{what}s that are not finite ({array[tuple(place)]} at {place.tolist()} of the batch, {count} in all)"
