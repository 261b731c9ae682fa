"""What a search shows of itself, to views and to criteria, and how it is ended."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import NamedTuple, Protocol

from operant.schedulers.engine.live_state import Attempt, LiveState
from operant.schedulers.engine.records import JobRecord
from operant.schedulers.planning.plan import SearchPlan
from operant.searchers import Proposal
from operant.sites import Site
from operant.sites.base import Clock
from operant.status import Status, counts_of


class Best(NamedTuple):
    """The best proposal so far, its reward over all seeds, and its reward for each."""

    reward: float
    proposal: Proposal
    by_seed: dict[int | None, float]


class SearchProgress:
    """A search as those see it who only look: nothing here changes it."""

    def __init__(self, state: LiveState, plan: SearchPlan, clock: Clock) -> None:
        self._state = state
        self.plan = plan
        """The settings of the search."""
        self._clock = clock
        self._began = clock.now()
        self._seconds_before = 0.0

    def begin(self) -> None:
        """From now on the time counts, after what earlier controllers have spent."""
        self._began, self._seconds_before = self._clock.now(), self._state.seconds_before

    @property
    def name(self) -> str:
        return self._state.name

    @property
    def maximize(self) -> bool:
        return self.plan.maximize

    @property
    def tries(self) -> int:
        """How many proposals have been tried, or are; those that a filter dropped do not count."""
        return self._state.tries

    @property
    def best(self) -> Best | None:
        """Of the proposals that ran all their seeds."""
        found = self._state.best
        if found is None or found.reward is None:
            return None
        return Best(found.reward, found.as_proposal(), self._state.rewards_of(found, self.plan.seeds.seeds))

    @property
    def jobs(self) -> Mapping[str, JobRecord]:
        """All jobs that have had a slot, by id, in the order in which they had it."""
        return self._state.jobs

    @property
    def running(self) -> Iterable[Attempt]:
        return self._state.running.values()

    @property
    def elapsed(self) -> float:
        """Seconds that this search has run, those before a resume included."""
        return self._seconds_before + self._clock.now() - self._began

    @property
    def end(self) -> tuple[str, str]:
        """The status and the reason with which it ends, or would."""
        return self._state.end

    def stderr_of(self, job: JobRecord) -> Path | None:
        """Where all is that a job's program wrote to stderr; None if that is nothing."""
        path = self._state.journal.folder / "jobs" / job.id / "stderr"
        return path if path.exists() and path.stat().st_size else None

    def seconds_of(self, attempt: Attempt) -> float | None:
        """How long an attempt has run; None while it has not begun."""
        return None if attempt.begun is None else self._clock.now() - attempt.begun

    def counts(self) -> dict[str, int]:
        """How many jobs are defined, waiting, running, finished; and of these successful and abnormal."""
        by_status = Counter(job.status for job in self._state.jobs.values())
        by_status[Status.PENDING] += sum(job.attempt == 0 for job in self._state.waiting)
        return counts_of(by_status)


class SearchControl(SearchProgress):
    """A search as its stop criteria see it: what it shows, ``is_stop``, and :meth:`stop`.

    A criterion may keep attributes of its own here: ``scheduler.step = 0``.
    """

    def __init__(self, state: LiveState, plan: SearchPlan, clock: Clock, site: Site) -> None:
        super().__init__(state, plan, clock)
        self._site = site

    @property
    def is_stop(self) -> bool:
        """Whether nothing more is proposed; set it, and jobs that run are waited for."""
        return self._state.is_stop

    @is_stop.setter
    def is_stop(self, value: bool) -> None:
        self._state.is_stop = value

    def stop(self, reason: str, *, kill: bool, status: str = Status.FINISHED) -> None:
        """End the search: no new jobs, and with ``kill`` none of the running ones is waited for."""
        state = self._state
        if state.is_stop and not (kill and state.killing is None):
            return
        state.stop(reason, kill=kill, status=status)
        if state.killing is not None and kill:
            self.cancel(list(state.running.values()), *state.killing)

    def detach(self, reason: str) -> None:
        """End the controller and leave its jobs running, where they can."""
        if self._state.killing is None:
            self._state.detach(reason)

    def cancel(self, attempts: list[Attempt], status: str, reason: str) -> None:
        """End these attempts; they will count with this status and reason."""
        for attempt in attempts:
            attempt.verdict = (status, reason)
        if attempts:
            self._state.commit()
            tokens = [attempt.job.token for attempt in attempts]
            self._site.cancel(tokens, reason, self.plan.limits.grace_seconds)


class View(Protocol):
    """Shows a search to somebody while it runs. It only reads: whatever it does, the search goes the same way."""

    live: bool
    """Whether it shows what running jobs report, so that somebody has to read it."""

    def note(self, text: str) -> None:
        """Say something once; it may come before the search begins."""

    def changed(self, search: SearchProgress, job: JobRecord) -> None:
        """A job has another status."""

    def tick(self, search: SearchProgress) -> None:
        """Called often; time may have passed."""

    def close(self, search: SearchProgress) -> None:
        """The search is over."""


class NoView:
    """Shows nothing."""

    live = False

    def note(self, text: str) -> None: ...

    def changed(self, search: SearchProgress, job: JobRecord) -> None: ...

    def tick(self, search: SearchProgress) -> None: ...

    def close(self, search: SearchProgress) -> None: ...


class Decision(NamedTuple):
    """What whoever began a search makes of a result."""

    final: bool = False
    """Whether another attempt would not mend it."""
    stop: str | None = None
    """Why nothing more shall be proposed; jobs that run are waited for."""


class ResultHook(Protocol):
    """Takes part in a search: called with each job whose attempt has ended, once that is in the journal and before
    the searcher is told."""

    def __call__(self, job: JobRecord, retry: bool) -> Decision | None:
        """``retry`` says whether there is to be another attempt; None leaves everything as it is."""
