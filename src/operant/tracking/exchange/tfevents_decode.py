"""What a TensorBoard event says: from the bytes of one record to small tuples."""

from __future__ import annotations

import struct
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from operant.tracking.exchange.tfrecord import BYTES, FIXED32, FIXED64, VARINT, WireError, fields, read_varint, signed
from operant.tracking.format.segments import is_time


class ScalarEvent(NamedTuple):
    tag: str
    step: int
    wall: float
    value: float


class TextEvent(NamedTuple):
    tag: str
    step: int
    wall: float
    text: str


class ImageEvent(NamedTuple):
    tag: str
    step: int
    wall: float
    encoded: bytes
    width: int
    height: int


class HistogramEvent(NamedTuple):
    """`counts[i]` values lie between `edges[i]` and `edges[i + 1]`."""

    tag: str
    step: int
    wall: float
    edges: NDArray[np.float64]
    counts: NDArray[np.float64]


class HparamsEvent(NamedTuple):
    hparams: dict[str, float | str | bool]


Event = ScalarEvent | TextEvent | ImageEvent | HistogramEvent | HparamsEvent

_DT_STRING = 7
# TensorProto.dtype -> its numbers in `tensor_content`; they may stand in one of the *_val fields instead.
_CONTENT_DTYPES: dict[int, np.dtype[Any]] = {
    1: np.dtype("<f4"),
    2: np.dtype("<f8"),
    3: np.dtype("<i4"),
    4: np.dtype("u1"),
    5: np.dtype("<i2"),
    6: np.dtype("i1"),
    9: np.dtype("<i8"),
    10: np.dtype("?"),
    17: np.dtype("<u2"),
    19: np.dtype("<f2"),
    22: np.dtype("<u4"),
    23: np.dtype("<u8"),
}
_FLOAT_VALS: dict[int, np.dtype[Any]] = {5: np.dtype("<f4"), 6: np.dtype("<f8")}  # field number -> item
_INT_VALS = {
    7: 32,
    10: 64,
    11: 64,
    13: 32,
    16: 64,
    17: 64,
}  # field number -> bits
_HALF_VAL, _UINT64_VAL = 13, 17
_LARGEST_DOUBLE = np.finfo(np.float64).max
_REMEMBERED_TAGS, _LONGEST_REMEMBERED = 50_000, 1024  # bounds what a hostile file can make a decoder keep

_read_double = struct.Struct("<d").unpack_from
_read_float = struct.Struct("<f").unpack_from


class EventDecoder:
    """Decodes the events of one file, in order: only the first value of a tag need name its plugin."""

    def __init__(self) -> None:
        self._plugins: dict[str, str] = {}
        self._scalar_openings: dict[bytes, str] = {}

    def decode(self, payload: bytes, into: list[Event]) -> None:
        """Append what the event holds; `WireError` if it is no event."""
        scalar = self._plain_scalar(payload)
        if scalar is not None:
            into.append(scalar)
        else:
            self._any_event(payload, into)

    def _plain_scalar(self, payload: bytes) -> ScalarEvent | None:
        """An event with one simple_value, in the order of PyTorch, tensorboardX and TensorFlow, or in ours.

        Nearly every event is one. Besides its numbers it holds `summary { value { tag` with their lengths,
        the same bytes each time: they are taken apart once, and after that cost one look-up.
        """
        size = len(payload)
        if size < 20:
            return None
        first = payload[0]
        step = 0
        if first == 0x09:  # wall_time, step (absent if 0), summary
            at = 9
            if payload[9] == 0x10:
                step, at = read_varint(payload, 10)
            opening = payload[at:-4]
            value_at = size - 4
            wall_at = 1
        elif first == 0x2A and payload[-9] == 0x09 and payload[-10] < 0x80:  # summary, step, wall_time
            at = size - 10
            while payload[at - 1] >= 0x80 and at > size - 19:
                at -= 1
            if at < 5 or payload[at - 1] != 0x10:
                return None
            step, _ = read_varint(payload, at)
            value_at = at - 5
            opening = payload[:value_at]
            wall_at = size - 8
        else:
            return None
        tag = self._scalar_openings.get(opening)
        if tag is None:
            tag = self._learn_opening(opening)
            if tag is None:
                return None
        if step >> 63:
            step -= 1 << 64
        return ScalarEvent(tag, step, _read_double(payload, wall_at)[0], _read_float(payload, value_at)[0])

    def _learn_opening(self, opening: bytes) -> str | None:
        tag = _tag_of_scalar_opening(opening)
        if tag is not None and len(opening) <= _LONGEST_REMEMBERED:
            if len(self._scalar_openings) >= _REMEMBERED_TAGS:
                self._scalar_openings.clear()
            self._scalar_openings[opening] = tag
        return tag

    def _any_event(self, payload: bytes, into: list[Event]) -> None:
        wall, step = 0.0, 0
        summaries = []
        for number, wire, varint, data in fields(payload):
            if number == 1 and wire == FIXED64:
                wall = _read_double(data)[0]
            elif number == 2 and wire == VARINT:
                step = signed(varint)
            elif number == 5 and wire == BYTES:
                summaries.append(data)
        for summary in summaries:
            for number, wire, _, data in fields(summary):
                if number == 1 and wire == BYTES:
                    self._summary_value(data, step, wall, into)

    def _summary_value(self, message: bytes, step: int, wall: float, into: list[Event]) -> None:
        tag, metadata = "", b""
        kind, content = 0, b""
        for number, wire, _, data in fields(message):
            if number == 1 and wire == BYTES:
                tag = data.decode("utf-8", errors="replace")
            elif number == 9 and wire == BYTES:
                metadata = data
            elif (number == 2 and wire == FIXED32) or (number in (4, 5, 8) and wire == BYTES):
                kind, content = number, data
        plugin, plugin_content = _plugin(metadata)
        plugin = self._plugin_of(tag, plugin)
        if kind == 2:
            into.append(ScalarEvent(tag, step, wall, _read_float(content)[0]))
        elif not is_time(wall):
            raise WireError(f"{wall} is no time")
        elif kind == 4:
            into.append(_image(content, tag, step, wall))
        elif kind == 5:
            into.append(_histogram(content, tag, step, wall))
        elif plugin == "hparams":
            hparams = _hparams(plugin_content)
            if hparams is not None:
                into.append(HparamsEvent(hparams))
        elif kind == 8:
            into.extend(_tensor_events(content, plugin, tag, step, wall))

    def _plugin_of(self, tag: str, plugin: str) -> str:
        if plugin and tag not in self._plugins and len(tag) <= _LONGEST_REMEMBERED:
            if len(self._plugins) >= _REMEMBERED_TAGS:
                self._plugins.clear()
            self._plugins[tag] = plugin
        return self._plugins.get(tag, plugin)


