"""Searches from Python in one sentence: `hpo(f).bayes().max_steps(50).maximize(R['acc']).spaces({…}).run()`."""

from operant.hpo.entry import SearchableFunction, hpo
from operant.hpo.events import RunnerEventSet
from operant.hpo.expressions import C, Expression, ExpressionError, M, R
from operant.hpo.history import History, TrialRecord
from operant.hpo.search import Search
from operant.hpo.trials import Skip, report
from operant.hpo.values import choice, quniform, randint, randn, uniform

__all__ = [
    "C",
    "Expression",
    "ExpressionError",
    "History",
    "M",
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
    "uniform",
]
