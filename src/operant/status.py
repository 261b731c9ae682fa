"""The one list of statuses: of jobs, of searches and of runs.

A :class:`Status` is a string, so what journals and files hold compares with it. In a loop, bind a member or a set to a
local name first: looking a member up in its class takes longer than the comparison.
"""

from __future__ import annotations

from collections.abc import Mapping
from enum import StrEnum

__all__ = ["DONE", "FAILED", "OPEN", "RECORDING", "UNDER_WAY", "USABLE", "Status", "counts_of"]


class Status(StrEnum):
    """What has become of something."""

    PENDING = "PENDING"
    """It waits for its turn."""
    RUNNING = "RUNNING"
    PAUSED = "PAUSED"
    """It gave its place to others and may go on later."""
    FINISHED = "FINISHED"
    """It ran to its end."""
    STOPPED = "STOPPED"
    """It was ended early, by an assessor or a limit; what it had reached until then counts."""
    KILLED = "KILLED"
    """Its user did not want it any more, or its search was over."""
    ERROR = "ERROR"
    SILENT = "SILENT"
    """Only of runs: nobody knows whether its program still runs, and it has recorded nothing for a while."""
    FILTERED = "FILTERED"
    """Only of proposals: a filter criterion dropped it before it ran."""

    # That of enumerations is written in Python, and each look into a set would call it.
    __hash__ = str.__hash__


USABLE = frozenset({Status.FINISHED, Status.STOPPED})
"""Done, and its result counts."""
FAILED = frozenset({Status.ERROR, Status.KILLED})
"""Done, and there is no result."""
DONE = USABLE | FAILED
UNDER_WAY = frozenset({Status.PENDING, Status.RUNNING})
"""What dies with its controller."""
OPEN = UNDER_WAY | {Status.PAUSED}
RECORDING = frozenset({Status.RUNNING, Status.SILENT})
"""Runs that may still grow."""


def counts_of(by_status: Mapping[str, int]) -> dict[str, int]:
    """How many jobs are defined, waiting, running, finished; and of these successful and abnormal."""
    get = by_status.get
    success = sum(get(one, 0) for one in USABLE)
    abnormal = sum(get(one, 0) for one in FAILED)
    return {
        "defined": sum(by_status.values()),
        "waiting": get(Status.PENDING, 0) + get(Status.PAUSED, 0),
        "running": get(Status.RUNNING, 0),
        "finished": success + abnormal,
        "success": success,
        "abnormal": abnormal,
    }
