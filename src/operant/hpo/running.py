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
from typing import Any, NamedTuple

from operant.assessors import BaseAssessor
from operant.errors import ConfigError, UsageError
from operant.hpo.define_by_run import DefineByRun, GrowingSearcher
from operant.hpo.events import RunnerEventSet
from operant.hpo.expressions import ExpressionError, text_of
from operant.hpo.history import History
from operant.hpo.hook import TrialHook
from operant.hpo.judging import Judge
from operant.hpo.memory import Recorded, needs_rescoring, read_recorded, rescore
from operant.hpo.shape import Shape
from operant.hpo.thread_sites import InlineSite, ThreadSite, TrialClock, TrialSite
from operant.hpo.trials import with_task_id
from operant.registry import accepted_arguments, check_arguments
from operant.schedulers.criteria import BaseStopCriterion, StopCriteria
from operant.schedulers.criteria.stops import NaiveStopCriterion
from operant.schedulers.engine.scheduler import Scheduler
from operant.schedulers.planning.plan import SearchPlan
from operant.schedulers.planning.rewards import RewardRule
from operant.schedulers.planning.seeds import SeedPlan
from operant.schedulers.planning.template import RESERVED, Template
from operant.searchers import SEARCHERS, BaseSearcher
from operant.sites.base import Limits
from operant.space import Dict
from operant.tracking.places import check_run_id, find_root, new_run_id

__all__ = ["Best", "Settings", "run_search"]

_RETRY_SECONDS = 0.1
_GRACE_SECONDS = 2.0


class Best(NamedTuple):
    """The best trial: its configuration, what the function returned, and its metrics."""

    config: Any
    result: Any
    metrics: Mapping[str, Any]


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
    time_limit: float | None = None
    name: str | None = None
    ephemeral: bool = False
    event_sets: list[RunnerEventSet] = field(default_factory=list)

    @property
    def searcher_name(self) -> str:
        return self.searcher if isinstance(self.searcher, str) else self.searcher.__name__


class Finished(NamedTuple):
    best: Best | None
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
    judge = Judge(shape, settings.target, settings.objective, settings.concerns, settings.stop_when)
    with _folder(settings) as (name, folder):
        recorded = read_recorded(folder)
        config = _describe(settings, shape, recorded)
        if recorded is not None:
            recorded.refuse_other(name, config)
            if needs_rescoring(recorded, config["objective"]):
                recorded = rescore(folder, recorded, judge)
        history = History(settings.target, bool(settings.maximize), recorded.records(judge) if recorded else ())
        keep_history(history)
        plan = _plan(settings, shape, config, _stops_already(recorded, judge))
        if isinstance(plan.searcher, GrowingSearcher):
            for number, record in recorded.returned.items() if recorded is not None else ():
                plan.searcher.take_result(number, record.get("value"))
        clock = TrialClock()
        site = _site(settings, judge, reports_count=plan.assessor is not None)
        hook = TrialHook(settings, judge, history, plan.searcher)
        site.on_submit = hook.on_submit
        if not settings.ephemeral:
            _keep_config(folder, config)
        # `force` because settings that may change have been told apart from those that may not, here and not there.
        scheduler = Scheduler(
            plan, folder, site, clock=clock, hook=hook, resume=recorded is not None, force=recorded is not None
        )
        hook.begin(scheduler.control.jobs)
        try:
            best = scheduler.run().best
        finally:
            hook.close()
    if hook.wrong is not None:
        kept = "" if settings.ephemeral else f", and run() under name({name!r}) goes on from there"
        raise ExpressionError(f"{hook.wrong}. Its trials are kept in `history`{kept}") from None
    trial = history.of(best.number + 1) if best is not None else None
    found = None if trial is None else Best(trial.config, trial.result, trial.metrics)
    return Finished(found, history, None if settings.ephemeral else name)


def _is_finite(shape: Shape) -> bool:
    return not isinstance(shape, DefineByRun) and shape.space.size < math.inf


def _check(settings: Settings) -> None:
    if settings.maximize is None:
        raise UsageError("say what is wanted: maximize(R['…']) or minimize(R['…'])")
    if settings.spaces is None:
        raise UsageError("say what may vary: spaces({'lr': uniform(0.1, 0.2), …})")
    if settings.time_limit is not None and settings.workers != "process":
        raise UsageError("a call in a thread cannot be ended, so time_limit(…) needs workers('process')")
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
            "time_limit": settings.time_limit,
            "assessor": None if settings.assessor is None else str(settings.assessor),
        },
    }


