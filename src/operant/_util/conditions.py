"""`batch-size >= 512 and config(epochs) > 4`: a filter in words, read by a small parser and never executed."""

from __future__ import annotations

import operator
import re
from collections.abc import Callable, Iterable, Mapping
from typing import Any

from operant.errors import ConfigError, unknown

_NUMBER = re.compile(r"[0-9]+(?:\.[0-9]*)?(?:[eE][-+]?[0-9]+)?|\.[0-9]+(?:[eE][-+]?[0-9]+)?")
_STRING = re.compile(r"'([^'\\]*)'|\"([^\"\\]*)\"")
_WORD = re.compile(r"[A-Za-z_]\w*")
_SYMBOLS = ("<=", ">=", "==", "!=", "**", "//", "<", ">", "+", "-", "*", "/", "%", "(", ")", "[", "]", ",")
_KEYWORDS = {"and", "or", "not", "in", "true", "false", "none", "inf"}
_CONSTANTS = {"true": True, "false": False, "none": None, "inf": float("inf")}
_COMPARE: dict[str, Callable[[Any, Any], Any]] = {
    "<": operator.lt,
    "<=": operator.le,
    ">": operator.gt,
    ">=": operator.ge,
    "==": operator.eq,
    "!=": operator.ne,
}
_SUMS: dict[str, Callable[[Any, Any], Any]] = {"+": operator.add, "-": operator.sub}
_PRODUCTS: dict[str, Callable[[Any, Any], Any]] = {
    "*": operator.mul,
    "/": operator.truediv,
    "//": operator.floordiv,
    "%": operator.mod,
}
_DEEPEST = 50

Config = Mapping[str, Any]
Node = Callable[[Config], Any]


class _Absent(Exception):
    """An argument that this configuration does not have."""


class ConditionError(ConfigError):
    """A condition that cannot be read; ``position`` is the place of the mistake in it, counted from 0."""

    position = 0

    @classmethod
    def at(cls, position: int, what: str) -> ConditionError:
        error = cls(f"{what}, at character {position + 1}")
        error.position = position
        return error


