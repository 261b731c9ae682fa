"""Writes TensorBoard event files, a million scalar points in a fraction of a second, without TensorBoard."""

from __future__ import annotations

import io
import math
import os
import re
import socket
import time
import wave
from collections.abc import Mapping, Sequence
from pathlib import Path
from types import TracebackType
from typing import BinaryIO, TypeVar

import numpy as np
from numpy.typing import ArrayLike, NDArray

from operant.tracking.exchange.tfrecord import (
    FOOTER_SIZE,
    bytes_field,
    crc32c_with_prefix,
    double_field,
    mask_array,
    record,
    record_header,
    text_field,
    varint,
    varint_field,
)

# 16,384 records of 60 bytes make a block of 1 MB, which stays in the cache between the passes over it.
_BLOCK_ROWS = 16_384

_Number = TypeVar("_Number", np.int64, np.float64)

_DT_FLOAT = 1
_DT_STRING = 7
_HPARAM_STRING, _HPARAM_BOOL, _HPARAM_FLOAT64 = 1, 2, 3
_STATUS_SUCCESS = 1
_PNG_SIGNATURE = b"\x89PNG\r\n\x1a\n"
_CHANNELS_OF_PNG = {0: 1, 2: 3, 3: 3, 4: 2, 6: 4}  # by the colour type in the IHDR chunk

_STEP_KEY = 0x10  # Event.step, a varint
_WALL_KEY = 0x09  # Event.wall_time, 8 bytes
_SIMPLE_VALUE_KEY = b"\x15"  # Summary.Value.simple_value, 4 bytes


