"""What a person sees while a search runs: a live table in a terminal, plain lines elsewhere or in a file."""

from __future__ import annotations

import sys
import time
from collections import Counter
from pathlib import Path
from typing import TYPE_CHECKING, Any, TextIO

from operant._util.units import duration, printable
from operant.schedulers.engine.trial import ScheduledJob
from operant.schedulers.engine.view import View
from operant.schedulers.views.overview import job_counts

if TYPE_CHECKING:
    from operant.schedulers.engine.scheduler import Scheduler

__all__ = ["LineView", "LogView", "TableView", "make_view"]

_REDRAW_SECONDS = 0.25
_SHOWN_JOBS = 12


class LineView:
    """One line for each end of a job; for log files and pipes."""

    live = False

    def __init__(self, stream: TextIO | None = None) -> None:
        self._stream = stream or sys.stdout

    def note(self, text: str) -> None:
        self._write(f"note: {text}")

    def changed(self, scheduler: Scheduler, job: ScheduledJob) -> None:
        if job.status in ("PENDING", "RUNNING"):
            return
        shown = [f"job {job.id}", job.status.lower()]
        if job.reward is not None:
            shown.append(f"{scheduler.plan.rule.attribute} {job.reward:.6g}")
        if job.reason:
            shown.append(f"({job.reason})")
        if job.error:
            shown.append(f"- {job.error}")
        self._write(" ".join(shown))

    def tick(self, scheduler: Scheduler) -> None:
        """Lines come when something happens."""

    def close(self, scheduler: Scheduler) -> None:
        self._write(summary_line(scheduler))

    def _write(self, line: str) -> None:
        try:
            self._stream.write(printable(line) + "\n")
            self._stream.flush()
        except (OSError, ValueError):  # whoever read it is gone, or the disk is full: the search goes on
            return


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
    """`generate_log`: shows what another view shows, and writes its lines into a file beside the journal."""

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


class TableView:
    """Counts, best so far, time left and the running jobs, redrawn in place."""

    live = True

    def __init__(self) -> None:
        from rich.console import Console
        from rich.live import Live

        self._console = Console()
        self._live = Live(console=self._console, auto_refresh=False, transient=False)
        self._drawn_at = 0.0

    def note(self, text: str) -> None:
        self._console.print(f"note: {printable(text)}", markup=False)

    def changed(self, scheduler: Scheduler, job: ScheduledJob) -> None:
        if job.status == "ERROR":
            self._console.print(f"job {job.id}: {printable(job.error or 'error')}", markup=False)

    def tick(self, scheduler: Scheduler) -> None:
        now = time.monotonic()
        if now - self._drawn_at >= _REDRAW_SECONDS:
            self._drawn_at = now
            self._live.start()
            self._live.update(self._render(scheduler), refresh=True)

    def close(self, scheduler: Scheduler) -> None:
        self._live.start()
        self._live.update(self._render(scheduler), refresh=True)
        self._live.stop()
        self._console.print(summary_line(scheduler), markup=False, highlight=False)

    def _render(self, scheduler: Scheduler) -> Any:
        from rich.console import Group
        from rich.table import Table
        from rich.text import Text

        numbers = counts(scheduler)
        head = Table.grid(padding=(0, 2))
        head.add_row(*(Text(f"{name} {count}", style="bold" if count else "dim") for name, count in numbers.items()))
        parts: list[Any] = [head]
        if scheduler.best is not None:
            reward, proposal, _ = scheduler.best
            settings = ", ".join(f"{key}={value}" for key, value in proposal.config.items())
            parts.append(Text(f"best {reward:.6g} (proposal {proposal.number}: {printable(settings)})", style="green"))
        parts.append(Text(_time_line(scheduler), style="dim"))
        jobs = Table(box=None, padding=(0, 2))
        for title in ("job", "running", *scheduler.plan.scalars):
            jobs.add_column(title)
        for job in list(scheduler.running.values())[:_SHOWN_JOBS]:
            ran = duration(scheduler.clock.now() - job.begun) if job.begun is not None else "waits"
            jobs.add_row(job.id, ran, *(_latest(job, tag) for tag in scheduler.plan.scalars))
        if scheduler.running:
            parts.append(jobs)
        return Group(*parts)


def make_view() -> View:
    return TableView() if sys.stdout.isatty() else LineView()


def counts(scheduler: Scheduler) -> dict[str, int]:
    return job_counts(Counter(job.status for job in scheduler.jobs.values()) + scheduler.earlier)


def summary_line(scheduler: Scheduler) -> str:
    numbers = ", ".join(f"{count} {name}" for name, count in counts(scheduler).items() if count)
    best = ""
    if scheduler.best is not None:
        reward, proposal, _ = scheduler.best
        best = f"; best {scheduler.plan.rule.attribute} {reward:.6g} by proposal {proposal.number}: {proposal.config}"
    return printable(f"search {scheduler.name}: {scheduler.end[0].lower()} ({scheduler.end[1]}); {numbers}{best}")


def _time_line(scheduler: Scheduler) -> str:
    rules = scheduler.plan.stop.rules
    parts = [f"{duration(scheduler.elapsed)} so far"]
    if rules.max_tries is not None:
        parts.append(f"{scheduler.tries} of {rules.max_tries} tries")
    if rules.time_limits is not None:
        parts.append(f"{duration(rules.time_limits - scheduler.elapsed)} left")
    return ", ".join(parts)


def _latest(job: ScheduledJob, tag: str) -> str:
    value = job.reader.latest(tag) if job.reader is not None else None
    return "" if value is None else f"{value:.5g}"
