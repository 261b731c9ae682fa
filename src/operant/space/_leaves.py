"""The leaves of a space: one argument each, and how its values map to the unit interval and back."""

from __future__ import annotations

import json
import math
import sys
from collections.abc import Iterable, Mapping, Sequence
from decimal import Decimal
from typing import Any, overload

import numpy as np

from operant._util.checks import from_text
from operant.errors import ConfigError
from operant.space._conditions import When


class Space:
    """What may vary. A leaf is one argument; containers (`Dict`, `List`, `File`) hold other spaces."""

    when: When | None = None

    @property
    def data(self) -> Sequence[Any]:
        """All values, lazily where there are many; an error when there are infinitely many."""
        raise NotImplementedError

    @property
    def size(self) -> int | float:
        """How many values there are; `math.inf` when they cannot be counted."""
        raise NotImplementedError


class Leaf(Space):
    """One argument. `decode` maps [0, 1] onto the values,
    `encode` maps a value back into its own part of [0, 1].
    """

    def __init__(self, when: Mapping[str, Any] | When | None = None) -> None:
        self.when = None if when is None else When.parse(when)

    def encode(self, value: Any) -> float:
        raise NotImplementedError

    def decode(self, unit: float) -> Any:
        raise NotImplementedError

    def __contains__(self, value: object) -> bool:
        raise NotImplementedError

    def encode_many(self, values: Sequence[Any]) -> np.ndarray:
        return np.array([self.encode(value) for value in values], dtype=float)

    def decode_many(self, units: np.ndarray) -> list[Any]:
        return [self.decode(unit) for unit in units.tolist()]

    def snap_many(self, units: np.ndarray) -> np.ndarray:
        """For each place in [0, 1], the place of the value it stands for."""
        return self.encode_many([self.decode(unit) for unit in units.tolist()])

    def sample(self, rng: np.random.Generator) -> Any:
        return self.decode(rng.random())

    def __eq__(self, other: object) -> bool:
        return type(self) is type(other) and vars(self) == vars(other)

    def __hash__(self) -> int:
        return hash(repr(self))


class Categorical(Leaf):
    """One of a few values of any kind, without an order: `Categorical([1024,
    512])` or `Categorical("a", "b")`.
    """

    def __init__(self, *data: Any, when: Mapping[str, Any] | When | None = None) -> None:
        super().__init__(when)
        values = data[0] if len(data) == 1 and isinstance(data[0], (list, tuple, range, np.ndarray)) else data
        self._set_values(values)

    def _set_values(self, values: Iterable[Any]) -> None:
        index: dict[str, int] = {}
        kept: list[Any] = []
        for value in values:
            plain = plain_value(value)
            if index.setdefault(canonical(plain), len(kept)) == len(kept):
                kept.append(plain)
        if not kept:
            raise ConfigError("`data` is empty: there is nothing to choose from", ("data",))
        self._values = kept
        self._index = index
        # Most choices are texts; searchers look them up for every candidate.
        self._texts = {value: place for place, value in enumerate(kept) if type(value) is str}

    @property
    def data(self) -> list[Any]:
        return list(self._values)

    @property
    def size(self) -> int:
        return len(self._values)

    def index(self, value: Any) -> int:
        if type(value) is str and value in self._texts:
            return self._texts[value]
        try:
            return self._index[canonical(plain_value(value))]
        except KeyError:
            raise ConfigError(f"{value!r} is none of the values {self._values!r}") from None

    def encode(self, value: Any) -> float:
        return (self.index(value) + 0.5) / len(self._values)

    def decode(self, unit: float) -> Any:
        return self._values[min(int(unit * len(self._values)), len(self._values) - 1)]

    def snap_many(self, units: np.ndarray) -> np.ndarray:
        count = len(self._values)
        snapped: np.ndarray = (np.minimum((units * count).astype(int), count - 1) + 0.5) / count
        return snapped

    def __contains__(self, value: object) -> bool:
        return canonical(plain_value(value)) in self._index

    def __repr__(self) -> str:
        return f"{type(self).__name__}({self._values!r}{when_text(self.when)})"


