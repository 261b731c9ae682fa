"""Operant: train, search, scale and watch reinforcement-learning experiments with one tool."""

from __future__ import annotations

from typing import TYPE_CHECKING

from operant._lazy import load_when_used
from operant._version import __version__

if TYPE_CHECKING:
    from operant.tracking import Run, SummaryWriter, get_latest_scalar

__all__ = ["Run", "SummaryWriter", "__version__", "get_latest_scalar"]

__getattr__ = load_when_used(__name__, dict.fromkeys(("Run", "SummaryWriter", "get_latest_scalar"), "operant.tracking"))


def __dir__() -> list[str]:
    return sorted(__all__)
