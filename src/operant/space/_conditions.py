"""`when:`: an argument that exists only while others have certain values."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from typing import Any

from operant._util.checks import is_number
from operant.errors import ConfigError, unknown

_RANGE_KEYS = ("min", "max", "above", "below", "in", "not")


@dataclass(frozen=True)
class Test:
    """What is asked of one other argument."""

    name: str
    values: tuple[Any, ...] | None = None
    excluded: tuple[Any, ...] = ()
    low: float | None = None
    high: float | None = None
    low_open: bool = False
    high_open: bool = False
    # The name as seen from where the condition stands: inside a File `config`, `epochs` is `config(epochs)`.
    local_name: str | None = None

    def holds(self, value: Any) -> bool:
        if self.values is not None and not any(same(value, one) for one in self.values):
            return False
        if any(same(value, one) for one in self.excluded):
            return False
        if self.low is None and self.high is None:
            return True
        if not is_number(value):
            return False
        if self.low is not None and (value < self.low or (self.low_open and value == self.low)):
            return False
        return not (self.high is not None and (value > self.high or (self.high_open and value == self.high)))

    def critical(self) -> list[float]:
        """The numbers at which the answer can change along an ordered list of values."""
        mentioned = [*(self.values or ()), *self.excluded, self.low, self.high]
        return [n for n in mentioned if isinstance(n, (int, float))]


@dataclass(frozen=True)
class When:
    """All of its tests must hold; an argument that is itself absent passes no test."""

    tests: tuple[Test, ...]

    @classmethod
    def parse(cls, spec: Mapping[str, Any] | When) -> When:
        if isinstance(spec, When):
            return spec
        if not isinstance(spec, Mapping) or not spec:
            raise ConfigError(
                f"`when` is a mapping such as {{optimizer: sgd}} or {{layers: {{min: 2}}}}, not {spec!r}",
                ("when",),
            )
        return cls(tuple(_parse_test(str(name), rule) for name, rule in spec.items()))

    def seen_from(self, wrap: Callable[[str], str]) -> When:
        """The same condition, standing in a container whose names are made by `wrap`."""
        return When(tuple(replace(test, local_name=wrap(test.name)) for test in self.tests))

    def holds(self, config: Mapping[str, Any]) -> bool:
        return all(test.name in config and test.holds(config[test.name]) for test in self.tests)


def _parse_test(name: str, rule: Any) -> Test:
    if isinstance(rule, (list, tuple)):
        if not rule:
            raise ConfigError("an empty list of values never holds", ("when", name))
        return Test(name, values=tuple(rule))
    if not isinstance(rule, Mapping):
        return Test(name, values=(rule,))
    for key in rule:
        if key not in _RANGE_KEYS:
            raise ConfigError(unknown("test", key, _RANGE_KEYS), ("when", name, str(key)))
    for key in ("min", "max", "above", "below"):
        if key in rule and (isinstance(rule[key], bool) or not isinstance(rule[key], (int, float))):
            raise ConfigError(f"`{key}` must be a number, not {rule[key]!r}", ("when", name, key))
    return Test(
        name,
        values=_as_tuple(rule["in"]) if "in" in rule else None,
        excluded=_as_tuple(rule["not"]) if "not" in rule else (),
        low=rule.get("min", rule.get("above")),
        high=rule.get("max", rule.get("below")),
        low_open="above" in rule,
        high_open="below" in rule,
    )


def _as_tuple(value: Any) -> tuple[Any, ...]:
    return tuple(value) if isinstance(value, (list, tuple)) else (value,)


def same(a: Any, b: Any) -> bool:
    """Whether an argument that has the one value has the other."""
    # In Python True == 1; a configuration that says `true` does not mean the number.
    return isinstance(a, bool) == isinstance(b, bool) and bool(a == b)