class Nested(Categorical):
    """Several arguments that vary together: one of a few rows, each a mapping from argument to value."""

    def __init__(self, *data: Any, when: Mapping[str, Any] | When | None = None) -> None:
        super().__init__(*data, when=when)

    def _set_values(self, values: Iterable[Any]) -> None:
        rows = list(values)
        for number, row in enumerate(rows):
            if not isinstance(row, Mapping) or not row:
                raise ConfigError(f"a row is a mapping from argument to value, not {row!r}", ("data", number))
        super()._set_values([{str(key): plain_value(value) for key, value in row.items()} for row in rows])

    @property
    def keys(self) -> list[str]:
        """The arguments that the rows set, in the order in which they first occur."""
        return list(dict.fromkeys(key for row in self._values for key in row))

    def without(self, dropped: Iterable[str]) -> Nested | None:
        """The same rows without some of their arguments; None when nothing would be left."""
        gone = set(dropped)
        rows = [{key: value for key, value in row.items() if key not in gone} for row in self._values]
        rows = [row for row in rows if row]
        return Nested(rows, when=self.when) if rows else None


class Numeric(Leaf):
    """An interval of numbers, with or without steps.

    Values with steps own equal parts of the unit interval (equal on the log scale with `log`), so sampling
    uniformly and decoding gives each the chance it should have, the ends included.
    """

    low: float
    high: float
    step: float | None
    log: bool
    _count: int | None

    def _set_scale(self) -> None:
        if self.log and self.low <= 0:
            raise ConfigError(f"`log` needs numbers above 0, but the lower end is {self.low}", ("log",))
        half = 0.0 if self.step is None else self.step / 2
        bottom, top = self.low - half, self.high + half
        if self.log:
            bottom = bottom if bottom > 0 else self.low / 2
            bottom, top = math.log(bottom), math.log(top)
        self._bottom = bottom
        self._span = top - bottom

    def encode(self, value: Any) -> float:
        if not is_number(value):
            raise ConfigError(f"{value!r} is not a number")
        if self._span == 0:
            return 0.5
        number = min(max(float(value), self.low), self.high)
        if self.step is not None:
            number = self.low + round((number - self.low) / self.step) * self.step
        place = math.log(number) if self.log else number
        return min(max((place - self._bottom) / self._span, 0.0), 1.0)

    def encode_many(self, values: Sequence[Any]) -> np.ndarray:
        if self._span == 0:
            return np.full(len(values), 0.5)
        numbers = np.minimum(np.maximum(np.asarray(values, dtype=float), self.low), self.high)
        if self.step is not None:
            numbers = self.low + np.round((numbers - self.low) / self.step) * self.step
        places = np.log(numbers) if self.log else numbers
        units: np.ndarray = np.minimum(np.maximum((places - self._bottom) / self._span, 0.0), 1.0)
        return units

    def snap_many(self, units: np.ndarray) -> np.ndarray:
        if self._count is None and self._span > 0:
            clipped: np.ndarray = np.minimum(np.maximum(units, 0.0), 1.0)
            return clipped
        return super().snap_many(units)

    def _number(self, unit: float) -> float:
        place = self._bottom + unit * self._span
        return math.exp(place) if self.log else place

    @property
    def size(self) -> int | float:
        return math.inf if self._count is None else self._count

    def __repr__(self) -> str:
        options = ("" if self.step in (None, 1) else f", step={self.step}") + (", log=True" if self.log else "")
        return f"{type(self).__name__}({self.low}, {self.high}{options}{when_text(self.when)})"


class Int(Numeric):
    """Whole numbers from `low` to `high`, both included: `Int(1, 8)` or `Int([16, 1024], log=True)`."""

    low: int
    high: int
    step: int

    def __init__(
        self,
        low: Any,
        high: Any = None,
        step: int | None = None,
        log: bool = False,
        when: Mapping[str, Any] | When | None = None,
    ) -> None:
        super().__init__(when)
        low, high = _ends(low, high)
        self.step = 1 if step is None else _whole(step, "step")
        if self.step < 1:
            raise ConfigError(f"`step` must be at least 1, not {step}", ("step",))
        self.low, self.high, self.log = _whole(low, "data"), _whole(high, "data"), bool(log)
        if self.high - self.low >= sys.maxsize:
            raise ConfigError(f"the range is too wide: an Int has less than {sys.maxsize:,} values", ("data",))
        self._values = range(self.low, self.high + 1, self.step)
        self._count = len(self._values)
        self.high = self._values[-1]
        self._set_scale()

    @property
    def data(self) -> range:
        return self._values

    def decode(self, unit: float) -> int:
        place = round((self._number(unit) - self.low) / self.step)
        return self._values[min(max(place, 0), len(self._values) - 1)]

    def __contains__(self, value: object) -> bool:
        return is_number(value) and value in self._values


