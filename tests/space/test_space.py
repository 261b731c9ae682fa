from __future__ import annotations

import math
from itertools import product

import numpy as np
import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st

from operant.errors import ConfigError
from operant.space import (
    Categorical,
    Dict,
    DuplicateArgument,
    File,
    Int,
    List,
    Nested,
    Real,
    build_space,
)

scalars = st.one_of(st.booleans(), st.integers(-5, 5), st.text(max_size=3), st.none(), st.floats(-2, 2))


@st.composite
def arguments(draw, finite=False, most=5):
    """A `search_args` list of all kinds, with conditions on what came before."""
    args = []
    for i in range(draw(st.integers(1, most))):
        kind = draw(st.sampled_from(["Categorical", "Int", "Real", "Nested"]))
        spec = {"type": kind, "name": f"a{i}"}
        if kind == "Categorical":
            spec["data"] = draw(st.lists(scalars, min_size=1, max_size=4))
        elif kind == "Nested":
            del spec["name"]
            rows = draw(st.lists(scalars, min_size=1, max_size=3))
            spec["data"] = [{f"a{i}": value, f"b{i}": n} for n, value in enumerate(rows)]
        else:
            spec["log"] = draw(st.booleans())
            low = draw(st.integers(1, 20))
            spec["data"] = [low, low + draw(st.integers(0, 30))]
            if kind == "Real" and (finite or draw(st.booleans())):
                spec["step"] = draw(st.sampled_from([0.5, 1, 2.5, 0.1 * 100]))
            if kind == "Int" and draw(st.booleans()):
                spec["step"] = draw(st.integers(1, 4))
        if i and draw(st.booleans()):
            earlier = args[draw(st.integers(0, i - 1))]
            if earlier["type"] in ("Int", "Real"):
                middle = sum(earlier["data"]) / 2
                spec["when"] = {earlier["name"]: {draw(st.sampled_from(["min", "max", "above"])): middle}}
            elif earlier["type"] == "Categorical":
                spec["when"] = {earlier["name"]: draw(st.sampled_from(earlier["data"]))}
            else:
                row = draw(st.sampled_from(earlier["data"]))
                key = draw(st.sampled_from(sorted(row)))
                spec["when"] = {key: [row[key]]}
        args.append(spec)
    return args


@given(arguments(), st.integers(0, 2**32))
@settings(max_examples=150, deadline=None)
def test_a_configuration_survives_the_unit_cube(args, seed):
    space = build_space(args)
    rng = np.random.default_rng(seed)
    configs = [space.sample(rng) for _ in range(5)]
    points = space.encode_many(configs)
    assert np.all((points >= 0) & (points <= 1))
    for config, point in zip(configs, points, strict=True):
        assert space.contains(config)
        assert point == pytest.approx(space.encode(config))
        back = space.decode(point)
        assert list(back) == list(config)
        for name, value in config.items():
            same = pytest.approx(value) if isinstance(value, float) else value
            assert back[name] == same
            assert type(back[name]) is type(value)
        assert space.flatten(space.structure(config)) == config


@given(arguments(finite=True, most=4))
@settings(max_examples=150, deadline=None)
def test_index_access_equals_enumeration(args):
    """The lazy product holds exactly the configurations that trying all combinations gives, each once."""
    space = build_space(args)
    leaves = list(space.layout.arguments)
    assume(math.prod(len(argument.leaf.data) for argument in leaves) <= 500)
    expected = set()
    for values in product(*(list(argument.leaf.data) for argument in leaves)):
        config = {}
        for i in space.layout.order:
            if leaves[i].when is None or leaves[i].when.holds(config):
                leaves[i].put(config, values[i])
        expected.add(space.key({name: config[name] for name in space.names if name in config}))
    listed = [space.key(space.data[i]) for i in range(len(space.data))]
    assert len(listed) == len(set(listed)) == space.size
    assert set(listed) == expected
    assert [space.key(config) for config in space.data] == listed


def test_conditions_tell_true_from_one():
    space = Dict(a=Categorical(True, 1), b=Int(0, 1, when={"a": True}), c=Int(0, 1, when={"a": 1}))
    assert [sorted(config) for config in space.data] == [["a", "b"], ["a", "b"], ["a", "c"], ["a", "c"]]


def test_without_conditions_the_order_is_that_of_itertools_product():
    space = Dict(a=Int(1, 3), b=Categorical("x", "y"), c=Real(0, 1, step=0.5))
    expected = [{"a": a, "b": b, "c": c} for a, b, c in product([1, 2, 3], ["x", "y"], [0.0, 0.5, 1.0])]
    assert list(space.data) == expected
    assert space.data[-1] == expected[-1]
    assert space.data[2:5] == expected[2:5]
    with pytest.raises(IndexError):
        space.data[18]


