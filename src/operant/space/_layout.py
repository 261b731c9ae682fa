"""The flat view of a space: its arguments in order, a column of the unit cube for each,
and configurations as points.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from operant._util.checks import is_number
from operant.errors import ArgumentError, ConfigError, nearest, unknown
from operant.space._conditions import Test, When, same
from operant.space._leaves import Categorical, Leaf, Nested, Numeric, canonical

Config = dict[str, Any]


@dataclass(frozen=True)
class Argument:
    """One leaf with its flat name; `names` are the keys that it sets (several for `Nested`)."""

    name: str
    leaf: Leaf
    when: When | None
    names: tuple[str, ...]
    # From a key of a row to its flat name; only a `Nested` has rows.
    row_names: tuple[tuple[str, str], ...] = ()

    @property
    def categorical(self) -> bool:
        return isinstance(self.leaf, Categorical)

    def put(self, config: Config, value: Any) -> None:
        if self.row_names:
            for key, flat in self.row_names:
                if key in value:
                    config[flat] = value[key]
        else:
            config[self.name] = value

    def take(self, config: Mapping[str, Any]) -> Any:
        """The leaf's value in a flat configuration."""
        if self.row_names:
            return {key: config[flat] for key, flat in self.row_names if flat in config}
        try:
            return config[self.name]
        except KeyError:
            raise ConfigError(f"the configuration has no value for {self.name!r}") from None


class Layout:
    """All arguments of a space. Column i of the unit cube is argument i,
    in the order in which they were given.
    """

    def __init__(self, arguments: Sequence[Argument]) -> None:
        self.arguments = tuple(_resolve_conditions(arguments))
        self.names = tuple(name for argument in self.arguments for name in argument.names)
        self._by_name = {name: i for i, argument in enumerate(self.arguments) for name in argument.names}
        self.order = _parents_first(self.arguments, self._by_name)
        self.conditional = any(argument.when is not None for argument in self.arguments)
        self._simple = not self.conditional and not any(argument.row_names for argument in self.arguments)
        plain = self._simple and all(map(_has_plain_values, self.arguments))
        self.told_apart_by_values = plain and bool(self.arguments)
        """Whether two configurations are the same exactly when their values are equal, name by name."""
        self._decoders: list[tuple[str, Callable[[float], Any]]] = [
            (argument.name, argument.leaf.decode) for argument in self.arguments
        ]

    def owner(self, name: str) -> int:
        """The column of the argument that sets `name`."""
        return self._by_name[name]

    def decode(self, point: Sequence[float] | np.ndarray) -> Config:
        units = point.tolist() if isinstance(point, np.ndarray) else list(point)
        if len(units) != len(self.arguments):
            raise ConfigError(f"a point of this space has {len(self.arguments)} coordinates, not {len(units)}")
        if self._simple:
            return {name: decode(unit) for (name, decode), unit in zip(self._decoders, units, strict=True)}
        config: Config = {}
        for i in self.order:
            argument = self.arguments[i]
            if argument.when is None or argument.when.holds(config):
                argument.put(config, argument.leaf.decode(units[i]))
        return self._in_order(config)

    def decode_many(self, points: np.ndarray) -> list[Config]:
        if not self._simple or not self.arguments:
            return [self.decode(point) for point in points]
        columns = [argument.leaf.decode_many(points[:, i]) for i, argument in enumerate(self.arguments)]
        names = [argument.name for argument in self.arguments]
        return [dict(zip(names, values, strict=True)) for values in zip(*columns, strict=True)]

    def encode(self, config: Mapping[str, Any]) -> np.ndarray:
        """The point of a configuration; an argument that is not active lies in the middle of its column."""
        point = np.full(len(self.arguments), 0.5)
        for i, argument in enumerate(self.arguments):
            if argument.when is None or argument.when.holds(config):
                point[i] = _encode(argument, argument.take(config))
        return point

    def encode_many(self, configs: Sequence[Mapping[str, Any]]) -> np.ndarray:
        points = np.full((len(configs), len(self.arguments)), 0.5)
        for i, argument in enumerate(self.arguments):
            if argument.when is None:
                points[:, i] = argument.leaf.encode_many([argument.take(config) for config in configs])
            else:
                rows = [n for n, config in enumerate(configs) if argument.when.holds(config)]
                points[rows, i] = argument.leaf.encode_many([argument.take(configs[n]) for n in rows])
        return points

    def snap_many(self, points: np.ndarray) -> np.ndarray:
        """Each point moved to the one that its configuration has."""
        columns = [argument.leaf.snap_many(points[:, i]) for i, argument in enumerate(self.arguments)]
        snapped = np.stack(columns, axis=1)
        if self.conditional:
            snapped[~self.active_many(snapped)] = 0.5
        return snapped

    def active(self, config: Mapping[str, Any]) -> np.ndarray:
        """Which arguments the configuration really has."""
        return np.array([a.when is None or a.when.holds(config) for a in self.arguments], dtype=bool)

    def active_many(self, points: np.ndarray) -> np.ndarray:
        """Which arguments the configuration of each point has; conditions are looked at once for equal answers."""
        if not self.conditional or not len(points):
            return np.ones(points.shape, dtype=bool)
        asked = sorted({self._by_name[test.name] for a in self.arguments if a.when for test in a.when.tests})
        seen = np.stack([self.arguments[i].leaf.snap_many(points[:, i]) for i in asked], axis=1)
        _, first, which = np.unique(seen, axis=0, return_index=True, return_inverse=True)
        answers = np.array([self.active(self.decode(points[row])) for row in first])
        found: np.ndarray = answers[which.reshape(-1)]
        return found

    def contains(self, config: Mapping[str, Any]) -> bool:
        expected: set[str] = set()
        for argument in self.arguments:
            if argument.when is not None and not argument.when.holds(config):
                continue
            try:
                value = argument.take(config)
            except ConfigError:
                return False
            if value not in argument.leaf:
                return False
            expected.update(name for name in argument.names if name in config)
        return expected == set(config)

    def key(self, config: Mapping[str, Any]) -> str:
        return canonical(dict(config))

    def _in_order(self, config: Config) -> Config:
        return {name: config[name] for name in self.names if name in config}


