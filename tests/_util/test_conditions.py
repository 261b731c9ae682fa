"""Conditions in words: read, never executed."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from operant._util.conditions import Condition
from operant.errors import ConfigError

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
def test_conditions(text: str, expected: bool) -> None:
    assert Condition(text, CONFIG)(CONFIG) is expected


def test_an_absent_argument_makes_a_comparison_false() -> None:
    parsed = Condition("momentum > 0.5 or size == 2", [*CONFIG, "momentum"])
    assert parsed(CONFIG) and not Condition("momentum > 0", ["momentum"])({})
    assert Condition("not momentum > 0", ["momentum"])({})


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
        Condition(text, CONFIG)


@given(st.text(alphabet="size()[]<>=!andorti 0123.'\"+-*/%,`_x{}$;", max_size=40))
def test_no_text_does_anything_but_parse_or_fail_well(text: str) -> None:
    try:
        answer = Condition(text, CONFIG)(CONFIG)
    except ConfigError:
        return
    assert answer in (True, False)
