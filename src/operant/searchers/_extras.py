"""Libraries that only some searchers need; a missing one is a line that says how to get it."""

from __future__ import annotations

import importlib
from contextlib import AbstractContextManager
from typing import Any

from operant import _threads


def require(module: str) -> Any:
    try:
        return importlib.import_module(module)
    except ImportError as error:
        name = module.partition(".")[0]
        raise ImportError(f"this searcher needs {name}: pip install 'operant[search]'") from error


def one_thread() -> AbstractContextManager[Any]:
    """Sums are made in another order by more threads, and a proposal must be the same on every machine."""
    require("threadpoolctl")
    require("scipy.linalg")  # it has a BLAS of its own, which must be there to be told
    return _threads.one_thread()


def scipy_qmc() -> Any:
    return require("scipy.stats.qmc")
