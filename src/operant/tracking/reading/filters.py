"""Which runs, in which order: a condition in words, a few words to look for, a column to sort by."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from operant._util.conditions import Condition, ConditionError
from operant.errors import ConfigError, UsageError
from operant.tracking.reading.index import RunRow

LONGEST_FILTER = 4000
_FIELDS = ("id", "name", "status", "tag", "note", "started", "ended", "search", "duration")

Pair = tuple[RunRow, Mapping[str, Any]]
"""A run and its settings."""


class FilterError(UsageError):
    """A filter that cannot be read; ``position`` is the place of the mistake in it."""

    def __init__(self, message: str, position: int = 0) -> None:
        super().__init__(message)
        self.position = position


class _Tags:
    """The tags of a run in a filter: ``tag == "baseline"`` asks whether it is among them."""

    def __init__(self, tags: list[str]) -> None:
        self._tags = tags

    def __eq__(self, other: object) -> bool:
        return other in self._tags

    def __ne__(self, other: object) -> bool:
        return other not in self._tags

    __hash__ = None  # type: ignore[assignment]

    def __bool__(self) -> bool:
        return bool(self._tags)


def filter_runs(pairs: list[Pair], text: str, names: set[str]) -> list[Pair]:
    """The runs that a condition holds for; it is parsed by a small grammar and never executed."""
    if not text.strip():
        return pairs
    if len(text) > LONGEST_FILTER:
        raise FilterError(f"a filter has at most {LONGEST_FILTER} characters, not {len(text)}")
    try:
        condition = Condition(text, {*names, *_FIELDS})
    except ConfigError as error:
        position = error.position if isinstance(error, ConditionError) else 0
        raise FilterError(f"the filter cannot be read: {error.message}", position) from None
    try:
        return [pair for pair in pairs if _holds(condition, pair)]
    except RecursionError:
        raise FilterError("the filter has too many parts") from None


def _holds(condition: Condition, pair: Pair) -> bool:
    try:
        return condition(_values(pair))
    except (TypeError, OverflowError):  # a text in a sum, a number beyond all bounds
        return False


def _values(pair: Pair) -> dict[str, Any]:
    row, params = pair
    found: dict[str, Any] = {**params, **row.last}
    found.update(id=row.id, name=row.name, status=row.status, tag=_Tags(row.tags), note=row.note)
    if "/" in row.id:
        found["search"] = row.id.partition("/")[0]
    if row.started is not None:
        found["started"] = row.started
        if row.ended is not None:
            found["ended"], found["duration"] = row.ended, row.ended - row.started
    return found


def mentions(row: RunRow, words: list[str]) -> bool:
    text = " ".join((row.id, row.name, row.status, row.note, *row.tags)).lower()
    return all(word in text for word in words)


def sort_runs(pairs: list[Pair], by: str) -> list[Pair]:
    """By a field, a setting (``param.lr``) or a scalar (``last.loss``); ``-`` in front turns it round.

    What lacks the value comes last either way; a bare name is looked for among fields, scalars and settings.
    """
    if not by:
        return pairs
    name, reverse = by.removeprefix("-"), by.startswith("-")
    kind, _, inner = name.partition(".")

    def value(pair: Pair) -> Any:
        row, params = pair
        if kind == "param" and inner:
            return params.get(inner)
        if kind == "last" and inner:
            return row.last.get(inner)
        if name in ("id", "name", "status", "started", "ended", "note"):
            return getattr(row, name)
        if name == "duration":
            return None if row.ended is None or row.started is None else row.ended - row.started
        return row.last.get(name, params.get(name))

    keyed = [(value(pair), pair) for pair in pairs]
    numbers = [one for one in keyed if isinstance(one[0], (int, float)) and one[0] == one[0]]
    texts = [one for one in keyed if isinstance(one[0], str)]
    chosen = {id(one) for one in (*numbers, *texts)}
    rest = [one for one in keyed if id(one) not in chosen]
    numbers.sort(key=lambda one: one[0], reverse=reverse)
    texts.sort(key=lambda one: one[0], reverse=reverse)
    return [pair for _, pair in (*numbers, *texts, *rest)]
