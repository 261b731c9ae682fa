"""R, M and C: what they can say, and what they say when they do not fit."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest

from operant.hpo import C, M, R
from operant.hpo.expressions import ExpressionError, TrialValues, evaluate, evaluate_number

VALUES = TrialValues(
    lambda: {"lr": 0.5, "layers": [3, 4]},
    {"acc": 0.8, "losses": [3.0, 1.0, 2.0], "info": SimpleNamespace(steps=7, double=lambda x: 2 * x)},
    {"time": 2.0},
)


@pytest.mark.parametrize(
    ("expression", "value"),
    [
        (R["acc"], 0.8),
        (R["losses"][1], 1.0),
        (R["info"].steps, 7),
        (R["info"].double(C["layers"][0]), 6),
        (R["acc"] + 1, 1.8),
        (1 - R["acc"], pytest.approx(0.2)),
        (2 * R["acc"] / M["time"], 0.8),
        (C["layers"][1] // 3, 1),
        (C["layers"][1] % 3, 1),
        (2 ** C["layers"][0], 8),
        (-R["acc"], -0.8),
        (abs(-R["acc"]), 0.8),
        ((-R["acc"]).abs(), 0.8),
        (R["losses"].mean(), 2.0),
        (R["losses"].sum(), 6.0),
        (R["losses"].len(), 3),
        (R["losses"].stdev(), 1.0),
        (R["losses"].apply(max), 3.0),
        (R["acc"] > 0.5, True),
        (R["acc"] <= 0.5, False),
        (R["acc"] == 0.8, True),
        (R["acc"] != 0.8, False),
        ((R["acc"] > 0.5) & (M["time"] < 1), False),
        ((R["acc"] > 0.5) | (M["time"] < 1), True),
        (~(R["acc"] > 0.5), False),
        (R["acc"].is_(None), False),
        (R["acc"].isinstance_(float), True),
        (lambda trial: trial["return"]["acc"] * trial["config"]["lr"], 0.4),
        (3.5, 3.5),
    ],
)
def test_what_expressions_can_say(expression: Any, value: Any) -> None:
    assert evaluate(expression, VALUES) == value


def test_and_stops_where_the_answer_is_known() -> None:
    assert evaluate((R["acc"] > 1) & (R["missing"] > 1), VALUES) is False
    assert evaluate((R["acc"] < 1) | (R["missing"] > 1), VALUES) is True


@pytest.mark.parametrize(
    ("expression", "parts"),
    [
        (R["ac"], ["R['ac']", "did you mean 'acc'", "acc, losses, info"]),
        (R["losses"][5], ["R['losses'][5]", "no place 5", "sequence of 3"]),
        (R["acc"]["x"], ["0.8 has no keys"]),
        (R["info"].step, ["no attribute 'step'", "did you mean 'steps'"]),
        (R.acc, ["'acc' is a key, not an attribute"]),
        (R["acc"] + "text", ["cannot be computed", "TypeError"]),
        (R["acc"](), ["is no function"]),
        (lambda trial: trial["nothing"], ["KeyError"]),
    ],
)
def test_what_does_not_fit_is_said(expression: Any, parts: list[str]) -> None:
    with pytest.raises(ExpressionError) as caught:
        evaluate(expression, VALUES)
    for part in parts:
        assert part in str(caught.value)


def test_an_objective_is_a_number() -> None:
    assert evaluate_number(R["acc"] > 0.5, VALUES) == 1.0
    with pytest.raises(ExpressionError, match=r"R\['losses'\] is no number but list"):
        evaluate_number(R["losses"], VALUES)


def test_what_cannot_wait_is_refused() -> None:
    with pytest.raises(TypeError, match=r"& \| ~"):
        bool(R["a"] > 1 and R["b"] > 1)
    with pytest.raises(TypeError, match=r"len\(\)"):
        len(R["a"])
    with pytest.raises(TypeError, match="gone through"):
        list(R["a"])
    with pytest.raises(TypeError, match="in R"):
        _ = "x" in R


def test_expressions_read_as_they_were_written() -> None:
    assert repr((R["acc"] - 0.1 * M["time"]).abs()) == "abs((R['acc'] - (0.1 * M['time'])))"
