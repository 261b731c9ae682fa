"""Asynchronous advantage actor-critic (Mnih et al. 2016, arXiv 1602.01783): workers send gradients, not data."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

import numpy as np

from operant.algorithms.a2c import A2C, A2CSettings
from operant.algorithms.contracts import Array, DataSpec, Metrics, Policy
from operant.algorithms.errors import DivergedError
from operant.algorithms.on_policy import ActorCriticPolicy
from operant.errors import UsageError
from operant.models.settings import ModelSettings
from operant.settings import setting

if TYPE_CHECKING:
    from gymnasium import Space


@dataclass(frozen=True)
class A3CSettings(A2CSettings):
    """Settings of A3C; the defaults are those of A2C."""

    max_lag: int = setting(
        16, "updates that a gradient may be behind, beyond it it is dropped; larger: less is wasted, older gradients"
    )

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.max_lag < 1:
            raise UsageError(f"algorithm.max_lag is {self.max_lag}; it must be at least 1 (a2c allows no lag)")


# DI-engine's words for it are not read; its a2c's are.
A3CSettings.di_engine = None  # type: ignore[assignment]


class A3C(A2C):
    """A2C whose gradients are made where the rollout was; with one process it is A2C.

    With minibatches a worker learns from one after the other by itself, as the paper's threads do between two looks at
    the weights of all, and sends the gradient of each.
    """

    Settings = A3CSettings
    settings: A3CSettings
    _sent: list[Array] | None = None
    """Gradients that are made for another process."""

    @classmethod
    def make_policy(
        cls,
        observation_space: Space[Any],
        action_space: Space[Any],
        settings: Any = None,
        model: ModelSettings | None = None,
        seed: int = 0,
    ) -> Policy:
        """The whole algorithm: a worker makes gradients, for which it needs the critic too."""
        return cls(observation_space, action_space, settings, model, seed)

    @staticmethod
    def data_spec(settings: Any) -> DataSpec:
        return replace(ActorCriticPolicy.data_spec(settings), lag=settings.max_lag, digested=True)

    def digest(self, batch: Any) -> dict[str, Any]:
        """The gradients of a rollout [k, …] by the weights as they are."""
        self._sent = []
        try:
            metrics, _ = super().learn(batch)
            return {"gradient": np.stack(self._sent), "metrics": metrics}
        finally:
            self._sent = None

    def _apply_gradient(self, limit: float, rate: float) -> float:
        if self._sent is None:
            return super()._apply_gradient(limit, rate)
        gradient = self._flat.grad_tensor.cpu().numpy().copy()
        if not np.isfinite(norm := float(np.linalg.norm(gradient))):
            raise DivergedError
        self._sent.append(gradient)
        return super()._apply_gradient(limit, rate) if self.settings.minibatch else norm

    def learn(self, batch: Any) -> tuple[Metrics, None]:
        """Update from one rollout as `OnPolicy` describes it, or from what `digest` made of one elsewhere."""
        if "gradient" not in batch:
            return super().learn(batch)
        import torch

        for gradient in torch.as_tensor(np.asarray(batch["gradient"])):
            self._flat.grad_tensor.copy_(gradient)
            self._apply_gradient(self.settings.max_gradient_norm, self._learning_rate)
        return {**batch["metrics"], "learning_rate": self._learning_rate} if self.measure else {}, None
