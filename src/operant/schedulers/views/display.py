"""What a person sees while a search runs: a live table in a terminal, plain lines elsewhere or in a file."""

from __future__ import annotations

import sys
import time
from pathlib import Path
from typing import Any, TextIO

from operant._util.units import duration, printable
from operant.schedulers.engine.control import SearchProgress, View
from operant.schedulers.engine.live_state import Attempt
from operant.schedulers.engine.records import JobRecord
from operant.status import UNDER_WAY, Status

_REDRAW_SECONDS = 0.25
_SHOWN_JOBS = 12


class LineView:
    """One line for each end of a job; for log files and pipes."""

    live = False

    def __init__(self, stream: TextIO | None = None) -> None:
        self._stream = stream or sys.stdout

    def note(self, text: str) -> None:
        self._write(f"note: {text}")

    def changed(self, search: SearchProgress, job: JobRecord) -> None:
        if job.status in UNDER_WAY:
            return
        shown = [f"job {job.id}", job.status.lower()]
        if job.reward is not None:
            shown.append(f"{search.plan.rule.attribute} {job.reward:.6g}")
        if job.reason:
            shown.append(f"({job.reason})")
        if job.error:
            shown.append(f"- {_failure(search, job)}")
        self._write(" ".join(shown))

    def tick(self, search: SearchProgress) -> None:
        """Lines come when something happens."""

    def close(self, search: SearchProgress) -> None:
        self._write(summary_line(search))

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

    def changed(self, search: SearchProgress, job: JobRecord) -> None:
        self._view.changed(search, job)
        self._lines.changed(search, job)

    def tick(self, search: SearchProgress) -> None:
        self._view.tick(search)

    def close(self, search: SearchProgress) -> None:
        self._view.close(search)
        self._lines.close(search)
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

    def changed(self, search: SearchProgress, job: JobRecord) -> None:
        if job.status == Status.ERROR:
            self._console.print(f"job {job.id}: {printable(_failure(search, job))}", markup=False)

    def tick(self, search: SearchProgress) -> None:
        now = time.monotonic()
        if now - self._drawn_at >= _REDRAW_SECONDS:
            self._drawn_at = now
            self._live.start()
            self._live.update(self._render(search), refresh=True)

    def close(self, search: SearchProgress) -> None:
        self._live.start()
        self._live.update(self._render(search), refresh=True)
        self._live.stop()
        self._console.print(summary_line(search), markup=False, highlight=False)

    def _render(self, search: SearchProgress) -> Any:
        from rich.console import Group
        from rich.table import Table
        from rich.text import Text

        numbers = search.counts()
        head = Table.grid(padding=(0, 2))
        head.add_row(*(Text(f"{name} {count}", style="bold" if count else "dim") for name, count in numbers.items()))
        parts: list[Any] = [head]
        if search.best is not None:
            reward, proposal, _ = search.best
            settings = ", ".join(f"{key}={value}" for key, value in proposal.config.items())
            parts.append(Text(f"best {reward:.6g} (proposal {proposal.number}: {printable(settings)})", style="green"))
        parts.append(Text(_time_line(search), style="dim"))
        jobs = Table(box=None, padding=(0, 2))
        for title in ("job", "running", *search.plan.scalars):
            jobs.add_column(title)
        for attempt in list(search.running)[:_SHOWN_JOBS]:
            seconds = search.seconds_of(attempt)
            ran = duration(seconds) if seconds is not None else "waits"
            jobs.add_row(attempt.job.id, ran, *(_latest(attempt, tag) for tag in search.plan.scalars))
        if search.running:
            parts.append(jobs)
        return Group(*parts)


def make_view() -> View:
    return TableView() if sys.stdout.isatty() else LineView()


def summary_line(search: SearchProgress) -> str:
    numbers = ", ".join(f"{count} {name}" for name, count in search.counts().items() if count)
    numbers, best = numbers and f"; {numbers}", ""
    if search.best is not None:
        reward, proposal, _ = search.best
        best = f"; best {search.plan.rule.attribute} {reward:.6g} by proposal {proposal.number}: {proposal.config}"
    return printable(f"search {search.name}: {search.end[0].lower()} ({search.end[1]}){numbers}{best}")


def _failure(search: SearchProgress, job: JobRecord) -> str:
    """What went wrong, and where the rest of what the program said about it is."""
    path = search.stderr_of(job) if job.status == Status.ERROR else None
    if path is not None and path.is_relative_to(Path.cwd()):
        path = path.relative_to(Path.cwd())
    return f"{job.error or 'error'}{f' (see {path})' if path is not None else ''}"


def _time_line(search: SearchProgress) -> str:
    rules = search.plan.stop.rules
    parts = [f"{duration(search.elapsed)} so far"]
    if rules.max_tries is not None:
        parts.append(f"{search.tries} of {rules.max_tries} tries")
    if rules.time_limits is not None:
        parts.append(f"{duration(rules.time_limits - search.elapsed)} left")
    return ", ".join(parts)


def _latest(attempt: Attempt, tag: str) -> str:
    value = attempt.reader.latest(tag)
    return "" if value is None else f"{value:.5g}"
