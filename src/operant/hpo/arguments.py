"""From a value that may vary to an argument of a search space: what a searcher chooses and a journal keeps."""

from __future__ import annotations

import copy
import json
import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from statistics import NormalDist
from typing import Any

import numpy as np

from operant._util.checks import is_number
from operant.errors import UsageError
from operant.hpo.values import Choice, HyperValue, Link, Normal, Steps, Uniform
from operant.space import Categorical, Int, Leaf, Numeric, Real

# Longer axes are not written out when every value of a grid is wanted anyway.
_MOST_LISTED = 10_000


@dataclass(frozen=True)
class Argument:
    """One argument: its leaf in the space, and what is made of a value that was chosen from it."""

    value: HyperValue
    leaf: Leaf
    finish: Callable[[Any], Any] | None
    then: tuple[Link, ...]
    """The transformations that `finish` makes; those before them are part of the leaf."""

    @property
    def size(self) -> int | float:
        return self.leaf.size

    @property
    def is_choice(self) -> bool:
        return isinstance(self.value.source, Choice)

    def describe(self) -> dict[str, Any]:
        """For the journal, and to see on resuming whether the space is still the same."""
        found: dict[str, Any] = {"type": type(self.leaf).__name__}
        if isinstance(self.leaf, Categorical):
            found["data"] = self.leaf.data
        elif isinstance(self.leaf, NormalReal):
            found.update(mu=self.leaf.mu, sigma=self.leaf.sigma)
        elif isinstance(self.leaf, Numeric):
            found.update(low=self.leaf.low, high=self.leaf.high)
            found.update({"step": self.leaf.step} if self.leaf.step not in (None, 1) else {})
            found.update({"log": True} if self.leaf.log else {})
        if self.then:
            found["then"] = [link.text for link in self.then]
        return found


class NormalReal(Numeric):
    """A normally distributed number: equal parts of the unit interval are equally likely."""

    step = None
    log = False
    _count = None

    def __init__(self, mu: float, sigma: float) -> None:
        super().__init__()
        self.mu, self.sigma = mu, sigma
        self._distribution = NormalDist(mu, sigma)
        self.low, self.high = self.decode(0.0), self.decode(1.0)

    def encode(self, value: Any) -> float:
        return self._distribution.cdf(float(value))

    def encode_many(self, values: Sequence[Any]) -> np.ndarray:
        return np.array([self.encode(value) for value in values])

    def decode(self, unit: float) -> float:
        # The ends of the unit interval are infinitely far out; these are eight standard deviations.
        return self._distribution.inv_cdf(min(max(unit, 1e-15), 1 - 1e-15))

    def __contains__(self, value: object) -> bool:
        return is_number(value) and math.isfinite(value)

    def __repr__(self) -> str:
        return f"NormalReal({self.mu}, {self.sigma})"


def make_argument(value: HyperValue) -> Argument:
    source = value.source
    if isinstance(source, Choice):
        return _choice_argument(value, source)
    if isinstance(source, Normal):
        return _plain_argument(value, NormalReal(source.mu, source.sigma))
    if isinstance(source, Steps):
        leaf = Int if source.whole else Real
        return _plain_argument(value, leaf(source.low, source.high, step=source.step))  # type: ignore[arg-type]
    base = value.chain[0].base if value.chain else None
    if base is not None:
        # A log scale: searchers that think in the values themselves, and readers of the journal, are better served.
        ends = _power(base, source.low), _power(base, source.high)
        if 0 < min(ends) < max(ends) < math.inf:
            rest = HyperValue(source, value.chain[1:])
            return _plain_argument(value, Real(min(ends), max(ends), log=True), rest)
    return _plain_argument(value, Real(source.low, source.high))


def thinned(argument: Argument, count: int) -> Argument:
    """The argument with `count` of its values, evenly spread, both ends included; 1 is the middle."""
    raw = _spread(argument, count)
    if raw is None:
        return argument
    finished = [argument.value.finish(one) for one in raw]
    if argument.value.chain and all(_is_plain(one) for one in finished):
        return Argument(argument.value, Categorical(finished), None, ())
    if argument.is_choice:
        return _choice_argument(argument.value, Choice(tuple(raw)))
    return _plain_argument(argument.value, Categorical(raw))


