"""The state of a search that runs: what its journal says, and the queues that a controller works through.

Every decision is one method of :class:`LiveState`: it appends a record, and then changes the state by the very function
that a reader of the journal uses. So a fold of the journal gives this state after every event, and whatever is to be
done next is in the journal before it is done.
"""

from __future__ import annotations

import errno
import heapq
import itertools
from collections import deque
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, NamedTuple

from operant.errors import OperantError
from operant.schedulers.engine.records import JobRecord, ProposalRecord
from operant.schedulers.engine.state import SearchState
from operant.schedulers.planning.rewards import JobReader, Reports, RewardRule, SeedPlan
from operant.searchers import Proposal
from operant.sites.base import Clock
from operant.status import FAILED, Status
from operant.tracking.format.blocks import encode_json
from operant.tracking.journal import Journal, trial_lines

DISK_FULL = (errno.ENOSPC, errno.EDQUOT)
DISK_FULL_SECONDS = 1.0
_RUNNING, _FINISHED, _STOPPED, _KILLED = Status.RUNNING, Status.FINISHED, Status.STOPPED, Status.KILLED
_EARLY = frozenset({Status.STOPPED, Status.PAUSED})


class Interrupt(NamedTuple):
    """Put into the mailbox by a signal: end everything, as an ERROR."""

    reason: str


class MemoryReader:
    """What a job shows when it has no files: a function of this process, or a simulation."""

    reported = True
    """What a call returned is judged by whoever made it, also when the reward is not in it."""

    def __init__(self, rule: RewardRule) -> None:
        self.rule = rule
        self.values: Mapping[str, float] = {}
        self._points: dict[str, Reports] = {}

    def add(self, tag: str, step: int, value: float, wall: float) -> None:
        self._points.setdefault(tag, []).append({"iteration": step, "value": value, "created": round(wall * 1000)})

    def refresh(self, *, ended: bool = False) -> bool:
        return False

    def history(self, tag: str | None = None) -> Reports:
        return self._points.get(tag or self.rule.attribute, [])

    def latest(self, tag: str) -> float | None:
        history = self.history(tag)
        return float(history[-1]["value"]) if history else self.values.get(tag)

    def result(self, info: Mapping[str, Any]) -> tuple[float | None, str | None]:
        """As that of :class:`JobReader`; the values of a call come with its end."""
        self.values = values = info.get("values", self.values)
        value = values.get(self.rule.attribute)
        if value is not None:
            return float(value), None
        points = [float(point["value"]) for point in self.history()]
        if points and self.rule.attribute not in values:
            return self.rule.reward_of(points), None
        return None, f"it returned no {self.rule.attribute!r}"


class Attempt:
    """One start of a job that has not ended, with what only its controller needs to know of it."""

    __slots__ = ("assessed", "begun", "job", "last_report", "reader", "verdict")

    def __init__(self, job: JobRecord, reader: JobReader | MemoryReader, now: float) -> None:
        self.job = job
        self.reader = reader
        self.begun: float | None = None
        self.last_report = now
        self.assessed = 0
        """How many reports the assessor has seen."""
        self.verdict: tuple[str, str] | None = None
        """The status and the reason with which it shall count once the site says that it has ended."""


class Trial:
    """A proposal whose jobs are not all done."""

    __slots__ = ("failed", "open", "proposal", "raced_out", "rewards", "statuses", "values", "waiting")

    def __init__(self, proposal: ProposalRecord, waiting: Sequence[int | None]) -> None:
        self.proposal = proposal
        self.waiting = list(waiting)
        """Seeds that have not been started, in their order."""
        self.open: set[str] = set()
        self.rewards: dict[int | None, float] = {}
        self.statuses: set[str] = set()
        self.values: Mapping[str, float] = {}
        self.failed: str | None = None
        self.raced_out = False

    def add(self, job: JobRecord, values: Mapping[str, float] | None = None) -> None:
        """Take note of a job that is done or paused."""
        self.open.discard(job.id)
        if job.status in FAILED:
            self.failed = job.status if self.failed != _KILLED else self.failed
            return
        self.statuses.add(job.status)
        if job.reward is not None:
            self.rewards[job.seed] = job.reward
        if values is not None:
            self.values = values

    @property
    def status(self) -> str:
        if self.failed is not None:
            return self.failed
        return _STOPPED if self.raced_out or not self.statuses.isdisjoint(_EARLY) else _FINISHED


