"""Runs a fluent search: everything it was told becomes a plan of the search engine, and the engine runs it."""

from __future__ import annotations

import math
import os
import secrets
import tempfile
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

from operant.errors import UsageError
from operant.hpo.define_by_run import DefineByRun, GrowingSearcher
from operant.hpo.event_sets import RunnerEventSet
from operant.hpo.expressions import ExpressionError, check_config_keys, text_of
from operant.hpo.history import History
from operant.hpo.hook import TrialHook
from operant.hpo.memory import Recorded, needs_rescoring, read_recorded, rescore
from operant.hpo.results import ResultCheck
from operant.hpo.search import NoResultError
from operant.hpo.shape import Shape, call_of
from operant.registry import accepted_arguments, check_arguments
from operant.schedulers.criteria import BaseStopCriterion
from operant.schedulers.engine.scheduler import Scheduler
from operant.schedulers.planning.places import checked_site
from operant.schedulers.planning.plan import SearchPlan
from operant.schedulers.views.metrics import told_to_prometheus
from operant.searchers import SEARCHERS, BaseSearcher
from operant.sites import SITES, FunctionSite
from operant.sites.threads import ThreadSite
from operant.space import Dict
from operant.status import Status
from operant.tracking.places import check_run_id, find_root, new_run_id

if TYPE_CHECKING:
    from operant.sites.elsewhere import RemoteCallSite
    from operant.sites.processes import ProcessSite
    from operant.sites.ray import RayCallSite


class Best(NamedTuple):
    """The best trial: its configuration, what the function returned, and its metrics."""

    config: Any = None
    result: Any = None
    metrics: Mapping[str, Any] = {}


@dataclass
class Settings:
    """What a fluent search was told."""

    function: Callable[..., Any]
    searcher: str | type[BaseSearcher]
    options: dict[str, Any] = field(default_factory=dict)
    silent: bool = False
    max_steps: int | None = None
    max_workers: int = field(default_factory=lambda: os.cpu_count() or 1)
    max_retries: int = 2
    objective: Any = None
    target: str = "target"
    maximize: bool | None = None
    stop_when: list[Any] = field(default_factory=list)
    rank: int = 5
    concerns: list[tuple[str, Any]] = field(default_factory=list)
    spaces: Any = None
    seed: int | None = None
    init_steps: int | None = None
    assessor: Any = None
    workers: str = "thread"
    worker_options: dict[str, Any] = field(default_factory=dict)
    site: dict[str, Any] | None = None
    time_limit: float | None = None
    name: str | None = None
    ephemeral: bool = False
    event_sets: list[RunnerEventSet] = field(default_factory=list)

    @property
    def searcher_name(self) -> str:
        return self.searcher if isinstance(self.searcher, str) else self.searcher.__name__


class Finished(NamedTuple):
    best: Best
    history: History
    name: str | None