def test_a_grid_of_ten_to_the_twelve_costs_nothing():
    space = Dict({f"x{i}": Int(0, 999) for i in range(4)})
    assert space.size == 10**12
    assert space.data[10**12 - 2] == {"x0": 999, "x1": 999, "x2": 999, "x3": 998}


def test_a_long_range_with_a_condition_is_not_listed_either():
    space = Dict(n=Int(1, 10**9), m=Int(1, 10**9, when={"n": {"min": 5 * 10**8, "not": 10**9}}))
    assert space.size == (5 * 10**8 - 1) + 5 * 10**8 * 10**9 + 1
    assert space.data[-1] == {"n": 10**9}
    assert space.data[5 * 10**8 - 1] == {"n": 5 * 10**8, "m": 1}


@pytest.mark.parametrize("leaf", [Int(1, 7), Int(1, 100, log=True), Real(0.5, 2, step=0.25), Categorical(*"abc")])
def test_uniform_points_reach_every_value_with_the_chance_it_should_have(leaf):
    units = np.linspace(0, 1, 20001)
    decoded = [leaf.decode(u) for u in units]
    assert set(decoded) == set(leaf.data)
    if not getattr(leaf, "log", False):
        counts = [decoded.count(value) for value in leaf.data]
        assert max(counts) - min(counts) <= 2


def test_steps_are_written_as_people_write_them():
    assert list(Real(0, 1, step=0.1).data) == [0.0, 0.1, 0.2, 0.3, 0.4, 0.5, 0.6, 0.7, 0.8, 0.9, 1.0]
    assert list(Real(1e-3, 5e-3, step=1e-3).data) == [0.001, 0.002, 0.003, 0.004, 0.005]
    assert list(Int(1, 10, step=4).data) == [1, 5, 9]
    assert Int(1, 10, step=4).high == 9


def test_one_and_true_and_one_point_zero_are_different_values():
    leaf = Categorical([1, True, 1.0, "1", 1])
    assert leaf.size == 4
    assert [leaf.decode(leaf.encode(v)) is v or leaf.decode(leaf.encode(v)) == v for v in leaf.data] == [True] * 4
    assert type(leaf.decode(leaf.encode(True))) is bool


def test_values_may_be_lists_and_numpy_scalars():
    leaf = Categorical([[64, 64], [128]])
    assert leaf.decode(leaf.encode([128])) == [128]
    assert Categorical(np.array([1, 2])).data == [1, 2]
    assert type(Categorical([np.float64(0.5)]).data[0]) is float


def test_kwspaces_names_and_nested_structures():
    space = Dict(
        lr=Real(1e-5, 1e-1, log=True),
        net=Dict(width=Int(16, 256), layers=List(Int(1, 2), Categorical("a", "b"))),
        fixed="constant",
        config=File("c.yaml", {"epochs": Int(3, 5), "rows": Nested([{"s.a": 1}, {"s.a": 2, "s.b": 3}])}),
    )
    assert list(space.kwspaces) == [
        "lr", "net.width", "net.layers[0]", "net.layers[1]", "config(epochs)", "config(rows)"
    ]  # fmt: skip
    assert space.names[-3:] == ("config(epochs)", "config(s.a)", "config(s.b)")
    config = space.decode([0.5] * 5 + [0.9])
    assert config["config(s.b)"] == 3
    assert space.structure(config)["net"]["layers"] == [config["net.layers[0]"], config["net.layers[1]"]]
    assert space.structure(config)["fixed"] == "constant"
    assert space.flatten(space.structure(config)) == config
    assert space.files["config"].values("config", config) == {"epochs": 4, "s.a": 2, "s.b": 3}
    with pytest.raises(ConfigError, match="did you mean 'net'"):
        space.flatten({"nett": {}})


def test_conditions_inside_a_file_see_their_neighbours():
    space = build_space(
        [
            {"type": "Categorical", "name": "epochs", "data": [1, 2]},
            {
                "type": "File",
                "name": "config",
                "file": "c.yaml",
                "when": {"epochs": 2},
                "args": [
                    {"type": "Int", "name": "epochs", "data": [5, 6]},
                    {"type": "Int", "name": "warmup", "data": [1, 3], "when": {"epochs": 6}},
                ],
            },
        ]
    )
    assert list(space.data) == [
        {"epochs": 1},
        {"epochs": 2, "config(epochs)": 5},
        {"epochs": 2, "config(epochs)": 6, "config(warmup)": 1},
        {"epochs": 2, "config(epochs)": 6, "config(warmup)": 2},
        {"epochs": 2, "config(epochs)": 6, "config(warmup)": 3},
    ]