class EventFileWriter:
    """One new `events.out.tfevents.<secs>.<host>` file in `folder`; not for use by several threads at once.

    `wall` is when the file counts as begun (now, unless given); it is in the file's name, by which
    TensorBoard orders the files of a run. A name that is taken gets a number at its end.
    """

    def __init__(self, folder: str | os.PathLike[str], *, wall: float | None = None) -> None:
        wall = time.time() if wall is None else float(wall)
        if not math.isfinite(wall) or wall < 0:
            raise ValueError(f"wall is {wall}; an event file begins at a number of seconds since 1970")
        folder = Path(folder)
        folder.mkdir(parents=True, exist_ok=True)
        host = re.sub(r"[^\w.-]", "_", socket.gethostname()) or "localhost"
        self.path, self._file = _create(folder, f"events.out.tfevents.{int(wall):010d}.{host}")
        self._file.write(record(double_field(1, wall) + text_field(3, "brain.Event:2")))

    def add_points(self, tag: str, steps: ArrayLike, walls: ArrayLike, values: ArrayLike) -> None:
        """Points of one tag: integer steps, seconds since 1970, and values, which are stored as float32.

        As in TensorBoard, a value too large for float32 becomes infinite.
        """
        step_array = _column("steps", steps, np.int64)
        wall_array = _column("walls", walls, np.float64)
        value_array = _column("values", values, np.float64)
        if not len(step_array) == len(wall_array) == len(value_array):
            raise ValueError(
                f"{tag!r}: {len(step_array)} steps, {len(wall_array)} walls and {len(value_array)} values; "
                "each point needs one of each"
            )
        for start in range(0, len(step_array), _BLOCK_ROWS):
            block = slice(start, start + _BLOCK_ROWS)
            self._file.write(_scalar_records(tag, step_array[block], wall_array[block], value_array[block]))

    def add_text(self, tag: str, text: str, step: int, wall: float) -> None:
        one_dimension = bytes_field(2, varint_field(1, 1))
        tensor = varint_field(1, _DT_STRING) + bytes_field(2, one_dimension) + text_field(8, text)
        self._add_value(_tagged(tag) + bytes_field(8, tensor) + _metadata("text", b""), step, wall)

    def add_image(self, tag: str, png_bytes: bytes, width: int, height: int, step: int, wall: float) -> None:
        channels = 3
        if png_bytes.startswith(_PNG_SIGNATURE) and len(png_bytes) > 25:
            channels = _CHANNELS_OF_PNG.get(png_bytes[25], 3)
        image = varint_field(1, height) + varint_field(2, width) + varint_field(3, channels) + bytes_field(4, png_bytes)
        self._add_value(_tagged(tag) + bytes_field(4, image), step, wall)

    def add_audio(self, tag: str, wav_bytes: bytes, step: int, wall: float) -> None:
        """A sound as the bytes of a WAV file."""
        with wave.open(io.BytesIO(wav_bytes)) as sound:
            rate, channels, frames = sound.getframerate(), sound.getnchannels(), sound.getnframes()
        audio = (
            b"\x0d" + np.float32(rate).tobytes()  # sample_rate, field 1, is a float
            + varint_field(2, channels) + varint_field(3, frames) + bytes_field(4, wav_bytes)
            + text_field(5, "audio/wav")
        )  # fmt: skip
        self._add_value(_tagged(tag) + bytes_field(6, audio) + _metadata("audio", b""), step, wall)

    def add_pr_curve(self, tag: str, rows: ArrayLike, step: int, wall: float) -> None:
        """True and false positives, true and false negatives, precision and recall: a row of each over thresholds."""
        table = np.ascontiguousarray(rows, "<f4")
        if table.ndim != 2 or len(table) != 6:
            raise ValueError(f"{tag!r}: a precision-recall curve has six rows, got shape {table.shape}")
        shape = b"".join(bytes_field(2, varint_field(1, size)) for size in table.shape)
        tensor = varint_field(1, _DT_FLOAT) + bytes_field(2, shape) + bytes_field(4, table.tobytes())
        about = varint_field(2, table.shape[1])
        self._add_value(_tagged(tag) + bytes_field(8, tensor) + _metadata("pr_curves", about), step, wall)

    def add_histogram(
        self,
        tag: str,
        edges: ArrayLike,
        counts: ArrayLike,
        min: float,
        max: float,
        sum: float,
        sum_squares: float,
        step: int,
        wall: float,
    ) -> None:
        """`counts[i]` values lie between `edges[i]` and `edges[i + 1]`."""
        edge_array = _column("edges", edges, np.float64)
        count_array = _column("counts", counts, np.float64)
        if len(edge_array) != len(count_array) + 1:
            raise ValueError(
                f"{tag!r} has {len(edge_array)} edges for {len(count_array)} counts; "
                f"{len(count_array)} bins have {len(count_array) + 1} edges"
            )
        # The format knows right edges only; an empty bin in front keeps the leftmost edge.
        histogram = (
            double_field(1, min)
            + double_field(2, max)
            + double_field(3, float(count_array.sum()))
            + double_field(4, sum)
            + double_field(5, sum_squares)
            + bytes_field(6, edge_array.astype("<f8").tobytes())
            + bytes_field(7, np.concatenate(([0.0], count_array)).astype("<f8").tobytes())
        )
        self._add_value(_tagged(tag) + bytes_field(5, histogram), step, wall)

    def add_hparams(
        self, hparams: Mapping[str, int | float | str | bool], metric_tags: Sequence[str], wall: float
    ) -> None:
        """The settings of this run, and which of its scalars the HParams page shows beside them."""
        infos = b""
        session = b""
        for name, value in hparams.items():
            kind, encoded = _hparam(name, value)
            infos += bytes_field(4, text_field(1, name) + varint_field(4, kind))
            session += bytes_field(1, text_field(1, name) + bytes_field(2, encoded))
        for tag in metric_tags:
            infos += bytes_field(5, bytes_field(1, text_field(2, tag)))
        for name, number, content in (
            ("experiment", 2, infos),
            ("session_start_info", 3, session),
            ("session_end_info", 4, varint_field(1, _STATUS_SUCCESS)),
        ):
            value_bytes = _tagged(f"_hparams_/{name}") + _metadata("hparams", bytes_field(number, content))
            self._add_value(value_bytes, 0, wall)

    def _add_value(self, value: bytes, step: int, wall: float) -> None:
        event = double_field(1, wall) + varint_field(2, step) + bytes_field(5, bytes_field(1, value))
        self._file.write(record(event))

    def flush(self) -> None:
        self._file.flush()

    def close(self) -> None:
        self._file.close()

    def __enter__(self) -> EventFileWriter:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()