def run_search(settings: Settings, keep_history: Callable[[History], None]) -> Finished:
    """Run it to its end. `keep_history` gets the history before the first trial, so that an error loses nothing."""
    _check(settings)
    shape = settings.spaces if isinstance(settings.spaces, DefineByRun) else Shape(settings.spaces)
    if settings.searcher == "GridSearcher":
        shape = shape.gridded(settings.max_steps)
    elif settings.max_steps is None and not settings.stop_when and not _is_finite(shape):
        raise UsageError("nothing would ever end this search: give max_steps(n) or stop_when(condition)")
    check_space = getattr(settings.function, "check_space", None)
    if check_space is not None:
        check_space(settings.spaces)
    if not isinstance(shape, DefineByRun):
        for expression in (settings.objective, *(one for _, one in settings.concerns), *settings.stop_when):
            check_config_keys(expression, settings.spaces)
    check = ResultCheck(shape, settings.target, settings.objective, settings.concerns, settings.stop_when)
    with _folder(settings) as (name, folder):
        recorded = read_recorded(folder)
        config = _describe(settings, shape, recorded)
        if recorded is not None:
            recorded.refuse_other(name, config)
            if needs_rescoring(recorded, config["objective"]):
                recorded = rescore(folder, recorded, check)
        history = History(settings.target, bool(settings.maximize), recorded.records(check) if recorded else ())
        keep_history(history)
        plan = _plan(settings, shape, config, _stops_already(recorded, check))
        if isinstance(plan.searcher, GrowingSearcher):
            for number, record in recorded.returned.items() if recorded is not None else ():
                plan.searcher.take_result(number, record.get("value"))
        site = _site(settings, check, folder, reports_count=plan.assessor is not None)
        hook = TrialHook(settings, check, history, plan.searcher)
        site.on_submit = hook.on_submit
        if not settings.ephemeral:
            plan.keep_config(folder)
        # `force` because settings that may change have been told apart from those that may not, here and not there.
        scheduler = Scheduler(plan, folder, site, hook=hook, resume=recorded is not None, force=recorded is not None)
        hook.begin(scheduler.control.jobs)
        try:
            with told_to_prometheus(folder):
                best = scheduler.run().best
        finally:
            hook.close()
    if hook.wrong is not None:
        kept = "" if settings.ephemeral else f", and run() under name({name!r}) goes on from there"
        raise ExpressionError(f"{hook.wrong}. Its trials are kept in `history`{kept}") from None
    trial = history.of(best.number + 1) if best is not None else None
    if trial is None and len(history):
        raise NoResultError(_why_none(history))
    found = Best() if trial is None else Best(trial.config, trial.result, trial.metrics)
    return Finished(found, history, None if settings.ephemeral else name)


def _why_none(history: History) -> str:
    last = history[-1]
    why = last.error or last.reason or last.status.lower()
    return f"none of {len(history)} trials gave a result; of the last: {why} (`history` has them all)"


def _is_finite(shape: Shape) -> bool:
    return not isinstance(shape, DefineByRun) and shape.space.size < math.inf


def _check(settings: Settings) -> None:
    if settings.maximize is None:
        raise UsageError("say what is wanted: maximize(R['…']) or minimize(R['…'])")
    if settings.spaces is None:
        raise UsageError("say what may vary: spaces({'lr': uniform(0.1, 0.2), …})")
    if settings.time_limit is not None and settings.workers == "thread" and settings.site is None:
        raise UsageError("a call in a thread cannot be ended, so time_limit(…) needs workers('process') or a site(…)")
    if settings.site is not None:
        checked_site(settings.site)
    if settings.ephemeral and settings.name is not None:
        raise UsageError(f"an ephemeral search keeps nothing, so there is nothing to call {settings.name!r}")


@contextmanager
def _folder(settings: Settings) -> Iterator[tuple[str, Path]]:
    if settings.ephemeral:
        with tempfile.TemporaryDirectory(prefix="operant-search-") as folder:
            yield "ephemeral", Path(folder)
        return
    function = getattr(settings.function, "__name__", type(settings.function).__name__)
    name = settings.name or new_run_id(str(function).strip("<>"))
    if "/" in check_run_id(name):
        raise UsageError(f"a search's name has no '/': {name!r}")
    yield name, find_root() / "searches" / name


def _describe(settings: Settings, shape: Shape, recorded: Recorded | None) -> dict[str, Any]:
    """The search as plain data: what its journal and its page show, and what a second run must agree with."""
    seed = settings.seed
    if seed is None and recorded is not None:
        seed = (recorded.config.get("searcher") or {}).get("seed")
    if seed is None:
        seed = secrets.randbelow(1 << 31)
    function = settings.function
    return {
        "task": {
            "function": f"{getattr(function, '__module__', '?')}.{getattr(function, '__qualname__', '?')}",
            "search_args": shape.describe(),
        },
        "searcher": {
            "type": settings.searcher_name,
            "reward_attribute": settings.target,
            "optimize_mode": "maximize" if settings.maximize else "minimize",
            "seed": seed,
            **_searcher_options(settings),
        },
        "objective": text_of(settings.objective),
        "concerns": {name: text_of(one) for name, one in settings.concerns},
        "stop_when": [text_of(one) for one in settings.stop_when],
        "scheduler": {
            "parallel_size": settings.max_workers,
            "max_tries": settings.max_steps,
            "max_retries": settings.max_retries,
            "workers": settings.workers,
            **({} if settings.site is None else {"site": settings.site}),
            "time_limit": settings.time_limit,
            "assessor": None if settings.assessor is None else str(settings.assessor),
        },
    }


