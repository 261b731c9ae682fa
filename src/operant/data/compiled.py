"""Whether the compiled loops of prioritised replay can be used here."""

from __future__ import annotations

import functools
import importlib
import importlib.util
from types import ModuleType


@functools.cache
def kernels() -> tuple[ModuleType | None, str]:
    """`operant.data.kernels`, or None without a numba that works, and which of the two it is in words.

    numba takes a second to import, so nobody asks but a buffer with priorities.
    """
    if importlib.util.find_spec("numba") is None:
        return None, "numpy (pip install 'operant[jit]' makes it about three times as fast)"
    try:
        return importlib.import_module("operant.data.kernels"), "compiled (numba)"
    except ImportError as error:  # each numba works with some versions of numpy, and says so in this way
        return None, f"numpy (numba cannot be used: {error})"
