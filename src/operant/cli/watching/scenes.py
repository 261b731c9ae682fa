"""What `operant top` shows: one search, or everything that is under way. A scene gathers, draws, and takes keys."""

from __future__ import annotations

import time
from collections.abc import Callable
from pathlib import Path
from typing import Any, Protocol

from rich.text import Text

from operant._util.units import duration
from operant.cli.watching.draw import bar, cells, counts_lines, line, log_lines, rule, shrink, status_style
from operant.errors import OperantError
from operant.schedulers.engine.records import JobRecord
from operant.schedulers.planning.rewards import JobReader
from operant.schedulers.views.follow import SearchFollower
from operant.schedulers.views.journal_text import last_lines
from operant.schedulers.views.overview import list_searches
from operant.schedulers.views.recorded import job_reader, recorded_rule

_LEAST_LOG_LINES = 4
_MOST_READ = 40
_PLAIN_LOG_LINES = 10
_LONGEST_TOLD = 1 << 20


class Scene(Protocol):
    def refresh(self) -> None:
        """Read what has changed."""

    def draw(self, width: int, height: int | None) -> list[Text]:
        """At most ``height`` lines; without a height all there is to say, for a pipe."""

    def press(self, key: str) -> Scene | None:
        """Act on a key; the scene to go on with, or None to quit."""


