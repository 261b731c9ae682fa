"""Noise that is added to continuous actions, in units of half the range of each action, or to the policy's weights."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import numpy as np
import torch

from operant.algorithms.contracts import Array
from operant.errors import UsageError

KINDS = ("gaussian", "clipped", "uniform", "ou", "parameter", "none")
_ADAPTATION = 1.01  # how much the size of noise on parameters changes at a time, as in Plappert et al. 2018
_THETA = 0.15  # how fast Ornstein-Uhlenbeck noise returns to zero, as in Lillicrap et al. 2016


class ActionNoise:
    """New noise for each step, except ``ou``, which goes on from step to step (also where an episode ends).

    :param kind: gaussian; clipped: gaussian up to `limit`; uniform within ±scale; ou: Ornstein-Uhlenbeck; none, also
        where the noise is on parameters.
    """

    def __init__(self, kind: str, scale: float, limit: float, size: int) -> None:
        if kind not in KINDS:
            raise UsageError(f"algorithm.noise is {', '.join(KINDS)}; got {kind!r}")
        self._kind, self._scale, self._limit, self._size = kind, scale, limit, size
        self._ou: Array = np.zeros((0, size), np.float32)

    def draw(self, rng: np.random.Generator, rows: int) -> Array | float:
        """Noise [rows, size] of the next step."""
        if self._kind in ("none", "parameter"):
            return 0.0
        shape = (rows, self._size)
        if self._kind == "uniform":
            return rng.uniform(-self._scale, self._scale, shape).astype(np.float32)
        noise: Array = rng.standard_normal(shape, dtype=np.float32) * np.float32(self._scale)
        if self._kind == "clipped":
            return np.clip(noise, -self._limit, self._limit)
        if self._kind == "ou":
            if len(self._ou) != rows:
                self._ou = np.zeros(shape, np.float32)
            self._ou = self._ou * np.float32(1.0 - _THETA) + noise
            return self._ou
        return noise

    def state_dict(self) -> dict[str, Any]:
        return {"ou": self._ou.copy()}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        self._ou = np.array(state["ou"], np.float32)


class ParameterNoise:
    """Noise on the weights of a policy (Plappert et al. 2018, arXiv 1706.01905): it explores as another policy would.

    The same noise stays for some steps, whatever is learned meanwhile. Then its deviation grows or shrinks so that
    actions come to differ by `scale` (root mean square) from those of the policy itself.
    """

    def __init__(self, scale: float, steps: int) -> None:
        self._scale, self._steps = scale, steps
        self._size = scale
        self._noise: Array = np.zeros(0, np.float32)
        self._used = steps
        self._squares = 0.0

    def act(self, weights: torch.Tensor, forward: Callable[[], Array], rng: np.random.Generator) -> Array:
        """What `forward` gives with noise on the weights that it uses."""
        if self._used == self._steps or len(self._noise) != len(weights):
            self._renew(rng, len(weights))
        plain = forward().copy()
        kept = weights.clone()
        weights += torch.as_tensor(self._noise, device=weights.device)
        action = forward().copy()
        weights.copy_(kept)
        self._used += 1
        self._squares += float(np.square(action - plain).mean())
        return action

    def _renew(self, rng: np.random.Generator, count: int) -> None:
        if len(self._noise):
            distance = math.sqrt(self._squares / self._used)
            self._size *= _ADAPTATION if distance < self._scale else 1.0 / _ADAPTATION
        self._noise = rng.standard_normal(count, dtype=np.float32) * np.float32(self._size)
        self._used, self._squares = 0, 0.0

    def state_dict(self) -> dict[str, Any]:
        return {"size": self._size, "noise": self._noise.copy(), "used": self._used, "squares": self._squares}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        self._size, self._squares = float(state["size"]), float(state["squares"])
        self._noise, self._used = np.array(state["noise"], np.float32), int(state["used"])
