"""Values that may vary: `uniform(0.95, 1)`, `10 ** uniform(-5, -2)`, `choice(['adam', 'sgd'])`, `randint(1, 8)`."""

from __future__ import annotations

import math
import operator
import sys
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any

from operant._util.checks import is_number
from operant.errors import UsageError


@dataclass(frozen=True)
class Uniform:
    low: float
    high: float


@dataclass(frozen=True)
class Steps:
    low: float
    high: float
    step: float
    whole: bool = False


@dataclass(frozen=True)
class Choice:
    values: tuple[Any, ...]


@dataclass(frozen=True)
class Normal:
    mu: float
    sigma: float


@dataclass(frozen=True)
class Link:
    """One transformation in a chain. `base` is set when it is `base ** value`: a log scale, told to the searcher."""

    text: str
    function: Callable[[Any], Any]
    base: float | None = None


@dataclass(frozen=True, eq=False)
class HyperValue:
    """Something that a search chooses, and what is then made of it: arithmetic, and functions by `>>`."""

    source: Uniform | Steps | Choice | Normal
    chain: tuple[Link, ...] = ()

    def __rshift__(self, function: Callable[[Any], Any]) -> HyperValue:
        if not callable(function):
            raise TypeError(f"after >> comes a function of the value, not {function!r}")
        return self._then(str(getattr(function, "__qualname__", type(function).__qualname__)), function)

    def _then(self, text: str, function: Callable[[Any], Any], base: float | None = None) -> HyperValue:
        return replace(self, chain=(*self.chain, Link(text, function, base)))

    def finish(self, value: Any) -> Any:
        """What is made of a chosen value."""
        for link in self.chain:
            value = link.function(value)
        return value

    def _with(self, function: Callable[[Any, Any], Any], sign: str, other: Any) -> HyperValue:
        _refuse_second(other)
        return self._then(f"_ {sign} {other!r}", lambda value: function(value, other))

    def _from(self, function: Callable[[Any, Any], Any], sign: str, other: Any) -> HyperValue:
        _refuse_second(other)
        base = None
        if sign == "**" and isinstance(other, (int, float)) and other > 0 and other != 1 and math.isfinite(other):
            base = float(other)
        return self._then(f"{other!r} {sign} _", lambda value: function(other, value), base)

    def __add__(self, other: Any) -> HyperValue:
        return self._with(operator.add, "+", other)

    def __radd__(self, other: Any) -> HyperValue:
        return self._from(operator.add, "+", other)

    def __sub__(self, other: Any) -> HyperValue:
        return self._with(operator.sub, "-", other)

    def __rsub__(self, other: Any) -> HyperValue:
        return self._from(operator.sub, "-", other)

    def __mul__(self, other: Any) -> HyperValue:
        return self._with(operator.mul, "*", other)

    def __rmul__(self, other: Any) -> HyperValue:
        return self._from(operator.mul, "*", other)

    def __truediv__(self, other: Any) -> HyperValue:
        return self._with(operator.truediv, "/", other)

    def __rtruediv__(self, other: Any) -> HyperValue:
        return self._from(operator.truediv, "/", other)

    def __floordiv__(self, other: Any) -> HyperValue:
        return self._with(operator.floordiv, "//", other)

    def __rfloordiv__(self, other: Any) -> HyperValue:
        return self._from(operator.floordiv, "//", other)

    def __mod__(self, other: Any) -> HyperValue:
        return self._with(operator.mod, "%", other)

    def __rmod__(self, other: Any) -> HyperValue:
        return self._from(operator.mod, "%", other)

    def __pow__(self, other: Any) -> HyperValue:
        return self._with(operator.pow, "**", other)

    def __rpow__(self, other: Any) -> HyperValue:
        return self._from(operator.pow, "**", other)

    def __neg__(self) -> HyperValue:
        return self._then("-_", operator.neg)

    def __pos__(self) -> HyperValue:
        return self._then("+_", operator.pos)

    def __abs__(self) -> HyperValue:
        return self._then("abs(_)", abs)

    def __repr__(self) -> str:
        return " >> ".join([repr(self.source), *(link.text for link in self.chain)])


def uniform(low: float, high: float) -> HyperValue:
    """Any number from `low` to `high`."""
    low, high = _number(low, "lower end"), _number(high, "upper end")
    if not low < high:
        raise UsageError(f"uniform({low}, {high}): the lower end must be below the upper end")
    return HyperValue(Uniform(float(low), float(high)))


def quniform(start: float, end: float, step: float) -> HyperValue:
    """`start`, `start + step`, … up to `end`, which is one of them when a whole number of steps leads there."""
    start, end, step = _number(start, "start"), _number(end, "end"), _number(step, "step")
    if start > end:
        raise UsageError(f"quniform({start}, {end}, {step}): the start is above the end")
    if not step > 0:
        raise UsageError(f"quniform({start}, {end}, {step}): the step must be above 0")
    return HyperValue(Steps(start, end, step, whole=all(isinstance(one, int) for one in (start, end, step))))


def choice(values: list[Any] | tuple[Any, ...]) -> HyperValue:
    """One of these values, which may be of any kind; the same value twice counts once."""
    if not isinstance(values, (list, tuple)):
        raise TypeError(f"choice takes a list or a tuple of values, not {type(values).__name__} {values!r}")
    if not values:
        raise UsageError("choice([]) leaves nothing to choose from")
    return HyperValue(Choice(tuple(values)))


def randint(low: float, high: float) -> HyperValue:
    """A whole number from `low` to `high`, both included."""
    first, last = math.ceil(_number(low, "lower end")), math.floor(_number(high, "upper end"))
    if first > last:
        raise UsageError(f"randint({low}, {high}): there is no whole number in between")
    return HyperValue(Steps(first, last, 1, whole=True))


def randn(mu: float = 0.0, sigma: float = 1.0) -> HyperValue:
    """A normally distributed number."""
    mu, sigma = _number(mu, "mean"), _number(sigma, "standard deviation")
    if not sigma > 0:
        raise UsageError(f"randn({mu}, {sigma}): the standard deviation must be above 0")
    return HyperValue(Normal(float(mu), float(sigma)))


def _number(value: Any, what: str) -> Any:
    item = getattr(value, "item", None)
    value = item() if callable(item) and getattr(value, "ndim", None) == 0 else value
    if not is_number(value) or not abs(value) <= sys.float_info.max:
        raise UsageError(f"the {what} must be a finite number, not {value!r:.80}")
    return value


def _refuse_second(other: Any) -> None:
    if isinstance(other, HyperValue):
        raise TypeError(
            "two values that may vary cannot become one; give each its own key and combine them in the function"
        )
