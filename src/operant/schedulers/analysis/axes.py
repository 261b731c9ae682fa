"""The settings of a search as axes of a picture: what they are, their range, and where a value lies on them."""

from __future__ import annotations

import json
import math
import warnings
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any

from operant._util.checks import is_number
from operant.errors import OperantError
from operant.schedulers.engine.state import SearchState


@dataclass(frozen=True)
class SettingAxis:
    """One setting. A categorical one has ``choices``; a numeric one lies between ``low`` and ``high``."""

    name: str
    kind: str
    """``real``, ``int`` or ``categorical``."""
    log: bool = False
    low: float | None = None
    high: float | None = None
    choices: tuple[Any, ...] | None = None

    @property
    def is_numeric(self) -> bool:
        return self.kind != "categorical"

    def as_dict(self) -> dict[str, Any]:
        return {**asdict(self), "choices": None if self.choices is None else list(self.choices)}

    def place(self, value: Any) -> float | None:
        """Where a value lies: from 0 to 1 between the ends of a numeric axis, or the number of the choice."""
        if not self.is_numeric:
            text = label(value)
            return next((float(at) for at, one in enumerate(self.choices or ()) if label(one) == text), None)
        if not _is_number(value) or self.low is None or self.high is None:
            return None
        low, high, at = self.low, self.high, float(value)
        if self.log:
            if at <= 0:
                return None
            low, high, at = math.log(low), math.log(high), math.log(at)
        return (at - low) / (high - low) if high > low else 0.5

    def ticks(self, count: int) -> list[Any]:
        """Values at equal distances over the axis; of a categorical one all choices."""
        if not self.is_numeric or self.low is None or self.high is None:
            return list(self.choices or ())
        if self.high <= self.low:
            return [self.low]
        shares = [step / (count - 1) for step in range(count)]
        if self.log:
            low, high = math.log(self.low), math.log(self.high)
            return [math.exp(low + share * (high - low)) for share in shares]
        return [self.low + share * (self.high - self.low) for share in shares]


def axes_of(state: SearchState) -> list[SettingAxis]:
    """An axis for each setting, as the search's configuration describes it, or else as its proposals show it."""
    described = _described(state.opened.get("config") or {})
    configs = [one.settings for one in state.proposals.values()]
    seen: dict[str, list[Any]] = {name: [] for name in described}
    for config in configs:
        for name, value in config.items():
            seen.setdefault(name, []).append(value)
    return [described.get(name) or _observed(name, values) for name, values in seen.items()]


def label(value: Any) -> str:
    """A value as text, the same for equal values."""
    return value if isinstance(value, str) else json.dumps(value, sort_keys=True, default=str)


def _described(config: Mapping[str, Any]) -> dict[str, SettingAxis]:
    from operant.space import Int, Nested, Numeric, build_space

    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # of what was said when the search began
            space = build_space((config.get("task") or {})["search_args"])
    except (OperantError, TypeError, ValueError, AttributeError, KeyError):
        return {}  # a search begun from Python describes its space in other words
    found = {}
    for name, leaf in space.kwspaces.items():
        if isinstance(leaf, Numeric):
            kind = "int" if isinstance(leaf, Int) else "real"
            found[name] = SettingAxis(name, kind, leaf.log, float(leaf.low), float(leaf.high))
        elif not isinstance(leaf, Nested):  # whose rows set several names
            found[name] = _of_choices(name, list(leaf.data))
    return found


def _of_choices(name: str, values: Sequence[Any]) -> SettingAxis:
    """Values to choose from are an axis of numbers only where a picture gains by it: several different ones."""
    return SettingAxis(name, "categorical", choices=tuple(_unique(values)))


def _observed(name: str, values: Sequence[Any]) -> SettingAxis:
    numbers = [value for value in values if _is_number(value)]
    if len(numbers) < len(values) or len(set(numbers)) < 5:
        return _of_choices(name, sorted(_unique(values), key=_order))
    low, high = float(min(numbers)), float(max(numbers))
    whole = all(isinstance(value, int) for value in numbers)
    wide = low > 0 and high / low >= 100
    return SettingAxis(name, "int" if whole else "real", wide, low, high)


def _order(value: Any) -> tuple[int, float, str]:
    return (0, float(value), "") if _is_number(value) else (1, 0.0, label(value))


def _unique(values: Iterable[Any]) -> list[Any]:
    return list({label(value): value for value in values}.values())


def _is_number(value: Any) -> bool:
    return is_number(value) and -_LARGEST <= value <= _LARGEST


_LARGEST = 1e300  # a whole number beyond it, from a damaged journal, is no float
