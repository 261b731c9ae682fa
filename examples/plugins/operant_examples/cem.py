"""The cross-entropy method (Rubinstein 1999; Mannor et al. 2003): a population of linear policies, the best of which
say where the next ones are drawn."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from operant.algorithms import BaseAlgorithm, DataSpec
from operant.errors import UsageError
from operant.settings import setting


@dataclass(frozen=True)
class CEMSettings:
    population: int = setting(32, "candidates of a generation; more: a better direction, for more episodes")
    elite: float = setting(0.25, "share of them that survives; smaller: faster, but it may settle too early")
    spread: float = setting(1.0, "standard deviation at the start; larger: it looks further away")
    noise: float = setting(0.1, "deviation that is added to what survives, falling to 0; larger: it settles later")

    def __post_init__(self) -> None:
        if self.population < 2 or not 0.0 < self.elite <= 1.0:
            raise UsageError("CEM needs a population of at least 2 and a share of elite between 0 and 1")


class CEM(BaseAlgorithm):
    Settings = CEMSettings

    @staticmethod
    def data_spec(settings: CEMSettings) -> DataSpec:
        return DataSpec("candidate", "fresh", ("candidate", "return"), count=settings.population)

    def __init__(self, *args: Any) -> None:
        super().__init__(*args)
        if not self.adapter.is_flat or (self.actions.discrete and self.actions.shape != ()):
            raise UsageError("CEM takes observations that are rows of numbers, and one choice or continuous actions")
        self.shape = (self.adapter.size + 1, self.actions.outputs)
        self.mean = np.zeros(self.shape[0] * self.shape[1])
        self.deviation = np.full_like(self.mean, self.settings.spread)

    def candidates(self, count: int, rng: np.random.Generator) -> Any:
        return self.mean + self.deviation * rng.standard_normal((count, len(self.mean)))

    def candidate_actor(self, candidates: Any) -> Any:
        layers = candidates.reshape(-1, *self.shape)

        def act(obs: Any, mask: Any, state: Any) -> tuple[Any, Any, dict[str, Any]]:
            output = np.einsum("ni,nio->no", obs, layers[:, :-1]) + layers[:, -1]
            if self.actions.discrete:
                action = (output if mask is None else np.where(mask, output, -np.inf)).argmax(axis=1)
                return action, action, {}
            return self.actions.to_env(output.astype(np.float32)), output, {}

        return act

    def actor(self, rng: Any, steps: int, rows: int, *, epsilon: float | None = None) -> Any:
        return self.candidate_actor(np.tile(self.mean, (rows, 1)) if rng is None else self.candidates(rows, rng))

    def learn(self, batch: Any) -> tuple[dict[str, float], None]:
        best = np.argsort(-batch["return"], kind="stable")[: max(1, round(self.settings.elite * len(batch["return"])))]
        self.mean = batch["candidate"][best].mean(axis=0)
        self.deviation = batch["candidate"][best].std(axis=0) + self.settings.noise * (1.0 - self.progress)
        mean = float(batch["return"].mean())
        return {"return": mean, "elite_return": float(batch["return"][best].mean())}, None

    def weights(self) -> dict[str, Any]:
        return {"mean": self.mean.copy(), "deviation": self.deviation.copy()}

    def load_weights(self, weights: dict[str, Any]) -> None:
        self.mean, self.deviation = weights["mean"].copy(), weights["deviation"].copy()
