"""Libraries that only some searchers need; a missing one is a line that says how to get it."""

from __future__ import annotations

import importlib
from contextlib import AbstractContextManager
from typing import Any

from operant import _threads
from operant.errors import MissingExtraError


def require(module: str) -> Any:
    try:
        return importlib.import_module(module)
    except ImportError:
        name = module.partition(".")[0]
        raise MissingExtraError(f"this searcher (for {name})", "search") from None


def one_thread() -> AbstractContextManager[Any]:
    """Sums are made in another order by more threads, and a proposal must be the same on every machine."""
    require("threadpoolctl")
    require("scipy.linalg")  # it has a BLAS of its own, which must be there to be told
    return _threads.one_thread()


def scipy_qmc() -> Any:
    return require("scipy.stats.qmc")
