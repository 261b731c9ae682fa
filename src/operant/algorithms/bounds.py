"""What settings may be whose names mean the same in all algorithms."""

from __future__ import annotations

import math
import sys
from typing import Any

from operant.errors import UsageError, nearest

_LARGEST = sys.float_info.max  # of settings that must be finite: with an infinite one nothing is left to learn
_COUNTS = ("rollout", "train_every", "batch", "buffer", "n_step", "actor_every", "critics")
_SHARES = ("gamma", "gae_lambda", "priority_beta", "exploration_start", "exploration_end")
_LIMITS = (
    *("clip", "max_gradient_norm", "target_kl", "exploration_fraction", "exploration_decay"),
    *("noise_limit", "smoothing_limit", "clip_rho", "clip_c", "clip_pg_rho"),
)
_NOT_NEGATIVE = (
    *("learning_rate", "actor_learning_rate", "temperature_rate", "discriminator_rate", "optimizer_eps"),
    *("value_weight", "logit_weight", "weight_decay", "increase_rate", "decrease_rate"),
    *("noisy_std", "noise_scale", "noise_spread", "smoothing", "priority_alpha"),
    *("max_kl", "damping", "conjugate_tolerance", "epsilon_power"),
    *("updates", "minibatch", "learning_starts", "value_epochs", "target_every", "exploration_steps"),
)
_ANY = ("entropy_weight", "target_entropy", "value_min", "value_max", "survival")
_OPTIMIZERS = ("adam", "rmsprop")
_BOUNDS: dict[str, tuple[float, float]] = {
    **dict.fromkeys(_COUNTS, (1, math.inf)),
    **dict.fromkeys(_SHARES, (0, 1)),
    **dict.fromkeys(_LIMITS, (0, math.inf)),
    **dict.fromkeys(_NOT_NEGATIVE, (0, _LARGEST)),
    **dict.fromkeys(_ANY, (-_LARGEST, _LARGEST)),
    # More than any memory holds; what is too much for this machine's is told when it is asked for.
    "buffer": (1, 2**40),
    "critics": (1, 1000),
}


def check_bounds(settings: Any, *counts: str) -> None:
    """Refuse settings that mean nothing, such as what is not a number; `counts` are names of others from 1 up."""
    for name, (low, high) in (_BOUNDS | dict.fromkeys(counts, (1, math.inf))).items():
        value = getattr(settings, name, None)
        if value is None or low <= value <= high:
            continue
        raise UsageError(f"algorithm.{name} is {value}; it must {_right(value, low, high)}")
    if getattr(settings, "max_gradient_norm", 1.0) == 0:
        raise UsageError("algorithm.max_gradient_norm is 0, so nothing would be learnt; .inf is no limit")
    rate = getattr(settings, "target_rate", 1.0)
    if not 0.0 < rate <= 1.0:
        raise UsageError(f"algorithm.target_rate lies above 0 and up to 1, got {rate}")
    optimizer = getattr(settings, "optimizer", "adam")
    if optimizer not in _OPTIMIZERS:
        raise UsageError(
            f"algorithm.optimizer is {' or '.join(_OPTIMIZERS)}; got {optimizer!r}{nearest(optimizer, _OPTIMIZERS)}"
        )


def _right(value: float, low: float, high: float) -> str:
    if high < _LARGEST:
        return f"lie between {low} and {high}"
    return f"be at least {low}" if value < low and low > -_LARGEST else "be a finite number"