class Real(Numeric):
    """Numbers from `low` to `high`: all of them, or those a `step` apart."""

    def __init__(
        self,
        low: Any,
        high: Any = None,
        step: float | None = None,
        log: bool = False,
        when: Mapping[str, Any] | When | None = None,
    ) -> None:
        super().__init__(when)
        low, high = _ends(low, high)
        self.low, self.high, self.log = float(low), float(high), bool(log)
        if not math.isfinite(self.high - self.low):
            raise ConfigError("the range is too wide: its ends must be less than 1.8e308 apart", ("data",))
        self.step = None
        self._count = None
        if self.low == self.high:
            self._steps = Steps(self.low, self.high, 1.0)
            self._count = 1
        if step is not None:
            if not is_number(step) or not 0 < step < math.inf:
                raise ConfigError(f"`step` must be a number above 0, not {step!r}", ("step",))
            self.step = float(step)
            self._steps = Steps(self.low, self.high, self.step)
            self._count = len(self._steps)
            self.high = self._steps[-1]
        self._set_scale()

    @property
    def data(self) -> Steps:
        if self._count is None:
            raise ConfigError("a Real without `step` has infinitely many values; give it a `step`", ("step",))
        return self._steps

    def decode(self, unit: float) -> float:
        number = self._number(unit)
        if self.step is None:
            return min(max(number, self.low), self.high)
        place = round((number - self.low) / self.step)
        return self._steps[min(max(place, 0), len(self._steps) - 1)]

    def decode_many(self, units: np.ndarray) -> list[float]:
        # numpy's exponential may differ from Python's in the last digit, and one place must mean one value.
        if self.step is not None or self.log:
            return super().decode_many(units)
        found: list[float] = np.clip(self._bottom + units * self._span, self.low, self.high).tolist()
        return found

    def __contains__(self, value: object) -> bool:
        if not is_number(value):
            return False
        number = float(value)  # type: ignore[arg-type]
        if self.step is None:
            return self.low <= number <= self.high
        return number in self._steps


class Steps(Sequence[float]):
    """`low, low + step, …` up to `high`, as the user would write them: 0.3 and not 0.30000000000000004."""

    def __init__(self, low: float, high: float, step: float) -> None:
        self._low, self._step = Decimal(repr(low)), Decimal(repr(step))
        self._count = int((Decimal(repr(high)) - self._low) / self._step) + 1

    def __len__(self) -> int:
        return self._count

    @overload
    def __getitem__(self, index: int) -> float: ...

    @overload
    def __getitem__(self, index: slice) -> list[float]: ...

    def __getitem__(self, index: int | slice) -> float | list[float]:
        if isinstance(index, slice):
            return [self[i] for i in range(*index.indices(self._count))]
        if not -self._count <= index < self._count:
            raise IndexError(f"there are only {self._count} steps")
        return float(self._low + (index % self._count) * self._step)

    def __contains__(self, value: object) -> bool:
        if not is_number(value):
            return False
        place = round((float(value) - float(self._low)) / float(self._step))  # type: ignore[arg-type]
        return 0 <= place < self._count and self[place] == value

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Steps) and vars(self) == vars(other)

    def __hash__(self) -> int:
        return hash((self._low, self._step, self._count))

    def __repr__(self) -> str:
        return f"Steps({self._low}, {self[-1]}, {self._step})"


def is_number(value: object) -> bool:
    return isinstance(value, (int, float, np.integer, np.floating)) and not isinstance(value, bool)


def plain_value(value: Any) -> Any:
    """Numpy's scalars and arrays as Python's own, so that a configuration is JSON."""
    if isinstance(value, (np.generic, np.ndarray)):
        return value.tolist()
    return value


def canonical(value: Any) -> str:
    """A text that is the same for the same value, whatever its kind; 1, 1.0 and True are different values."""
    return json.dumps(value, sort_keys=True, default=repr)


def when_text(when: When | None) -> str:
    return "" if when is None else f", when={when!r}"


def _ends(low: Any, high: Any) -> tuple[Any, Any]:
    if high is None:
        if not isinstance(low, (list, tuple)) or len(low) != 2:
            raise ConfigError(
                f"`data` must be the two ends [low, high], not {low!r}; single values are a Categorical",
                ("data",),
            )
        low, high = low
    low, high = from_text(low), from_text(high)
    for end in (low, high):
        if not is_number(end) or not abs(end) <= sys.float_info.max:
            raise ConfigError(f"both ends must be finite numbers, but one is {end!r}", ("data",))
    if low > high:
        raise ConfigError(f"the lower end {low} is above the upper end {high}", ("data",))
    return low, high


def _whole(value: Any, key: str) -> int:
    if not is_number(value) or not (isinstance(value, (int, np.integer)) or float(value).is_integer()):
        raise ConfigError(f"an Int needs whole numbers, but `{key}` has {value!r}; use Real for others", (key,))
    return int(value)
