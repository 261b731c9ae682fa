"""How values become bytes: plain data by tags, arrays and tensors as they lie in memory.

A value becomes a `head` (its structure) and buffers (the contents of its arrays), which are copied once, to
where they are needed, and never pass through pickle. Objects that are neither plain data nor arrays are
pickled into the head, with the arrays inside them still taken out; a decoder refuses them unless it is told
that the sender has proved who it is.
"""

from __future__ import annotations

import io
import pickle
import struct
import sys
from collections import OrderedDict
from collections.abc import Callable
from typing import Any

import numpy as np

ALIGNMENT = 64
# Longer bytes objects travel like arrays, so that they are not copied into the head first.
_LONG_BYTES = 1 << 14

_U32 = struct.Struct("<I")
_I64 = struct.Struct("<q")
_F64 = struct.Struct("<d")
_U64U64 = struct.Struct("<QQ")
# Of an array: offset, bytes and shape, by the number of its dimensions.
_PLACES = [struct.Struct(f"<{2 + n_dims}Q") for n_dims in range(65)]
_TEXT, _INT, _DICT, _ARRAY = b"simA"


# Looking up how a dtype is spelled is faster than asking it.
_DTYPE_NAMES: dict[np.dtype[Any], bytes] = {}
_DTYPES: dict[bytes, np.dtype[Any]] = {}


class WireError(ValueError):
    """Bytes that are no message, or a value that cannot be sent."""


def aligned(n: int) -> int:
    return (n + ALIGNMENT - 1) // ALIGNMENT * ALIGNMENT


class BodyLayout:
    """The buffers of one message, each at an aligned offset of its body."""

    __slots__ = ("buffers", "nbytes", "payload_bytes")

    def __init__(self) -> None:
        self.buffers: list[tuple[int, memoryview]] = []
        self.nbytes = 0
        self.payload_bytes = 0

    def add(self, buffer: memoryview) -> int:
        offset = aligned(self.nbytes)
        self.buffers.append((offset, buffer))
        self.nbytes = offset + buffer.nbytes
        self.payload_bytes += buffer.nbytes
        return offset

    def mark(self) -> tuple[int, int, int]:
        return len(self.buffers), self.nbytes, self.payload_bytes

    def rewind(self, mark: tuple[int, int, int]) -> None:
        """Forget what was added since the mark."""
        n_buffers, self.nbytes, self.payload_bytes = mark
        del self.buffers[n_buffers:]

    def to_bytes(self) -> bytearray:
        body = bytearray(self.nbytes)
        for offset, buffer in self.buffers:
            body[offset : offset + buffer.nbytes] = buffer
        return body


def encode(value: Any, layout: BodyLayout) -> bytes:
    """The head of a value; its buffers go into the layout."""
    head = bytearray()
    try:
        _encode(value, head, layout)
    except (RecursionError, pickle.PicklingError, TypeError, AttributeError, ValueError) as error:
        raise WireError(f"a {type(value).__name__} cannot be sent: {error}") from error
    return bytes(head)


def decode(head: bytes | memoryview, body: Any = None, *, allow_pickle: bool) -> Any:
    """The value; its arrays are views of `body`, which must stay alive and belong to the reader alone."""
    decoder = _Decoder(bytes(head), body, allow_pickle)
    try:
        value = decoder.value()
    except WireError:
        raise
    except Exception as error:
        raise WireError(f"a message that cannot be read: {error!r}") from error
    if decoder.position != len(decoder.head):
        raise WireError(f"a message with {len(decoder.head) - decoder.position} bytes too many")
    return value


# -- encoding ---------------------------------------------------------------------------------------


def _encode(value: Any, head: bytearray, layout: BodyLayout) -> None:
    encoder = _ENCODERS.get(type(value))
    if encoder is not None:
        encoder(value, head, layout)
    elif isinstance(value, np.generic):
        _encode_numpy_scalar(value, head, layout)
    elif _is_tensor(value):
        _encode_tensor(value, head, layout)
    else:
        _encode_object(value, head, layout)


