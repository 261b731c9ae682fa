"""What a scheduler tells whoever looks on while it runs."""

from __future__ import annotations

from typing import TYPE_CHECKING, Protocol

from operant.schedulers.engine.trial import ScheduledJob

if TYPE_CHECKING:
    from operant.schedulers.engine.scheduler import Scheduler

__all__ = ["NoView", "View"]


class View(Protocol):
    live: bool
    """Whether it shows what running jobs report, so that somebody has to read it."""

    def note(self, text: str) -> None:
        """Say something once."""

    def changed(self, scheduler: Scheduler, job: ScheduledJob) -> None:
        """A job has another status."""

    def tick(self, scheduler: Scheduler) -> None:
        """Called often; time may have passed."""

    def close(self, scheduler: Scheduler) -> None:
        """The search is over."""


class NoView:
    """Shows nothing."""

    live = False

    def note(self, text: str) -> None: ...

    def changed(self, scheduler: Scheduler, job: ScheduledJob) -> None: ...

    def tick(self, scheduler: Scheduler) -> None: ...

    def close(self, scheduler: Scheduler) -> None: ...
