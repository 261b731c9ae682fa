"""Spaces that nobody has written down: a function asks for its parameters while it runs, and the space grows."""

from __future__ import annotations

import zlib
from collections.abc import Callable, Mapping
from typing import Any

import numpy as np

from operant.hpo.arguments import make_argument
from operant.hpo.shape import Shape
from operant.hpo.values import choice
from operant.searchers import BaseSearcher, Observation, Proposal, Trial
from operant.space import Categorical, Dict, Int, Leaf, Real
from operant.status import Status

# ["float", low, high, step, log], ["int", low, high, step, log] or ["categorical", [values as the journal has them]].
Distribution = list[Any]


class DefineByRun(Shape):
    """Stands where a space stands that becomes known only while trials run."""

    def __init__(self) -> None:
        self.nested = None
        self.axes = {}
        self.space = _Unknown({})
        self._finishers = self._changed = {}

    def build(self, flat: Mapping[str, Any]) -> Any:
        return dict(flat)

    def gridded(self, max_steps: int | None) -> Shape:
        raise TypeError("what a function asks for while it runs has no grid; use random, tpe, bayes or evolution")


class _Unknown(Dict):
    """Any configuration may be one of a space that is not known yet."""

    def contains(self, config: Mapping[str, Any]) -> bool:
        return True


def leaf_of(distribution: Distribution) -> Leaf:
    kind, *rest = distribution
    if kind == "categorical":
        return Categorical(rest[0])
    low, high, step, log = rest
    return Int(low, high, step=step, log=log) if kind == "int" else Real(low, high, step=step, log=log)


def categorical(choices: Any) -> tuple[Distribution, Callable[[Any], Any]]:
    """The distribution of these choices, and what is made of one that was chosen."""
    argument = make_argument(choice(list(choices)))
    assert isinstance(argument.leaf, Categorical)
    return ["categorical", argument.leaf.data], argument.finish or (lambda chosen: chosen)


def draw(leaf: Leaf, seed: int, number: int, name: str) -> Any:
    """The value of a parameter that no proposal knew: always the same for the same trial."""
    return leaf.sample(np.random.default_rng([seed, number, zlib.crc32(name.encode())]))


class GrowingSearcher(BaseSearcher):
    """A searcher over the parameters seen so far. When a trial shows a new one, another searcher takes over that
    knows it; parameters that a trial did not ask for count with the value that they would have had.
    """

    def __init__(self, make: Callable[[Dict], BaseSearcher], reward_attribute: str, optimize_mode: str, seed: int):
        super().__init__(Dict({}), reward_attribute, optimize_mode, seed)
        self._make = make
        self._inner: BaseSearcher | None = None
        self._leaves: dict[str, Leaf] = {}
        self._shown: dict[int, Mapping[str, Any]] = {}

    def take_result(self, number: int, result: Any) -> None:
        """What a trial asked for, before its observation comes."""
        if isinstance(result, Mapping) and "distributions" in result:
            self._shown[number] = result

    def _propose(self, number: int) -> Proposal | None:
        if self._inner is None:
            return Proposal(number, {})
        self._inner._next_number = number
        return self._inner.propose()

    def _learn(self, trial: Trial) -> None:
        shown = self._shown.get(trial.number, {})
        new = {name: one for name, one in shown.get("distributions", {}).items() if name not in self._leaves}
        self._leaves.update((name, leaf_of(one)) for name, one in new.items())
        if new:
            self._inner = self._make(Dict(self._leaves))
            self._inner.restore(
                [self._observation(one) for one in self.trials.values() if one.state != "pending"],
                [Proposal(one.number, self._whole(one)) for one in self.trials.values()],
            )
        elif self._inner is not None:
            if trial.number not in self._inner.trials:
                self._inner._remember(Proposal(trial.number, self._whole(trial)))
            self._inner.observe(self._observation(trial))

    def _observation(self, trial: Trial) -> Observation:
        if trial.state == "failed":
            return Observation(trial.number, status=Status.ERROR)
        return Observation(trial.number, values={self.reward_attribute: self.reward(trial)})

    def _whole(self, trial: Trial) -> dict[str, Any]:
        """A trial's configuration with a value for every parameter."""
        params = {**trial.config, **self._shown.get(trial.number, {}).get("params", {})}
        return {
            name: params[name] if name in params and params[name] in leaf else draw(leaf, self.seed, trial.number, name)
            for name, leaf in self._leaves.items()
        }
