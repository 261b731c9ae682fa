"""Operant: train, search, scale and watch reinforcement-learning experiments with one tool."""

from __future__ import annotations

from typing import TYPE_CHECKING

from operant._lazy import load_when_used
from operant._version import __version__

if TYPE_CHECKING:
    from operant.tracking import Run, SummaryWriter

__all__ = ["Run", "SummaryWriter", "__version__"]

__getattr__ = load_when_used(__name__, {"Run": "operant.tracking", "SummaryWriter": "operant.tracking"})


def __dir__() -> list[str]:
    return sorted(__all__)