class SearchScene:
    """One search: counts, best so far, running jobs, the last lines of its log."""

    def __init__(self, folder: Path, before: Scene | None = None) -> None:
        self.search = SearchFollower(folder)
        self.before = before
        self.chosen: str | None = None
        self.said = ""
        self._question: tuple[str, Callable[[], None]] | None = None
        self._output = False
        self._readers: dict[str, JobReader] = {}
        self._chronicle: tuple[tuple[int, int], list[str]] = ((-1, 0), [])
        self.refresh()

    def refresh(self) -> None:
        self.search.refresh()
        running = self.search.under_way
        ids = [job.id for job in running]
        self._readers = {job_id: reader for job_id, reader in self._readers.items() if job_id in ids}
        for job in running[:_MOST_READ]:
            self._read(job)
        if self.chosen not in ids:
            self.chosen = ids[0] if ids else None
            self._question = None  # what it asked about has ended
        for what in self.search.unanswered():
            self.said = f"the search ended before it could {what}"

    def _read(self, job: JobRecord) -> None:
        if job.id in self.search.state.reports:
            return  # a function's: the journal has told already, and it has no folder
        reader = self._readers.get(job.id)
        if reader is None:
            try:
                rule_of_search = recorded_rule(self.search.state.opened)
            except OperantError:  # a configuration of another version: its jobs are shown without values
                return
            reader = self._readers[job.id] = job_reader(self.search.folder, job.id, rule_of_search)
        try:
            reader.refresh()
        except (OperantError, OSError):
            return

    # -- what is drawn ------------------------------------------------------------------------------------------

    def draw(self, width: int, height: int | None) -> list[Text]:
        damage = self.search.state.damage
        head = [self._title(width), *([line(str(damage), "bold red")] if damage else [])]
        head += [*counts_lines(self.search.counts()), *self._best(width)]
        running = self.search.under_way
        if height is None:
            jobs = self._jobs(running, width, len(running), mark=False)
            return [*head, *jobs, *self._log(width, _PLAIN_LOG_LINES)]
        spare = height - len(head) - 1
        shown = max(1, min(len(running), spare - _LEAST_LOG_LINES - 3)) if running else 0
        jobs = self._jobs(running, width, shown, mark=True)
        log = self._log(width, spare - len(jobs) - 1)
        lines = [*head, *jobs, *log][: height - 1]
        return [*lines, *([line()] * (height - 1 - len(lines))), self._footer()]

    def _title(self, width: int) -> Text:
        search, status = self.search, self.search.status
        found = search.summary()
        tried, most, left = found["tries"], found["max_tries"], found["seconds_left"]
        parts = [f"{tried} of {most} tries" if most is not None else f"{tried} tries"]
        if search.alive:
            parts.append(f"{duration(found['elapsed'])} so far")
        if left is not None:
            parts.append(f"about {duration(left)} left")
        ended = search.state.closed
        if not search.alive and ended is not None:
            parts.append(str(ended.get("reason")))
        text = line(f"{search.name}  {status}  {', '.join(parts)}", "bold")
        text.stylize(status_style(status), len(search.name) + 2, len(search.name) + 2 + len(status))
        return text

    def _best(self, width: int) -> list[Text]:
        state = self.search.state
        best = state.best
        if best is None or best.reward is None:
            return [line("no result yet", "dim")]
        head = f"best {state.opened.get('reward')} {best.reward:.6g} (proposal {best.number})  "
        curve = shrink(self.search.best_so_far, max(8, width - len(head)))
        settings = " ".join(f"{key}={_short(value)}" for key, value in best.settings.items())
        return [line(head + curve, "green"), line(f"  {settings}", "dim")]

    def _jobs(self, running: list[JobRecord], width: int, shown: int, *, mark: bool) -> list[Text]:
        if not running:
            return [line("no job is running", "dim")]
        reward = str(self.search.state.opened.get("reward"))
        progress = max(6, min(20, width - 60))
        state, now = self.search.state, time.time()
        widths, titles = [2, 14, progress + 6, -9, -12, -9], ["", "job", "progress", "step", reward, "elapsed"]
        if state.places:
            widths, titles = [*widths, -9, max(20, width - progress - 72)], [*titles, "waited", "where"]
        lines = [cells(titles, widths, "dim")]
        usual = self.search.usual_seconds
        place = next((at for at, job in enumerate(running) if job.id == self.chosen), 0)
        first = min(max(0, place - shown + 1), len(running) - shown)
        for job in running[first : first + shown]:
            elapsed = max(0.0, now - job.started) if job.started is not None else 0.0
            last = self._last_report(job)
            part = self._part_done(job, last, elapsed, usual)
            chosen = mark and job.id == self.chosen
            lines.append(
                cells(
                    [
                        "▶" if chosen else "",
                        job.id,
                        f"{bar(part, progress)} {part:4.0%}" if part is not None else "",
                        str(last[0]) if last is not None else "",
                        f"{last[1]:.5g}" if last is not None else "",
                        duration(elapsed) if job.started is not None else "",
                        *([duration(state.waited(job, now)), " ".join(state.where(job))] if state.places else []),
                    ],
                    widths,
                    "reverse" if chosen else "",
                )
            )
        if shown < len(running):
            lines.append(line(f"   … {len(running)} jobs are under way", "dim"))
        return lines

    def _last_report(self, job: JobRecord) -> tuple[int, float] | None:
        """Step and value that a job reported last: a function's are in the journal, a program's in its folder."""
        reported = self.search.state.reports.get(job.id)
        if reported:
            return reported[-1][:2]
        reader = self._readers.get(job.id)
        history = reader.history() if reader is not None else []
        return (history[-1]["iteration"], history[-1]["value"]) if history else None

    def _part_done(
        self, job: JobRecord, last: tuple[int, float] | None, elapsed: float, usual: float | None
    ) -> float | None:
        """By its budget where it has one, else by how long finished jobs took; never done before it is."""
        budget = self.search.state.proposals[job.number].budget
        if budget and last is not None:
            return min(1.0, float(last[0]) / budget)
        return min(0.99, elapsed / usual) if usual else None

    def _log(self, width: int, count: int) -> list[Text]:
        folder = self.search.folder
        if self._output and self.chosen is not None:
            job = folder / "jobs" / self.chosen
            title = f"output of job {self.chosen}"
            lines = log_lines(job / "stdout", count) + log_lines(job / "stderr", count)
        else:
            title, lines = "log", log_lines(folder / "search.log", count) or self._told(count)
        if count <= 0:
            return []
        return [rule(title, width), *(line(one) for one in lines[-count:])]

    def _told(self, count: int) -> list[str]:
        """A search that keeps no log file is told from its journal, while that is short enough to read again."""
        end = self.search.journal_end
        if end > _LONGEST_TOLD or count <= 0:
            return []
        if self._chronicle[0] != (end, count):
            self._chronicle = ((end, count), [text for _, text in last_lines(self.search.folder, count)])
        return self._chronicle[1]

    def _footer(self) -> Text:
        if self._question is not None:
            return line(f"{self._question[0]}  y yes  n no", "bold yellow")
        if self.said:
            return line(self.said, "yellow")
        keys = ["↑↓ choose", "s stop job", "S stop search", "p pause" if not self.search.paused else "p go on", "l log"]
        return line(
            "  ".join([*keys, "← all" if self.before is not None else "", "q quit"]).replace("    ", "  "), "dim"
        )

    # -- what keys do -------------------------------------------------------------------------------------------

    def press(self, key: str) -> Scene | None:
        if self._question is not None and key != "quit":
            (_, act), self._question = self._question, None
            if key in ("y", "enter"):
                act()
            return self
        self.said = ""
        match key:
            case "q" | "quit":
                return None
            case "back" if self.before is not None:
                self.before.refresh()
                return self.before
            case "up" | "down":
                self._move(-1 if key == "up" else 1)
            case "l" | "tab":
                self._output = not self._output
            case "s" if self.chosen is not None:
                job = self.chosen
                self._question = (f"stop job {job}?", lambda: self._stop_job(job))
            case "S" if self.search.alive:
                self._question = (
                    f"stop the search {self.search.name} and kill its {len(self.search.under_way)} jobs?",
                    lambda: self._ask({"type": "stop"}, "stop"),
                )
            case "p" if self.search.alive:
                self._ask({"type": "resume" if self.search.paused else "pause"}, "pause or go on")
            case "s" | "S" | "p":
                self.said = "nothing is running"
        return self

    def _stop_job(self, job: str) -> None:
        self._ask({"type": "stop", "jobs": [job]}, f"stop job {job}")

    def _ask(self, content: dict[str, object], what: str) -> None:
        try:
            told = self.search.ask(content, what)
        except OSError as error:
            self.said = f"its inbox cannot be written: {error.strerror}"
            return
        self.said = f"asked to {what}" if told else f"the search has no controller that could {what}"

    def _move(self, by: int) -> None:
        ids = [job.id for job in self.search.under_way]
        if self.chosen in ids:
            self.chosen = ids[min(max(0, ids.index(self.chosen) + by), len(ids) - 1)]


