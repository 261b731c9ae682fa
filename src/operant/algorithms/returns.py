"""Advantages of a rollout, as loops over time with whole rows of environments."""

from __future__ import annotations

import numpy as np

from operant.algorithms.contracts import Array

__all__ = ["advantages"]


def advantages(
    reward: Array,
    terminated: Array,
    truncated: Array,
    value: Array,
    next_value: Array,
    gamma: float,
    lam: float,
) -> Array:
    """Generalised advantage estimation (Schulman et al. 2016, equation 16), all arrays [T, N].

    ``next_value[t]`` is the value of the state that step t truly led to: at a truncation that of the last
    observation of the episode, so truncation bootstraps; at a termination it counts as zero.
    """
    delta = reward + gamma * next_value * (1.0 - terminated) - value
    carry = (gamma * lam) * (1.0 - (terminated | truncated))
    delta, carry = delta.astype(np.float32, copy=False), carry.astype(np.float32, copy=False)
    result = np.empty_like(delta)
    following = np.zeros_like(delta[0])
    for now, weight, out in zip(delta[::-1], carry[::-1], result[::-1], strict=True):
        np.multiply(weight, following, out=out)
        following = np.add(now, out, out=out)
    return result
