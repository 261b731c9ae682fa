"""Runs an Optuna `objective(trial)` as it is: `suggest_*`, `report`, `should_prune`, conditional parameters."""

from __future__ import annotations

import datetime
from collections.abc import Callable, Sequence
from typing import Any

from operant.errors import UsageError, unknown
from operant.hpo.define_by_run import DefineByRun, Distribution, categorical, draw, leaf_of
from operant.hpo.expressions import R
from operant.hpo.search import Search
from operant.sites.calls import Pruned, checked_report, current_reporter

_DIRECTIONS = ("minimize", "maximize")


class OptunaTrial:
    """What an objective gets: the methods of Optuna's `Trial` that an objective calls."""

    def __init__(self, number: int, proposed: dict[str, Any]) -> None:
        self.number = number
        self.params: dict[str, Any] = {}
        self.user_attrs: dict[str, Any] = {}
        self.datetime_start = datetime.datetime.now()
        self._proposed = proposed
        self._asked: dict[str, tuple[Distribution, Any]] = {}
        self._stop = False

    def suggest_float(
        self, name: str, low: float, high: float, *, step: float | None = None, log: bool = False
    ) -> float:
        return float(self._suggest(name, ["float", float(low), float(high), step, log]))

    def suggest_int(self, name: str, low: int, high: int, *, step: int = 1, log: bool = False) -> int:
        return int(self._suggest(name, ["int", int(low), int(high), int(step), log]))

    def suggest_categorical(self, name: str, choices: Sequence[Any]) -> Any:
        distribution, finish = categorical(choices)
        return self._suggest(name, distribution, finish)

    def suggest_uniform(self, name: str, low: float, high: float) -> float:
        return self.suggest_float(name, low, high)

    def suggest_loguniform(self, name: str, low: float, high: float) -> float:
        return self.suggest_float(name, low, high, log=True)

    def suggest_discrete_uniform(self, name: str, low: float, high: float, q: float) -> float:
        return self.suggest_float(name, low, high, step=q)

    def report(self, value: float, step: int) -> None:
        place, number = checked_report(step, value)
        reporter = current_reporter.get()
        if reporter is not None:
            self._stop = reporter.send(place, number) or self._stop

    def should_prune(self) -> bool:
        return self._stop

    def set_user_attr(self, key: str, value: Any) -> None:
        self.user_attrs[key] = value

    def __getattr__(self, name: str) -> Any:
        if name.startswith("_"):
            raise AttributeError(name)
        known = [one for one in (*dir(type(self)), *vars(self)) if not one.startswith("_")]
        raise AttributeError(unknown("part of a trial", name, known))

    def _suggest(self, name: str, distribution: Distribution, finish: Callable[[Any], Any] | None = None) -> Any:
        if name in self._asked:  # asked for twice: the same answer
            chosen = self._asked[name][1]
        else:
            leaf = leaf_of(distribution)
            chosen = self._proposed.get(name)
            if name not in self._proposed or chosen not in leaf:
                chosen = draw(leaf, 0, self.number, name)
            self._asked[name] = (distribution, chosen)
        self.params[name] = finish(chosen) if finish is not None else chosen
        return self.params[name]

    def _result(self, value: Any) -> dict[str, Any]:
        return {
            "value": value,
            "params": {name: chosen for name, (_, chosen) in self._asked.items()},
            "distributions": {name: distribution for name, (distribution, _) in self._asked.items()},
            "user_attrs": self.user_attrs,
        }


class OptunaFunction:
    """An objective; its methods begin a search of what it asks for. Trial results are `R['value']`, `R['params']`."""

    def __init__(self, objective: Callable[[Any], Any], direction: str = "minimize") -> None:
        if direction not in _DIRECTIONS:
            raise UsageError(unknown("direction", direction, _DIRECTIONS))
        self.objective = objective
        self.direction = direction
        self.__name__ = self.__qualname__ = getattr(objective, "__name__", "objective")

    def __call__(self, config: dict[str, Any], task_id: int) -> dict[str, Any]:
        trial = OptunaTrial(task_id - 1, config)
        try:
            value = self.objective(trial)
        except Exception as error:
            # By its name: an objective may come with Optuna or without.
            if any(kind.__name__ == "TrialPruned" for kind in type(error).__mro__):
                raise Pruned(trial._result(None)) from None
            raise
        if value is None:
            raise ValueError("the objective returned None and not a number")
        return trial._result(value)

    def random(self, silent: bool = False, **options: Any) -> Search:
        return self.search("RandomSearcher", silent, **options)

    def tpe(self, silent: bool = False, **options: Any) -> Search:
        return self.search("TpeSearcher", silent, **options)

    def bayes(self, silent: bool = False, **options: Any) -> Search:
        return self.search("GpSearcher", silent, **options)

    def evolution(self, silent: bool = False, **options: Any) -> Search:
        return self.search("EvolutionSearcher", silent, **options)

    def cmaes(self, silent: bool = False, **options: Any) -> Search:
        return self.search("CmaEsSearcher", silent, **options)

    def search(self, searcher: Any, silent: bool = False, **options: Any) -> Search:
        search = Search(self, searcher, options, silent=silent).spaces(DefineByRun())
        wanted = search.minimize if self.direction == "minimize" else search.maximize
        return wanted(R["value"], name="value")
