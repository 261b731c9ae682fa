"""How the share of random actions falls."""

from __future__ import annotations

import math
from collections.abc import Callable

from operant.errors import UsageError

__all__ = ["get_epsilon_greedy_fn"]


def get_epsilon_greedy_fn(start: float, end: float, decay: int, type_: str = "exp") -> Callable[[int], float]:
    """The share of random actions after so many environment steps.

    ``exp`` falls as exp(−steps/decay) from start towards end; ``linear`` reaches end after `decay` steps.
    """
    if type_ not in ("exp", "linear"):
        raise UsageError(f"an epsilon schedule is exp or linear, not {type_!r}")
    if decay <= 0:
        raise UsageError(f"decay is {decay}; it must be above 0")

    def epsilon(steps: int) -> float:
        if steps <= 0:
            return start
        if type_ == "exp":
            return end + (start - end) * math.exp(-steps / decay)
        return start + (end - start) * min(1.0, steps / decay)

    return epsilon
