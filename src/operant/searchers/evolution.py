"""EvolutionSearcher: crossover and mutation of the best individuals, each of which is born once."""

from __future__ import annotations

import bisect
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from operant._util.checks import fraction, positive, whole_number
from operant.searchers._branches import BranchSteps
from operant.searchers.base_searcher import MOST_AT_ONCE, BaseSearcher, Proposal, Trial
from operant.searchers.builder import SEARCHERS
from operant.searchers.random import Design
from operant.space import Config, Container

# (-score, number, point); a population has the best first.
_Individual = tuple[float, int, np.ndarray]


@SEARCHERS.register_module()
class EvolutionSearcher(BaseSearcher):
    """A genetic algorithm without generations: whenever a proposal is asked for, one child is born.

    The first `population_size` individuals are spread evenly over the space. Then two parents are drawn from
    the best `population_size` finished individuals, each as the better of `tournament` drawn at random; a
    segment of the one is replaced by that of the other, and each argument mutates with `mutate_prob`.

    Args:
        population_size: how many individuals can be parents.
        mutate_prob: the chance of an argument to change: a number moves a little, another value is drawn anew.
        gen_trial_limit: how often parents are drawn to get a child that was never born before; after that a random
            new individual takes its place.
        mutate_scale: how far a number moves, as a part of its range (standard deviation).
        tournament: individuals that compete to be a parent.
    """

    def __init__(
        self,
        search_space: Container | Sequence[Mapping[str, Any]],
        reward_attribute: str = "acc",
        optimize_mode: str = "maximize",
        seed: int = 0,
        lag: int | None = None,
        *,
        population_size: int = 32,
        mutate_prob: float = 0.1,
        gen_trial_limit: int = 100,
        mutate_scale: float = 0.1,
        tournament: int = 2,
    ) -> None:
        super().__init__(search_space, reward_attribute, optimize_mode, seed, lag)
        self.population_size = whole_number(population_size, "population_size", least=2, most=MOST_AT_ONCE)
        self.mutate_prob = fraction(mutate_prob, "mutate_prob")
        self.gen_trial_limit = whole_number(gen_trial_limit, "gen_trial_limit", least=1)
        self.mutate_scale = positive(mutate_scale, "mutate_scale")
        self.tournament = whole_number(tournament, "tournament", least=1, most=MOST_AT_ONCE)
        self._design = Design("lhs", self.space.dimensions, self.seed, self.population_size)
        self._categorical = np.array([a.categorical for a in self.space.layout.arguments])
        self._population: list[_Individual] = []
        # Whole branches of a space with conditions die out in a population.
        self._steps = BranchSteps(self.space)

    def _learn(self, trial: Trial) -> None:
        self._steps.learn(trial)
        population = self._population
        for place, (_, number, _) in enumerate(population):
            if number == trial.number:
                del population[place]
                break
        if trial.state != "finished":
            return
        full = len(population) >= self.population_size
        if full and (-trial.score, trial.number) >= population[-1][:2]:
            return
        bisect.insort(
            population,
            (-trial.score, trial.number, self._point(trial.config)),
            key=lambda one: one[:2],
        )
        del population[self.population_size :]

    def _point(self, config: Config) -> np.ndarray:
        """The point of a configuration, NaN for arguments that it does not have."""
        point = self.space.encode(config)
        if self.space.layout.conditional:
            point[~self.space.layout.active(config)] = np.nan
        return point

    def _propose(self, number: int) -> Proposal | None:
        if self.exhausted:
            return None
        rng = self.rng(number)
        if number < self.population_size:
            config = self.space.decode(self._design.point(number))
            if self.is_new(config):
                return Proposal(number, config)
        elif (step := self._steps.propose(rng)) is not None and self.is_new(step):
            return Proposal(number, step)
        elif len(self._population) >= 2:
            for _ in range(self.gen_trial_limit):
                parent, point = self._child(rng)
                config = self.space.decode(point)
                if self.is_new(config):
                    return Proposal(number, config, parent=parent)
        fresh = self.fresh(rng)
        return None if fresh is None else Proposal(number, fresh)

    def _child(self, rng: np.random.Generator) -> tuple[int, np.ndarray]:
        # The population is in order, so the winner of a tournament is the lowest place drawn.
        places = rng.integers(len(self._population), size=(2, self.tournament)).min(axis=1)
        _, number, mother = self._population[int(places[0])]
        father = self._population[int(places[1])][2]
        child = mother.copy()
        start, stop = np.sort(rng.integers(len(child) + 1, size=2))
        child[start:stop] = father[start:stop]
        if self.space.layout.conditional:
            # An argument that neither parent had may be anywhere when it becomes active.
            child = np.where(np.isnan(child), rng.random(len(child)), child)
        return number, self._mutate(child, rng)

    def _mutate(self, child: np.ndarray, rng: np.random.Generator) -> np.ndarray:
        changed = rng.random(len(child)) < self.mutate_prob
        if not changed.any():
            # A copy of a parent is no new individual.
            changed[rng.integers(len(child))] = True
        moved = child + rng.normal(0.0, self.mutate_scale, len(child))
        # Reflection at the ends: clipping would pile up individuals on the border.
        moved = 1.0 - np.abs(1.0 - np.abs(moved) % 2.0)
        anew = rng.random(len(child))
        mutant: np.ndarray = np.where(changed, np.where(self._categorical, anew, moved), child)
        return mutant
