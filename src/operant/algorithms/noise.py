"""Noise that is added to continuous actions, in units of half the range of each action."""

from __future__ import annotations

from typing import Any

import numpy as np

from operant.algorithms.contracts import Array
from operant.errors import UsageError

KINDS = ("gaussian", "clipped", "uniform", "ou", "none")
_THETA = 0.15  # how fast Ornstein-Uhlenbeck noise returns to zero, as in Lillicrap et al. 2016


class ActionNoise:
    """New noise for each step, except ``ou``, which goes on from step to step (also where an episode ends).

    :param kind: gaussian; clipped: gaussian up to `limit`; uniform within ±scale; ou: Ornstein-Uhlenbeck; none.
    """

    def __init__(self, kind: str, scale: float, limit: float, size: int) -> None:
        if kind not in KINDS:
            raise UsageError(f"algorithm.noise is {', '.join(KINDS)}; got {kind!r}")
        self._kind, self._scale, self._limit, self._size = kind, scale, limit, size
        self._ou: Array = np.zeros((0, size), np.float32)

    def draw(self, rng: np.random.Generator, rows: int) -> Array | float:
        """Noise [rows, size] of the next step."""
        if self._kind == "none":
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
