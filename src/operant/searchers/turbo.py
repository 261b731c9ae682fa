"""TurboSearcher: Bayesian optimisation inside a trust region, for tens of continuous arguments."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from operant._util.checks import one_of, whole_number
from operant.searchers._branches import BranchSteps
from operant.searchers._extras import one_thread
from operant.searchers._trust_region import TrustRegion
from operant.searchers.base_searcher import MOST_AT_ONCE, BaseSearcher, Proposal, Trial
from operant.searchers.builder import SEARCHERS
from operant.searchers.random import Design
from operant.space import Container

_STARTS = ("centre", "random")


@SEARCHERS.register_module()
class TurboSearcher(BaseSearcher):
    """TuRBO-1 (Eriksson et al., NeurIPS 2019): a Gaussian process and a box around the best point.

    The box grows with successes and shrinks with failures; when it has collapsed, everything begins anew elsewhere.

    Args:
        n_initial_points: evenly spread points at each beginning (default: twice the number of arguments).
        most_points: the model learns from at most so many results. More make proposals better and slower.
        start: whether the first sample is the `centre` of all ranges or a `random` one.
    """

    def __init__(
        self,
        search_space: Container | Sequence[Mapping[str, Any]],
        reward_attribute: str = "acc",
        optimize_mode: str = "maximize",
        seed: int = 0,
        lag: int | None = None,
        *,
        n_initial_points: int | None = None,
        most_points: int = 500,
        start: str = "random",
    ) -> None:
        super().__init__(search_space, reward_attribute, optimize_mode, seed, lag)
        default = max(2 * self.space.dimensions, 2)
        wanted = default if n_initial_points is None else n_initial_points
        self.n_initial_points = whole_number(wanted, "n_initial_points", least=2, most=MOST_AT_ONCE)
        self.most_points = whole_number(most_points, "most_points", least=10)
        self.start = one_of(start, "start", _STARTS)
        self._design = Design("lhs", self.space.dimensions, self.seed, self.n_initial_points)
        self._number = 0
        self._region = TrustRegion(self.space, self.most_points)
        self._asked: Counter[int] = Counter()
        self._steps = BranchSteps(self.space)
        # The newest proposal's run and fit, by which a restored region makes the same model.
        self._newest: dict[str, Any] = {}

    def _propose(self, number: int) -> Proposal | None:
        if self.exhausted:
            return None
        place = self._asked[self._number]
        notes: dict[str, Any] = {"run": self._number}
        if place < self.n_initial_points or not self._region.usable:
            notes["first"] = True
            centre = number == 0 and self.start == "centre"
            design = self._design.point(self._number * self.n_initial_points + place)
            points = np.full((1, self.space.dimensions), 0.5) if centre else design[None]
        elif (step := self._steps.propose(self.rng(number))) is not None and self.is_new(step):
            # Not a step of the region, which takes it over as one of the points that it began with.
            return Proposal(number, step, notes=notes | {"first": True})
        else:
            waiting = [trial for trial in self.pending if (trial.notes or {}).get("run") == self._number]
            if self._newest.get("run") == self._number:
                self._region.recall(self._newest["fit"])
            with one_thread():
                points = self._region.ask(self.rng(number), waiting, self.seed)
            notes["fit"] = self._region.fit
        for point in points:
            config = self.space.decode(point)
            if self.is_new(config):
                return Proposal(number, config, notes=notes)
        fresh = self.fresh(self.rng(number))
        return None if fresh is None else Proposal(number, fresh, notes=notes)

    def _remember(self, proposal: Proposal) -> None:
        super()._remember(proposal)
        if proposal.notes is not None:
            self._asked[proposal.notes["run"]] += 1
            if "fit" in proposal.notes:
                self._newest = proposal.notes

    def _learn(self, trial: Trial) -> None:
        self._steps.learn(trial)
        notes = trial.notes
        if notes is None or notes["run"] != self._number:
            return
        if "first" in notes or trial.told > 1:
            self._region.add(trial)
            return
        self._region.tell(trial)
        if self._region.over:
            self._number += 1
            self._region = TrustRegion(self.space, self.most_points)
