"""CmaEsSearcher: covariance matrix adaptation with restarts, for numbers, whole numbers and categories."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from contextlib import nullcontext
from typing import Any

import numpy as np

from operant._util.checks import flag, one_of, positive, whole_number
from operant.searchers._branches import BranchSteps
from operant.searchers._cma import CmaRun, default_population
from operant.searchers._extras import one_thread
from operant.searchers._trial_arrays import TrialArrays
from operant.searchers.base_searcher import MOST_AT_ONCE, BaseSearcher, Proposal, Trial
from operant.searchers.builder import SEARCHERS
from operant.space import Container

_RESTARTS = ("ipop", "bipop", "none")
_STARTS = ("centre", "random")


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
            (Auger and Hansen 2005), `bipop` by turns so and with small populations and steps (Hansen 2009),
            whichever of the two has used fewer trials; `none` goes on sampling where it has.
        start: where the first run begins, in the `centre` of all ranges or at a `random` point.
        surrogate: of 30 draws try the one of which a Gaussian process of the trials around expects most: fewer trials
            to the same result, and a millisecond more for a proposal. False is CMA-ES as it stands in the paper; with
            categories or whole numbers of few values it is that anyway.
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
        start: str = "centre",
        surrogate: bool = True,
    ) -> None:
        super().__init__(search_space, reward_attribute, optimize_mode, seed, lag)
        if population_size is not None:
            whole_number(population_size, "population_size", least=4, most=MOST_AT_ONCE)
        self.population_size = population_size
        self.sigma = positive(sigma, "sigma")
        self.restart = one_of(restart, "restart", _RESTARTS)
        self.start = one_of(start, "start", _STARTS)
        self._known = TrialArrays(self.space) if flag(surrogate, "surrogate") else None
        # The notes of the newest proposal, by which a restored run makes the same model.
        self._newest: Mapping[str, Any] = {}
        self._restarts = 0
        # How often the population was doubled, and the trials that large and small runs have used (bipop).
        self._doublings = 0
        self._used = {"large": 0, "small": 0}
        self._kind = "large"
        self._this_run = 0
        self._small_limit = 0.0
        self._run = self._start()
        self._worst = math.inf
        self._steps = BranchSteps(self.space)

    def _start(self) -> CmaRun:
        rng = np.random.default_rng([self.seed, 0xCA, self._restarts])
        somewhere = self._restarts > 0 or self.start == "random"
        mean = rng.random(self.space.dimensions) if somewhere else None
        default = self.population_size or default_population(self.space.layout)
        population, sigma = default * 2**self._doublings, self.sigma
        if self._kind == "small":
            # Hansen 2009, "Benchmarking a BI-population CMA-ES", section 2: a random small population and step.
            largest = 2.0**self._doublings
            population = max(int(default * (largest / 2) ** (rng.random() ** 2)), default)
            sigma *= 10.0 ** (-2 * rng.random())
        return CmaRun(self.space.layout, sigma=sigma, population_size=population, mean=mean, known=self._known)

    def _propose(self, number: int) -> Proposal | None:
        if self.exhausted:
            return None
        step = self._steps.propose(self.rng(number))
        if step is not None and self.is_new(step):
            return Proposal(number, step)
        if self._newest.get("restart") == self._restarts:
            self._run.remember(self._newest)
        with one_thread() if self._known is not None else nullcontext():
            for asked, point in self._run.ask((self.seed, number)):
                config = self.space.decode(point)
                if self.is_new(config):
                    return Proposal(number, config, notes={"restart": self._restarts, **asked})
        fresh = self.fresh(self.rng(number))
        notes = {"restart": self._restarts, "aside": True, **self._run.notes()}
        return None if fresh is None else Proposal(number, fresh, notes=notes)

    def _remember(self, proposal: Proposal) -> None:
        super()._remember(proposal)
        if self._known is not None and proposal.notes is not None:
            self._newest = proposal.notes

    def _learn(self, trial: Trial) -> None:
        self._steps.learn(trial)
        if self._known is not None:
            self._known.add(trial)
        notes = trial.notes
        if trial.told > 1:
            self._run.correct(notes or {}, trial.score)
            return
        if trial.state == "finished":
            self._worst = min(self._worst, trial.score)
        if notes is None or "aside" in notes or notes["restart"] != self._restarts:
            return
        self._this_run += 1
        worst = self._worst if math.isfinite(self._worst) else 0.0
        score = trial.score if trial.state == "finished" else math.nan
        if self._run.tell(notes, score, worst) and self.restart != "none" and self._over():
            self._next_run()

    def _over(self) -> bool:
        return self._run.converged() or (self._kind == "small" and self._this_run > self._small_limit)

    def _next_run(self) -> None:
        self._used[self._kind] += self._this_run
        if self._kind == "large":
            # A small run may use half of what the last large one did.
            self._small_limit = self._this_run / 2
        small = self.restart == "bipop" and self._doublings > 0 and self._used["small"] < self._used["large"]
        self._kind = "small" if small else "large"
        self._doublings += not small
        self._restarts += 1
        self._this_run = 0
        self._run = self._start()
