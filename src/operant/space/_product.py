"""All configurations of a finite space as a sequence that is never written out:
a grid of 10^12 costs nothing.
"""

from __future__ import annotations

import bisect
import itertools
import math
from collections.abc import Iterator, Sequence
from dataclasses import replace
from typing import Any, overload

from operant.errors import ArgumentError, ConfigError
from operant.space._conditions import Test
from operant.space._layout import Argument, Config, Layout
from operant.space._leaves import Categorical

_MOST_BLOCKS = 1_000_000

# The part of an argument's values that a block covers: from where, how many. None: the argument is not
# active.
Part = tuple[int, int] | None


class Product(Sequence[Config]):
    """`product[i]` is configuration i; the last argument varies fastest.

    Without conditions this is one mixed-radix number. A condition splits the values of the argument it asks
    about into stretches on which its answer is the same; for each combination of stretches it is known which
    arguments are active, so each combination is a block of its own and no configuration is counted twice.
    """

    def __init__(self, layout: Layout) -> None:
        finite = _finite(layout)
        if isinstance(finite, Argument):
            raise ArgumentError(
                f"{finite.name!r} is a Real without `step`, so its values cannot be enumerated; "
                f"give it a `step` or use another searcher",
                (finite.name, "step"),
            )
        self._layout = finite
        self._blocks = list(_blocks(finite))
        self._starts = [0, *itertools.accumulate(_block_size(block) for block in self._blocks)]

    def __len__(self) -> int:
        return self._starts[-1]

    @property
    def size(self) -> int:
        """As `len`, which Python limits to 2^63."""
        return self._starts[-1]

    @overload
    def __getitem__(self, index: int) -> Config: ...

    @overload
    def __getitem__(self, index: slice) -> list[Config]: ...

    def __getitem__(self, index: int | slice) -> Config | list[Config]:
        if isinstance(index, slice):
            return [self[i] for i in range(*index.indices(self.size))]
        if index < 0:
            index += self.size
        if not 0 <= index < self.size:
            raise IndexError(f"there are only {self.size} configurations")
        number = bisect.bisect_right(self._starts, index) - 1
        return self._config(self._blocks[number], index - self._starts[number])

    def __iter__(self) -> Iterator[Config]:
        return (self[i] for i in range(self.size))

    def _config(self, block: tuple[Part, ...], rest: int) -> Config:
        values: list[Any] = [None] * len(block)
        for i in range(len(block) - 1, -1, -1):
            part = block[i]
            if part is not None:
                rest, place = divmod(rest, part[1])
                values[i] = self._layout.arguments[i].leaf.data[part[0] + place]
        config: Config = {}
        for argument, part, value in zip(self._layout.arguments, block, values, strict=True):
            if part is not None:
                argument.put(config, value)
        return config


def product_size(layout: Layout) -> int | float:
    """How many configurations there are; `math.inf` with a continuous argument that can be active."""
    finite = _finite(layout)
    return math.inf if isinstance(finite, Argument) else sum(_block_size(block) for block in _blocks(finite))


def _finite(layout: Layout) -> Layout | Argument:
    """The layout with one value for each continuous argument, where none can be active; otherwise one that can."""
    endless = [i for i, argument in enumerate(layout.arguments) if math.isinf(argument.leaf.size)]
    for i in endless:
        if layout.arguments[i].when is None:
            return layout.arguments[i]
    if not endless:
        return layout
    only = Categorical([None])
    finite = Layout([replace(a, leaf=only) if math.isinf(a.leaf.size) else a for a in layout.arguments])
    try:
        blocks = _blocks(finite)
    except ConfigError:  # too many to look through; in one of them it surely is
        return layout.arguments[endless[0]]
    for block in blocks:
        for i in endless:
            if block[i] is not None:
                return layout.arguments[i]
    return finite


def _block_size(block: Sequence[Part]) -> int:
    return math.prod(part[1] for part in block if part is not None)


def _blocks(layout: Layout) -> Iterator[tuple[Part, ...]]:
    tests_on: dict[int, list[Test]] = {}
    for argument in layout.arguments:
        for test in argument.when.tests if argument.when is not None else ():
            tests_on.setdefault(layout.owner(test.name), []).append(test)
    stretches = {i: _stretches(layout.arguments[i], tests) for i, tests in tests_on.items()}
    if math.prod(len(parts) for parts in stretches.values()) > _MOST_BLOCKS:
        raise ConfigError("the conditions split this space into more than a million parts; use fewer of them")
    block: list[Part] = [None] * len(layout.arguments)
    # By identity: the tests for True and for 1 are equal to Python.
    true: set[int] = set()

    def extend(depth: int) -> Iterator[tuple[Part, ...]]:
        if depth == len(layout.order):
            yield tuple(block)
            return
        i = layout.order[depth]
        argument = layout.arguments[i]
        if argument.when is not None and not all(id(test) in true for test in argument.when.tests):
            block[i] = None
            yield from extend(depth + 1)
        elif i in stretches:
            for start, count, holding in stretches[i]:
                block[i] = (start, count)
                added = holding - true
                true.update(added)
                yield from extend(depth + 1)
                true.difference_update(added)
        else:
            block[i] = (0, int(argument.leaf.size))
            yield from extend(depth + 1)

    return extend(0)


def _stretches(argument: Argument, tests: Sequence[Test]) -> list[tuple[int, int, set[int]]]:
    data = argument.leaf.data
    if isinstance(argument.leaf, Categorical):
        cuts = list(range(len(data)))
    else:
        # Values of a number are in order, so an answer changes only at the numbers that a test mentions.
        edges = {0}
        for number in (number for test in tests for number in test.critical()):
            edges.update((bisect.bisect_left(data, number), bisect.bisect_right(data, number)))
        cuts = sorted(edge for edge in edges if edge < len(data))
    found: list[tuple[int, int, set[int]]] = []
    for start, stop in itertools.pairwise([*cuts, len(data)]):
        config: Config = {}
        argument.put(config, data[start])
        holding = {id(test) for test in tests if test.name in config and test.holds(config[test.name])}
        if found and found[-1][2] == holding:
            found[-1] = (found[-1][0], found[-1][1] + stop - start, holding)
        else:
            found.append((start, stop - start, holding))
    return found
