"""Searches from Python in one sentence: `hpo(f).bayes().max_steps(50).maximize(R['acc']).spaces({…}).run()`."""

from typing import TYPE_CHECKING

from operant._lazy import load_when_used
from operant.hpo.event_sets import RunnerEventSet
from operant.hpo.expressions import C, Expression, ExpressionError, M, R
from operant.hpo.history import History, TrialRecord
from operant.hpo.search import NoResultError, Search, SearchableFunction, hpo
from operant.hpo.values import choice, quniform, randint, randn, uniform
from operant.sites.calls import Skip, report

if TYPE_CHECKING:
    from operant.hpo.config_tasks import ConfigScheduler, run_scheduler_local
    from operant.hpo.kubernetes_tasks import run_scheduler_k8s

__all__ = [
    "C",
    "ConfigScheduler",
    "Expression",
    "ExpressionError",
    "History",
    "M",
    "NoResultError",
    "R",
    "RunnerEventSet",
    "Search",
    "SearchableFunction",
    "Skip",
    "TrialRecord",
    "choice",
    "hpo",
    "quniform",
    "randint",
    "randn",
    "report",
    "run_scheduler_k8s",
    "run_scheduler_local",
    "uniform",
]

__getattr__ = load_when_used(
    __name__,
    {
        "ConfigScheduler": "operant.hpo.config_tasks",
        "run_scheduler_k8s": "operant.hpo.kubernetes_tasks",
        "run_scheduler_local": "operant.hpo.config_tasks",
    },
)