def _create(folder: Path, name: str) -> tuple[Path, BinaryIO]:
    path = folder / name
    copies = 0
    while True:
        try:
            return path, path.open("xb")
        except FileExistsError:
            copies += 1
            path = folder / f"{name}.{copies}"


def _column(name: str, values: ArrayLike, dtype: type[_Number]) -> NDArray[_Number]:
    column = np.asarray(values)
    if column.ndim != 1:
        raise ValueError(f"{name} has {column.ndim} dimensions; a column of numbers has one")
    # `same_kind` lets int become float but no float an int: a step of 1.5 is a mistake, not step 1.
    if column.size and not np.can_cast(column.dtype, dtype, casting="same_kind"):
        raise ValueError(f"{name} are {column.dtype}; they must be {np.dtype(dtype)}, or fit into it")
    return np.ascontiguousarray(column, dtype=dtype)


def _tagged(tag: str) -> bytes:
    return text_field(1, tag)


def _metadata(plugin: str, content: bytes) -> bytes:
    return bytes_field(9, bytes_field(1, text_field(1, plugin) + bytes_field(2, content)))


def _hparam(name: str, value: object) -> tuple[int, bytes]:
    # bool before int, which it is too: PyTorch's writer makes a number of True, and the page then shows 1.
    if isinstance(value, bool):
        return _HPARAM_BOOL, varint_field(4, value)
    if isinstance(value, (int, float)):
        return _HPARAM_FLOAT64, double_field(2, float(value))
    if isinstance(value, str):
        return _HPARAM_STRING, text_field(3, value)
    raise TypeError(f"setting {name!r} is a {type(value).__name__}; TensorBoard knows numbers, text and booleans")


def _scalar_records(
    tag: str, steps: NDArray[np.int64], walls: NDArray[np.float64], values: NDArray[np.float64]
) -> memoryview:
    """The records of a block of points, all of one length, so that numpy fills them column by column.

    The order inside an event is free in protobuf. What varies stands at its end, where its part of the
    checksum does not depend on the tag: `summary { value { tag, simple_value } }, step, wall_time`.
    """
    step_width = _varint_width(steps)
    tail_width = 4 + 1 + step_width + 1 + 8
    tail = np.empty((len(steps), tail_width), dtype=np.uint8)
    with np.errstate(over="ignore", invalid="ignore"):
        tail[:, :4] = _bytes_of(values.astype("<f4"))
    tail[:, 4] = _STEP_KEY
    remaining = steps.view(np.uint64)
    for column in range(5, 5 + step_width):
        # Parsers accept varints longer than need be: every byte but the last says that one more follows.
        tail[:, column] = remaining & np.uint64(0x7F) | np.uint64(0x80)
        remaining = remaining >> np.uint64(7)
    tail[:, 4 + step_width] &= 0x7F
    tail[:, 5 + step_width] = _WALL_KEY
    tail[:, 6 + step_width :] = _bytes_of(walls.astype("<f8"))

    prefix = _scalar_prefix(tag)
    opening = record_header(len(prefix) + tail_width) + prefix
    rows = np.empty((len(steps), len(opening) + tail_width + FOOTER_SIZE), dtype=np.uint8)
    rows[:, : len(opening)] = np.frombuffer(opening, dtype=np.uint8)
    rows[:, len(opening) : -FOOTER_SIZE] = tail
    rows[:, -FOOTER_SIZE:] = _bytes_of(mask_array(crc32c_with_prefix(prefix, tail)).astype("<u4"))
    return rows.data


def _scalar_prefix(tag: str) -> bytes:
    """An event up to the key of its simple_value; the lengths in it count the four bytes that follow."""
    value = _tagged(tag) + _SIMPLE_VALUE_KEY
    value_opening = b"\x0a" + varint(len(value) + 4)
    return b"\x2a" + varint(len(value_opening) + len(value) + 4) + value_opening + value


def _varint_width(steps: NDArray[np.int64]) -> int:
    """How many bytes the longest step of the block takes; a negative one takes 10."""
    largest = int(steps.max())
    return 10 if int(steps.min()) < 0 else len(varint(largest))


def _bytes_of(column: NDArray[np.generic]) -> NDArray[np.uint8]:
    return column.view(np.uint8).reshape(len(column), -1)
