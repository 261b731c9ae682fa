"""What settings may be whose names mean the same in all algorithms."""

from __future__ import annotations

import math
from typing import Any

from operant.errors import UsageError

_COUNTS = ("rollout", "train_every", "batch", "buffer", "n_step", "actor_every", "critics")
_BOUNDS: dict[str, tuple[float, float]] = {
    **dict.fromkeys(_COUNTS, (1, math.inf)),
    **dict.fromkeys(("gamma", "gae_lambda", "priority_beta", "exploration_start", "exploration_end"), (0, 1)),
    **dict.fromkeys(("learning_rate", "actor_learning_rate", "clip", "max_gradient_norm"), (0, math.inf)),
    **dict.fromkeys(
        ("updates", "minibatch", "priority_alpha", "exploration_fraction", "learning_starts"), (0, math.inf)
    ),
}


def check_bounds(settings: Any, *counts: str) -> None:
    """Refuse settings that mean nothing, such as what is not a number; `counts` are names of others from 1 up."""
    for name, (low, high) in (_BOUNDS | dict.fromkeys(counts, (1, math.inf))).items():
        value = getattr(settings, name, None)
        if value is None or low <= value <= high:
            continue
        right = f"be at least {low}" if high == math.inf else f"lie between {low} and {high}"
        raise UsageError(f"algorithm.{name} is {value}; it must {right}")
    rate = getattr(settings, "target_rate", 1.0)
    if not 0.0 < rate <= 1.0:
        raise UsageError(f"algorithm.target_rate lies above 0 and up to 1, got {rate}")
