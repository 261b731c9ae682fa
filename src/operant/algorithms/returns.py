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
    running = np.zeros_like(delta[0])
    for t in range(len(delta) - 1, -1, -1):
        running = delta[t] + carry[t] * running
        result[t] = running
    return result
