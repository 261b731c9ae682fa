"""The training loop: tasks made of middleware, alone or over many processes."""

from __future__ import annotations

from operant.framework.context import Context
from operant.framework.errors import (
    AuthenticationError,
    FrameworkError,
    QueueClosed,
    RemoteError,
    SharingWarning,
    WorkerDied,
)
from operant.framework.labels import match_labels
from operant.framework.step_timer import StepTimer
from operant.framework.task import Task

__all__ = [
    "AuthenticationError",
    "Context",
    "FrameworkError",
    "QueueClosed",
    "RemoteError",
    "SharingWarning",
    "StepTimer",
    "Task",
    "WorkerDied",
    "match_labels",
]
