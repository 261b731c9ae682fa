"""Returns and advantages of a rollout, as loops over time with whole rows of environments."""

from __future__ import annotations

import numpy as np

from operant.algorithms.contracts import Array

__all__ = ["advantages", "n_step_returns"]


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


def n_step_returns(
    reward: Array, terminated: Array, truncated: Array, gamma: float, steps: int
) -> tuple[Array, Array, Array]:
    """Sums of up to `steps` discounted rewards from each step of [T, N] arrays, not beyond the end of an episode.

    Returns the sums, how many steps each covers, and whether the last one covered terminated; the value to
    bootstrap from is that of the state the last covered step led to, discounted by ``gamma ** count``.
    """
    length = len(reward)
    total = np.zeros_like(reward)
    count = np.zeros(reward.shape, np.int64)
    ended = np.zeros(reward.shape, bool)
    going = np.ones(reward.shape, bool)
    done = terminated | truncated
    for k in range(steps):
        valid = going.copy()
        valid[max(0, length - k) :] = False
        rows = np.nonzero(valid)
        source = (rows[0] + k, rows[1])
        total[rows] += gamma**k * reward[source]
        count[rows] += 1
        ended[rows] = terminated[source]
        going &= valid
        going[rows] &= ~done[source]
    return total, count, ended
