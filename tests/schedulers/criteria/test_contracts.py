"""The contracts of criteria, for those that are built in and for one of a user's."""

from __future__ import annotations

from typing import Any

from operant.schedulers import BaseFilterCriterion, BaseStopCriterion
from operant.schedulers.criteria import ExpressionFilter, NaiveStopCriterion
from operant.schedulers.criteria.filters import AnyFilter
from operant.testing import FilterCriterionContract, StopCriterionContract


class TestMaxTries(StopCriterionContract):
    tries = 7

    def build(self) -> BaseStopCriterion:
        return NaiveStopCriterion(max_tries=7)


class Patience(BaseStopCriterion):
    """As a user may write it: looks at what the search shows, and keeps a number of its own there."""

    def before_run(self, scheduler: Any) -> None:
        scheduler.seen = 0

    def before_iter(self, scheduler: Any) -> None:
        scheduler.seen += 1
        if scheduler.best is not None and scheduler.best[0] >= 5.0:
            assert scheduler.jobs and scheduler.elapsed > 0.0 and scheduler.maximize
            scheduler.is_stop = True

    def after_run(self, scheduler: Any) -> None:
        assert scheduler.seen >= 1


class TestOwn(StopCriterionContract):
    tries = 6

    def build(self) -> BaseStopCriterion:
        return Patience()


class TestExpression(FilterCriterionContract):
    kept = ({"x": 1, "y": 2}, {"x": 5, "y": 1})
    dropped = ({"x": 5, "y": 2},)

    def build(self) -> BaseFilterCriterion:
        return ExpressionFilter("x > 4 and y > 1", ("x", "y"))


class TestAny(FilterCriterionContract):
    kept = ({"x": 2, "y": 2},)
    dropped = ({"x": 5, "y": 2}, {"x": 1, "y": 7})

    def build(self) -> BaseFilterCriterion:
        return AnyFilter([ExpressionFilter("x > 4"), ExpressionFilter("y > 4")])
