"""A search as it goes on: its journal read once, and then only what was appended."""

from __future__ import annotations

import time
from collections import Counter
from pathlib import Path
from typing import Any

from operant.errors import OperantError
from operant.schedulers.criteria.stops import build_stop_criterion
from operant.schedulers.engine.records import JobRecord
from operant.schedulers.engine.state import StateReader
from operant.schedulers.planning.limits import last_valid
from operant.status import UNDER_WAY, Status, counts_of
from operant.tracking.journal.trial_lines import job_of
from operant.tracking.reading.summary import Annotations


class LiveSearch:
    """What the journal of one search says so far; :meth:`refresh` reads on. Nothing here changes the search."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.name = folder.name
        self._reader = StateReader(folder)
        self.state = self._reader.state
        self.alive = False
        self.version = 0
        """Goes up whenever anything is different."""
        self.changed: dict[str, int] = {}
        """For each job the version at which it was last different."""
        self._annotations = Annotations()
        self._rules: tuple[int | None, float | None] = (None, None)
        self.refresh()

    @property
    def journal_end(self) -> int:
        """How many bytes of the journal this is made of."""
        return self._reader.offset

    def refresh(self) -> bool:
        """Read what was appended since; return whether anything is different."""
        lines = self._reader.read()
        alive = self._reader.alive
        told = any(line["type"] == "message" for line in lines)
        noted = self._annotations.update(self.folder, self.state.messages if told else None)
        if not lines and alive == self.alive and not noted:
            return False
        self.version += 1
        for line in lines:
            about = job_of(line)
            if about is not None:
                self.changed[about] = self.version
            if line["type"] == "opened":
                self._rules = _rules(line)
        if alive != self.alive:
            self.alive = alive
            for job in self.state.jobs.values():
                if job.status in UNDER_WAY:
                    self.changed[job.id] = self.version
        return True

    @property
    def status(self) -> str:
        """RUNNING, PAUSED, or how it ended; ERROR when its controller died without a word."""
        state = self.state
        if self.alive:
            return Status.PAUSED if self.paused else Status.RUNNING
        return state.end_status

    @property
    def paused(self) -> bool:
        """Whether its user told it to start no more jobs for now."""
        return self.state.paused

    def status_of(self, job: JobRecord) -> tuple[str, str | None]:
        """A job's status and its reason: most that were under way died with their controller."""
        return (job.status, job.reason) if self.alive else self.state.without_controller(job)

    def jobs(self) -> list[JobRecord]:
        """All jobs in the order of proposal, those of a final check last."""
        return sorted(self.state.jobs.values(), key=lambda job: (job.is_check, job.number))

    def counts(self) -> dict[str, int]:
        return counts_of(Counter(self.status_of(job)[0] for job in self.state.jobs.values()))

    @property
    def elapsed(self) -> float:
        """Seconds that controllers spent on it."""
        state = self.state
        since = time.time() - state.last_wall if self.alive and state.last_wall is not None else 0.0
        return state.seconds_before + max(0.0, since)

    @property
    def tags(self) -> list[str]:
        return self._annotations.apply([])

    @property
    def note(self) -> str:
        return self._annotations.note

    def summary(self) -> dict[str, Any]:
        """The search in a few numbers."""
        state, counts = self.state, self.counts()
        tries = sum(not one.filtered for one in state.proposals.values())
        max_tries, seconds = self._limits()
        elapsed = self.elapsed
        best = state.best
        return {
            "name": self.name,
            "status": self.status,
            "paused": self.alive and self.paused,
            "best": None
            if best is None
            else {
                "number": best.number,
                "reward": best.reward,
                "settings": best.settings,
                "jobs": [job.id for job in state.jobs.values() if job.number == best.number and not job.is_check],
            },
            "counts": counts,
            "tries": tries,
            "max_tries": max_tries,
            "elapsed": elapsed,
            "seconds_left": self._seconds_left(counts, elapsed) if self.alive else None,
            "time_limit": seconds,
            "reward_attribute": state.opened.get("reward"),
            "maximize": state.maximize,
            "started": state.first_wall,
            "ended": None if self.alive else state.last_wall,
            "reason": None if self.alive or state.closed is None else state.closed.get("reason"),
            "compare": (state.opened.get("compare") or {}).get("id"),
            "final_check": list(state.checks.values()) or None,
            "tags": self.tags,
            "note": self.note,
            "damage": str(state.damage) if state.damage else None,
        }

    def _limits(self) -> tuple[int | None, float | None]:
        """Most tries and most seconds: as its configuration says, or as was told since."""
        max_tries, seconds = self._rules
        told = self.state.limits
        return last_valid(told, "max_tries", max_tries), last_valid(told, "time_limits", seconds)

    def _seconds_left(self, counts: dict[str, int], elapsed: float) -> float | None:
        """By the limit of time, or by how long a try took so far, whichever ends the search sooner."""
        max_tries, seconds = self._limits()
        ends = [] if seconds is None else [max(0.0, seconds - elapsed)]
        done = counts["finished"]
        if max_tries is not None and done:
            seeds = max(1.0, counts["defined"] / max(1, len(self.state.proposals)))
            ends.append(max(0.0, (max_tries * seeds - done) * elapsed / done))
        return min(ends, default=None)


def _rules(opened: dict[str, Any]) -> tuple[int | None, float | None]:
    """Most tries and most seconds, as its configuration says."""
    try:
        scheduler = opened.get("config", {}).get("scheduler") or {}
        rules = build_stop_criterion(scheduler.get("stop_criterion")).rules
    except (OperantError, TypeError, AttributeError, KeyError, ImportError):
        return None, None  # a criterion of its user's that only the controller knows
    tries = rules.max_tries if rules.max_tries is not None else scheduler.get("max_tries")
    return tries if isinstance(tries, int) else None, rules.time_limits