def test_a_name_given_twice_is_taken_from_the_later_argument():
    args = [
        {"type": "Categorical", "name": "batch-size", "data": [1024, 512]},
        {"type": "Categorical", "name": "log-interval", "data": [10, 20]},
        {"type": "Nested", "data": [{"lr": 0.5, "batch-size": 512}, {"lr": 1, "batch-size": 1024}]},
    ]
    with pytest.warns(DuplicateArgument, match="'batch-size' is given twice"):
        space = build_space(args)
    assert space.size == 4
    assert space.data[0] == {"log-interval": 10, "lr": 0.5, "batch-size": 512}
    with pytest.warns(DuplicateArgument):
        space = build_space([args[2], args[0]])
    assert space.size == 4
    assert space.data[0] == {"lr": 0.5, "batch-size": 1024}


@pytest.mark.parametrize(
    ("args", "message"),
    [
        ([{"type": "Categorcal", "name": "a", "data": [1]}], r"\[0\].type: .*did you mean 'Categorical'"),
        ([{"type": "Int", "name": "a", "dat": [1, 2]}], r"\[0\].dat: .*did you mean 'data'"),
        ([{"type": "Int", "name": "a"}], r"\[0\].data: `data` is missing"),
        ([{"type": "Int", "name": "a", "data": []}], r"\[0\].data: `data` is empty"),
        ([{"type": "Int", "name": "a", "data": [1, 2, 3]}], r"two ends"),
        ([{"type": "Int", "name": "a", "data": [2, 1]}], r"above the upper end"),
        ([{"type": "Int", "name": "a", "data": [1, 2.5]}], r"whole numbers"),
        ([{"type": "Real", "name": "a", "data": [0, 1], "log": True}], r"\[0\].log: .*above 0"),
        ([{"type": "Real", "name": "a", "data": [0, math.inf]}], r"finite"),
        ([{"type": "Real", "name": "a", "data": [0, 1], "step": 0}], r"\[0\].step"),
        ([{"type": "Categorical", "data": [1]}], r"\[0\].name: `name` is missing"),
        ([{"type": "Nested", "data": [1, 2]}], r"\[0\].data\[0\]: a row is a mapping"),
        ([{"name": "a", "data": [1]}], r"\[0\].type: `type` is missing"),
        (
            [
                {"type": "Int", "name": "a", "data": [1, 2]},
                {"type": "Int", "name": "b", "data": [1, 2], "when": {"aa": 1}},
            ],
            r"\[1\].when.aa: unknown argument 'aa'; did you mean 'a'",
        ),
        (
            [{"type": "Int", "name": "a", "data": [1, 2], "when": {"a": 1}}],
            r"\[0\].when: the condition of 'a' depends on itself",
        ),
        (
            [{"type": "Int", "name": "a", "data": [1, 2], "when": {"a": {"mni": 1}}}],
            r"\[0\].when.a.mni: .*did you mean 'min'",
        ),
        (
            [
                {"type": "Categorical", "name": "kind", "data": ["sgd", "adam"]},
                {"type": "Int", "name": "b", "data": [1, 2], "when": {"kind": ["adam", "sdg"]}},
            ],
            r"\[1\].when.kind: 'kind' is never 'sdg' \(did you mean 'sgd'",
        ),
        (
            [
                {"type": "Categorical", "name": "n", "data": [1, 2]},
                {"type": "Int", "name": "b", "data": [1, 2], "when": {"n": {"not": "2"}}},
            ],
            r"\[1\].when.n: 'n' is never '2': it is one of \[1, 2\]",
        ),
        (
            [
                {"type": "Nested", "data": [{"p": 1, "q": 2}, {"p": 3}]},
                {"type": "Int", "name": "b", "data": [1, 2], "when": {"q": 3}},
            ],
            r"\[1\].when.q: 'q' is never 3: it is one of \[2\]",
        ),
        (
            [
                {"type": "Int", "name": "n", "data": [1, 8]},
                {"type": "Int", "name": "b", "data": [1, 2], "when": {"n": 9}},
            ],
            r"\[1\].when.n: 'n' is never 9: it goes from 1 to 8",
        ),
        (
            [{"type": "File", "name": "c", "file": "c", "args": [{"type": "Int", "name": "x", "dta": 1}]}],
            r"\[0\].args\[0\].dta: .*did you mean 'data'",
        ),
        ([{"type": "File", "name": "c", "args": []}], r"\[0\].file: `file` is missing"),
        ([], "a list of arguments is expected"),
    ],
)  # fmt: skip
def test_mistakes_name_the_key_and_the_nearest(args, message):
    with pytest.raises(ConfigError, match=message):
        build_space(args)


