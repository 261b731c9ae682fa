"""Lazy expressions: `R['eval_value'] - 0.1 * M['time']` is computed for each trial when it has ended.

`R` is what the function returned, `M` its metrics (`M['time']`: seconds), `C` the configuration it was called with.
"""

from __future__ import annotations

import ast
import functools
import math
import operator
import re
import statistics
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any, NoReturn

from operant.errors import UsageError, nearest

_MOST_KEYS = 20
_KEY = re.compile(r"\[('[^'\\]*'|[0-9]+)\]")
_CONFIG_KEYS = re.compile(rf"\bC((?:{_KEY.pattern.replace('(', '(?:', 1)})+)")


class ExpressionError(UsageError):
    """An expression that does not fit what the trials give."""


class TrialValues:
    """What expressions are about. The configuration is made when an expression asks for it."""

    def __init__(self, make_config: Callable[[], Any], result: Any, metrics: Mapping[str, Any]) -> None:
        self._make_config = make_config
        self.result = result
        self.metrics = metrics

    @functools.cached_property
    def config(self) -> Any:
        return self._make_config()


Evaluate = Callable[[TrialValues], Any]


class Expression:
    """A value that is not there yet. Indexing, attributes, calls, arithmetic and comparisons give new expressions.

    `&`, `|` and `~` are the logical and, or and not; Python's own `and`, `or`, `not` cannot wait, so they are refused.
    """

    __slots__ = ("_compute", "_text")

    def __init__(self, compute: Evaluate, text: str) -> None:
        self._compute = compute
        self._text = text

    def __repr__(self) -> str:
        return self._text

    def __getitem__(self, key: Any) -> Expression:
        key_of, key_text = _lazy(key), text_of(key)
        text = f"{self._text}[{key_text}]"
        return Expression(lambda values: _item(self._compute(values), key_of(values), text), text)

    def __getattr__(self, name: str) -> Expression:
        if name.startswith("__"):  # asked for by copy, pickle and the like
            raise AttributeError(name)
        text = f"{self._text}.{name}"
        return Expression(lambda values: _attribute(self._compute(values), name, text), text)

    def __call__(self, *args: Any, **kwargs: Any) -> Expression:
        given = [text_of(one) for one in args] + [f"{key}={text_of(one)}" for key, one in kwargs.items()]
        text = f"{self._text}({', '.join(given)})"
        lazy_args, lazy_kwargs = [_lazy(one) for one in args], {key: _lazy(one) for key, one in kwargs.items()}

        def call(values: TrialValues) -> Any:
            function = self._compute(values)
            if not callable(function):
                raise ExpressionError(f"{text}: {self._text} is no function but {_short(function)}")
            return function(*(one(values) for one in lazy_args), **{k: one(values) for k, one in lazy_kwargs.items()})

        return Expression(call, text)

    # -- functions of the value ----------------------------------------------------------------------------------

    def apply(self, function: Callable[[Any], Any], name: str | None = None) -> Expression:
        """`function` of the value."""
        text = f"{name or getattr(function, '__name__', 'function')}({self._text})"
        return Expression(lambda values: _try(text, lambda: function(self._compute(values))), text)

    def abs(self) -> Expression:
        return self.apply(abs, "abs")

    def len(self) -> Expression:
        return self.apply(len, "len")

    def sum(self) -> Expression:
        return self.apply(lambda value: math.fsum(_numbers(value)), "sum")

    def mean(self) -> Expression:
        return self.apply(lambda value: statistics.fmean(_numbers(value)), "mean")

    def stdev(self) -> Expression:
        """The standard deviation of a sample: divided by n - 1."""
        return self.apply(lambda value: statistics.stdev(_numbers(value)), "stdev")

    def is_(self, other: Any) -> Expression:
        return _binary(lambda a, b: a is b, "is", self, other)

    def isinstance_(self, kind: Any) -> Expression:
        return self.apply(lambda value: isinstance(value, kind), "isinstance")

    # -- operators -----------------------------------------------------------------------------------------------

    def __eq__(self, other: object) -> Any:
        return _binary(operator.eq, "==", self, other)

    def __ne__(self, other: object) -> Any:
        return _binary(operator.ne, "!=", self, other)

    __hash__ = object.__hash__

    def __lt__(self, other: Any) -> Expression:
        return _binary(operator.lt, "<", self, other)

    def __le__(self, other: Any) -> Expression:
        return _binary(operator.le, "<=", self, other)

    def __gt__(self, other: Any) -> Expression:
        return _binary(operator.gt, ">", self, other)

    def __ge__(self, other: Any) -> Expression:
        return _binary(operator.ge, ">=", self, other)

    def __add__(self, other: Any) -> Expression:
        return _binary(operator.add, "+", self, other)

    def __radd__(self, other: Any) -> Expression:
        return _binary(operator.add, "+", other, self)

    def __sub__(self, other: Any) -> Expression:
        return _binary(operator.sub, "-", self, other)

    def __rsub__(self, other: Any) -> Expression:
        return _binary(operator.sub, "-", other, self)

    def __mul__(self, other: Any) -> Expression:
        return _binary(operator.mul, "*", self, other)

    def __rmul__(self, other: Any) -> Expression:
        return _binary(operator.mul, "*", other, self)

    def __truediv__(self, other: Any) -> Expression:
        return _binary(operator.truediv, "/", self, other)

    def __rtruediv__(self, other: Any) -> Expression:
        return _binary(operator.truediv, "/", other, self)

    def __floordiv__(self, other: Any) -> Expression:
        return _binary(operator.floordiv, "//", self, other)

    def __rfloordiv__(self, other: Any) -> Expression:
        return _binary(operator.floordiv, "//", other, self)

    def __mod__(self, other: Any) -> Expression:
        return _binary(operator.mod, "%", self, other)

    def __rmod__(self, other: Any) -> Expression:
        return _binary(operator.mod, "%", other, self)

    def __pow__(self, other: Any) -> Expression:
        return _binary(operator.pow, "**", self, other)

    def __rpow__(self, other: Any) -> Expression:
        return _binary(operator.pow, "**", other, self)

    def __and__(self, other: Any) -> Expression:
        return _logical(self, "&", other)

    def __rand__(self, other: Any) -> Expression:
        return _logical(other, "&", self)

    def __or__(self, other: Any) -> Expression:
        return _logical(self, "|", other)

    def __ror__(self, other: Any) -> Expression:
        return _logical(other, "|", self)

    def __invert__(self) -> Expression:
        return Expression(lambda values: not self._compute(values), f"~{self._text}")

    def __neg__(self) -> Expression:
        text = f"-{self._text}"
        return Expression(lambda values: _try(text, lambda: -self._compute(values)), text)

    def __pos__(self) -> Expression:
        text = f"+{self._text}"
        return Expression(lambda values: _try(text, lambda: +self._compute(values)), text)

    __abs__ = abs

    # -- what cannot wait ----------------------------------------------------------------------------------------

    def __bool__(self) -> NoReturn:
        raise TypeError(
            f"{self._text} has no value before a trial has ended; combine conditions with & | ~ "
            f"(and parentheses) instead of and, or, not"
        )

    def __iter__(self) -> Iterator[Any]:
        raise TypeError(f"{self._text} has no value before a trial has ended, so it cannot be gone through")

    def __contains__(self, item: object) -> NoReturn:
        raise TypeError(f"`in {self._text}` cannot wait for a trial; use {self._text}.apply(lambda value: … in value)")

    def __len__(self) -> NoReturn:
        raise TypeError(f"len({self._text}) cannot wait for a trial; write {self._text}.len()")


