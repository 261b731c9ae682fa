"""`hpo(f)`: a function that can be searched."""

from __future__ import annotations

import functools
import os
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any

from operant.errors import unknown
from operant.hpo.search import Search, UnknownMethodError

if TYPE_CHECKING:
    from operant.hpo.optuna_door import OptunaFunction
    from operant.searchers import BaseSearcher

__all__ = ["SearchableFunction", "hpo"]


class SearchableFunction:
    """Calls the function as before; its methods begin a search with one kind of searcher each."""

    def __init__(self, function: Callable[..., Any]) -> None:
        self.function = function
        functools.update_wrapper(self, function)

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        return self.function(*args, **kwargs)

    def __getattr__(self, name: str) -> Any:
        if name.startswith("_"):
            raise AttributeError(name)
        known = [one for one in dir(type(self)) if not one.startswith("_")]
        raise UnknownMethodError(unknown("way to search", name, known))

    def grid(self, silent: bool = False) -> Search:
        """All combinations; continuous values are divided so that they fit into `max_steps`."""
        return Search(self.function, "GridSearcher", silent=silent)

    def random(self, silent: bool = False, **options: Any) -> Search:
        """Random configurations, none of them twice."""
        return Search(self.function, "RandomSearcher", options, silent=silent)

    def bayes(self, silent: bool = False, **options: Any) -> Search:
        """Bayesian optimisation with a Gaussian process: for few, expensive trials."""
        return Search(self.function, "GpSearcher", {"n_initial_points": 5, **options}, silent=silent)

    def evolution(self, silent: bool = False, **options: Any) -> Search:
        """Mutation and selection in a population."""
        return Search(self.function, "EvolutionSearcher", options, silent=silent)

    def tpe(self, silent: bool = False, **options: Any) -> Search:
        """Tree-structured Parzen estimators: for many trials and many choices."""
        return Search(self.function, "TpeSearcher", options, silent=silent)

    def cmaes(self, silent: bool = False, **options: Any) -> Search:
        """CMA-ES: for continuous values that depend on each other."""
        return Search(self.function, "CmaEsSearcher", options, silent=silent)

    def search(self, searcher: str | type[BaseSearcher], silent: bool = False, **options: Any) -> Search:
        """Any other searcher: a class, or a registered name."""
        return Search(self.function, searcher, options, silent=silent)


class _Hpo:
    """`hpo(f)`, or `@hpo` above a function. `f(config)` or `f(config, task_id)` returns what is to be judged."""

    def __call__(self, function: Callable[..., Any]) -> SearchableFunction:
        return function if isinstance(function, SearchableFunction) else SearchableFunction(function)

    def from_optuna(self, objective: Callable[[Any], Any], direction: str = "minimize") -> OptunaFunction:
        """An Optuna objective as it is; its parameters become known while it runs."""
        from operant.hpo.optuna_door import OptunaFunction

        return OptunaFunction(objective, direction)

    def from_sweep(
        self,
        source: str | os.PathLike[str] | Mapping[str, Any],
        function: Callable[..., Any],
        silent: bool = False,
    ) -> Search:
        """The search that a W&B sweep describes, of a function that returns the sweep's metric."""
        from operant.hpo.sweeps import search_of_sweep

        return search_of_sweep(source, function, silent=silent)


hpo = _Hpo()
