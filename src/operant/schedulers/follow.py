"""Following a search from outside while it runs: its journal is read on, nothing of it is touched."""

from __future__ import annotations

import statistics
from collections import Counter
from pathlib import Path

from operant.schedulers.ledger import JobRecord, Ledger, controller_is_alive
from operant.schedulers.recorded import search_limits
from operant.tracking.journal import JournalReader, post_message
from operant.tracking.journal.journal import JOURNAL_NAME

__all__ = ["SearchFollower"]

_UNDER_WAY = ("PENDING", "RUNNING")
_RECENT = 20


class SearchFollower:
    """A search as it stands; :meth:`refresh` reads what was journaled since.

    What a person asks of the search goes through its inbox: :meth:`ask`.
    """

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.name = folder.name
        self.ledger = Ledger()
        self.alive = False
        self.paused = False
        """Whether its user told it to start no new jobs."""
        self.best_so_far: list[float] = []
        """The best reward after each result."""
        self._reader = JournalReader(folder)
        self._asked: list[tuple[Path, str]] = []
        self.refresh()

    def refresh(self) -> bool:
        """Read on; return whether anything happened."""
        was_alive = self.alive
        self.alive = controller_is_alive(self.folder)  # before the journal, whose last record comes first
        records = [entry.record for entry in self._reader.poll()]
        self.ledger.fold_all(records)
        for record in records:
            match record["type"]:
                case "opened":
                    self.paused = False
                case "message" if record["content"].get("type") in ("pause", "resume"):
                    self.paused = record["content"]["type"] == "pause"
                case "observed":
                    raced_out = self.ledger.proposals[record["number"]].raced_out
                    self._note_reward(None if raced_out else record.get("reward"))
        return bool(records) or was_alive != self.alive

    @property
    def status(self) -> str:
        """PENDING, RUNNING, PAUSED by its user, how it ended, or GONE when somebody has removed it."""
        if self.alive:
            return "PAUSED" if self.paused else "RUNNING"
        if self.ledger.closed is not None:
            return str(self.ledger.closed["status"])
        if not (self.folder / JOURNAL_NAME).exists():
            return "GONE"
        return "ERROR" if self.ledger.opened else "PENDING"

    @property
    def counts(self) -> dict[str, int]:
        """Jobs that are defined, waiting, running, finished; and of these successful and abnormal."""
        by_status = Counter(job.status for job in self.ledger.jobs.values())
        if not self.alive:  # jobs that were under way died with their controller
            by_status["ERROR"] += sum(by_status.pop(one, 0) for one in _UNDER_WAY)
        success = by_status["FINISHED"] + by_status["STOPPED"]
        abnormal = by_status["ERROR"] + by_status["KILLED"]
        return {
            "defined": by_status.total(),
            "waiting": by_status["PENDING"] + by_status["PAUSED"],
            "running": by_status["RUNNING"],
            "finished": success + abnormal,
            "success": success,
            "abnormal": abnormal,
        }

    @property
    def running(self) -> list[JobRecord]:
        """Jobs under way, the oldest first."""
        if not self.alive:
            return []
        return [job for job in self.ledger.jobs.values() if job.status == "RUNNING"]

    @property
    def tries(self) -> tuple[int, int | None]:
        """How many proposals were tried, and how many may be."""
        most = search_limits(self.ledger.opened).get("max_tries")
        tried = sum(not one.filtered for one in self.ledger.proposals.values())
        return tried, int(most) if isinstance(most, (int, float)) and abs(most) < float("inf") else None

    @property
    def usual_seconds(self) -> float | None:
        """How long a job takes that runs to its end: the median of the latest."""
        took = [
            job.ended - job.started
            for job in self.ledger.jobs.values()
            if job.status == "FINISHED" and job.started is not None and job.ended is not None
        ]
        return statistics.median(took[-_RECENT:]) if took else None

    def ask(self, content: dict[str, object], what: str) -> bool:
        """Put a message into the inbox; False when no controller is there to read it."""
        if not controller_is_alive(self.folder):
            return False
        self._asked.append((post_message(self.folder, content), what))
        return True

    def unanswered(self) -> list[str]:
        """What was asked of a controller that ended before it read it; a later one must not find it."""
        self._asked = [(path, what) for path, what in self._asked if path.exists()]
        if self.alive:
            return []
        missed, self._asked = self._asked, []
        for path, _ in missed:
            path.unlink(missing_ok=True)
        return [what for _, what in missed]

    def _note_reward(self, reward: float | None) -> None:
        last = self.best_so_far[-1] if self.best_so_far else None
        if reward is None or reward != reward:
            if last is not None:
                self.best_so_far.append(last)
            return
        better = last is None or (reward > last if self.ledger.maximize else reward < last)
        self.best_so_far.append(reward if better or last is None else last)
