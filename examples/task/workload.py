"""A small workload in place of a learner: gradient descent on a noisy quadratic, in numpy.

It has the parts of a training: something that collects, something that learns, something that evaluates.
"""

from __future__ import annotations

import time
from typing import Any

import numpy as np

N_PARAMETERS = 32


class Model:
    """A vector that should become the target."""

    def __init__(self) -> None:
        self.weights = np.zeros(N_PARAMETERS)

    def state_dict(self) -> dict[str, np.ndarray[Any, Any]]:
        return {"weights": self.weights}

    def load_state_dict(self, state: dict[str, np.ndarray[Any, Any]]) -> None:
        self.weights = np.array(state["weights"])


class Collector:
    """Draws noisy looks at the target."""

    def __init__(self, seed: int = 0) -> None:
        self._rng = np.random.default_rng(seed)
        self.target = np.linspace(-1, 1, N_PARAMETERS)
        self.envstep = 0

    def collect(self, n: int = 8) -> list[np.ndarray[Any, Any]]:
        self.envstep += n
        return [self.target + 0.1 * self._rng.standard_normal(N_PARAMETERS) for _ in range(n)]


class Learner:
    """Steps towards what was collected."""

    def __init__(self, model: Model) -> None:
        self.model = model
        self.train_iter = 0
        self.saved: list[int] = []

    def train(self, data: list[np.ndarray[Any, Any]]) -> None:
        self.model.weights += 0.2 * (np.mean(data, axis=0) - self.model.weights)
        self.train_iter += 1

    def save_checkpoint(self) -> None:
        self.saved.append(self.train_iter)


class Evaluator:
    """Says how near the model is; slow, as evaluations are."""

    def __init__(self, target: np.ndarray[Any, Any], every: int = 5, seconds: float = 0.005) -> None:
        self._target = target
        self._every = every
        self._seconds = seconds
        self._last = -every
        self.n_evaluations = 0

    def should_eval(self, train_iter: int) -> bool:
        return train_iter - self._last >= self._every

    def eval(self, model: Model, train_iter: int) -> tuple[bool, float]:
        self._last = train_iter
        self.n_evaluations += 1
        time.sleep(self._seconds)
        error = float(np.abs(model.weights - self._target).mean())
        return error < 0.05, -error