def _encode_int(value: int, head: bytearray, layout: BodyLayout) -> None:
    if -(1 << 63) <= value < 1 << 63:
        head += b"i" + _I64.pack(value)
    else:
        _tagged(b"I", str(value).encode(), head)


def _encode_bytes(value: bytes | bytearray, head: bytearray, layout: BodyLayout) -> None:
    if len(value) > _LONG_BYTES:
        offset = layout.add(memoryview(value))
        head += b"B" + _U64U64.pack(offset, len(value))
    else:
        _tagged(b"b", value, head)


def _tagged(tag: bytes, data: bytes | bytearray, head: bytearray) -> None:
    head += tag + _U32.pack(len(data)) + data


def _sequence(tag: bytes) -> Callable[[Any, bytearray, BodyLayout], None]:
    def encode_sequence(value: Any, head: bytearray, layout: BodyLayout) -> None:
        head += tag + _U32.pack(len(value))
        for item in value:
            _encode(item, head, layout)

    return encode_sequence


def _mapping(tag: bytes) -> Callable[[Any, bytearray, BodyLayout], None]:
    def encode_mapping(value: Any, head: bytearray, layout: BodyLayout) -> None:
        head += tag + _U32.pack(len(value))
        for key, item in value.items():
            _encode(key, head, layout)
            _encode(item, head, layout)

    return encode_mapping


def _encode_array(value: np.ndarray[Any, Any], head: bytearray, layout: BodyLayout) -> None:
    dtype = value.dtype
    name = _DTYPE_NAMES.get(dtype)
    if name is None:
        if dtype.hasobject:
            _encode_object(value, head, layout, arrays_apart=False)
            return
        if dtype.names is None and dtype.kind in "biufcSU":
            name = _DTYPE_NAMES[dtype] = dtype.str.encode()
    if not value.flags.c_contiguous:
        value = np.ascontiguousarray(value).reshape(value.shape)
    offset = layout.add(value.reshape(-1).view(np.uint8).data)
    if name is not None:
        # A state_dict is mostly this: one small record for each array.
        shape = value.shape
        head += struct.pack(
            f"<cBB{len(name)}s{2 + len(shape)}Q",
            b"A",
            len(name),
            len(shape),
            name,
            offset,
            value.nbytes,
            *shape,
        )
        return
    head += b"a"
    _encode(np.lib.format.dtype_to_descr(dtype), head, layout)
    _encode(value.shape, head, layout)
    head += _U64U64.pack(offset, value.nbytes)


def _encode_numpy_scalar(value: np.generic, head: bytearray, layout: BodyLayout) -> None:
    if value.dtype.hasobject or value.dtype.names is not None:
        _encode_object(value, head, layout)
        return
    head += b"n"
    _encode(np.lib.format.dtype_to_descr(value.dtype), head, layout)
    _tagged(b"b", value.tobytes(), head)


def _is_tensor(value: Any) -> bool:
    torch = sys.modules.get("torch")
    return torch is not None and isinstance(value, torch.Tensor)


def _encode_tensor(value: Any, head: bytearray, layout: BodyLayout) -> None:
    dtype_name, array = _tensor_as_array(value)
    head += b"r"
    _tagged(b"s", dtype_name.encode(), head)
    _encode(tuple(value.shape), head, layout)
    _encode_array(array, head, layout)


def _tensor_as_array(value: Any) -> tuple[str, np.ndarray[Any, Any]]:
    """The bytes of a tensor, in the CPU's memory, as a flat array, whatever its dtype."""
    import torch

    if value.layout != torch.strided or value.is_quantized:
        raise WireError(f"a tensor with layout {value.layout} cannot be sent; make it dense first")
    flat = value.detach().to("cpu").resolve_conj().resolve_neg().contiguous().reshape(-1)
    return str(value.dtype).removeprefix("torch."), flat.view(torch.uint8).numpy()


