"""`hpo(f)`, a function that can be searched, and the search that it begins: `hpo(f).bayes().spaces({…}).run()`."""

from __future__ import annotations

import functools
import os
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any

from operant._util.checks import is_number, is_whole
from operant.errors import OperantError, UsageError, unknown

if TYPE_CHECKING:
    from operant.hpo.event_sets import RunnerEventSet
    from operant.hpo.history import History
    from operant.hpo.optuna_objective import OptunaFunction
    from operant.hpo.running import Best
    from operant.searchers import BaseSearcher

_WORKERS = ("thread", "process", "ray")


class NoResultError(OperantError):
    """A search of which no trial succeeded; its ``history`` says why."""


class UnknownMethodError(UsageError, AttributeError):
    """A method that a search does not have."""


class Search:
    """What to search, told in any order; each method returns the search itself, and `run` runs it.

    :param searcher: the name of a registered searcher, or a class.
    :param options: what that searcher takes besides what all of them do.
    :param silent: log nothing.
    """

    def __init__(
        self,
        function: Callable[..., Any],
        searcher: str | type[BaseSearcher],
        options: Mapping[str, Any] | None = None,
        *,
        silent: bool = False,
    ) -> None:
        self._given: dict[str, Any] = {
            "function": function,
            "searcher": searcher,
            "options": dict(options or {}),
            "silent": silent,
        }
        self._history: History | None = None
        self._ran_as: str | None = None
        own = self._given["options"]
        if "seed" in own:  # where other tools have it
            self.seed(own.pop("seed"))
        for key, method in (("reward_attribute", "maximize"), ("optimize_mode", "maximize or minimize")):
            if key in own:
                raise UsageError(f"{key} is no option of a searcher here: {method} says it")

    def __getattr__(self, name: str) -> Any:
        if name.startswith("_"):
            raise AttributeError(name)
        known = [one for one in dir(type(self)) if not one.startswith("_")]
        raise UnknownMethodError(unknown("method of a search", name, known))

    # -- how much ------------------------------------------------------------------------------------------------

    def max_steps(self, count: int | None) -> Search:
        """At most so many trials, those of earlier runs under this name included. A grid is made so coarse that it
        fits; with 0 nothing is tried, and `run` gives the best of what there is."""
        return self._set(max_steps=None if count is None else _whole(count, "max_steps", 0))

    def max_workers(self, count: int) -> Search:
        """So many trials at a time; without this as many as there are processors."""
        return self._set(max_workers=_whole(count, "max_workers", 1))

    def max_retries(self, count: int) -> Search:
        """How often a trial that failed is tried again; without this twice, so three tries in all."""
        return self._set(max_retries=_whole(count, "max_retries", 0))

    def workers(self, kind: str, **options: Any) -> Search:
        """`thread`; `process`: each trial in a process of its own, which uses all cores and can be killed; or `ray`.

        :param options: of `ray`, what Ray takes for an actor, such as `num_cpus`, `num_gpus`, `resources`.
        """
        if kind not in _WORKERS:
            raise UsageError(unknown("kind of workers", kind, _WORKERS))
        if options and kind != "ray":
            raise UsageError(f"workers({kind!r}) takes no options, but got {next(iter(options))!r}")
        return self._set(workers=kind, worker_options=options)

    def time_limit(self, seconds: float) -> Search:
        """End a trial that takes longer, not in threads. What it has reported until then counts."""
        if not is_number(seconds) or not seconds > 0:
            raise UsageError(f"time_limit takes a number of seconds above 0, not {seconds!r}")
        return self._set(time_limit=float(seconds))

    def site(self, name: str, **settings: Any) -> Search:
        """Each trial as a job of a site, such as `site("slurm", partition="short")`; see docs/sites.md."""
        return self._set(site={"type": name, **settings})

    # -- what for ------------------------------------------------------------------------------------------------

    def maximize(self, expression: Any, name: str = "target") -> Search:
        """What shall become large: an expression such as `R['acc']`."""
        return self._objective(expression, name, True)

    def minimize(self, expression: Any, name: str = "target") -> Search:
        """What shall become small."""
        return self._objective(expression, name, False)

    def stop_when(self, condition: Any) -> Search:
        """Begin no more trials once this holds for one; of several conditions any one is enough."""
        return self._set(stop_when=[*self._given.get("stop_when", ()), condition])

    def concern(self, expression: Any, name: str) -> Search:
        """One more column in tables and in the journal."""
        return self._set(concerns=[*self._given.get("concerns", ()), (str(name), expression)])

    def rank(self, count: int) -> Search:
        """How many of the best trials are shown at the end."""
        return self._set(rank=_whole(count, "rank", 1))

    # -- where and how -------------------------------------------------------------------------------------------

    def spaces(self, nested: Any) -> Search:
        """What may vary, in the shape of the configuration; what is no `uniform`, `choice` … stays as it is."""
        return self._set(spaces=nested)

    def seed(self, seed: Any) -> Search:
        """The same seed proposes the same trials, however many workers there are and whoever is faster.

        :param seed: a whole number from 0 on, or a random generator that one is drawn from.
        """
        return self._set(seed=_seed(seed))

    def init_steps(self, count: int) -> Search:
        """How many spread-out trials a searcher makes before it uses its model; 0: as few as it can do with."""
        return self._set(init_steps=_whole(count, "init_steps", 0))

    def early_stop(self, assessor: Any) -> Search:
        """End trials that fall behind, judged by what they `report`.

        :param assessor: an assessor, its class, its name (`'MedianStopAssessor'`), or its settings with a `type`.
        """
        return self._set(assessor=assessor)

    def name(self, name: str) -> Search:
        """What the search is called in `.operant/searches`; running it again under this name goes on with it."""
        return self._set(name=name)

    def ephemeral(self) -> Search:
        """Keep nothing on disk once the search is over."""
        return self._set(ephemeral=True)

    def add_event_set(self, events: RunnerEventSet) -> Search:
        """Tell these callbacks what happens."""
        return self._set(event_sets=[*self._given.get("event_sets", ()), events])

    # -- the search itself ---------------------------------------------------------------------------------------

    def run(self) -> Best:
        """Search, and return `(config, result, metrics)` of the best trial.

        When no trial succeeded that is a `NoResultError`; with `max_steps(0)` and nothing found before, the three are
        None, None and {}.
        """
        from operant.hpo.running import Settings, run_search

        def keep(history: History) -> None:
            self._history = history

        found = run_search(Settings(**self._given), keep)
        self._ran_as = found.name
        return found.best

    @property
    def history(self) -> History:
        """All trials: a sequence with `table()`, `rows()` and `plot()`."""
        if self._history is None:
            raise UsageError("there is no history before run()")
        return self._history

    @property
    def search_name(self) -> str | None:
        """What the last run was journaled as; `search-ctl show --task NAME` shows it."""
        return self._ran_as

    def _set(self, **given: Any) -> Search:
        self._given.update(given)
        return self

    def _objective(self, expression: Any, name: str, maximize: bool) -> Search:
        if "maximize" in self._given:
            raise UsageError("there is one objective: maximize or minimize was called before")
        return self._set(objective=expression, target=str(name), maximize=maximize)


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
        from operant.hpo.optuna_objective import OptunaFunction

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


def _whole(value: Any, what: str, least: int) -> int:
    if not is_whole(value, least):
        raise UsageError(f"{what} takes a whole number from {least} on, not {value!r}")
    return value


def _seed(seed: Any) -> int | None:
    if seed is None:
        return None
    for draw in ("integers", "randint", "randrange"):
        method = getattr(seed, draw, None)
        if callable(method):
            return int(method(0, 2**31 - 1))
    return _whole(int(seed) if hasattr(seed, "__index__") and not isinstance(seed, bool) else seed, "seed", 0)


hpo = _Hpo()
