"""Criteria: the expression filter, stop rules, units."""

from __future__ import annotations

import math
from types import SimpleNamespace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from operant.errors import ConfigError
from operant.schedulers import build_filter_criterion, build_stop_criterion
from operant.schedulers.criteria import Expression

CONFIG = {"batch-size": 512, "config(epochs)": 5, "lr": 1e-3, "lr_decay": 0.5, "opt": "adam", "flag": True, "size": 2}


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("batch-size >= 512 and config(epochs) > 4", True),
        ("batch-size >= 512 and config(epochs) > 5", False),
        ("batch-size > 512 or not config(epochs) > 5", True),
        ("`batch-size` == 512", True),
        ("lr < lr_decay", True),
        ("lr_decay * 2 == 1.0", True),
        ("batch-size - size == 510", True),
        ("batch-size / size % 3 == 1", True),
        ("1 < size <= 2 < lr_decay * 10", True),
        ("opt == 'adam' and flag", True),
        ("opt in ['sgd', \"adam\"]", True),
        ("opt not in ('sgd', 'adam')", False),
        ("not (size == 2 or size == 3)", False),
        ("-size < -1 and +size > 1", True),
        ("lr == 1e-3 and lr > .5e-3", True),
        ("size < inf and flag == true", True),
        ("opt > 3", False),
        ("size / 0 > 1", False),
    ],
)
def test_expressions(text: str, expected: bool) -> None:
    assert Expression(text, CONFIG)(CONFIG) is expected


def test_an_absent_argument_makes_a_comparison_false() -> None:
    parsed = Expression("momentum > 0.5 or size == 2", [*CONFIG, "momentum"])
    assert parsed(CONFIG) and not Expression("momentum > 0", ["momentum"])({})
    assert Expression("not momentum > 0", ["momentum"])({})


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("batch_size > 1", "did you mean 'batch-size'"),
        ("size >", "it ends where"),
        ("size > 1 size", "was not expected"),
        ("(size > 1", "')' is missing"),
        ("__import__('os').system('id')", "unknown argument '__import__'"),
        ("size.__class__", "means nothing"),
        ("size > 1; opt", "means nothing"),
        ("`nope` > 1", "unknown argument"),
        ("", "empty"),
        ("(" * 200 + "size" + ")" * 200, "nested"),
        ("size in 3", "needs a list"),
    ],
)
def test_what_cannot_be_read(text: str, message: str) -> None:
    with pytest.raises(ConfigError, match=message.replace("(", r"\(").replace(")", r"\)")):
        Expression(text, CONFIG)


@given(st.text(alphabet="size()[]<>=!andorti 0123.'\"+-*/%,`_x{}$;", max_size=40))
def test_no_text_does_anything_but_parse_or_fail_well(text: str) -> None:
    try:
        answer = Expression(text, CONFIG)(CONFIG)
    except ConfigError:
        return
    assert answer in (True, False)


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
