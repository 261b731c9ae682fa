"""What happened: the recorder of runs, the journal of searches, and their readers.

Logs are the truth; every index, table and chart can be deleted and comes back.
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from operant.tracking.reading.run import Run
    from operant.tracking.recording.writer import SummaryWriter

__all__ = ["Run", "SummaryWriter"]

_HOMES = {"Run": "operant.tracking.reading.run", "SummaryWriter": "operant.tracking.recording.writer"}


def __getattr__(name: str) -> Any:
    try:
        home = _HOMES[name]
    except KeyError:
        raise AttributeError(f"module 'operant.tracking' has no attribute {name!r}") from None
    return getattr(importlib.import_module(home), name)