def _tag_of_scalar_opening(opening: bytes) -> str | None:
    """The tag, if four bytes of simple_value would complete exactly one summary with exactly one value."""
    at = 0
    try:
        for key in (0x2A, 0x0A):
            if opening[at] != key:
                return None
            size, at = read_varint(opening, at + 1)
            if size != len(opening) - at + 4:
                return None
        if opening[at] != 0x0A:
            return None
        size, at = read_varint(opening, at + 1)
    except (IndexError, WireError):
        return None
    if opening[at + size :] != b"\x15":
        return None
    return opening[at : at + size].decode("utf-8", errors="replace")


def _plugin(metadata: bytes) -> tuple[str, bytes]:
    name, content = "", b""
    for number, wire, _, data in fields(metadata):
        if number == 1 and wire == BYTES:
            for inner, inner_wire, _, inner_data in fields(data):
                if inner == 1 and inner_wire == BYTES:
                    name = inner_data.decode("utf-8", errors="replace")
                elif inner == 2 and inner_wire == BYTES:
                    content = inner_data
    return name, content


def _image(message: bytes, tag: str, step: int, wall: float) -> ImageEvent:
    width = height = 0
    encoded = b""
    for number, wire, varint, data in fields(message):
        if number == 1 and wire == VARINT:
            height = signed(varint, 32)
        elif number == 2 and wire == VARINT:
            width = signed(varint, 32)
        elif number == 4 and wire == BYTES:
            encoded = data
    return ImageEvent(tag, step, wall, encoded, width, height)


def _histogram(message: bytes, tag: str, step: int, wall: float) -> HistogramEvent:
    lowest = highest = 0.0
    limit_parts, count_parts = [], []
    for number, wire, _, data in fields(message):
        if number == 1 and wire == FIXED64:
            lowest = _read_double(data)[0]
        elif number == 2 and wire == FIXED64:
            highest = _read_double(data)[0]
        elif number == 6 and wire in (FIXED64, BYTES):
            limit_parts.append(data)
        elif number == 7 and wire in (FIXED64, BYTES):
            count_parts.append(data)
    limits = _numbers(b"".join(limit_parts), np.dtype("<f8"))
    counts = _numbers(b"".join(count_parts), np.dtype("<f8"))
    if len(limits) != len(counts):
        raise WireError(f"a histogram has {len(limits)} limits for {len(counts)} counts")
    if len(counts) and counts[0] == 0:
        counts = counts[1:]  # its limit is the left edge of the next bin: how writers keep the leftmost edge
    elif len(counts):
        limits = np.concatenate(([min(lowest, limits[0])], limits))
    if len(limits):
        # Writers end the outermost bins at the largest double; the data ends at its minimum and maximum.
        limits[0] = lowest if limits[0] <= -_LARGEST_DOUBLE else limits[0]
        limits[-1] = highest if limits[-1] >= _LARGEST_DOUBLE else limits[-1]
    return _histogram_event(tag, step, wall, limits, counts)