def _spread(argument: Argument, count: int) -> list[Any] | None:
    """The values before transformation that a grid of `count` has; None for all of an argument as it is."""
    source = argument.value.source
    if isinstance(source, Uniform):
        if count == 1:
            return [(source.low + source.high) / 2]
        inside = [source.low + (source.high - source.low) * i / (count - 1) for i in range(1, count - 1)]
        return [source.low, *inside, source.high]
    if isinstance(source, Normal):
        # Both ends are infinitely far out: the middles of equally likely parts.
        return [NormalDist(source.mu, source.sigma).inv_cdf((i + 0.5) / count) for i in range(count)]
    size = int(argument.size)
    if count >= size and (not argument.value.chain or size > _MOST_LISTED):
        return None
    count = min(count, size)
    places = [round(i * (size - 1) / (count - 1)) for i in range(count)] if count > 1 else [(size - 1) // 2]
    if isinstance(source, Choice):
        return [_distinct(source.values)[place] for place in places]
    return [argument.leaf.data[place] for place in places]


def _plain_argument(value: HyperValue, leaf: Leaf, rest: HyperValue | None = None) -> Argument:
    """An argument of whose transformations the leaf has made none, or all but ``rest``."""
    rest = value if rest is None else rest
    return Argument(value, leaf, rest.finish if rest.chain else None, rest.chain)


def _choice_argument(value: HyperValue, source: Choice) -> Argument:
    values = _distinct(source.values)
    if all(_is_plain(one) for one in values):
        leaf = Categorical([json.loads(_canonical(one)) for one in values])  # as the journal will give it back
    else:
        # What JSON cannot hold stands in the journal under a name.
        leaf = Categorical([f"{i}: {_name(one)}" for i, one in enumerate(values)])
    scalars = all(one is None or isinstance(one, (bool, int, float, str)) for one in values)
    if scalars and not value.chain:
        return Argument(value, leaf, None, ())

    def finish(chosen: Any) -> Any:
        found = values[leaf.index(chosen)]
        # A trial that changes its list must not change that of the others.
        return value.finish(copy.deepcopy(found) if isinstance(found, (list, dict, set)) else found)

    return Argument(value, leaf, finish, value.chain)


def _distinct(values: Sequence[Any]) -> list[Any]:
    """Each value once. 1, 1.0 and True are three values; what is not JSON is the same only if it is identical."""
    seen: set[Any] = set()
    found = []
    for one in values:
        key: Any = _canonical(one) if _is_plain(one) else id(one)
        if key not in seen:
            seen.add(key)
            found.append(one)
    return found


def _canonical(value: Any) -> str:
    return json.dumps(value, sort_keys=True)


def _is_plain(value: Any) -> bool:
    if value is None or isinstance(value, (bool, int, float, str)):
        return type(value).__module__ == "builtins"
    if isinstance(value, (list, tuple)):
        return type(value) in (list, tuple) and all(_is_plain(one) for one in value)
    if isinstance(value, dict):
        return type(value) is dict and all(isinstance(k, str) and _is_plain(v) for k, v in value.items())
    return False


def _name(value: Any) -> str:
    name = getattr(value, "__qualname__", None)
    if name is None:
        name = repr(value)
        # An address differs between two runs of a program, and the journal must not.
        name = f"{type(value).__qualname__} object" if " at 0x" in name else name
    return str(name)[:80]


def _power(base: float, exponent: float) -> float:
    try:
        return float(base**exponent)
    except OverflowError:
        return math.inf


def check_budget(max_steps: int | None) -> int:
    if max_steps is None:
        raise UsageError(
            "a grid over continuous values needs max_steps(n): how many points it may have; "
            "or use quniform, which has steps"
        )
    return max_steps
