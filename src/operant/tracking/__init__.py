"""What happened: the recorder of runs, the journal of searches, and their readers.

Logs are the truth; every index, table and chart can be deleted and comes back.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from operant._lazy import load_when_used

if TYPE_CHECKING:
    from operant.tracking.reading.run import Run, get_latest_scalar
    from operant.tracking.recording.writer import SummaryWriter

__all__ = ["Run", "SummaryWriter", "get_latest_scalar"]

__getattr__ = load_when_used(
    __name__,
    {
        "Run": "operant.tracking.reading.run",
        "SummaryWriter": "operant.tracking.recording.writer",
        "get_latest_scalar": "operant.tracking.reading.run",
    },
)