def _histogram_event(
    tag: str, step: int, wall: float, edges: NDArray[np.float64], counts: NDArray[np.float64]
) -> HistogramEvent:
    if not np.isfinite(counts).all():
        raise WireError("a histogram has a count that is no number")
    return HistogramEvent(tag, step, wall, edges, counts)


def _tensor_events(message: bytes, plugin: str, tag: str, step: int, wall: float) -> list[Event]:
    dtype, strings, numbers = _tensor(message)
    if dtype == _DT_STRING:
        if plugin == "text":
            text = b"\n".join(strings).decode("utf-8", errors="replace")
            return [TextEvent(tag, step, wall, text)]
        if plugin == "images" and len(strings) > 2:
            width, height = _decimal(strings[0]), _decimal(strings[1])
            images = strings[2:]
            names = [tag] if len(images) == 1 else [f"{tag}/{i}" for i in range(len(images))]
            return [ImageEvent(n, step, wall, i, width, height) for n, i in zip(names, images, strict=True)]
        return []
    if plugin in ("scalars", "") and len(numbers) == 1:
        return [ScalarEvent(tag, step, wall, float(numbers[0]))]
    if plugin == "histograms" and len(numbers) % 3 == 0:
        bins = numbers.reshape(-1, 3)  # left edge, right edge, count
        edges = np.concatenate((bins[:, 0], bins[-1:, 1]))
        return [_histogram_event(tag, step, wall, edges, bins[:, 2].copy())]
    return []


def _tensor(message: bytes) -> tuple[int, list[bytes], NDArray[np.float64]]:
    """A tensor's dtype and its values, flat; its shape is not needed and, unlike its values, may be a lie."""
    dtype = 0
    content = b""
    strings: list[bytes] = []
    parts: list[NDArray[Any]] = []
    for number, wire, varint, data in fields(message):
        if number == 1 and wire == VARINT:
            dtype = varint
        elif number == 4 and wire == BYTES:
            content = data
        elif number == 8 and wire == BYTES:
            strings.append(data)
        elif number in _FLOAT_VALS and wire in (BYTES, FIXED32, FIXED64):
            parts.append(_numbers(data, _FLOAT_VALS[number]))
        elif number in _INT_VALS and wire in (BYTES, VARINT):
            parts.append(_integers([varint] if wire == VARINT else _varints(data), number))
    if dtype not in _CONTENT_DTYPES:
        return dtype, strings, np.empty(0)
    if content:
        parts = [_numbers(content, _CONTENT_DTYPES[dtype])]
    return dtype, strings, np.concatenate(parts) if parts else np.empty(0)


def _numbers(data: bytes, dtype: np.dtype[Any]) -> NDArray[np.float64]:
    if len(data) % dtype.itemsize:
        raise WireError(f"{len(data)} bytes hold no whole number of {dtype} values")
    with np.errstate(invalid="ignore"):  # a signalling NaN is a NaN
        return np.frombuffer(data, dtype=dtype).astype(np.float64)


def _varints(data: bytes) -> list[int]:
    values = []
    at = 0
    while at < len(data):
        value, at = read_varint(data, at)
        values.append(value)
    return values


def _integers(values: list[int], field_number: int) -> NDArray[np.float64]:
    if field_number == _HALF_VAL:  # the bits of a float16, in an int
        return _numbers(np.array([v & 0xFFFF for v in values], dtype="<u2").tobytes(), np.dtype("<f2"))
    if field_number == _UINT64_VAL:
        return np.array(values, dtype=np.float64)
    return np.array([signed(v, _INT_VALS[field_number]) for v in values], dtype=np.float64)


def _decimal(text: bytes) -> int:
    return int(text) if text.isdigit() and len(text) < 10 else 0


def _hparams(content: bytes) -> dict[str, float | str | bool] | None:
    """The settings in a `session_start_info`; None for the other two messages of the plugin."""
    for number, wire, _, session in fields(content):
        if number == 3 and wire == BYTES:
            hparams: dict[str, float | str | bool] = {}
            for inner, inner_wire, _, entry in fields(session):
                if inner == 1 and inner_wire == BYTES:
                    name, value = _hparam(entry)
                    if value is not None:
                        hparams[name] = value
            return hparams
    return None


def _hparam(entry: bytes) -> tuple[str, float | str | bool | None]:
    name = ""
    value: float | str | bool | None = None
    for number, wire, _, data in fields(entry):
        if number == 1 and wire == BYTES:
            name = data.decode("utf-8", errors="replace")
        elif number == 2 and wire == BYTES:
            for kind, kind_wire, varint, held in fields(data):
                if kind == 2 and kind_wire == FIXED64:
                    value = _read_double(held)[0]
                elif kind == 3 and kind_wire == BYTES:
                    value = held.decode("utf-8", errors="replace")
                elif kind == 4 and kind_wire == VARINT:
                    value = bool(varint)
    return name, value
