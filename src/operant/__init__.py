"""Operant: train, search, scale and watch reinforcement-learning experiments with one tool."""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

from operant._version import __version__

if TYPE_CHECKING:
    from operant.tracking import Run, SummaryWriter

__all__ = ["Run", "SummaryWriter", "__version__"]

# `import operant` is light: a name is loaded from its room when it is first used.
_HOMES = {"Run": "operant.tracking", "SummaryWriter": "operant.tracking"}


def __getattr__(name: str) -> Any:
    try:
        home = _HOMES[name]
    except KeyError:
        raise AttributeError(f"module 'operant' has no attribute {name!r}") from None
    return getattr(importlib.import_module(home), name)


def __dir__() -> list[str]:
    return sorted(__all__)
