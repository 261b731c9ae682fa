"""`generate_log`: the plain lines of a search also as a file beside its journal."""

from __future__ import annotations

import time
from pathlib import Path
from typing import TYPE_CHECKING

from operant.schedulers.trial import ScheduledJob
from operant.schedulers.view import LineView, View

if TYPE_CHECKING:
    from operant.schedulers.scheduler import Scheduler

__all__ = ["LogView"]


class _Stamped:
    """A file in which every line begins with the time."""

    def __init__(self, path: Path) -> None:
        self._file = path.open("a", encoding="utf-8")

    def write(self, text: str) -> int:
        return self._file.write(f"{time.strftime('%Y-%m-%d %H:%M:%S')} {text}")

    def flush(self) -> None:
        self._file.flush()

    def close(self) -> None:
        self._file.close()


class LogView:
    """Shows what another view shows, and writes it down."""

    def __init__(self, view: View, path: Path) -> None:
        self._view = view
        self.live = view.live
        self._stream = _Stamped(path)
        self._lines = LineView(self._stream)  # type: ignore[arg-type]

    def note(self, text: str) -> None:
        self._view.note(text)
        self._lines.note(text)

    def changed(self, scheduler: Scheduler, job: ScheduledJob) -> None:
        self._view.changed(scheduler, job)
        self._lines.changed(scheduler, job)

    def tick(self, scheduler: Scheduler) -> None:
        self._view.tick(scheduler)

    def close(self, scheduler: Scheduler) -> None:
        self._view.close(scheduler)
        self._lines.close(scheduler)
        try:
            self._stream.close()
        except OSError:  # a full disk; the journal is what counts
            return
