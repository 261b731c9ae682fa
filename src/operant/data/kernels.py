"""The loops of prioritised replay, compiled by numba.

Whatever has an order of additions adds in the same order as the numpy code beside it (`SumTree`, `ReplayBuffer`): a
training gives the same bits with and without numba. Powers are left to numpy for the same reason.

Each function has one signature. It is compiled when this module is imported, or comes from numba's cache; processes
that compile at the same time write the same code, each file by an atomic rename.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, TypeVar

import numpy as np
from numba import njit, types

from operant.data.trees import Array

_Function = TypeVar("_Function", bound=Callable[..., Any])

_FAN = 16  # of SumTree; a constant, so that loops over children are unrolled
_FLOATS = types.Array(types.float64, 1, "C")
_INTS = types.Array(types.int64, 1, "C")
_SINGLES = types.Array(types.float32, 1, "C")
_FLAGS = types.Array(types.boolean, 1, "C")
_GIVEN_FLOATS = types.Array(types.float64, 1, "C", readonly=True)
_GIVEN_INTS = types.Array(types.int64, 1, "C", readonly=True)

_TREE = (_FLOATS, _FLOATS, _FLOATS, _FLOATS, _FLOATS)  # SumTree._levels


def _field(kind: Any) -> Any:
    """A field of the records of steps: its values lie apart by the size of a record."""
    return types.Array(kind, 1, "A")


def _compiled(*arguments: Any) -> Callable[[_Function], _Function]:
    compile_it: Any = njit  # a decorator whose types mypy knows only where numba is installed

    def decorate(function: _Function) -> _Function:
        made: _Function
        try:
            made = compile_it(arguments, cache=True, nogil=True)(function)
        except Exception:
            # Nowhere to write the cache to (a read-only installation without a home), a full disk, a damaged file.
            # If the cache is not what is wrong, this fails in the same way.
            made = compile_it(arguments, nogil=True)(function)
        return made

    return decorate


@_compiled(*_TREE, _GIVEN_INTS, _GIVEN_FLOATS)
def set_weights(
    leaves: Array,
    nodes: Array,
    blocks: Array,
    rows: Array,
    before_row: Array,
    index: Array,
    weight: Array,
) -> None:
    """`SumTree.set`: new weights, and all sums above them."""
    for i in range(index.size):
        leaves[index[i]] = weight[i]
    below = 1
    for level, sums in ((leaves, nodes), (nodes, blocks), (blocks, rows)):
        below *= _FAN
        latest = -1
        for i in range(index.size):
            parent = index[i] // below
            if parent != latest:  # draws come in order, so those of one parent stand together
                latest = parent
                total = 0.0
                for child in range(_FAN):
                    total += level[parent * _FAN + child]
                sums[parent] = total
    total = 0.0
    for row in range(rows.size):
        total += rows[row]
        before_row[row + 1] = total


@_compiled(*_TREE, types.float64, _GIVEN_FLOATS, _INTS, _FLOATS)
def draw(
    leaves: Array,
    nodes: Array,
    blocks: Array,
    rows: Array,
    before_row: Array,
    part: float,
    share: Array,
    place: Array,
    weight: Array,
) -> float:
    """`SumTree.draw`: fills ``place`` and ``weight``; gives the least weight, 0 if a mass lay at the edge of a sum.

    One level after the other for the whole batch: what the processor does for one mass does not wait for another. All
    children of a node are looked at: a jump out of the loop would be mispredicted.
    """
    rest = weight
    before = np.empty(_FAN)
    row, latest = 0, -1
    for i in range(share.size):
        mass = (share[i] + i) * part
        while row + 1 < rows.size and before_row[row + 1] <= mass:  # each mass is larger than the one before
            row += 1
        if row != latest:
            latest = row
            total = 0.0
            for block in range(_FAN):
                before[block] = before_row[row] + total
                total += blocks[row * _FAN + block]
        passed = -1
        for block in range(_FAN):
            passed += before[block] <= mass
        place[i] = row * _FAN + passed
        rest[i] = mass - before[passed]
    for level in (nodes, leaves):
        for i in range(share.size):
            first = place[i] * _FAN
            total = 0.0
            for child in range(_FAN):
                before[child] = total
                total += level[first + child]
            passed = -1
            for child in range(_FAN):
                passed += before[child] <= rest[i]
            place[i] = first + passed
            rest[i] -= before[passed]
    least = np.inf
    for i in range(share.size):
        weight[i] = leaves[place[i]]
        least = min(least, weight[i])
    return least


@_compiled(_GIVEN_FLOATS)
def highest(priority: Array) -> float:
    """The highest priority, or -1 if one of them is negative, infinite or not a number."""
    most = 0.0
    for i in range(priority.size):
        if not (priority[i] >= 0.0 and priority[i] < np.inf):
            return -1.0
        most = max(most, priority[i])
    return most


@_compiled(
    _GIVEN_INTS,
    types.int64,
    _GIVEN_FLOATS,
    _field(types.int64),
    _field(types.int32),
    _field(types.float32),
    _field(types.boolean),
    _field(types.boolean),
    _INTS,
    _SINGLES,
    _SINGLES,
    _FLAGS,
    _FLAGS,
    _INTS,
    _INTS,
    _INTS,
)
def follow(
    slot: Array,
    num_envs: int,
    powers: Array,
    generation: Array,
    final_at: Array,
    reward: Array,
    terminated: Array,
    truncated: Array,
    born: Array,
    summed: Array,
    discount: Array,
    dead: Array,
    cut: Array,
    following: Array,
    ended: Array,
    kept_at: Array,
) -> int:
    """`ReplayBuffer.transitions` without the fields that are only copied: from each slot up to n steps ahead.

    Fills the arrays after ``truncated``: generation, discounted reward, discount, how the last step ended, the slot
    after it; and from their beginning two with those that were the last of an episode, and where its last observation
    is kept. Gives how many these are.
    """
    size, n_step = generation.size, powers.size - 1
    ends = 0
    for i in range(slot.size):
        here = slot[i]
        first = generation[here]
        total = np.float64(reward[here])
        taken = 1
        ahead = here + num_envs
        if ahead >= size:
            ahead -= size
        while taken < n_step and final_at[here] < 0 and generation[ahead] == first + taken:
            here = ahead
            total += reward[here] * powers[taken]
            taken += 1
            ahead = here + num_envs
            if ahead >= size:
                ahead -= size
        born[i] = first
        summed[i] = total
        discount[i] = 0.0 if terminated[here] else powers[taken]
        dead[i] = terminated[here]
        cut[i] = truncated[here]
        following[i] = ahead
        if final_at[here] >= 0:
            ended[ends] = i
            kept_at[ends] = final_at[here]
            ends += 1
    return ends