def _encode_object(value: Any, head: bytearray, layout: BodyLayout, arrays_apart: bool = True) -> None:
    stream = io.BytesIO()
    found: list[pickle.PickleBuffer] = []
    _ObjectPickler(stream, found.append if arrays_apart else None).dump(value)
    _tagged(b"p", stream.getvalue(), head)
    places = [(layout.add(buffer.raw()), buffer.raw().nbytes) for buffer in found]
    _encode(places, head, layout)


class _ObjectPickler(pickle.Pickler):
    def __init__(self, stream: io.BytesIO, callback: Callable[[pickle.PickleBuffer], Any] | None) -> None:
        super().__init__(stream, protocol=5, buffer_callback=callback)

    def reducer_override(self, obj: Any) -> Any:
        if _is_tensor(obj):
            dtype_name, array = _tensor_as_array(obj)
            return _tensor_from_array, (dtype_name, tuple(obj.shape), array)
        return NotImplemented


def _tensor_from_array(dtype_name: str, shape: tuple[int, ...], array: np.ndarray[Any, Any]) -> Any:
    import torch

    if array.nbytes == 0:
        return torch.empty(shape, dtype=getattr(torch, dtype_name))
    if not array.flags.writeable:
        array = array.copy()
    return torch.from_numpy(array).view(getattr(torch, dtype_name)).reshape(shape)


_ENCODERS: dict[type, Callable[[Any, bytearray, BodyLayout], None]] = {
    type(None): lambda value, head, layout: head.extend(b"N"),
    bool: lambda value, head, layout: head.extend(b"T" if value else b"F"),
    int: _encode_int,
    float: lambda value, head, layout: head.extend(b"d" + _F64.pack(value)),
    str: lambda value, head, layout: _tagged(b"s", value.encode("utf-8", "surrogatepass"), head),
    bytes: _encode_bytes,
    list: _sequence(b"l"),
    tuple: _sequence(b"t"),
    set: _sequence(b"e"),
    frozenset: _sequence(b"z"),
    dict: _mapping(b"m"),
    OrderedDict: _mapping(b"o"),
    np.ndarray: _encode_array,
}

# -- decoding ---------------------------------------------------------------------------------------


