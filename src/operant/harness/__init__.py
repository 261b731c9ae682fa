"""One Hydra tree that trains with Operant's own algorithms or with RLlib."""

from __future__ import annotations

from typing import TYPE_CHECKING

from operant._lazy import load_when_used

if TYPE_CHECKING:
    from operant.harness.application import run
    from operant.harness.command import main

__all__ = ["main", "run"]

__getattr__ = load_when_used(
    __name__, {"main": ".command", "run": ".application"}, extra=("harness", "harness", ("hydra", "omegaconf"))
)
