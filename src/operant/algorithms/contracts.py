"""What an algorithm is to the rest of Operant: it acts, it learns from batches, it can be saved."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any, Protocol

import numpy as np
import numpy.typing as npt

__all__ = ["ActOut", "Algorithm", "Array", "DataSpec", "Metrics", "Policy"]

Array = npt.NDArray[Any]
Metrics = dict[str, float]


@dataclass(frozen=True)
class ActOut:
    """What a policy answers to a batch of observations."""

    action: Array
    """As the environment takes it, one for each environment."""
    state: Any = None
    """What the policy wants back at the next step; None for policies without memory."""
    extras: dict[str, Any] = field(default_factory=dict)
    """What learning may need beside the action, such as the unclipped action of a Gaussian."""


@dataclass(frozen=True)
class DataSpec:
    """What an algorithm learns from."""

    kind: str
    """``transition``, ``rollout``, ``sequence``, ``episode`` or ``population``."""
    fields: tuple[str, ...]
    n_step: int = 1
    burn_in: int = 0


class Policy(Protocol):
    """Chooses actions. Leading axis of all arrays: the environments."""

    def act(
        self,
        obs: Any,
        state: Any = None,
        *,
        mask: Array | None = None,
        explore: bool,
        rng: np.random.Generator,
    ) -> ActOut: ...


class Algorithm(Policy, Protocol):
    """Learns a policy from batches: trees of arrays with leading axes [T, N] (rollouts) or [B] (transitions)."""

    data: DataSpec
    measure: bool
    """Whether `learn` computes what to log; a loop turns it off between log lines."""

    @property
    def path(self) -> str:
        """Which implementation of the networks runs, in words for the log."""
        ...

    def set_progress(self, steps: int, total_steps: int) -> None:
        """Tell how far the training is, for schedules."""
        ...

    def learn(self, batch: Any) -> tuple[Metrics, Array | None]:
        """Improve the policy; returns what to log, and new priorities if the data has them."""
        ...

    def weights(self) -> dict[str, Array]:
        """The networks as ``state_dict`` names and arrays."""
        ...

    def load_weights(self, weights: dict[str, Array]) -> None: ...

    def state_dict(self) -> dict[str, Any]:
        """Everything needed to go on exactly: a tree of dicts, arrays and plain values."""
        ...

    def load_state_dict(self, state: dict[str, Any]) -> None: ...
