"""Libraries that only some searchers need; a missing one is a line that says how to get it."""

from __future__ import annotations

import importlib
from typing import Any


def require(module: str) -> Any:
    try:
        return importlib.import_module(module)
    except ImportError as error:
        name = module.partition(".")[0]
        raise ImportError(f"this searcher needs {name}: pip install 'operant[search]'") from error


def scipy_qmc() -> Any:
    return require("scipy.stats.qmc")
