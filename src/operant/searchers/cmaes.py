"""CmaEsSearcher: covariance matrix adaptation with restarts, for numbers, whole numbers and categories."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from operant._util.checks import one_of, positive, whole_number
from operant.searchers._cma import Strategy, make_strategy
from operant.searchers._records import Proposal, Trial
from operant.searchers.base_searcher import BaseSearcher
from operant.searchers.builder import SEARCHERS
from operant.space import Container

_RESTARTS = ("ipop", "none")
# How many generations a result may be late and still be learnt from.
_LATEST = 3
_DRAWS = 20


@SEARCHERS.register_module()
class CmaEsSearcher(BaseSearcher):
    """CMA-ES (Hansen, arXiv 1604.00772); with whole numbers or categories CatCMA with margin (arXiv
    2504.07884).

    A generation ends when `population_size` of its results are there. Proposals asked for before that are
    more points of the same generation; results that come up to three generations late still count.

    Args:
        population_size: results in one generation (default: 4 + 3 log of the number of arguments).
        sigma: the first step size, as a part of the range.
        restart: `ipop` starts again elsewhere with twice the population when a run has converged
            (Auger and Hansen 2005), `none` goes on sampling where it has.
    """

    def __init__(
        self,
        search_space: Container | Sequence[Mapping[str, Any]],
        reward_attribute: str = "acc",
        optimize_mode: str = "maximize",
        seed: int = 0,
        lag: int | None = None,
        *,
        population_size: int | None = None,
        sigma: float = 1 / 6,
        restart: str = "ipop",
    ) -> None:
        super().__init__(search_space, reward_attribute, optimize_mode, seed, lag)
        if population_size is not None:
            whole_number(population_size, "population_size", least=4)
        self.population_size = population_size
        self.sigma = positive(sigma, "sigma")
        self.restart = one_of(restart, "restart", _RESTARTS)
        self._restarts = 0
        self._strategy = self._start()
        # Results of this generation that wait for the others: the point that was drawn, its score.
        self._generation: list[tuple[list[float], float]] = []
        self._worst = math.inf

    def _start(self) -> Strategy:
        return make_strategy(
            self.space.layout,
            sigma=self.sigma,
            population_size=self.population_size,
            growth=2**self._restarts,
            mean_rng=None if self._restarts == 0 else np.random.default_rng([self.seed, 0xCA, self._restarts]),
        )

    def _propose(self, number: int) -> Proposal | None:
        if self.exhausted:
            return None
        for draw in range(_DRAWS):
            raw, point = self._strategy.ask(seed=(self.seed, number, draw))
            config = self.space.decode(point)
            if self.is_new(config):
                notes = {"restart": self._restarts, "generation": self._strategy.generation, "raw": raw}
                return Proposal(number, config, notes=notes)
        fresh = self.fresh(self.rng(number))
        return None if fresh is None else Proposal(number, fresh)

    def _learn(self, trial: Trial) -> None:
        if trial.state == "finished":
            self._worst = min(self._worst, trial.score)
        notes = trial.notes
        if notes is None or notes["restart"] != self._restarts:
            return
        if notes["generation"] < self._strategy.generation - _LATEST:
            return
        self._generation.append((notes["raw"], trial.score if trial.state == "finished" else math.nan))
        if len(self._generation) < self._strategy.population_size:
            return
        # A failed trial counts as the worst result so far: the strategy moves away from where it was.
        worst = self._worst if math.isfinite(self._worst) else 0.0
        told = [(raw, -(worst if math.isnan(score) else score)) for raw, score in self._generation]
        self._generation = []
        self._strategy.tell(told)
        if self.restart == "ipop" and self._strategy.converged():
            self._restarts += 1
            self._strategy = self._start()
