"""What settings may be whose names mean the same in all algorithms."""

from __future__ import annotations

import math
from typing import Any

from operant.errors import UsageError, nearest

_COUNTS = ("rollout", "train_every", "batch", "buffer", "n_step", "actor_every", "critics")
_RATES = ("learning_rate", "actor_learning_rate", "temperature_rate", "increase_rate", "decrease_rate")
_NOISE = ("noise_scale", "noise_limit", "smoothing", "smoothing_limit")
_BOUNDS: dict[str, tuple[float, float]] = {
    **dict.fromkeys(_COUNTS, (1, math.inf)),
    **dict.fromkeys(("gamma", "gae_lambda", "priority_beta", "exploration_start", "exploration_end"), (0, 1)),
    **dict.fromkeys((*_RATES, *_NOISE, "clip", "max_gradient_norm"), (0, math.inf)),
    **dict.fromkeys(
        ("updates", "minibatch", "priority_alpha", "exploration_fraction", "learning_starts"), (0, math.inf)
    ),
    "target_entropy": (-math.inf, math.inf),
}
_MAY_BE_INFINITE = ("clip", "max_gradient_norm", "noise_limit", "smoothing_limit")  # an infinite limit is none
_OPTIMIZERS = ("adam", "rmsprop")


def check_bounds(settings: Any, *counts: str) -> None:
    """Refuse settings that mean nothing, such as what is not a number; `counts` are names of others from 1 up."""
    for name, (low, high) in (_BOUNDS | dict.fromkeys(counts, (1, math.inf))).items():
        value = getattr(settings, name, None)
        if value is None or (low <= value <= high and (math.isfinite(value) or name in _MAY_BE_INFINITE)):
            continue
        right = f"lie between {low} and {high}" if high < math.inf else f"be at least {low}"
        if value == math.inf or low == -math.inf:
            right = "be a finite number"
        raise UsageError(f"algorithm.{name} is {value}; it must {right}")
    rate = getattr(settings, "target_rate", 1.0)
    if not 0.0 < rate <= 1.0:
        raise UsageError(f"algorithm.target_rate lies above 0 and up to 1, got {rate}")
    optimizer = getattr(settings, "optimizer", "adam")
    if optimizer not in _OPTIMIZERS:
        raise UsageError(
            f"algorithm.optimizer is {' or '.join(_OPTIMIZERS)}; got {optimizer!r}{nearest(optimizer, _OPTIMIZERS)}"
        )