class _Decoder:
    __slots__ = ("allow_pickle", "body", "head", "position")

    def __init__(self, head: bytes, body: Any, allow_pickle: bool) -> None:
        self.head = head
        self.body = body
        self.position = 0
        self.allow_pickle = allow_pickle

    def value(self) -> Any:
        # A learner reads thousands of messages a second: what they mostly consist of is read right here.
        head, at = self.head, self.position + 1
        tag = head[at - 1]
        if tag == _TEXT:
            return self.text(at)
        if tag == _INT:
            self.position = at + 8
            return _I64.unpack_from(head, at)[0]
        self.position = at
        if tag == _DICT:
            return self.mapping(at)
        if tag == _ARRAY:
            return self.simple_array(at)
        try:
            decoder = _DECODERS[tag]
        except KeyError:
            raise WireError(f"a message with the unknown tag {tag}") from None
        return decoder(self)

    def text(self, at: int) -> str:
        start = at + 4
        end = start + _U32.unpack_from(self.head, at)[0]
        if end > len(self.head):
            raise WireError("a message that ends too early")
        self.position = end
        return self.head[start:end].decode("utf-8", "surrogatepass")

    def mapping(self, at: int) -> dict[Any, Any]:
        self.position = at + 4
        value, found = self.value, {}
        for _ in range(_U32.unpack_from(self.head, at)[0]):
            key = value()
            found[key] = value()
        return found

    def take(self, n: int) -> bytes:
        end = self.position + n
        if end > len(self.head):
            raise WireError("a message that ends too early")
        part = self.head[self.position : end]
        self.position = end
        return part

    def number(self, form: struct.Struct) -> Any:
        (value,) = form.unpack_from(self.head, self.position)
        self.position += form.size
        return value

    def u32(self) -> int:
        value: int = self.number(_U32)
        return value

    def data(self) -> bytes:
        return self.take(self.number(_U32))

    def raw(self) -> memoryview:
        offset, nbytes = _U64U64.unpack(self.take(16))
        return self.body_slice(offset, nbytes)

    def body_slice(self, offset: int, nbytes: int) -> memoryview:
        body = memoryview(self.body if self.body is not None else b"")
        if offset + nbytes > body.nbytes:
            raise WireError(f"a message whose array ends at {offset + nbytes}, after its {body.nbytes} bytes")
        return body[offset : offset + nbytes]

    def array(self) -> np.ndarray[Any, Any]:
        descr = self.value()
        dtype = np.dtype(descr) if isinstance(descr, str) else np.lib.format.descr_to_dtype(descr)
        shape = self.value()
        return np.frombuffer(self.raw(), dtype=np.uint8).view(dtype).reshape(shape)

    def simple_array(self, at: int) -> np.ndarray[Any, Any]:
        head = self.head
        name_end = at + 2 + head[at]
        place = _PLACES[head[at + 1]]
        name = head[at + 2 : name_end]
        dtype = _DTYPES.get(name)
        if dtype is None:
            dtype = _DTYPES[name] = np.dtype(name.decode())
        offset, nbytes, *shape = place.unpack_from(head, name_end)
        self.position = name_end + place.size
        if nbytes == 0:
            return np.empty(shape, dtype)
        array: np.ndarray[Any, Any] = np.ndarray(shape, dtype, self.body, offset)
        if array.nbytes != nbytes:
            raise WireError(f"an array of shape {shape} that should have {nbytes} bytes")
        return array

    def numpy_scalar(self) -> np.generic:
        descr = self.value()
        dtype = np.dtype(descr) if isinstance(descr, str) else np.lib.format.descr_to_dtype(descr)
        scalar: np.generic = np.frombuffer(self.value(), dtype=dtype)[0]
        return scalar

    def tensor(self) -> Any:
        dtype_name, shape = self.value(), self.value()
        array = self.value()
        import torch

        if not isinstance(getattr(torch, dtype_name, None), torch.dtype):
            raise WireError(f"a tensor with the unknown dtype {dtype_name!r}")
        return _tensor_from_array(dtype_name, shape, array)

    def pickled(self) -> Any:
        if not self.allow_pickle:
            raise WireError("a pickled object, which is not taken here")
        data = self.data()
        places = self.value()
        return pickle.loads(data, buffers=[self.body_slice(*place) for place in places])

    def items(self) -> list[Any]:
        return [self.value() for _ in range(self.u32())]

    def pairs(self) -> list[tuple[Any, Any]]:
        return [(self.value(), self.value()) for _ in range(self.u32())]


# Beside those that `_Decoder.value` reads by itself.
_DECODERS: dict[int, Callable[[_Decoder], Any]] = {
    ord("N"): lambda d: None,
    ord("T"): lambda d: True,
    ord("F"): lambda d: False,
    ord("I"): lambda d: int(str(d.data(), "ascii")),
    ord("d"): lambda d: d.number(_F64),
    ord("b"): lambda d: d.data(),
    ord("B"): lambda d: bytes(d.raw()),
    ord("l"): lambda d: d.items(),
    ord("t"): lambda d: tuple(d.items()),
    ord("e"): lambda d: set(d.items()),
    ord("z"): lambda d: frozenset(d.items()),
    ord("o"): lambda d: OrderedDict(d.pairs()),
    ord("a"): _Decoder.array,
    ord("n"): _Decoder.numpy_scalar,
    ord("r"): _Decoder.tensor,
    ord("p"): _Decoder.pickled,
}