def test_a_range_without_extent_is_one_value():
    space = Dict(a=Real(0.5, 0.5), b=Int(3, 3))
    assert list(space.data) == [{"a": 0.5, "b": 3}]
    assert space.decode(space.encode({"a": 0.5, "b": 3})) == {"a": 0.5, "b": 3}


def test_a_continuous_argument_has_no_list_of_values():
    assert Dict(lr=Real(0, 1)).size == math.inf
    with pytest.raises(ConfigError, match="'lr' is a Real without `step`"):
        _ = Dict(lr=Real(0, 1)).data
    with pytest.raises(ConfigError, match="give it a `step`"):
        _ = Real(0, 1).data


@given(st.lists(st.floats(0, 1), min_size=1, max_size=20))
def test_snapping_a_place_is_decoding_and_encoding_it(units):
    leaves = [Categorical(["a", "b", "c"]), Int(1, 9), Int(1, 500, log=True), Real(0.0, 1.0, step=0.1), Real(2.0, 2.0)]
    for leaf in [*leaves, Real(-1.0, 3.0), Real(1e-5, 1.0, log=True)]:
        there_and_back = [leaf.encode(leaf.decode(unit)) for unit in units]
        np.testing.assert_allclose(leaf.snap_many(np.array(units)), there_and_back, atol=1e-12)


def test_many_points_are_snapped_as_their_configurations_are_encoded():
    layout = build_space(
        [
            {"type": "Categorical", "name": "kind", "data": ["a", "b", "c"]},
            {"type": "Int", "name": "layers", "data": [1, 5], "when": {"kind": ["a", "b"]}},
            {"type": "Real", "name": "rate", "data": [1e-4, 1], "log": True, "when": {"layers": {"min": 3}}},
            {"type": "Real", "name": "z", "data": [0, 1]},
            {"type": "Nested", "data": [{"p": 1, "q": 2}, {"p": 3, "q": 4}], "when": {"z": {"above": 0.5}}},
        ]
    ).layout
    points = np.random.default_rng(0).random((200, 5))
    configs = [layout.decode(point) for point in points]
    np.testing.assert_allclose(layout.snap_many(points), layout.encode_many(configs), atol=1e-12)
    np.testing.assert_array_equal(layout.active_many(points), [layout.active(config) for config in configs])
    assert layout.active_many(points[:0]).shape == (0, 5)


def test_a_continuous_argument_that_is_never_active_is_not_counted():
    space = Dict(a=Int(1, 2), b=Int(1, 3, when={"a": 1}), x=Real(0, 1, when={"a": 2, "b": 1}))
    assert space.size == len(list(space.data)) == 4
    assert Dict(a=Int(1, 2), x=Real(0, 1, when={"a": 2})).size == math.inf
    with pytest.raises(ConfigError, match="'x' is a Real without `step`"):
        _ = Dict(a=Int(1, 2), x=Real(0, 1, when={"a": 2})).data
    many = {f"s{i}": Categorical(True, False) for i in range(25)}
    conditions = {f"x{i}": Real(0, 1, when={f"s{i}": True}) for i in range(25)}
    assert Dict({**many, **conditions}).size == math.inf


@pytest.mark.parametrize(
    ("kind", "data", "options", "message"),
    [
        ("Real", [-1e308, 1e308], {}, "the range is too wide"),
        ("Int", [0, 10**400], {}, "both ends must be finite numbers"),
        ("Int", [0, 10**20], {}, "the range is too wide"),
        ("Int", [1, 9], {"step": float("nan")}, "an Int needs whole numbers"),
    ],
)
def test_ranges_in_which_nothing_could_be_drawn_are_refused(kind, data, options, message):
    with pytest.raises(ConfigError, match=message):
        build_space([{"type": kind, "name": "x", "data": data, **options}])


def test_whole_numbers_beyond_those_of_floats_are_whole():
    assert build_space([{"type": "Int", "name": "x", "data": [2**53 + 1, 2**53 + 3]}]).data[0] == {"x": 2**53 + 1}