R = Expression(lambda values: values.result, "R")
M = Expression(lambda values: values.metrics, "M")
C = Expression(lambda values: values.config, "C")


def evaluate(expression: Any, values: TrialValues) -> Any:
    """The value of an expression for one trial.

    A function is called with `{'config': …, 'return': …, 'metrics': …}`; anything else is a constant.
    """
    compute: Evaluate = expression._compute if type(expression) is Expression else _lazy(expression)
    return compute(values)


def evaluate_number(expression: Any, values: TrialValues) -> float:
    found = evaluate(expression, values)
    if type(found) is float:
        return found
    try:
        return float(found)
    except (TypeError, ValueError):
        raise ExpressionError(f"{text_of(expression)} is no number but {_short(found)}") from None


def text_of(expression: Any) -> str:
    if isinstance(expression, Expression):
        return expression._text
    if callable(expression):
        return str(getattr(expression, "__qualname__", type(expression).__qualname__))
    return repr(expression)


def _lazy(value: Any) -> Evaluate:
    if isinstance(value, Expression):
        return value._compute
    if callable(value) and not isinstance(value, type):
        name = text_of(value)
        return lambda values: _try(
            name, lambda: value({"config": values.config, "return": values.result, "metrics": values.metrics})
        )
    return lambda values: value


