"""Reads a `result.pkl` that a program left: numbers, texts, containers and numpy arrays, and nothing that could run."""

from __future__ import annotations

import io
import itertools
import pickle
import pickletools
from pathlib import Path
from typing import Any

from operant.errors import UsageError

_LARGEST = 64 << 20
# An empty list is one byte of a pickle and a hundred of memory, so that what is long may not be made of many things.
_SMALL = 1 << 20
_MOST_STEPS = 1 << 20
_PLAIN = {
    ("builtins", "complex"): complex,
    ("builtins", "set"): set,
    ("builtins", "frozenset"): frozenset,
    ("builtins", "bytearray"): bytearray,
}
_NUMPY_MODULES = {
    "numpy",
    "numpy.core.multiarray",
    "numpy._core.multiarray",
    "numpy.core.numeric",
    "numpy._core.numeric",
}


class _PlainUnpickler(pickle.Unpickler):
    def find_class(self, module: str, name: str) -> Any:
        if (module, name) in _PLAIN:
            return _PLAIN[module, name]
        if (module, name) == ("collections", "OrderedDict"):
            return dict
        if (module, name) == ("_codecs", "encode"):
            return _encode_latin1
        if module in _NUMPY_MODULES:
            found = _numpy_part(name)
            if found is not None:
                return found
        raise UsageError(
            f"it holds {f'{module}.{name}':.100}, and only plain data and numpy arrays are read from pickles"
        )

    def persistent_load(self, pid: Any) -> Any:
        raise UsageError("it refers to objects outside of itself")


def load_plain_pickle(path: Path) -> Any:
    """The data in a pickle file; UsageError when it holds anything else, and none of that is run."""
    if path.stat().st_size > _LARGEST:
        raise UsageError(f"{path.name} is larger than {_LARGEST >> 20} MB")
    try:
        data = path.read_bytes()
        if (
            len(data) > _SMALL
            and sum(1 for _ in itertools.islice(pickletools.genops(data), _MOST_STEPS)) == _MOST_STEPS
        ):
            raise UsageError("it holds too many objects; numpy arrays may be long, lists not")
        return _PlainUnpickler(io.BytesIO(data)).load()
    except UsageError as error:
        raise UsageError(f"{path.name} was not read: {error}") from None
    except Exception as error:
        told = " ".join(str(error).split())
        raise UsageError(f"{path.name} cannot be read: {type(error).__name__}: {told:.200}") from None


def _encode_latin1(text: str, encoding: str) -> bytes:
    """How old protocols write bytes; no other codec is looked up."""
    if encoding != "latin1":
        raise UsageError(f"it asks for the codec {encoding!r}")
    return text.encode("latin1")


def _numpy_part(name: str) -> Any:
    import numpy as np

    if name == "_reconstruct":
        # The real one allocates whatever shape it is told; the true shape comes with the state and is checked there.
        return lambda *_: np.ndarray.__new__(np.ndarray, (0,))
    if name == "scalar":
        return _numpy_scalar
    if name == "_frombuffer":
        return lambda buffer, dtype, shape, order: np.frombuffer(buffer, dtype).reshape(shape, order=order)
    if name == "dtype":
        return _numpy_dtype
    if name == "ndarray":
        return name  # only `_reconstruct` is told it; the class itself could be called with any shape
    return None


def _numpy_dtype(kind: Any, *rest: Any) -> Any:
    import numpy as np

    dtype = np.dtype(kind, *rest)
    if dtype.hasobject:
        raise UsageError("it holds an array of Python objects")
    return dtype


def _numpy_scalar(dtype: Any, data: bytes = b"") -> Any:
    import numpy as np

    return np.frombuffer(data, dtype, count=1)[0]
