"""Values that may vary, spaces in the shape of a configuration, and grids over them."""

from __future__ import annotations

import math
from collections import OrderedDict, namedtuple
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from operant.errors import UsageError
from operant.hpo import choice, quniform, randint, randn, uniform
from operant.hpo.arguments import NormalReal
from operant.hpo.shape import Shape, _split


def grid(nested: Any, max_steps: int | None = None) -> list[Any]:
    shape = Shape(nested).gridded(max_steps)
    return [shape.build(flat) for flat in shape.space.data]


def samples(nested: Any, count: int = 200) -> list[Any]:
    shape, rng = Shape(nested), np.random.default_rng(0)
    return [shape.build(shape.space.sample(rng)) for _ in range(count)]


def test_quniform_has_its_end_point() -> None:
    assert grid(quniform(0, 0.3, 0.1)) == [0.0, 0.1, 0.2, 0.3]
    assert grid(quniform(0.5, 1.0, 0.2)) == [0.5, 0.7, 0.9]
    assert grid(quniform(2, 8, 3)) == [2, 5, 8] and all(isinstance(one, int) for one in grid(quniform(2, 8, 3)))


def test_randint_has_both_ends() -> None:
    assert grid(randint(1, 4)) == [1, 2, 3, 4]
    assert grid(randint(0.5, 2.5)) == [1, 2]
    assert set(samples(randint(1, 3))) == {1, 2, 3}


def test_an_axis_with_one_value() -> None:
    assert grid({"a": randint(3, 3), "b": randint(0, 1)}) == [{"a": 3, "b": 0}, {"a": 3, "b": 1}]
    assert grid(quniform(2.0, 2.0, 0.5)) == [2.0]


@pytest.mark.parametrize(
    ("make", "kind"),
    [
        (lambda: uniform(1, 1), UsageError),
        (lambda: uniform(2, 1), UsageError),
        (lambda: uniform(0, math.inf), UsageError),
        (lambda: uniform("a", 1), UsageError),
        (lambda: quniform(2, 1, 1), UsageError),
        (lambda: quniform(0, 1, 0), UsageError),
        (lambda: quniform(0, 1, -1), UsageError),
        (lambda: randint(1.2, 1.8), UsageError),
        (lambda: randn(0, 0), UsageError),
        (lambda: choice([]), ValueError),
        (lambda: choice({1, 2}), TypeError),
        (lambda: uniform(0, 1) + uniform(0, 1), TypeError),
        (lambda: uniform(0, 1) >> 3, TypeError),
        (lambda: Shape({"a": 1, "b": [2]}), UsageError),
    ],
)
def test_what_is_no_space_is_refused(make: Any, kind: type[Exception]) -> None:
    with pytest.raises(kind):
        make()


