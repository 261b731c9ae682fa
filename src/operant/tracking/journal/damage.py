"""Which records of a journal make sense, and what is said of those that do not.

A journal may be damaged anywhere, or come from a stranger: whoever folds one gets only records that have the fields of
their type (:data:`_NEEDED`), of the kinds that :data:`_KINDS` names, so that no later sum, comparison or path has to be
on its guard.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

_LARGEST = 1e300  # a number that every float can be compared with, and added to
_MOST_SHAPES = 4096

_NONE = type(None)
_NUMBER = (int, float)
_KINDS: dict[str, tuple[type, ...]] = {
    "type": (str,), "epoch": (int,), "wall": (int, float, _NONE), "started": (int, float, _NONE),
    "number": (int,), "config": (dict,), "budget": (int, float, _NONE), "parent": (int, _NONE), "notes": (dict, _NONE),
    "shown": (dict, _NONE),
    "extras": (dict,), "job": (str,), "seed": (int, _NONE), "attempt": (int,), "token": (str,), "status": (str,),
    "iteration": (int, float, _NONE), "step": _NUMBER, "of": (str,), "values": (dict,), "reports": (list,),
    "returned": (dict,), "time": _NUMBER, "reward": (int, float, _NONE), "code": (int, _NONE),
    "reason": (str, _NONE), "error": (str, _NONE), "content": (dict,), "mean": _NUMBER, "low": _NUMBER,
    "high": _NUMBER, "runs": (int,), "name": (str,), "digest": (str,), "limits": (dict, _NONE), "maximize": (bool,),
    "compare": (dict, _NONE), "origin": (dict, _NONE),
}  # fmt: skip
"""What a field holds, in whatever record it stands. Fields that are not named here may hold anything."""
_KINDS_OF: dict[str, dict[str, tuple[type, ...]]] = {
    "opened": {**_KINDS, "reward": (str, _NONE), "code": (str, _NONE), "unreadable": (int,)},
    "placed": {**_KINDS, "wall": _NUMBER},
    "reported": {**_KINDS, "wall": _NUMBER, "value": _NUMBER},
}
"""The same in records of these types: one of a controller that begins names the reward and the code."""
_NEEDED: dict[str, frozenset[str]] = {
    kind: frozenset(fields.split())
    for kind, fields in {
        "opened": "config", "proposed": "number config", "filtered": "number", "begun": "number config epoch",
        "submitting": "job number attempt token", "planned": "job number status", "placed": "job wall",
        "started": "job wall", "reported": "job step value wall", "assessed": "job iteration", "ended": "job status",
        "returned": "number time", "done": "number values of wall epoch", "observed": "number status values",
        "raced": "number", "message": "content", "checked": "number mean low high runs",
    }.items()
}  # fmt: skip
"""The fields that records of a type always have."""
_TIMES = ("wall", "started", "time")
_COUNTS = frozenset(("epoch", "number", "attempt", "seed", "code", "parent", "runs", "unreadable"))
"""Whole numbers that nobody makes floats of, however large they are."""
_FLOAT = frozenset((float,))
_OTHER_VALUES = frozenset((bool, str, _NONE))

_shapes: dict[tuple[Any, ...], tuple[tuple[str, ...] | None, bool]] = {}
"""What :func:`_look_at` found of fields and kinds that were looked at before: records of a search are much alike."""


class Damage:
    """How much of a journal cannot be read, and where that begins."""

    def __init__(self) -> None:
        self.offset: int | None = None
        self.records = 0
        self.tail: int | None = None
        """Where a last block begins that is whole and wrong; one cut short by the end of its writer is no damage."""
        self.empty = False
        """Whether nothing is left of a journal that was written."""
        self.problem: str | None = None
        """Why the file cannot be read at all."""

    def add(self, offset: int | None, records: int) -> None:
        """Take note of records that are missing or make no sense."""
        self.records += records
        if offset is not None and (self.offset is None or offset < self.offset):
            self.offset = offset

    @property
    def total(self) -> int:
        """How many records are known to be unreadable."""
        return self.records + (self.tail is not None)

    def __bool__(self) -> bool:
        return self.total > 0 or self.empty or self.problem is not None

    def __str__(self) -> str:
        if self.problem is not None:
            return f"journal damaged: it cannot be read ({self.problem})"
        if self.empty:
            return "journal damaged: it is empty, though the search has run"
        offset = self.tail if self.offset is None else self.offset
        where = "" if offset is None else f" at byte {offset}"
        return f"journal damaged{where}: {self.total} record{'' if self.total == 1 else 's'} unreadable"


def is_sound(record: dict[str, Any]) -> bool:
    """Whether the fields of a record are of their kinds, and its numbers such that one can count with them."""
    try:
        if type(record["epoch"]) is int and _USUAL[record["type"]](record):
            return True
    except (KeyError, TypeError):
        pass  # another form, or one that makes no sense
    return _is_sound(record)


def _is_sound(record: dict[str, Any]) -> bool:
    try:
        numbers, has_more = _shapes[(record["type"], *record, *map(type, record.values()))]
    except (KeyError, TypeError):
        numbers, has_more = _look_at(record)
    if numbers is None:
        return False
    for key in numbers:
        if not -_LARGEST < record[key] < _LARGEST:
            return False
    return not has_more or _is_sound_inside(record)


def _is_usual_start(line: dict[str, Any]) -> bool:
    return len(line) == 5 and (
        type(line["job"]) is str
        and type(line["attempt"]) is int
        and type(line["wall"]) is float
        and -_LARGEST < line["wall"] < _LARGEST
    )


def _is_usual_end(line: dict[str, Any]) -> bool:
    return len(line) == 9 and (
        type(line["job"]) is str
        and type(line["attempt"]) is int
        and type(line["status"]) is str
        and type(line["reward"]) is float
        and type(line["code"]) is int
        and type(line["wall"]) is type(line["started"]) is float
        and -_LARGEST < line["wall"] < _LARGEST
        and -_LARGEST < line["started"] < _LARGEST
    )


def _is_usual_done(line: dict[str, Any]) -> bool:
    values, reports = line["values"], line.get("reports")
    return len(line) == (7 if reports is None else 8) and (
        type(line["number"]) is int
        and type(values) is dict
        and len(values) == 1
        and type(line["of"]) is str
        and type(values.get(line["of"])) is float
        and type(line["wall"]) is type(line["started"]) is float
        and -_LARGEST < line["wall"] < _LARGEST
        and -_LARGEST < line["started"] < _LARGEST
        and (reports is None or (type(reports) is list and all(map(_is_report, reports))))
    )


def _is_usual_observation(line: dict[str, Any]) -> bool:
    values = line["values"]
    return len(line) == 6 and (
        type(line["number"]) is int
        and type(line["status"]) is str
        and type(line["reward"]) is float
        and type(values) is dict
        and set(map(type, values.values())) <= _FLOAT
    )


_USUAL: dict[str, Callable[[dict[str, Any]], bool]] = {
    "begun": lambda line: len(line) == 4 and type(line["number"]) is int and type(line["config"]) is dict,
    "proposed": lambda line: len(line) == 4 and type(line["number"]) is int and type(line["config"]) is dict,
    "submitting": lambda line: (
        len(line) == 7
        and line["seed"] is None
        and type(line["job"]) is type(line["token"]) is str
        and type(line["number"]) is type(line["attempt"]) is int
    ),
    "started": _is_usual_start,
    "ended": _is_usual_end,
    "observed": _is_usual_observation,
    "done": _is_usual_done,
}
"""The forms that nearly all records of a search have, told from others in a third of the time: a whole journal is
looked at whenever somebody asks for a search."""


def _look_at(record: dict[str, Any]) -> tuple[tuple[str, ...] | None, bool]:
    """Which numbers of a record must be looked at each time (None if a field is of the wrong kind), and whether it
    holds more that must."""
    if type(record.get("type")) is not str:
        return None, False
    kinds = _KINDS_OF.get(record["type"], _KINDS)
    held = {key: type(value) for key, value in record.items() if key in kinds}
    numbers: tuple[str, ...] | None = None
    whole = record.keys() >= _NEEDED.get(record["type"], frozenset())
    if whole and all(kind in kinds[key] for key, kind in held.items()):
        numbers = tuple(
            key
            for key, kind in held.items()
            if (kind is int and key not in _COUNTS) or (kind is float and key in _TIMES)
        )
    found = numbers, "values" in record or "extras" in record
    if len(_shapes) < _MOST_SHAPES:
        _shapes[(record["type"], *record, *map(type, record.values()))] = found
    return found


def _is_sound_inside(record: dict[str, Any]) -> bool:
    if "values" in record:
        for value in record["values"].values():
            if type(value) is not float and not (_is_number(value) or type(value) in _OTHER_VALUES):
                return False
        if "of" in record and not _is_done(record):
            return False
    return "extras" not in record or is_sound({"type": "", **record["extras"]})


def _is_number(value: Any) -> bool:
    return type(value) in _NUMBER and -_LARGEST < value < _LARGEST


def _is_done(line: dict[str, Any]) -> bool:
    """Of a line that stands for a whole trial: whether it names its reward, its beginning and its reports."""
    if type(line["values"].get(line["of"])) not in _NUMBER or line.get("wall") is None:
        return False
    if not _is_number(line["started"] if "started" in line else line.get("returned", {}).get("time")):
        return False
    return all(map(_is_report, line.get("reports", ())))


def _is_report(report: Any) -> bool:
    if type(report) is not list or len(report) != 3:
        return False
    step, value, wall = report
    numbers = type(step) in _NUMBER and type(value) in _NUMBER and type(wall) in _NUMBER
    return numbers and -_LARGEST < step < _LARGEST and -_LARGEST < wall < _LARGEST