def _plan(settings: Settings, shape: Shape, config: dict[str, Any], over: bool) -> SearchPlan:
    searcher = _searcher(settings, shape, config["searcher"]["seed"])
    rules = NaiveStopCriterion(max_tries=settings.max_steps)
    return SearchPlan(
        config=config,
        space=shape.space,
        template=Template("", shape.space, RESERVED),
        searcher=searcher,
        stop=StopCriteria(rules, [_Over()] if over else []),
        filter=None,
        assessor=_assessor(settings),
        rule=RewardRule(settings.target),
        seeds=SeedPlan(maximize=bool(settings.maximize)),
        parallel_size=settings.max_workers,
        max_retries=settings.max_retries,
        retry_delay=_RETRY_SECONDS,
        limits=Limits(seconds=settings.time_limit, grace_seconds=_GRACE_SECONDS),
        scalars=[settings.target, *(name for name, _ in settings.concerns)],
        generate_log=False,
    )


class _Over(BaseStopCriterion):
    """An earlier run has reached what `stop_when` asks for."""

    def before_run(self, scheduler: Any) -> None:
        scheduler.stop("stop_when", kill=False)


def _stops_already(recorded: Recorded | None, judge: Judge) -> bool:
    if recorded is None or not judge.stops:
        return False
    for number, proposal in recorded.state.proposals.items():
        end = recorded.end_of(number)
        if proposal.status == "FINISHED" and end is not None and judge.judge(proposal.config, end).stops:
            return True
    return False


def _searcher_options(settings: Settings) -> dict[str, Any]:
    options = dict(settings.options)
    if settings.init_steps is not None:
        options["n_initial_points"] = settings.init_steps
    return options


def _searcher(settings: Settings, shape: Shape, seed: int) -> BaseSearcher:
    made = SEARCHERS.get(settings.searcher) if isinstance(settings.searcher, str) else settings.searcher
    options = _searcher_options(settings)
    allowed, _, takes_any = accepted_arguments(made, skip=1)
    if settings.init_steps is not None and "n_initial_points" not in allowed and not takes_any:
        raise UsageError(f"{settings.searcher_name} has no first steps to set: leave init_steps out")
    check_arguments(made, options, f"option of {settings.searcher_name}", given=1)
    mode = "maximize" if settings.maximize else "minimize"
    common: dict[str, Any] = {"reward_attribute": settings.target, "optimize_mode": mode, "seed": seed}
    given = {key: value for key, value in common.items() if takes_any or key in allowed}

    def make(space: Dict) -> BaseSearcher:
        searcher: BaseSearcher = made(space, **given, **options)
        searcher.configure(**{key: value for key, value in common.items() if key not in given})
        return searcher

    searcher = GrowingSearcher(make, **common) if isinstance(shape, DefineByRun) else make(shape.space)
    repeatable = settings.seed is not None and settings.assessor is None and settings.time_limit is None
    if repeatable and searcher.looks_at_results and searcher.lag is None:
        # Proposals see the results of all but the last `max_workers`: then they do not depend on who was faster.
        searcher.configure(lag=settings.max_workers)
    return searcher


def _assessor(settings: Settings) -> BaseAssessor | None:
    given = settings.assessor
    if given is None:
        return None
    mode = "maximize" if settings.maximize else "minimize"
    if isinstance(given, (str, Mapping, type)):
        from operant.assessors import ASSESSORS

        options = {"type": given} if isinstance(given, str) else dict(given) if isinstance(given, Mapping) else {}
        kind = options.pop("type", given)
        made = ASSESSORS.get(kind) if isinstance(kind, str) else kind
        allowed, _, takes_any = accepted_arguments(made)
        if "optimize_mode" in allowed or takes_any:
            options.setdefault("optimize_mode", mode)
        check_arguments(made, options, f"option of {getattr(made, '__name__', kind)}")
        given = made(**options)
    if getattr(given, "optimize_mode", mode) != mode:
        raise ConfigError(f"the search is to {mode}, but its assessor was made to {given.optimize_mode}")
    if not hasattr(given, "assess_job"):
        raise UsageError(f"early_stop takes an assessor, its name or its settings, not {given!r}")
    found: BaseAssessor = given
    return found


def _site(settings: Settings, judge: Judge, *, reports_count: bool) -> TrialSite | InlineSite:
    function = with_task_id(settings.function)
    if settings.workers == "process":
        from operant.hpo.process_site import ProcessSite

        return ProcessSite(function, judge, settings.max_workers, reports_count=reports_count)
    if settings.max_workers == 1:
        return InlineSite(function, judge)
    return ThreadSite(function, judge, settings.max_workers, reports_count=reports_count)


def _keep_config(folder: Path, config: Mapping[str, Any]) -> None:
    import json

    import yaml

    folder.mkdir(parents=True, exist_ok=True)
    staged = folder / "search.staged"
    dumper = getattr(yaml, "CSafeDumper", yaml.SafeDumper)
    text = yaml.dump(json.loads(json.dumps(config, default=str)), Dumper=dumper, sort_keys=False)
    staged.write_text(text, encoding="utf-8")
    staged.replace(folder / "search.yaml")
