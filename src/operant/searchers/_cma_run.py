"""One run of CMA-ES from its start to its end: what CmaEsSearcher restarts and LA-MCTS starts in its regions."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

import numpy as np

from operant.searchers._cma import make_strategy
from operant.searchers._regions import Region
from operant.space import Layout

# How many generations a result may be late and still be learnt from.
_LATEST = 3
# Draws for one proposal inside a region.
_DRAWS = 30


class CmaRun:
    """A generation ends when as many results are there as the population is large; more may be asked for."""

    def __init__(
        self,
        layout: Layout,
        *,
        sigma: float,
        population_size: int | None,
        mean: np.ndarray | None = None,
        clip: bool = False,
        look_at_mean: bool = False,
    ) -> None:
        self._strategy = make_strategy(layout, sigma=sigma, population_size=population_size, mean=mean, clip=clip)
        self._look_at_mean = look_at_mean
        self._mean_looked_at = 0
        # Results of this generation that wait for the others: the point that was drawn, its score.
        self._waiting: list[tuple[list[float], float]] = []
        self.generations: list[list[float]] = []
        """The scores of each generation that has ended; NaN for failures."""

    @property
    def generation(self) -> int:
        return self._strategy.generation

    @property
    def population_size(self) -> int:
        return self._strategy.population_size

    def ask(self, seed: tuple[int, ...], region: Region | None = None) -> tuple[dict[str, Any], list[float]]:
        """What `tell` wants back, and a point; inside the region if a draw of the distribution is.

        Otherwise the draw that is on the right side of the most boundaries from the root on: a distribution that
        has left its region goes on and is not stuck.
        """
        if self._look_at_mean and self.generation > self._mean_looked_at:
            middle = self._strategy.mean()
            self._mean_looked_at = self.generation
            if middle is not None:
                return {"generation": self.generation, "middle": True}, middle[1]
        raw, point = self._strategy.ask(seed)
        if region is not None and region.path:
            draws = [(raw, point)] + [self._strategy.ask((*seed, 1 + n)) for n in range(_DRAWS - 1)]
            depths = region.depth_of(np.array([point for _, point in draws]))
            raw, point = draws[int(depths.argmax())]
        return {"generation": self.generation, "raw": raw}, point

    def middle(self) -> np.ndarray | None:
        """The middle of the distribution as a point."""
        found = self._strategy.mean()
        return None if found is None else np.array(found[1])

    def spread(self) -> float:
        return self._strategy.spread()

    def remember(self, notes: Mapping[str, Any]) -> None:
        """Take over that a proposal of a recorded search was made."""
        if "middle" in notes:
            self._mean_looked_at = max(self._mean_looked_at, notes["generation"])

    def tell(self, notes: Mapping[str, Any], score: float, worst: float) -> bool:
        """Learn a score (NaN: a failure, which counts as `worst`); whether it ended a generation."""
        if "middle" in notes or notes["generation"] < self.generation - _LATEST:
            return False
        self._waiting.append((notes["raw"], score))
        if len(self._waiting) < self.population_size:
            return False
        # A failed trial counts as the worst result so far: the strategy moves away from where it was.
        told = [(raw, -(worst if math.isnan(score) else score)) for raw, score in self._waiting]
        self.generations.append([score for _, score in self._waiting])
        self._waiting = []
        self._strategy.tell(told)
        return True

    def converged(self) -> bool:
        return self._strategy.converged()