def _is_news(before: str, queue: str) -> bool:
    planned = queue.partition(", ")[2]
    if planned and planned != before.partition(", ")[2]:
        return True
    return queue != before and not any(one in queue for one in ("(Priority)", "(Resources)"))


class LiveState(SearchState):
    """The recorded state of a search with its queues. Its transitions journal themselves."""

    journal: Journal

    def __init__(self, name: str, attribute: str, clock: Clock, note: Callable[[str], None]) -> None:
        super().__init__(name)
        self.clock = clock
        self.note = note
        self.attribute = attribute
        self.trials: dict[int, Trial] = {}
        """Open trials by number."""
        self.ready: deque[JobRecord] = deque()
        """Jobs that wait for a slot."""
        self.delayed: list[tuple[float, int, JobRecord]] = []
        """A heap of (time, order, job): jobs that wait for their time."""
        self.running: dict[str, Attempt] = {}
        """By token."""
        self.retries: dict[str, int] = {}
        """How often this controller has started a failed job again, by job."""
        self.exhausted = False
        """Whether the searcher has nothing to propose until it is told something."""
        self.is_stop = False
        """Whether nothing more is proposed."""
        self.killing: tuple[str, str] | None = None
        """The status and the reason with which all jobs under way end, once they shall."""
        self.detached = False
        """Whether the controller leaves, and its jobs go on."""
        self.end: tuple[str, str] = (_FINISHED, "all done")
        self.backlog: list[Any] = []
        """What came while the disk was full."""
        self._live = False
        self._order = itertools.count()

    def attach(self, journal: Journal) -> None:
        """Fold what is there, and write there from now on."""
        self.journal = journal
        self._lines = trial_lines.Lines(journal.epoch, self.attribute)
        self.fold_all(journal.replay_lines(), journal.damage)

    def commit(self, *, durable: bool = False) -> None:
        """Write what was decided. On a full disk nothing more is decided until it is written."""
        told = False
        while True:
            try:
                self.journal.commit(durable=durable)
                return
            except OSError as error:
                if error.errno not in DISK_FULL:
                    raise
            if not told:
                told = True
                self.note("the disk is full: the search waits until its journal can be written")
            self.backlog += self.clock.wait(DISK_FULL_SECONDS)
            if any(isinstance(item, Interrupt) for item in self.backlog):
                raise OperantError(
                    "interrupted while the disk was full; what had been decided last is not in the journal"
                )

    # -- queues --------------------------------------------------------------------------------------------------

    def open_trial(self, number: int, seeds: SeedPlan) -> None:
        """Queue the first jobs of a proposal."""
        trial = self.trials[number] = Trial(self.proposals[number], seeds.seeds)
        for _ in seeds.first:
            self.queue_seed(trial)

    def queue_seed(self, trial: Trial) -> None:
        """Let the next seed of a trial have a job."""
        job = self.new_job(trial.proposal, trial.waiting.pop(0))
        trial.open.add(job.id)
        self.ready.append(job)

    def new_job(self, proposal: ProposalRecord, seed: int | None, *, check: bool = False) -> JobRecord:
        """A job that nobody has heard of yet; it is in ``jobs`` from its first attempt on."""
        name = str(proposal.number) if seed is None else f"{proposal.number}-s{seed}"
        return JobRecord(f"check-{name}" if check else name, proposal.number, seed, proposal.config, self.name)

    def rewards_of(self, proposal: ProposalRecord, seeds: Iterable[int | None]) -> dict[int | None, float]:
        """The rewards of a proposal's jobs, by seed."""
        jobs = [self.jobs.get(self.new_job(proposal, seed).id) for seed in seeds]
        return {job.seed: job.reward for job in jobs if job is not None and job.reward is not None}

    def go_on(self, name: str) -> None:
        """Let a job that was paused have a slot again."""
        job = self.jobs.get(name)
        if job is not None and job.status == Status.PAUSED and job not in self.ready:
            self.ready.append(job)

    def delay(self, job: JobRecord, seconds: float) -> None:
        heapq.heappush(self.delayed, (self.clock.now() + seconds, next(self._order), job))

    def release_delayed(self, now: float) -> None:
        while self.delayed and self.delayed[0][0] <= now:
            self.ready.append(heapq.heappop(self.delayed)[2])

    @property
    def waiting(self) -> list[JobRecord]:
        """Jobs that wait for a slot or for their time."""
        return [*self.ready, *(job for _, _, job in self.delayed)]

    def withdraw(self, job: JobRecord) -> None:
        """Let it wait no longer."""
        if job in self.ready:
            self.ready.remove(job)
        else:
            self.delayed[:] = [one for one in self.delayed if one[2] is not job]
            heapq.heapify(self.delayed)

    # -- transitions: each is in the journal before it is acted on -----------------------------------------------

    def _record(self, kind: str, **fields: Any) -> None:
        # One mapping for both: function trials of threads come here often.
        record = {"type": kind, "epoch": self.journal.epoch, **fields}
        self.journal.append_line(encode_json(record), 1)
        self.fold(record)

    def open(self, **fields: Any) -> None:
        """A controller begins."""
        self._record("opened", **fields)
        self._live = True

    def proposed(self, proposal: Proposal) -> ProposalRecord:
        number = proposal.number
        self._record("proposed", number=number, config=proposal.config, **proposal.extras)
        return self.proposals[number]

    def filtered(self, number: int) -> None:
        """A filter criterion drops a proposal."""
        self._record("filtered", number=number)

    def submitting(self, job: JobRecord, reader: JobReader | MemoryReader, number: int, token: str, now: float) -> None:
        """An attempt has its slot, and is about to be handed to the site."""
        self.jobs.setdefault(job.id, job)
        # By hand, here and in `started`: of what a trial of a thread costs the encoder would be a tenth.
        epoch, seed = self.journal.epoch, "null" if job.seed is None else job.seed
        line = f'{{"type":"submitting","epoch":{epoch},"job":"{job.id}","number":{job.number},"seed":{seed},"attempt":'
        self.journal.append_line(f'{line}{number},"token":"{token}"}}', 1)
        self._begin_attempt(job, number, token)
        self.running[token] = Attempt(job, reader, now)

    def started(self, attempt: Attempt, wall: float | None) -> None:
        """Its program runs, so the site says."""
        job = attempt.job
        attempt.begun = attempt.last_report = self.clock.now()
        if wall is not None:
            self._record("started", job=job.id, attempt=job.attempt, wall=wall)
            return
        wall, epoch = self.clock.wall(), self.journal.epoch
        line = f'{{"type":"started","epoch":{epoch},"job":"{job.id}","attempt":{job.attempt},"wall":{wall!r}}}'
        self.journal.append_line(line, 1)
        job.started, job.status = wall, _RUNNING

    def placed(self, attempt: Attempt, info: Mapping[str, Any]) -> None:
        """Where its site has put it, or why it waits."""
        name = attempt.job.id
        before = self.places.get(name)
        same = before is not None and all(before[key] == info.get(key, "") for key in ("id", "node"))
        # Which of many waits for priority and which for resources changes all the time, and tells nobody anything.
        if not same or _is_news(str(before and before["queue"]), str(info.get("queue", ""))):
            found = {key: info.get(key, "") for key in ("id", "node", "queue")}
            self._record("placed", job=name, wall=self.clock.wall(), **found)

    def reported(self, attempt: Attempt, tag: str, step: int, value: float, wall: float) -> None:
        """A job without files has reported something."""
        assert isinstance(attempt.reader, MemoryReader)
        attempt.reader.add(tag, step, value, wall)
        self._record("reported", job=attempt.job.id, step=step, value=value, wall=wall)

    def assessed(self, job: JobRecord, iteration: int, result: str) -> None:
        """What the assessor says of a job under way."""
        self._record("assessed", job=job.id, iteration=iteration, result=result)

    def ended(
        self,
        job: JobRecord,
        status: str,
        wall: float | None,
        returned: Mapping[str, Any] | None,
        found: Iterable[tuple[str, Any]],
    ) -> None:
        """An attempt is over; of what was found (reward, reason, error, code, started) that is kept which is known."""
        if returned is not None:
            self.journal.append("returned", number=job.number, **returned)
        wall = self.clock.wall() if wall is None else wall
        record = {"type": "ended", "epoch": self.journal.epoch, "job": job.id, "attempt": job.attempt}
        record["status"], record["wall"] = status, wall
        for key, value in found:
            if value is not None:
                record[key] = value
        self.journal.append_line(encode_json(record), 1)
        self._fold_ended(record)

    def lost(self, job: JobRecord, status: str, **found: Any) -> None:
        """An attempt under an earlier controller is over; nobody knows since when."""
        self._record("ended", job=job.id, attempt=job.attempt, status=status, **found)

    def never_begun(self, job: JobRecord, status: str) -> None:
        """A job that waited for its first slot will not get one."""
        self.jobs.setdefault(job.id, job)
        self._record("planned", job=job.id, number=job.number, seed=job.seed, status=status)

    def raced(self, trial: Trial) -> None:
        """A proposal lost the race against the best one, and runs no further seeds."""
        trial.raced_out = True
        self._record("raced", number=trial.proposal.number, seeds=len(trial.rewards))

    def observed_trial(self, trial: Trial, values: dict[str, float], reward: float | None) -> str:
        """All jobs of a trial are done; the searcher is about to hear of it, with the status returned."""
        number, status = trial.proposal.number, trial.status
        del self.trials[number]
        self._record("observed", number=number, status=status, values=values, reward=reward)
        self.exhausted = False
        return status

    def message(self, content: Mapping[str, Any], wall: float) -> None:
        """Somebody wants something of the search."""
        self._record("message", content=content, wall=wall)

    def stop(self, reason: str, *, kill: bool, status: str) -> None:
        """Nothing more is proposed, and with ``kill`` nothing that runs is waited for."""
        self.is_stop = True
        self.end = (status, reason)
        self._record("stopping", reason=reason, kill=kill)
        if kill:
            self.killing = (Status.ERROR if status == Status.ERROR else Status.KILLED, reason)

    def detach(self, reason: str) -> None:
        """The controller ends and leaves its jobs to themselves; whoever resumes the search takes them over."""
        self.is_stop = self.detached = True
        self.end = (Status.STOPPED, reason)
        self._record("stopping", reason=reason, kill=False)

    def go_on_proposing(self) -> None:
        """The rule that ended the search has been changed, and may stop it again."""
        self.is_stop, self.end = False, (_FINISHED, "all done")

    def checked(self, **found: Any) -> None:
        """What the final check found of a proposal."""
        self._record("checked", **found)

    def close(self) -> None:
        """The controller ends."""
        self._record("closed", status=self.end[0], reason=self.end[1], wall=self.clock.wall())

    # -- the two transitions of a function trial that goes well, each in one line --------------------------------

    def begin_inline(self, proposal: Proposal) -> JobRecord:
        """``proposed`` and ``submitting``, in one block with the result before, which is then safe before the call."""
        number, config = proposal.number, proposal.config
        journal, name = self.journal, str(number)
        record = ProposalRecord(number, config, proposal.budget, proposal.parent, proposal.notes)
        record.shown = proposal.shown
        self.proposals[number] = record
        job = self.jobs[name] = JobRecord(name, number, None, config, self.name)
        job.attempt, job.token = 1, trial_lines.token_of(number, journal.epoch)
        job.snapshot = self._code
        try:
            journal.commit_line(*self._lines.begun(number, config, proposal.extras))
        except OSError:
            self.commit()  # which knows what to do when the disk is full
        return job

    def finish_inline(
        self,
        job: JobRecord,
        reward: float,
        values: Mapping[str, float],
        info: Mapping[str, Any],
        reports: Sequence[tuple[int, float, float]],
    ) -> None:
        """``reported``, ``returned``, ``ended`` and ``observed``."""
        number, started, ended = job.number, info["started"], info["ended"]
        self.journal.append_line(*self._lines.done(number, values, started, ended, info.get("returned"), reports))
        job.status, job.code, job.reward, job.started, job.ended = _FINISHED, 0, reward, started, ended
        proposal = self.proposals[number]
        proposal.status, proposal.values, proposal.reward = _FINISHED, values, reward
        self.observed.append(number)
        last = self.last_wall
        if last is not None and ended > last:
            self.seconds_before += ended - last
        self.last_wall = ended
        if reward == reward:
            best = self.best
            if best is None or (reward > best.reward if self.maximize else reward < best.reward):  # type: ignore[operator]
                self.best = proposal

    # -- what only who looks on keeps ----------------------------------------------------------------------------

    def _fold_opened(self, record: dict[str, Any]) -> None:
        super()._fold_opened(record)
        self._code: str | None = record.get("code")

    def _fold_reported(self, record: dict[str, Any]) -> None:
        """Points are with the attempt's reader: a search of a hundred thousand jobs keeps none of them."""
        if not self._live:
            super()._fold_reported(record)
