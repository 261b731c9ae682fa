"""Blocks of points as numpy arrays."""

from __future__ import annotations

import struct
import zlib
from collections.abc import Iterator

import numpy as np
from numpy.typing import NDArray

from operant.tracking.format.blocks import DEFLATED, MAX_PAYLOAD, MIXED, Block

__all__ = ["POINT", "Points", "concatenate", "empty_points", "shuffle_columns", "split_points"]

POINT = np.dtype([("step", "<i8"), ("wall", "<f8"), ("value", "<f8")])
Points = NDArray[np.void]
"""A structured array with the fields ``step``, ``wall`` and ``value``."""


def empty_points() -> Points:
    return np.empty(0, POINT)


def concatenate(pieces: list[Points]) -> Points:
    if not pieces:
        return empty_points()
    return pieces[0] if len(pieces) == 1 else np.concatenate(pieces)


def split_points(block: Block) -> Iterator[tuple[int, Points]]:
    """The points of a block as (series number, points), each series in the order its points were added."""
    if len(block.payload) < 8:
        return
    only, count = struct.unpack_from("<II", block.payload)
    mixed = block.kind == MIXED
    width = 28 if mixed else 24
    body = _inflate(block, count * width) if block.flags & DEFLATED else block.payload[8:]
    if count == 0 or len(body) != count * width:
        return  # a writer of ours never makes such a block
    points = np.empty(count, POINT)
    points["step"] = np.frombuffer(body, "<i8", count)
    points["wall"] = np.frombuffer(body, "<f8", count, 8 * count)
    points["value"] = np.frombuffer(body, "<f8", count, 16 * count)
    if not mixed:
        yield only, points
        return
    numbers = np.frombuffer(body, "<u4", count, 24 * count)
    order = np.argsort(numbers, kind="stable")
    points, numbers = points[order], numbers[order]
    starts = [0, *(np.flatnonzero(numbers[1:] != numbers[:-1]) + 1)]
    for start, end in zip(starts, [*starts[1:], count], strict=True):
        yield int(numbers[start]), points[start:end]


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