def _has_plain_values(argument: Argument) -> bool:
    """Whether none of its values equals another, as 1, 1.0 and True do, and none is a list or a mapping."""
    if not isinstance(argument.leaf, Categorical):
        return True
    values = argument.leaf.data
    return all(isinstance(one, (str, int, float)) for one in values) and len(set(values)) == len(values)


def _encode(argument: Argument, value: Any) -> float:
    try:
        return argument.leaf.encode(value)
    except ConfigError as error:
        raise error.under(argument.name) from None


def _resolve_conditions(arguments: Sequence[Argument]) -> Iterable[Argument]:
    """Conditions with flat names: a neighbour is meant rather than an argument further outside."""
    known = {name for argument in arguments for name in argument.names}
    for argument in arguments:
        if argument.when is None:
            yield argument
            continue
        tests = []
        for test in argument.when.tests:
            name = test.local_name if test.local_name in known else test.name
            if name not in known:
                raise ArgumentError(unknown("argument", test.name, known), (argument.name, "when", test.name))
            tests.append(replace(test, name=name, local_name=None))
        yield replace(argument, when=When(tuple(tests)))


def check_conditions(layout: Layout) -> None:
    """Refuse a condition on a value that the argument it asks about never has: most likely a slip of the pen."""
    owners = {name: argument for argument in layout.arguments for name in argument.names}
    for argument in layout.arguments:
        for test in argument.when.tests if argument.when is not None else ():
            owner = owners[test.name]
            for value in (*(test.values or ()), *test.excluded):
                wrong = _never(owner, test.name, value)
                if wrong is not None:
                    raise ArgumentError(f"{test.name!r} is never {value!r}{wrong}", (argument.name, "when", test.name))


def _never(argument: Argument, name: str, value: Any) -> str | None:
    """Why an argument cannot have a value; None where it can."""
    leaf = argument.leaf
    if isinstance(leaf, Numeric):
        there = is_number(value) and leaf.low <= value <= leaf.high
        return None if there else f": it goes from {leaf.low} to {leaf.high}"
    assert isinstance(leaf, Categorical)
    key = next((key for key, flat in argument.row_names if flat == name), None)
    values = leaf.data if key is None else [row[key] for row in leaf.data if key in row]
    if any(same(value, one) for one in values):
        return None
    guess = nearest(value, [one for one in values if isinstance(one, str)]) if isinstance(value, str) else ""
    return guess or f": it is one of {values!r:.200}"


def _parents_first(arguments: Sequence[Argument], by_name: Mapping[str, int]) -> list[int]:
    """An order in which each argument comes after those that its condition asks about."""
    order: list[int] = []
    state = [0] * len(arguments)

    def visit(i: int) -> None:
        if state[i] == 1:
            raise ArgumentError(
                f"the condition of {arguments[i].name!r} depends on itself", (arguments[i].name, "when")
            )
        if state[i] == 2:
            return
        state[i] = 1
        when = arguments[i].when
        tests: tuple[Test, ...] = when.tests if when is not None else ()
        for test in tests:
            visit(by_name[test.name])
        state[i] = 2
        order.append(i)

    for i in range(len(arguments)):
        visit(i)
    return order


def make_argument(name: str, leaf: Leaf, wrap: Callable[[str], str]) -> Argument:
    """The argument of a leaf called `name` inside a container whose names are made by `wrap`."""
    if isinstance(leaf, Nested):
        row_names = tuple((key, wrap(key)) for key in leaf.keys)
        return Argument(wrap(name), leaf, leaf.when, tuple(flat for _, flat in row_names), row_names)
    return Argument(wrap(name), leaf, leaf.when, (wrap(name),))