class Condition:
    """A condition over a configuration. Of names that fit the longest is taken; backticks quote one.

    A comparison with an argument that is not active is false, and so is one between texts and numbers.
    """

    def __init__(self, text: str, names: Iterable[str]) -> None:
        self.text = text
        self._names = sorted(names, key=len, reverse=True)
        self._tokens = self._tokenize(text)
        self._at = 0
        self._depth = 0
        if not self._tokens:
            raise ConfigError("the condition is empty")
        self._node = self._either()
        if self._at < len(self._tokens):
            raise self._wrong(f"{self._tokens[self._at][1]!r} was not expected")

    def __call__(self, config: Config) -> bool:
        try:
            return bool(self._node(config))
        except _Absent:
            return False

    # -- words ----------------------------------------------------------------------------------------------------

    def _tokenize(self, text: str) -> list[tuple[str, Any]]:
        tokens: list[tuple[str, Any]] = []
        self._places: list[int] = []
        at = 0
        while at < len(text):
            if text[at].isspace():
                at += 1
                continue
            self._places.append(at)
            kind, value, at = self._next(text, at)
            tokens.append((kind, value))
        return tokens

    def _next(self, text: str, at: int) -> tuple[str, Any, int]:
        if text[at] == "`":
            end = text.find("`", at + 1)
            if end < 0:
                raise ConditionError.at(at, f"a backtick is not closed in {text!r}")
            name = text[at + 1 : end]
            if name not in self._names:
                raise ConditionError.at(at, unknown("argument", name, self._names))
            return "name", name, end + 1
        for name in self._names:
            if text.startswith(name, at) and not _goes_on(text, at + len(name), name):
                return "name", name, at + len(name)
        if found := _STRING.match(text, at):
            return "value", found[1] if found[1] is not None else found[2], found.end()
        if found := _NUMBER.match(text, at):
            number = float(found[0]) if re.search(r"[.eE]", found[0]) else int(found[0])
            return "value", number, found.end()
        for symbol in _SYMBOLS:
            if text.startswith(symbol, at):
                return "symbol", symbol, at + len(symbol)
        if found := _WORD.match(text, at):
            word = found[0].lower()
            if word in _CONSTANTS:
                return "value", _CONSTANTS[word], found.end()
            if word in _KEYWORDS:
                return "symbol", word, found.end()
            raise ConditionError.at(at, f"{unknown('argument', found[0], self._names)} (in the condition {text!r})")
        raise ConditionError.at(at, f"{text[at]!r} means nothing in a condition: {text!r}")

    # -- grammar, loosest binding first ---------------------------------------------------------------------------

    def _either(self) -> Node:
        self._depth += 1
        if self._depth > _DEEPEST:
            raise ConfigError(f"the condition is nested more than {_DEEPEST} deep")
        parts = [self._both()]
        while self._take("or"):
            parts.append(self._both())
        self._depth -= 1
        return parts[0] if len(parts) == 1 else lambda config: any(_truth(part, config) for part in parts)

    def _both(self) -> Node:
        parts = [self._negated()]
        while self._take("and"):
            parts.append(self._negated())
        return parts[0] if len(parts) == 1 else lambda config: all(_truth(part, config) for part in parts)

    def _negated(self) -> Node:
        inverted = False
        while self._take("not"):
            inverted = not inverted
        inner = self._comparison()
        return (lambda config: not _truth(inner, config)) if inverted else inner

    def _comparison(self) -> Node:
        operands = [self._sum()]
        tests: list[Callable[[Any, Any], Any]] = []
        while True:
            symbol = self._take(*_COMPARE)
            if symbol is not None:
                tests.append(_COMPARE[symbol])
                operands.append(self._sum())
            elif self._take("in"):
                tests.append(lambda a, b: a in b)
                operands.append(self._list())
            elif self._peek("not") and self._peek("in", 1):
                self._at += 2
                tests.append(lambda a, b: a not in b)
                operands.append(self._list())
            else:
                break
        if not tests:
            return operands[0]

        def compare(config: Config) -> bool:
            try:
                values = [operand(config) for operand in operands]
                return all(test(a, b) for test, a, b in zip(tests, values, values[1:], strict=False))
            except TypeError:  # a text against a number: neither less nor more
                return False

        return compare

    def _list(self) -> Node:
        closing = "]" if self._take("[") else ")" if self._take("(") else None
        if closing is None:
            raise self._wrong("`in` needs a list such as [1, 2]")
        items = [self._sum()]
        while self._take(","):
            items.append(self._sum())
        self._need(closing)
        return lambda config: [item(config) for item in items]

    def _sum(self) -> Node:
        return self._chain(self._product, _SUMS)

    def _product(self) -> Node:
        return self._chain(self._signed, _PRODUCTS)

    def _chain(self, inner: Callable[[], Node], operators: Mapping[str, Callable[[Any, Any], Any]]) -> Node:
        node = inner()
        while (symbol := self._take(*operators)) is not None:
            node = _binary(operators[symbol], node, inner())
        return node

    def _signed(self) -> Node:
        negative = False
        while (symbol := self._take("-", "+")) is not None:
            negative ^= symbol == "-"
        inner = self._atom()
        return (lambda config: -inner(config)) if negative else inner

    def _atom(self) -> Node:
        if self._take("("):
            inner = self._either()
            self._need(")")
            return inner
        if self._at < len(self._tokens):
            kind, value = self._tokens[self._at]
            if kind == "value":
                self._at += 1
                return lambda config: value
            if kind == "name":
                self._at += 1
                return lambda config: _lookup(config, value)
            raise self._wrong(f"{value!r} was not expected")
        raise self._wrong("it ends where an argument or a value was expected")

    # -- steps ----------------------------------------------------------------------------------------------------

    def _peek(self, symbol: str, ahead: int = 0) -> bool:
        at = self._at + ahead
        return at < len(self._tokens) and self._tokens[at] == ("symbol", symbol)

    def _take(self, *symbols: str) -> str | None:
        for symbol in symbols:
            if self._peek(symbol):
                self._at += 1
                return symbol
        return None

    def _need(self, symbol: str) -> None:
        if not self._take(symbol):
            raise self._wrong(f"{symbol!r} is missing")

    def _wrong(self, what: str) -> ConfigError:
        place = self._places[self._at] if self._at < len(self._places) else len(self.text)
        return ConditionError.at(place, f"the condition {self.text!r} cannot be read: {what}")


def _truth(node: Node, config: Config) -> bool:
    try:
        return bool(node(config))
    except _Absent:
        return False


def _lookup(config: Config, name: str) -> Any:
    if name not in config:
        raise _Absent(name)
    return config[name]


def _binary(operation: Callable[[Any, Any], Any], left: Node, right: Node) -> Node:
    def apply(config: Config) -> Any:
        a, b = left(config), right(config)
        if isinstance(a, (str, list)) or isinstance(b, (str, list)):
            raise TypeError("only numbers can be reckoned with")
        try:
            return operation(a, b)
        except ZeroDivisionError:
            return float("nan")

    return apply


def _goes_on(text: str, at: int, name: str) -> bool:
    """Whether the word is longer than this name: `lr` is not the beginning of `lr_decay`."""
    if at >= len(text) or not (name[-1].isalnum() or name[-1] == "_"):
        return False
    return text[at].isalnum() or text[at] == "_"
