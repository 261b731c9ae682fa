"""Sequences from replay for action values with memory: states, targets, and what the last steps led to."""

from __future__ import annotations

from typing import Any

import numpy as np
import torch

from operant.algorithms.contracts import Array
from operant.data.trees import tree_map
from operant.models.observations import to_tensors


def sequence_targets(reward: Array, discount: Array, value: Array, length: Array, n_step: int) -> Array:
    """Targets of `n_step` steps inside sequences [L, S] of so many steps: y_t = Σ γᵏ r + γⁿ V, or as far as one goes.

    :param value: of what each step led to; `discount`: γ, 0 after a termination.
    """
    steps, columns = reward.shape
    number, column = np.arange(steps)[:, None], np.arange(columns)
    target, weight = np.zeros(reward.shape), np.ones(reward.shape)
    last = np.broadcast_to(number, reward.shape)
    for ahead in range(n_step):
        there = number + ahead < length
        at = np.minimum(number + ahead, steps - 1)
        target += np.where(there, weight * reward[at, column], 0.0)
        weight = np.where(there, weight * discount[at, column], weight)
        last = np.where(there, at, last)
    return np.asarray(target + weight * value[last, column], value.dtype)


def renewed(network: Any, batch: Any, begin: int, device: Any) -> Any:
    """The state before the steps that are learned from: what was stored, renewed through the `begin` steps before."""
    here = [tree_map(lambda part, t=t: to_tensors(part[t], device), batch["state"]) for t in range(begin + 1)]
    state = here[begin]
    for t in range(begin):
        first, there = (to_tensors(batch[name][t], device) for name in ("first", "mask"))
        state = _where(first, here[t], state)
        obs = tree_map(lambda part, t=t: to_tensors(part[t], device), batch["obs"])
        state = _where(there, network.step(obs, state)[1], state)
    return state


def with_last(batch: Any, begin: int, length: Array, device: Any) -> Any:
    """Observations of sequences from `begin` on, and behind the last step of each what it led to, as tensors
    [(L + 1)·S, …]."""
    column = np.arange(len(length))

    def joined(obs: Array, following: Array) -> Any:
        whole = np.concatenate([obs[begin:], obs[-1:]])
        whole[length, column] = following[begin:][length - 1, column]
        return to_tensors(whole.reshape(-1, *whole.shape[2:]), device)

    return tree_map(joined, batch["obs"], batch["next_obs"])


def _where(chosen: torch.Tensor, one: Any, other: Any) -> Any:
    if isinstance(one, dict):
        return {name: _where(chosen, one[name], other[name]) for name in one}
    return torch.where(chosen.reshape(-1, *[1] * (one.ndim - 1)), one, other)
