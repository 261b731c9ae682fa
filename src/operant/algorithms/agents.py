"""What several agents see and do, as networks take it: rows for each policy.

A policy sees its agents as rows: row n·A + k is the k-th of its A agents in environment n.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import torch
from torch import nn

from operant.algorithms.contracts import Array
from operant.data.trees import tree_map
from operant.envs._observations import empty
from operant.envs.parallel import PRESENT
from operant.errors import UsageError
from operant.models.observations import MASK_KEY, ObservationAdapter, to_tensors
from operant.models.spaces import ActionSpec


class AgentsAdapter:
    """Turns observations of all agents into rows for each policy: ``{"present": [N, A], "policies": {name: …}}``, each
    with ``obs`` and, where actions are masked, ``mask``. An agent that is left out is taken as not there."""

    kind, size, is_flat = "team", 0, False

    def __init__(
        self, agents: Sequence[str], policies: Mapping[str, tuple[tuple[str, ...], ObservationAdapter]]
    ) -> None:
        self.agents = tuple(agents)
        self.policies = dict(policies)
        """Of each policy its agents, and what adapts what one of them sees."""

    def adapt(self, obs: Any) -> dict[str, Any]:
        if not isinstance(obs, Mapping) or not any(agent in obs for agent in self.agents):
            raise UsageError(f"observations are a mapping with an entry for each agent: {', '.join(self.agents)}")
        given = next(obs[agent] for agent in self.agents if agent in obs)
        rows = len(_first_leaf(given))
        there = obs.get(PRESENT, {})
        present = np.empty((rows, len(self.agents)), np.bool_)
        for column, agent in enumerate(self.agents):
            present[:, column] = there.get(agent, agent in obs)
        seen = {name: _seen(agents, adapter, obs, rows) for name, (agents, adapter) in self.policies.items()}
        return {"present": present, "policies": seen}

    def mask(self, obs: Any, info: Any) -> None:
        """Masks are a part of what `adapt` gives."""
        return None


def _seen(agents: tuple[str, ...], adapter: ObservationAdapter, obs: Any, rows: int) -> dict[str, Any]:
    seen = [obs.get(agent) for agent in agents]
    known = next((one for one in seen if one is not None), None)
    if known is None:
        known = empty(adapter.space, rows)
    seen = [tree_map(np.zeros_like, known) if one is None else one for one in seen]
    raw = _side_by_side(seen)
    told: dict[str, Any] = {"obs": adapter.adapt(raw)}
    masks = [obs.get(MASK_KEY, {}).get(agent) for agent in agents]
    if any(one is not None for one in masks):
        size = next(one for one in masks if one is not None).shape[1]
        told["mask"] = _side_by_side([np.ones((rows, size), np.bool_) if one is None else one for one in masks])
    else:
        mask = adapter.mask(raw, None)
        if mask is not None:
            told["mask"] = mask | ~mask.any(axis=1, keepdims=True)  # who is not there may do anything
    return told


def _first_leaf(tree: Any) -> Any:
    while isinstance(tree, (dict, tuple)):
        tree = next(iter(tree.values() if isinstance(tree, dict) else tree))
    return tree


def _side_by_side(trees: Sequence[Any]) -> Any:
    """Trees [N, …] of several agents as rows [N·A, …]."""
    if len(trees) == 1:
        return tree_map(np.asarray, trees[0])
    return tree_map(lambda *parts: np.stack(parts, axis=1).reshape(-1, *parts[0].shape[1:]), *trees)


class JointActions:
    """The actions of all agents."""

    discrete = False

    def __init__(self, specs: dict[str, ActionSpec]) -> None:
        self.of = specs

    @property
    def outputs(self) -> int:
        return sum(one.outputs for one in self.of.values())


def one_hot(action: torch.Tensor, size: int) -> torch.Tensor:
    return nn.functional.one_hot(action.long().reshape(-1), size).float()


def gumbel_softmax(logits: torch.Tensor, noise: torch.Tensor) -> torch.Tensor:
    """One choice, sampled, with the gradient of the softmax (straight through; Jang et al. 2017, temperature 1)."""
    soft = torch.softmax(logits + noise, dim=1)
    hard = one_hot(soft.argmax(dim=1), soft.shape[1])
    return hard + soft - soft.detach()


def choose(logits: Array, mask: Array | None, rng: np.random.Generator | None, by_chance: bool) -> Array:
    """The likeliest choice, with a generator a sampled one, or any that the mask allows."""
    scores = np.zeros_like(logits) if by_chance else logits
    if rng is not None:
        scores = scores + rng.gumbel(size=logits.shape)
    return np.asarray((scores if mask is None else np.where(mask, scores, -np.inf)).argmax(axis=1))


def masked(logits: torch.Tensor, mask: Array | None, device: Any) -> torch.Tensor:
    return logits if mask is None else logits.masked_fill(~to_tensors(np.ascontiguousarray(mask), device), -1e9)


def in_bounds(action: Array, spec: ActionSpec) -> Array:
    assert spec.low is not None and spec.high is not None
    low, high = spec.low.reshape(-1), spec.high.reshape(-1)
    within = np.clip(action * (high - low) / 2 + (high + low) / 2, low, high)
    return np.asarray(within.reshape(len(action), *spec.shape))