class AllScene:
    """All searches and runs under way."""

    def __init__(self, root: Path) -> None:
        from operant.cli.watching.runs import RunsUnderWay

        self.root = root
        self.chosen = 0
        self._followers: dict[Path, SearchFollower] = {}
        self._runs = RunsUnderWay(root)
        self.refresh()

    @property
    def searches(self) -> list[SearchFollower]:
        return [one for one in self._followers.values() if one.alive]

    def refresh(self) -> None:
        from operant.tracking.journal import controller_is_alive

        for folder in list_searches(self.root):
            if folder in self._followers:
                self._followers[folder].refresh()
            elif controller_is_alive(folder):
                self._followers[folder] = SearchFollower(folder)
        self._followers = {folder: one for folder, one in self._followers.items() if one.alive}
        self._runs.refresh()
        self.chosen = min(self.chosen, max(0, len(self._followers) - 1))

    def draw(self, width: int, height: int | None) -> list[Text]:
        searches, runs = self.searches, self._runs.rows
        lines = [line(f"{len(searches)} searches and {len(runs)} runs under way", "bold")]
        if searches:
            widths = [2, 20, 8, -9, -9, -9, max(8, width - 63)]
            lines += [line(), cells(["", "search", "status", "running", "finished", "best", ""], widths, "dim")]
            for place, one in enumerate(searches):
                lines.append(self._search(one, widths, chosen=height is not None and place == self.chosen))
        if runs:
            widths = [2, 34, 9, -9, -11, -9]
            lines += [line(), cells(["", "run", "progress", "step", "last", "elapsed"], widths, "dim")]
            for row in runs:
                shown = "" if row.part is None else f"{bar(row.part, 4)} {row.part:3.0%}"
                last = "" if row.last is None else f"{row.last:.5g}"
                step = "" if row.step is None else str(row.step)
                lines.append(cells(["", row.id, shown, step, last, duration(row.elapsed)], widths))
                if row.tag:
                    lines.append(line(f"     {row.tag}", "dim"))
                lines += [line(f"     {said}", "dim") for said in row.workers]
        if not searches and not runs:
            lines += [line(), line("`operant search --task NAME FILE` starts a search, `operant train` a training.")]
        if height is None:
            return lines
        footer = line("↑↓ choose  enter open search  q quit", "dim")
        lines = lines[: height - 1]
        return [*lines, *([line()] * (height - 1 - len(lines))), footer]

    def _search(self, one: SearchFollower, widths: list[int], *, chosen: bool) -> Text:
        counts, best = one.counts(), one.state.best
        return cells(
            [
                "▶" if chosen else "",
                one.name,
                one.status,
                str(counts["running"]),
                str(counts["finished"]),
                f"{best.reward:.5g}" if best is not None and best.reward is not None else "",
                shrink(one.best_so_far, widths[-1]),
            ],
            widths,
            "reverse" if chosen else "",
        )

    def press(self, key: str) -> Scene | None:
        match key:
            case "q" | "quit":
                return None
            case "up":
                self.chosen = max(0, self.chosen - 1)
            case "down":
                self.chosen = min(max(0, len(self.searches) - 1), self.chosen + 1)
            case "enter" if self.searches:
                return SearchScene(self.searches[self.chosen].folder, self)
        return self


def _short(value: Any) -> Any:
    return f"{value:.6g}" if type(value) is float else value
