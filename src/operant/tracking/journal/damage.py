"""Which records of a journal make sense, and what is said of those that do not.

A journal may be damaged anywhere, or come from a stranger: whoever folds one gets only records whose fields are of the
kinds that :data:`_KINDS` names, so that no later sum, comparison or path has to be on its guard.
"""

from __future__ import annotations

from typing import Any

__all__ = ["Damage", "is_sound"]

_LARGEST = 1e300  # a number that every float can be compared with, and added to
_MOST_SHAPES = 4096

_NONE = type(None)
_NUMBER = (int, float)
_KINDS: dict[str, tuple[type, ...]] = {
    "type": (str,), "epoch": (int,), "wall": (int, float, _NONE), "started": (int, float, _NONE),
    "number": (int,), "config": (dict,), "budget": (int, float, _NONE), "parent": (int, _NONE), "notes": (dict, _NONE),
    "extras": (dict,), "job": (str,), "seed": (int, _NONE), "attempt": (int,), "token": (str,), "status": (str,),
    "iteration": (int, float, _NONE), "step": _NUMBER, "of": (str,), "values": (dict,), "reports": (list,),
    "returned": (dict,), "time": _NUMBER, "reward": (int, float, _NONE), "code": (int, _NONE),
    "reason": (str, _NONE), "error": (str, _NONE), "content": (dict,), "mean": _NUMBER, "low": _NUMBER,
    "high": _NUMBER, "runs": (int,), "name": (str,), "digest": (str,), "limits": (dict, _NONE), "maximize": (bool,),
    "compare": (dict, _NONE), "origin": (dict, _NONE),
}  # fmt: skip
"""What a field holds, in whatever record it stands. Fields that are not named here may hold anything."""
_OPENED = {**_KINDS, "reward": (str, _NONE), "code": (str, _NONE), "unreadable": (int,)}
"""The same in the record of a controller that begins, which names the reward and the code and does not hold them."""
_NEEDED = {"begun": {"number", "config", "epoch"}, "done": {"number", "values", "of", "wall", "epoch"}}
"""What lines must have that stand for several records."""
_TIMES = ("wall", "started", "time")
_VALUES = frozenset((int, float, bool, str, _NONE))

_shapes: dict[tuple[Any, ...], tuple[str, ...] | None] = {}
"""Fields and kinds that were looked at before: which of the numbers to look at, or None if it makes no sense."""


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
        shape = (record["type"], *record, *map(type, record.values()))
        numbers = _shapes[shape]
    except (KeyError, TypeError):
        numbers = _look_at(record)
    if numbers is None:
        return False
    for key in numbers:
        if not -_LARGEST < record[key] < _LARGEST:
            return False
    if "values" in record:
        for value in record["values"].values():
            kind = type(value)
            if kind is not float and (kind not in _VALUES or (kind is int and not -_LARGEST < value < _LARGEST)):
                return False
        if "of" in record and not _is_done(record):
            return False
    return "extras" not in record or is_sound({"type": "", **record["extras"]})


def _look_at(record: dict[str, Any]) -> tuple[str, ...] | None:
    """The numbers of a record that must be looked at each time, or None if a field is of the wrong kind."""
    if type(record.get("type")) is not str:
        return None
    kinds = _OPENED if record["type"] == "opened" else _KINDS
    held = {key: type(value) for key, value in record.items() if key in kinds}
    numbers: tuple[str, ...] | None = None
    whole = record.keys() >= _NEEDED.get(record["type"], set())
    if whole and all(kind in kinds[key] for key, kind in held.items()):
        numbers = tuple(key for key, kind in held.items() if kind is int or (kind is float and key in _TIMES))
    if len(_shapes) < _MOST_SHAPES:
        _shapes[(record["type"], *record, *map(type, record.values()))] = numbers
    return numbers


def _is_done(line: dict[str, Any]) -> bool:
    """Of a line that stands for a whole trial: whether it names its reward, its beginning and its reports."""
    if type(line["values"].get(line["of"])) not in _NUMBER or line.get("wall") is None:
        return False
    if "started" in line:
        if line["started"] is None:
            return False
    elif not is_sound({"type": "", "time": line.get("returned", {}).get("time")}):
        return False
    for report in line.get("reports", ()):
        if type(report) is not list or len(report) != 3:
            return False
        if not is_sound({"type": "", "step": report[0], "time": report[2]}) or type(report[1]) not in _NUMBER:
            return False
    return True
