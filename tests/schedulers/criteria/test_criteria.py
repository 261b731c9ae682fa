"""Criteria: filters of proposals, stop rules."""

from __future__ import annotations

import math
from types import SimpleNamespace
from typing import Any

import pytest

from operant.errors import ConfigError
from operant.schedulers import build_filter_criterion, build_stop_criterion


def job(**settings: Any) -> Any:
    return SimpleNamespace(arg_dict=settings)


def test_filters_can_be_combined() -> None:
    criterion = build_filter_criterion(["x > 5", {"expression": "x == 2"}], ["x"])
    assert criterion is not None
    assert [criterion.filter(job(x=x)) for x in (1, 2, 6)] == [False, True, True]
    assert build_filter_criterion(None) is None
    alone = build_filter_criterion({"type": "ExpressionFilter", "expression": "x > 1"})
    assert alone is not None and alone.filter(job(x=2))
    with pytest.raises(ConfigError, match="unknown filter criterion"):
        build_filter_criterion({"type": "NoFilter"})


def test_stop_rules() -> None:
    rules = build_stop_criterion(
        {"max_tries": 10, "time_limits": 1, "max_reward": math.inf, "time_limits_per_job": "90s"}
    ).rules
    assert (rules.max_tries, rules.time_limits, rules.max_reward, rules.time_limits_per_job) == (10, 3600.0, None, 90.0)
    assert build_stop_criterion(None).rules.max_tries is None
    for wrong in (
        {"max_tries": 0},
        {"max_tries": "many"},
        {"max_reward": "high"},
        {"time_limits": -1},
        {"max_trys": 3},
    ):
        with pytest.raises(ConfigError):
            build_stop_criterion(wrong)


def test_a_custom_criterion_keeps_the_rules_beside_it() -> None:
    from operant.schedulers import STOP_CRITERIONS, BaseStopCriterion

    @STOP_CRITERIONS.register_module(force=True)
    class AfterThree(BaseStopCriterion):
        def __init__(self, limit: int = 3) -> None:
            self.limit = limit

    criteria = build_stop_criterion({"type": "AfterThree", "limit": 5, "max_tries": 7})
    assert criteria.rules.max_tries == 7 and criteria.custom[0].limit == 5  # type: ignore[attr-defined]
    with pytest.raises(ConfigError, match="did you mean 'limit'"):
        build_stop_criterion({"type": "AfterThree", "limt": 5})
