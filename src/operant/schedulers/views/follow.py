"""What somebody who watches a search wants to know of it besides its journal, and how he asks something of it."""

from __future__ import annotations

import statistics
from pathlib import Path

from operant.schedulers.engine.records import JobRecord
from operant.schedulers.views.live import LiveSearch
from operant.status import USABLE, Status
from operant.tracking.journal import controller_is_alive, post_message

_RECENT = 20


class SearchFollower(LiveSearch):
    """A search as it goes on, for one watcher. What he asks of it goes through its inbox: :meth:`ask`."""

    def __init__(self, folder: Path) -> None:
        self.best_so_far: list[float] = []
        """The best reward after each result."""
        self._results = 0
        self._asked: list[tuple[Path, str]] = []
        super().__init__(folder)

    def refresh(self) -> bool:
        """Read on; return whether anything is different."""
        changed = super().refresh()
        state = self.state
        for number in state.observed[self._results :]:
            proposal = state.proposals[number]
            counts = proposal.status in USABLE and not proposal.raced_out
            self._note_reward(proposal.reward if counts else None)
        self._results = len(state.observed)
        return changed

    @property
    def under_way(self) -> list[JobRecord]:
        """Jobs that run, the oldest first, and then those that wait at their site."""
        state = self.state
        if not self.alive and not state.outlives_controller:
            return []
        running = [job for job in state.jobs.values() if job.status == Status.RUNNING]
        return running + [state.jobs[name] for name in state.places if state.jobs[name].status == Status.PENDING]

    @property
    def usual_seconds(self) -> float | None:
        """How long a job takes that runs to its end: the median of the latest."""
        finished = Status.FINISHED
        took = [
            job.ended - job.started
            for job in self.state.jobs.values()
            if job.status == finished and job.started is not None and job.ended is not None
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
        better = last is None or (reward > last if self.state.maximize else reward < last)
        self.best_so_far.append(reward if better or last is None else last)
