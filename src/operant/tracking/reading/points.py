"""Blocks of points as numpy arrays."""

from __future__ import annotations

import struct
import zlib
from collections.abc import Collection, Iterator
from typing import Any

import numpy as np
from numpy.typing import NDArray

from operant.tracking.format.blocks import DEFLATED, MAX_PAYLOAD, MIXED, Block

POINT = np.dtype([("step", "<i8"), ("wall", "<f8"), ("value", "<f8")])
Points = NDArray[np.void]
"""A structured array with the fields ``step``, ``wall`` and ``value``."""


def empty_points() -> Points:
    return np.empty(0, POINT)


def concatenate(pieces: list[Points]) -> Points:
    if not pieces:
        return empty_points()
    return pieces[0] if len(pieces) == 1 else np.concatenate(pieces)


def split_points(block: Block, only: Collection[int] | None = None) -> Iterator[tuple[int, Points]]:
    """The points of a block as (series number, points), each series in the order its points were added.

    With ``only`` the points of other series are passed over, at a small part of the cost.
    """
    columns = _columns(block, only)
    if columns is None:
        return
    numbers, steps, walls, values = columns
    if isinstance(numbers, int):
        yield numbers, _points(steps, walls, values)
        return
    if only is not None and len(only) <= 8:  # one look through the block for each costs less than sorting it
        for number in only:
            at = np.flatnonzero(numbers == number)
            if len(at):
                yield number, _points(steps[at], walls[at], values[at])
        return
    order = np.argsort(numbers, kind="stable")
    points, numbers = _points(steps, walls, values)[order], numbers[order]
    starts = [0, *(np.flatnonzero(numbers[1:] != numbers[:-1]) + 1)]
    for start, end in zip(starts, [*starts[1:], len(numbers)], strict=True):
        number = int(numbers[start])
        if only is None or number in only:
            yield number, points[start:end]


def last_points(block: Block) -> Iterator[tuple[int, int, tuple[int, float, float]]]:
    """Of each series in a block: its number, how many points it has there, and the last of them."""
    columns = _columns(block, None)
    if columns is None:
        return
    numbers, steps, walls, values = columns
    if isinstance(numbers, int):
        yield numbers, len(steps), (int(steps[-1]), float(walls[-1]), float(values[-1]))
        return
    # Looked at from the end, the first point of each series is its last; nothing needs to be sorted by series.
    found, places, counts = np.unique(numbers[::-1], return_index=True, return_counts=True)
    last = len(numbers) - 1 - places
    rows = zip(steps[last].tolist(), walls[last].tolist(), values[last].tolist(), strict=True)
    yield from zip(found.tolist(), counts.tolist(), rows, strict=True)


def _columns(block: Block, only: Collection[int] | None) -> tuple[Any, Any, Any, Any] | None:
    """Series number (one, or one for each point), steps, walls and values; None when nothing is wanted of it."""
    if len(block.payload) < 8:
        return None
    number, count = struct.unpack_from("<II", block.payload)
    mixed = block.kind == MIXED
    if not mixed and only is not None and number not in only:
        return None
    width = 28 if mixed else 24
    body = _inflate(block, count * width) if block.flags & DEFLATED else block.payload[8:]
    if count == 0 or len(body) != count * width:
        return None  # a writer of ours never makes such a block
    numbers = np.frombuffer(body, "<u4", count, 24 * count) if mixed else number
    return (
        numbers,
        np.frombuffer(body, "<i8", count),
        np.frombuffer(body, "<f8", count, 8 * count),
        np.frombuffer(body, "<f8", count, 16 * count),
    )


def _points(steps: Any, walls: Any, values: Any) -> Points:
    points = np.empty(len(steps), POINT)
    points["step"], points["wall"], points["value"] = steps, walls, values
    return points


def shuffle_columns(points: Points) -> bytes:
    """The three columns, each as all first bytes, all second bytes, …: neighbours are alike, so zlib finds more."""
    columns = [np.ascontiguousarray(points[name]) for name in ("step", "wall", "value")]
    return b"".join(column.view(np.uint8).reshape(-1, 8).T.tobytes() for column in columns)


def _inflate(block: Block, expected: int) -> bytes:
    if expected > MAX_PAYLOAD:
        return b""
    try:
        packed = zlib.decompressobj().decompress(bytes(block.payload[8:]), expected + 1)
    except zlib.error:
        return b""
    if len(packed) != expected or expected % 24:
        return b""
    planes = np.frombuffer(packed, np.uint8).reshape(3, 8, expected // 24)
    return planes.transpose(0, 2, 1).tobytes()