def _binary(function: Callable[[Any, Any], Any], sign: str, left: Any, right: Any) -> Expression:
    text = f"({text_of(left)} {sign} {text_of(right)})"
    left_of, right_of = _lazy(left), _lazy(right)
    return Expression(lambda values: _try(text, lambda: function(left_of(values), right_of(values))), text)


def _logical(left: Any, sign: str, right: Any) -> Expression:
    left_of, right_of = _lazy(left), _lazy(right)

    def compute(values: TrialValues) -> bool:
        if sign == "&":
            return bool(left_of(values)) and bool(right_of(values))
        return bool(left_of(values)) or bool(right_of(values))

    return Expression(compute, f"({text_of(left)} {sign} {text_of(right)})")


def _try(text: str, compute: Callable[[], Any]) -> Any:
    try:
        return compute()
    except ExpressionError:
        raise
    except Exception as error:
        raise ExpressionError(f"{text} cannot be computed: {type(error).__name__}: {error}") from error


def _item(value: Any, key: Any, text: str) -> Any:
    try:
        return value[key]
    except Exception as error:
        raise ExpressionError(f"{text}: {_what_is_missing(value, key, error)}") from None


def check_config_keys(expression: Any, nested: Any) -> None:
    """Find keys that no configuration of this shape has: what an expression asks of `C` is known before any trial."""
    for asked in _CONFIG_KEYS.finditer(text_of(expression)):
        part = nested
        for text in _KEY.findall(asked[1]):
            key = ast.literal_eval(text)
            if isinstance(part, Mapping) and key not in part:
                raise ExpressionError(f"{asked[0]}: {_what_is_missing(part, key, KeyError(key))}")
            if not isinstance(part, Mapping):  # a value that varies, and may be anything
                break
            part = part[key]


def _what_is_missing(value: Any, key: Any, error: Exception) -> str:
    if isinstance(value, Mapping):
        keys = [str(one) for one in value]
        known = ", ".join(keys[:_MOST_KEYS]) + (", …" if len(keys) > _MOST_KEYS else "")
        return f"there is no key {key!r}{nearest(str(key), keys)}; there are {known or 'none at all'}"
    if isinstance(value, Sequence) and not isinstance(value, str) and isinstance(key, int):
        return f"there is no place {key} in a sequence of {len(value)}"
    if value is None or isinstance(value, (int, float, str, bool)):
        return f"{_short(value)} has no keys to ask for {key!r}"
    return f"{_short(value)} does not give {key!r}: {type(error).__name__}: {error}"


def _attribute(value: Any, name: str, text: str) -> Any:
    try:
        return getattr(value, name)
    except AttributeError:
        if isinstance(value, Mapping) and name in value:
            raise ExpressionError(f"{text}: {name!r} is a key, not an attribute; write […{name!r}]") from None
        known = [one for one in dir(value) if not one.startswith("_")]
        raise ExpressionError(f"{text}: {_short(value)} has no attribute {name!r}{nearest(name, known)}") from None


def _numbers(value: Any) -> list[float]:
    """Also the values of a mapping, and whatever numpy or torch can list."""
    if isinstance(value, Mapping):
        value = value.values()
    elif hasattr(value, "tolist"):
        value = value.tolist()
    return [float(one) for one in value]


def _short(value: Any) -> str:
    text = repr(value)
    return f"{type(value).__name__} {text if len(text) <= 80 else text[:77] + '...'}"
