"""GpSearcher: Bayesian optimisation with a Gaussian process and the logarithm of expected improvement."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from operant._util.checks import whole_number
from operant.searchers._acquisition import Acquisition, Maximiser
from operant.searchers._extras import one_thread
from operant.searchers._surrogate import BranchExplorer, Surrogate, best_points, promising_points
from operant.searchers._trial_arrays import TrialArrays
from operant.searchers.base_searcher import MOST_AT_ONCE, BaseSearcher, Proposal, Trial
from operant.searchers.builder import SEARCHERS
from operant.searchers.random import Design
from operant.space import Config, Container


@SEARCHERS.register_module()
class GpSearcher(BaseSearcher):
    """Few, expensive trials: a Gaussian process learns from all of them where improvement is to be expected.

    Pending trials count as if they gave what the model expects of them, so parallel proposals spread.

    Args:
        n_initial_points: evenly spread points before the model is used.
        n_candidates: points among which the local searches for the best acquisition start.
        n_starts: local searches for each proposal.
        most_points: the model learns from at most so many results: the best, and others drawn at random.
    """

    def __init__(
        self,
        search_space: Container | Sequence[Mapping[str, Any]],
        reward_attribute: str = "acc",
        optimize_mode: str = "maximize",
        seed: int = 0,
        lag: int | None = None,
        *,
        n_initial_points: int = 10,
        n_candidates: int = 500,
        n_starts: int = 4,
        most_points: int = 1000,
    ) -> None:
        super().__init__(search_space, reward_attribute, optimize_mode, seed, lag)
        self.n_initial_points = whole_number(n_initial_points, "n_initial_points", least=0)
        self.n_candidates = whole_number(n_candidates, "n_candidates", least=1, most=MOST_AT_ONCE)
        self.n_starts = whole_number(n_starts, "n_starts", least=1)
        self.most_points = whole_number(most_points, "most_points", least=10)
        self._history = TrialArrays(self.space)
        self._design = Design("sobol", self.space.dimensions, self.seed)
        self._surrogate = Surrogate(self.space, self._history, self.most_points)
        self._maximiser = Maximiser(self.space.layout)
        self._explorer = BranchExplorer(self.space, self._history, self._maximiser)

    def _remember(self, proposal: Proposal) -> None:
        super()._remember(proposal)
        if proposal.notes is not None and "fit" in proposal.notes:
            self._surrogate.recall(proposal.notes["fit"])

    def _learn(self, trial: Trial) -> None:
        self._history.add(trial)

    def _propose(self, number: int) -> Proposal | None:
        if self.exhausted:
            return None
        rng = self.rng(number)
        config: Config | None
        notes = None
        if number < self.n_initial_points or np.isfinite(self._history.scores).sum() < 2:
            config = self.space.decode(self._design.point(number))
            if self.is_new(config):
                return Proposal(number, config)
        else:
            points = self._best_points(rng)
            notes = {"fit": self._surrogate.fit}
            for point in points:
                config = self.space.decode(point)
                if self.is_new(config):
                    return Proposal(number, config, notes=notes)
        config = self.fresh(rng)
        return None if config is None else Proposal(number, config, notes=notes)

    def _best_points(self, rng: np.random.Generator) -> list[np.ndarray]:
        with one_thread():
            model, best = self._surrogate.model(self.pending, self.seed)
            candidates = self._maximiser.candidates(rng, self.n_candidates, best_points(self._history, 5))
            candidates, rows, fixed = self._explorer.choose(rng, candidates)
            # Every second time, or a search would refine one place to its end.
            known = self._history.points if rng.random() < 0.5 else None
            best = best if rows is None else self._surrogate.best_of(rows)
            return promising_points(
                model, Acquisition("EI", best), self._maximiser, candidates, self.n_starts, fixed, known
            )
