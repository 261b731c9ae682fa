"""Reads a `result.pkl` that a program left: numbers, texts, containers and numpy arrays, and nothing that could run.

The unpickler never holds an object of numpy's, whose `__setstate__` believes what it is told and can crash the process:
arrays are notes of what was said about them until all is read, and are then made from their bytes.
"""

from __future__ import annotations

import io
import pickle
import pickletools
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

from operant.errors import UsageError

_LARGEST = 64 << 20
# An empty list is one byte of a pickle and a hundred of memory, so that what is long may not be made of many things.
_MOST_STEPS = 1 << 20
_DEEPEST = 16
_KIND = re.compile(r"[?bBhHiIlLqQefdg]|[biufc]\d{1,2}|[SU]\d{1,6}")
_NUMPY_MODULES = {
    "numpy",
    "numpy.core.multiarray",
    "numpy._core.multiarray",
    "numpy.core.numeric",
    "numpy._core.numeric",
}


def load_plain_pickle(path: Path) -> Any:
    """The data in a pickle file; UsageError when it holds anything else, and none of that is run."""
    if path.stat().st_size > _LARGEST:
        raise UsageError(f"{path.name} is larger than {_LARGEST >> 20} MB")
    try:
        data = path.read_bytes()
        _check_steps(data)
        return _finished(_PlainUnpickler(io.BytesIO(data)).load(), {})
    except UsageError as error:
        raise UsageError(f"{path.name} was not read: {_one_line(error)}") from None
    except Exception as error:
        raise UsageError(f"{path.name} cannot be read: {type(error).__name__}: {_one_line(error)}") from None


def _one_line(error: Exception) -> str:
    """What an error says, which may quote the file."""
    return " ".join(str(error).split())[:300]


def _check_steps(data: bytes) -> None:
    """Refuse what takes memory or time out of proportion, before anything is made of it."""
    kept: dict[int, int] = {}  # how deep the tuples are that the pickle remembers by number
    depth = inside = 0  # of the last tuple, and of those that go into the next one
    for number, (step, argument, _) in enumerate(pickletools.genops(data)):
        name = step.name
        if number == _MOST_STEPS:
            raise UsageError("it holds too many objects; numpy arrays may be long, lists not")
        if name in ("DUP", "POP", "POP_MARK"):
            raise UsageError("it is no pickle of plain data")
        if name.endswith("GET"):
            inside = max(inside, kept.get(int(argument or 0), 0))
        elif name.endswith("PUT") or name == "MEMOIZE":
            place = len(kept) if name == "MEMOIZE" else int(argument or 0)
            if not 0 <= place < _MOST_STEPS:  # whoever reads it makes room for that many at once
                raise UsageError(f"it numbers an object {place}")
            kept[place] = depth
        elif name.startswith("TUPLE"):
            depth, inside = inside + 1, 0
        elif name not in ("FRAME", "PROTO"):
            depth = 0
        # The hash of a tuple in which each one holds the one before twice takes 2 ** depth steps.
        if depth > _DEEPEST:
            raise UsageError("its tuples hold each other too deeply")


class _PlainUnpickler(pickle.Unpickler):
    def find_class(self, module: str, name: str) -> Any:
        found = _PLAIN.get((module, name)) or (_NUMPY.get(name) if module in _NUMPY_MODULES else None)
        if found is None:
            raise UsageError(f"it holds {module}.{name}, and only plain data and numpy arrays are read from pickles")
        return found

    def persistent_load(self, pid: Any) -> Any:
        raise UsageError("it refers to objects outside of itself")


class _Dtype:
    """What was said of the kind of an array's numbers."""

    __slots__ = ("kind", "order")

    def __init__(self, kind: str) -> None:
        self.kind = kind
        self.order: Any = "="

    def __setstate__(self, state: Any) -> None:
        if not (isinstance(state, tuple) and len(state) > 1 and state[1] in ("<", ">", "=", "|")):
            raise UsageError("it describes an array in a way that numpy does not")
        self.order = state[1]

    def numpy(self) -> Any:
        import numpy as np

        return np.dtype(self.kind).newbyteorder(self.order)


class _Array:
    """What was said of an array or of a number of numpy's."""

    __slots__ = ("data", "dtype", "order", "shape")

    def __init__(self, data: Any = b"", dtype: Any = None, shape: Any = (0,), order: str = "C") -> None:
        self.data, self.dtype, self.shape, self.order = data, dtype, shape, order

    def __setstate__(self, state: Any) -> None:
        if self.dtype is not None or not isinstance(state, tuple) or len(state) != 5:
            raise UsageError("it describes an array in a way that numpy does not")
        _, self.shape, self.dtype, fortran, self.data = state
        self.order = "F" if fortran else "C"

    def numpy(self) -> Any:
        import numpy as np

        if not isinstance(self.data, (bytes, bytearray)) or not isinstance(self.dtype, _Dtype):
            raise UsageError("it holds an array of Python objects")
        values = np.frombuffer(bytes(self.data), self.dtype.numpy())
        return values[0] if self.shape is None else values.reshape(self.shape, order=self.order).copy()  # type: ignore[call-overload]


def _dtype(kind: Any, *_: Any) -> _Dtype:
    if not isinstance(kind, str) or not _KIND.fullmatch(kind):
        raise UsageError(f"it holds an array of {str(kind)[:20]!r}; arrays of numbers and texts are read")
    return _Dtype(kind)


def _bytearray(data: Any = b"", encoding: str = "latin-1") -> bytearray:
    return bytearray(data.encode("latin-1") if isinstance(data, str) else bytes(memoryview(data)))


def _encode_latin1(text: str, encoding: str) -> bytes:
    """How old protocols write bytes; no other codec is looked up."""
    if encoding != "latin1":
        raise UsageError(f"it asks for the codec {encoding!r}")
    return text.encode("latin1")


_PLAIN: dict[tuple[str, str], Any] = {
    ("builtins", "complex"): complex,
    ("builtins", "set"): set,
    ("builtins", "frozenset"): frozenset,
    ("builtins", "bytearray"): _bytearray,
    ("collections", "OrderedDict"): dict,
    ("_codecs", "encode"): _encode_latin1,
}
_NUMPY: dict[str, Callable[..., Any] | str] = {
    "ndarray": "ndarray",  # only `_reconstruct` is told it
    "dtype": _dtype,
    "_reconstruct": lambda *_: _Array(),
    "scalar": lambda dtype, data=b"": _Array(data, dtype, None),
    "_frombuffer": lambda data, dtype, shape, order: _Array(data, dtype, shape, "F" if order == "F" else "C"),
}


def _finished(value: Any, done: dict[int, Any]) -> Any:
    """The same with arrays in place of what was said of them; each part once, however often it occurs."""
    if isinstance(value, _Array):
        if id(value) not in done:
            done[id(value)] = value.numpy()
        return done[id(value)]
    if isinstance(value, _Dtype):
        return value.numpy()
    if isinstance(value, (dict, list, tuple)) and id(value) not in done:
        done[id(value)] = value
        if isinstance(value, dict):
            for key, one in value.items():
                value[key] = _finished(one, done)
        elif isinstance(value, list):
            value[:] = [_finished(one, done) for one in value]
        else:
            done[id(value)] = tuple(_finished(one, done) for one in value)
    return done.get(id(value), value)
