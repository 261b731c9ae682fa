"""Mistakes as Hydra's programs tell them."""

from __future__ import annotations

from hydra.errors import CompactHydraException

from operant.errors import UsageError


class HarnessError(UsageError, CompactHydraException):
    """A mistake of which `hydra.main` prints the sentence, without a traceback."""