def _plan(settings: Settings, shape: Shape, config: dict[str, Any], over: bool) -> SearchPlan:
    return SearchPlan.for_function(
        config,
        shape.space,
        _searcher(settings, shape, config["searcher"]["seed"]),
        max_tries=settings.max_steps,
        criteria=[_Over()] if over else [],
        assessor=settings.assessor,
        parallel_size=settings.max_workers,
        max_retries=settings.max_retries,
        time_limit=settings.time_limit,
        scalars=[name for name, _ in settings.concerns],
    )


class _Over(BaseStopCriterion):
    """An earlier run has reached what `stop_when` asks for."""

    def before_run(self, scheduler: Any) -> None:
        scheduler.stop("stop_when", kill=False)


def _stops_already(recorded: Recorded | None, check: ResultCheck) -> bool:
    if recorded is None or not check.stops:
        return False
    for number, proposal in recorded.state.proposals.items():
        end = recorded.end_of(number)
        if proposal.status == Status.FINISHED and end is not None and check.check(proposal.config, end).stops:
            return True
    return False


def _searcher_options(settings: Settings) -> dict[str, Any]:
    options = dict(settings.options)
    if settings.init_steps is not None:
        options[_first_steps_option(settings)] = settings.init_steps
    return options


def _first_steps_option(settings: Settings) -> str:
    """What the searcher calls its first steps."""
    made = SEARCHERS.get(settings.searcher) if isinstance(settings.searcher, str) else settings.searcher
    allowed, _, takes_any = accepted_arguments(made, skip=1)
    for name in ("n_initial_points", "ninits"):
        if name in allowed:
            return name
    if not takes_any:
        raise UsageError(f"{settings.searcher_name} has no first steps to set: leave init_steps out")
    return "n_initial_points"


def _searcher(settings: Settings, shape: Shape, seed: int) -> BaseSearcher:
    made = SEARCHERS.get(settings.searcher) if isinstance(settings.searcher, str) else settings.searcher
    options = _searcher_options(settings)
    allowed, _, takes_any = accepted_arguments(made, skip=1)
    check_arguments(made, options, f"option of {settings.searcher_name}", given=1)
    mode = "maximize" if settings.maximize else "minimize"
    common: dict[str, Any] = {"reward_attribute": settings.target, "optimize_mode": mode, "seed": seed}
    given = {key: value for key, value in common.items() if takes_any or key in allowed}

    def make(space: Dict) -> BaseSearcher:
        searcher: BaseSearcher = made(space, **given, **options)
        searcher.configure(**{key: value for key, value in common.items() if key not in given})
        return searcher

    searcher = GrowingSearcher(make, **common) if isinstance(shape, DefineByRun) else make(shape.space)
    searcher.show = shape.shown
    repeatable = settings.seed is not None and settings.assessor is None and settings.time_limit is None
    if repeatable and searcher.looks_at_results and searcher.lag is None:
        # Proposals see the results of all but the last `max_workers`: then they do not depend on who was faster.
        searcher.configure(lag=settings.max_workers)
    return searcher


def _site(
    settings: Settings, check: ResultCheck, folder: Path, *, reports_count: bool
) -> ThreadSite | ProcessSite | FunctionSite | RayCallSite | RemoteCallSite:
    call, name, workers = call_of(settings.function, check.shape), check.name, settings.max_workers
    if settings.site is not None:
        from operant.sites.elsewhere import RemoteCallSite

        return RemoteCallSite(SITES.build(settings.site, folder), call, check, name, folder)
    if settings.workers == "process":
        from operant.sites.processes import ProcessSite

        return ProcessSite(call, check, name, workers, reports_count=reports_count)
    if settings.workers == "ray":
        from operant.sites.ray import RayCallSite

        return RayCallSite(call, check, name, workers, reports_count=reports_count, options=settings.worker_options)
    if workers == 1:
        return FunctionSite.calling(call, check, name)
    return ThreadSite(call, check, name, workers, reports_count=reports_count)
