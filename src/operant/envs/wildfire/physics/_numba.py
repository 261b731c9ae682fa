"""How functions are compiled by numba."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, TypeVar

from numba import njit

_Function = TypeVar("_Function", bound=Callable[..., Any])


def compiled(function: _Function) -> _Function:
    """A decorator: compiled when it is first called, and kept on disk where there is room."""
    compile_it: Any = njit  # a decorator whose types mypy knows only where numba is installed
    made: _Function
    try:
        made = compile_it(cache=True, nogil=True)(function)
    except RuntimeError:  # nowhere to write the cache to: a read-only installation without a home
        made = compile_it(nogil=True)(function)
    return made