def test_chains() -> None:
    assert all(1e-5 <= one <= 1e-2 for one in samples(10 ** uniform(-5, -2)))
    logs = [math.log10(one) for one in samples(10 ** uniform(-5, -2), 2000)]
    assert abs(np.mean(logs) + 3.5) < 0.1  # evenly spread over the exponents
    assert set(samples((randint(1, 3) * 2 + 1) >> str)) == {"3", "5", "7"}
    assert set(samples(1 / (choice([1, 2]) >> float))) == {1.0, 0.5}
    assert set(samples(2 ** randint(4, 6) >> int)) == {16, 32, 64}
    assert set(samples(-choice([1, 2]) % 5)) == {4, 3}
    assert set(samples(abs(3 - randint(4, 5)) // 2)) == {0, 1}


def test_a_power_of_a_range_is_a_log_scale_in_the_journal() -> None:
    shape = Shape({"lr": 10 ** uniform(-5, -2), "n": uniform(0, 9) >> int})
    assert shape.describe() == [
        {"name": "lr", "type": "Real", "low": 1e-5, "high": 0.01, "log": True},
        {"name": "n", "type": "Real", "low": 0.0, "high": 9.0, "then": ["int"]},
    ]
    assert grid({"lr": 10 ** uniform(-5, -2)}, 4) == [{"lr": pytest.approx(10.0**k)} for k in (-5, -4, -3, -2)]
    # A range that no float holds stays as it is written, and fails only where it is used.
    assert Shape(10 ** uniform(0, 400)).describe()[0]["high"] == 400


def test_randn_is_normally_distributed() -> None:
    values = samples(randn(5, 2), 4000)
    assert abs(np.mean(values) - 5) < 0.15 and abs(np.std(values) - 2) < 0.1
    leaf = NormalReal(5, 2)
    assert leaf.decode(leaf.encode(6.3)) == pytest.approx(6.3)
    assert all(math.isfinite(one) for one in grid(randn(), 7)) and grid(randn(1, 3), 1) == [pytest.approx(1)]


Point = namedtuple("Point", "x y")


def test_the_shape_is_kept() -> None:
    inner = {"list": [1, randint(2, 2)], "tuple": (randint(3, 3), "c"), "point": Point(randint(4, 4), 0)}
    made = samples({"a": OrderedDict(inner), "none": None, "f": len, 5: randint(6, 6)}, 1)[0]
    assert made == {
        "a": {"list": [1, 2], "tuple": (3, "c"), "point": Point(4, 0)},
        "none": None,
        "f": len,
        5: 6,
    }
    assert isinstance(made["a"], OrderedDict) and isinstance(made["a"]["point"], Point)
    assert list(Shape({"b": uniform(0, 1), "a": {"c": [0, uniform(0, 1)]}}).axes) == ["b", "a.c[1]"]


def test_flat_names_do_not_collide() -> None:
    shape = Shape({"a.b": randint(1, 1), "a": {"b": randint(2, 2)}})
    assert len(shape.axes) == 2 and next(iter(shape.space.data)) is not None
    assert shape.build(shape.space.data[0]) == {"a.b": 1, "a": {"b": 2}}
    with pytest.raises(UsageError, match="same name"):
        Shape({1: uniform(0, 1), "1": uniform(0, 1)})


def test_trials_do_not_share_containers() -> None:
    shape = Shape({"constant": [1, 2], "chosen": choice([[3], [4]])})
    flat = shape.space.data[0]
    first = shape.build(flat)
    first["constant"].append(9)
    first["chosen"].append(9)
    assert shape.build(flat) == {"constant": [1, 2], "chosen": [3]}


class Optimizer: ...


def test_choices_of_any_kind() -> None:
    values = [[64, 64], (1, 2), None, "text", {"k": 1}, Optimizer, len, np.float64]
    found = grid(choice(values))
    assert found == values and isinstance(found[1], tuple)
    assert grid(choice([1, 1.0, True, 1])) == [1, 1.0, True]  # the same value twice counts once
    assert grid(choice(["a", "a"])) == ["a"]


def test_continuous_grids_need_a_budget_and_keep_it() -> None:
    with pytest.raises(ValueError, match="max_steps"):
        grid(uniform(0, 1))
    assert grid(uniform(0.95, 1), 5) == [0.95, 0.9624999999999999, 0.975, 0.9875, 1.0]
    assert grid(uniform(0, 1), 1) == [0.5] and grid(uniform(0, 1), 2) == [0, 1]
    assert len(grid({"a": uniform(0, 1), "b": uniform(0, 1)}, 10)) == 9
    found = grid({"a": uniform(0, 1), "b": choice(["x", "y", "z"])}, 11)
    assert len(found) == 9 and {one["b"] for one in found} == {"x", "y", "z"}
    assert len(grid({"a": randint(0, 100), "b": choice(["x", "y"])}, 7)) == 6
    assert [one["a"] for one in grid({"a": randint(0, 100)}, 3)] == [0, 50, 100]


def test_more_choices_than_the_budget() -> None:
    found = grid({"a": choice(list(range(10))), "b": choice(list("abcdefghi"))}, 12)
    assert 1 <= len(found) <= 12 and len({one["a"] for one in found}) > 1 and len({one["b"] for one in found}) > 1


sizes = st.one_of(st.just(math.inf), st.integers(1, 40))


@given(st.lists(st.tuples(sizes, st.booleans()), min_size=1, max_size=5), st.integers(1, 2000))
def test_a_grid_never_exceeds_its_budget(axes: list[tuple[float, bool]], budget: int) -> None:
    counts = _split([size for size, _ in axes], [choice and size < math.inf for size, choice in axes], budget)
    assert math.prod(counts) <= budget
    assert all(1 <= count <= size for count, (size, _) in zip(counts, axes, strict=True))
    if len(axes) == 1:
        assert counts[0] == min(budget, axes[0][0])
