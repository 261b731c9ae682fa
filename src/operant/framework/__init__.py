"""The training loop: tasks made of middleware, alone or over many processes."""

from __future__ import annotations

from operant.framework.context import Context
from operant.framework.errors import (
    AuthenticationError,
    FrameworkError,
    QueueClosed,
    RemoteError,
    SharingWarning,
    TotalBroken,
    WorkerDied,
)
from operant.framework.labels import match_labels
from operant.framework.parallel.runner import Parallel
from operant.framework.parallel.standalone import Standalone
from operant.framework.step_timer import StepTimer
from operant.framework.task import Task

__all__ = [
    "AuthenticationError",
    "Context",
    "FrameworkError",
    "Parallel",
    "QueueClosed",
    "RemoteError",
    "SharingWarning",
    "Standalone",
    "StepTimer",
    "Task",
    "TotalBroken",
    "WorkerDied",
    "match_labels",
]
