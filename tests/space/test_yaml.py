from __future__ import annotations

import math
from itertools import pairwise

import pytest

from operant.errors import ConfigError
from operant.space import build_space, load_yaml, load_yaml_file

TEXT = """\
task:
    template: "python mnist.py \\
            --lr {lr}"
    search_args:
        - type: Real
          name: lr
          data: [1e-5, 1E-1]
          log: true
        - type: Intt
          name: n
scheduler:
    stop_criterion: {max_reward: inf, time_limits: 1h}
"""


def test_numbers_and_lines():
    loaded, lines = load_yaml(TEXT)
    assert loaded["task"]["search_args"][0]["data"] == [1e-5, 0.1]
    assert loaded["scheduler"]["stop_criterion"] == {"max_reward": math.inf, "time_limits": "1h"}
    assert loaded["task"]["template"] == "python mnist.py --lr {lr}"
    assert lines["task", "search_args", 1, "type"] == 9
    assert lines["scheduler",] == 11


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ("1e-5", 1e-5), ("-1E+3", -1000.0), (".5", 0.5), ("1.", 1.0), ("inf", math.inf), ("-inf", -math.inf),
        (".inf", math.inf), ("-.Inf", -math.inf), ("12", 12), ("-3", -3), ("0x1F", 31), ("0o17", 15),
        ("010", 10),
        ("true", True), ("False", False), ("yes", "yes"), ("on", "on"), ("12:30", "12:30"), ("info", "info"),
        ("1_000", "1_000"), ("null", None), ("~", None), ("2020-01-01", "2020-01-01"),
        ("1e", "1e"), ("'1e-5'", "1e-5"),
    ],
)  # fmt: skip
def test_scalars_of_yaml_1_2(text, value):
    loaded = load_yaml(f"a: {text}")[0]["a"]
    assert loaded == value
    assert type(loaded) is type(value)


def test_an_error_deep_inside_gets_its_file_and_line(tmp_path):
    file = tmp_path / "search.yaml"
    file.write_text(TEXT)
    loaded, lines = load_yaml_file(file)
    with pytest.raises(ConfigError) as raised:
        build_space(loaded["task"]["search_args"])
    error = raised.value.under("task", "search_args").located("search.yaml", lines)
    assert str(error) == "search.yaml:9: task.search_args[1].type: unknown type 'Intt'; did you mean 'Int'?"


def test_a_key_that_is_not_in_the_file_is_placed_at_its_parent():
    _, lines = load_yaml(TEXT)
    error = ConfigError("`data` is missing", ("task", "search_args", 1, "data")).located("s.yaml", lines)
    assert str(error) == "s.yaml:9: task.search_args[1].data: `data` is missing"


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("a: 1\nb: [1", "s.yaml:2"),
        ("a: 1\na: 2", "s.yaml:2: a: the key is given twice, first in line 1"),
        ("a: b: c", "s.yaml:1: mapping values are not allowed here"),
    ],
)
def test_broken_yaml_names_file_and_line(text, message):
    with pytest.raises(ConfigError, match=message):
        load_yaml(text, "s.yaml")


def test_a_missing_file_is_one_clear_line(tmp_path):
    with pytest.raises(ConfigError, match=r"none.yaml: cannot be read: No such file"):
        load_yaml_file(tmp_path / "none.yaml")


def test_an_empty_file_is_nothing():
    assert load_yaml("") == (None, {(): 1})


ALIAS_BOMB = "a: &a [x, x, x, x, x, x, x, x, x]\n" + "".join(
    f"{after}: &{after} [{', '.join([f'*{before}'] * 9)}]\n" for before, after in pairwise("abcdefghi")
)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        (ALIAS_BOMB, r"^s\.yaml: its aliases \(`\*name`\) repeat more than 100,000 values$"),
        ("&a [*a]", "an alias .* holds itself"),
        ("[" * 3000, "nested too deeply"),
        ("a: " + "9" * 5000, "a value cannot be read"),
    ],
    ids=["alias bomb", "an alias of itself", "deep", "digits"],
)
def test_hostile_texts_are_refused_in_bounded_time(text, message):
    with pytest.raises(ConfigError, match=message):
        load_yaml(text, "s.yaml")


def test_aliases_of_an_honest_size_are_taken():
    loaded, _ = load_yaml("base: &base {a: 1, b: [1, 2]}\nother: {<<: *base, c: 3}\nlist: [*base, *base]")
    assert loaded["other"] == {"a": 1, "b": [1, 2], "c": 3} and loaded["list"] == [loaded["base"]] * 2


def test_a_file_that_is_no_text_is_told(tmp_path):
    (tmp_path / "s.yaml").write_bytes(b"a: caf\xe9")
    with pytest.raises(ConfigError, match=r"is not UTF-8 text \(byte 6\)"):
        load_yaml_file(tmp_path / "s.yaml")
