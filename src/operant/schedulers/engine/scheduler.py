"""Runs one search: asks, filters, journals, submits, watches and tells the searcher what came of it.

One loop that waits for events and acts on them. Everything it decides is in the journal before it is done, so a
controller that dies at any moment can be followed by another that goes on where it stopped.
"""

from __future__ import annotations

import heapq
import itertools
import math
from collections import Counter, deque
from collections.abc import Mapping
from pathlib import Path
from typing import Any, NamedTuple

from operant.errors import OperantError
from operant.schedulers.engine.dispatcher import DISK_FULL, DISK_FULL_SECONDS, Dispatcher
from operant.schedulers.engine.final_check import FinalCheck
from operant.schedulers.engine.inline import InlineTrials
from operant.schedulers.engine.overseer import Overseer
from operant.schedulers.engine.restore import Restored
from operant.schedulers.engine.state import JobRecord
from operant.schedulers.engine.trial import MemoryReader, ScheduledJob, Trial, job_id_of
from operant.schedulers.engine.view import NoView, View
from operant.schedulers.engine.workspace import Workspace
from operant.schedulers.planning.plan import SearchPlan
from operant.searchers import Observation, Proposal
from operant.sites import Event, Found, FunctionSite, Site
from operant.sites.clock import Clock, SystemClock
from operant.tracking.journal import Journal
from operant.tracking.journal.journal import GROUP_SECONDS

__all__ = ["Outcome", "Scheduler"]

LONGEST_RETRY_DELAY = 300.0


class Outcome(NamedTuple):
    """How a search ended."""

    status: str
    """FINISHED, KILLED (told to stop) or ERROR (interrupted)."""
    reason: str
    best: Proposal | None
    reward: float | None
    tries: int
    checks: dict[int, dict[str, Any]]


class Interrupt(NamedTuple):
    """Put into the mailbox by a signal: end everything, as an ERROR."""

    reason: str


class Scheduler:
    """One search on one site. Criteria see its ``is_stop``, ``tries``, ``best``, ``jobs`` and ``elapsed``."""

    def __init__(
        self,
        plan: SearchPlan,
        folder: Path,
        site: Site,
        *,
        name: str | None = None,
        clock: Clock | None = None,
        workspace: Workspace | None = None,
        view: View | None = None,
        resume: bool = False,
        force: bool = False,
        origin: Mapping[str, Any] | None = None,
    ) -> None:
        self.plan = plan
        self.origin = origin
        self.folder = folder
        self.name = name or folder.name
        self.site = site
        self.clock = clock or SystemClock()
        self.workspace = workspace
        self.view = view or NoView()
        self.searcher = plan.searcher
        self.maximize = plan.maximize
        self.is_stop = False
        self.paused = False
        self.tries = 0
        self.jobs: dict[str, ScheduledJob] = {}
        self.earlier: Counter[str] = Counter()
        """Statuses of jobs that were done before a resume and are not in ``jobs``."""
        self.best: tuple[float, Proposal, dict[int | None, float]] | None = None
        self.checks: dict[int, dict[str, Any]] = {}
        self.check_records: dict[str, JobRecord] = {}
        """Jobs of a final check that an earlier controller began."""
        self.resume = resume
        self.force = force
        self.trials: dict[int, Trial] = {}
        self.proposals: dict[int, Proposal] = {}
        self.ranking: list[tuple[float, int]] = []
        """(reward, number) of every proposal that ran all its seeds."""
        self.ready: deque[ScheduledJob] = deque()
        self.delayed: list[tuple[float, int, ScheduledJob]] = []
        self.running: dict[str, ScheduledJob] = {}
        self.order = itertools.count()
        self.exhausted = False
        self.end: tuple[str, str] = ("FINISHED", "all done")
        self.killing: tuple[str, str] | None = None
        self.seconds_before = 0.0
        self._backlog: list[Any] = []
        self._overseer = Overseer(self)
        self._dispatcher = Dispatcher(self)
        self._inline = InlineTrials(self, self._overseer)

    # -- what criteria and commands may use ---------------------------------------------------------------------

    @property
    def elapsed(self) -> float:
        """Seconds that this search has run, those before a resume included."""
        return self.seconds_before + self.clock.now() - self._began

    def stop(self, reason: str, *, kill: bool, status: str = "FINISHED") -> None:
        """End the search: no new jobs, and with ``kill`` none of the running ones is waited for."""
        if self.is_stop and not (kill and self.killing is None):
            return
        self.is_stop = True
        self.end = (status, reason)
        self.journal.append("stopping", reason=reason, kill=kill)
        if kill:
            verdict = "KILLED" if status != "ERROR" else "ERROR"
            self.killing = (verdict, reason)
            self.cancel(list(self.running.values()), verdict, reason)

    def interrupt(self, reason: str = "interrupted") -> None:
        """End everything now, from any thread or a signal handler; jobs under way count as ERROR."""
        self.clock.put(Interrupt(reason))

    # -- the whole -----------------------------------------------------------------------------------------------

    def run(self) -> Outcome:
        with Journal.open(self.folder, force=self.force) as journal:
            self.journal = journal
            self._began = self.clock.now()
            restored = Restored(self, journal, resume=self.resume, force=self.force)
            try:
                self.site.start(self.clock.put)
                if isinstance(self.site, FunctionSite):
                    self.site.hear = self._hear_report  # a call waits for the answer, in this very thread
                restored.take_over()
                self.commit()
                self.plan.stop.before_run(self)
                self.loop()
                if self.killing is None and self.plan.seeds.check_top:
                    FinalCheck(self).run()
                self.plan.stop.after_run(self)
            except BaseException as error:
                self.end = ("ERROR", f"{type(error).__name__}: {error}")
                self.killing = ("ERROR", "controller_failed")
                self._abandon()
                raise
            finally:
                self._close()
            best = self.best
            return Outcome(*self.end, best[1] if best else None, best[0] if best else None, self.tries, self.checks)

    def loop(self) -> None:
        while True:
            self._inline.run()
            self._dispatcher.dispatch()
            if not self._has_work():
                return
            self.view.tick(self)
            self.handle_all(self.clock.wait(self._overseer.timeout()))
            self._overseer.look_after(self.clock.now())

    def _has_work(self) -> bool:
        if self.killing is not None:
            return bool(self.running)
        return bool(self.running or self.delayed or self.ready or (self.paused and not self.is_stop))

    def _abandon(self) -> None:
        """Something is wrong with the controller itself: end the jobs, so that none is left alone."""
        self.cancel(list(self.running.values()), "ERROR", "controller_failed")
        deadline = self.clock.now() + self.plan.limits.grace_seconds + 5
        while self.running and self.clock.now() < deadline:
            for item in self.clock.wait(0.1):
                if isinstance(item, Event) and item.kind in ("ended", "lost") and item.token in self.running:
                    job = self.running.pop(item.token)
                    self.record_end(job, "ERROR", "controller_failed", item.info)

    def _close(self) -> None:
        status = self.killing[0] if self.killing is not None else None
        for job in (*self.ready, *(one for _, _, one in self.delayed)):
            if status is not None and job.attempt == 0:
                self.journal.append("planned", job=job.id, number=job.number, seed=job.seed, status=status)
                job.status = status
            elif status == "KILLED":
                self.record_end(job, status, self.end[1], {})
        for job in self.jobs.values():
            if job.status == "PAUSED" and self.end[0] == "FINISHED":
                self.record_end(job, "STOPPED", "assessor", {})
        try:
            self.site.close()
        finally:
            self.journal.append("closed", status=self.end[0], reason=self.end[1], wall=self.clock.wall())
            self.view.close(self)

    # -- making and starting jobs --------------------------------------------------------------------------------

    def open_trial(self, proposal: Proposal) -> Trial:
        trial = Trial(proposal, list(self.plan.seeds.seeds))
        self.trials[proposal.number] = trial
        self.proposals[proposal.number] = proposal
        for _ in self.plan.seeds.first():
            self.queue_seed(trial)
        return trial

    def queue_seed(self, trial: Trial) -> None:
        seed = trial.waiting.pop(0)
        job = self.make_job(trial.proposal, seed)
        trial.open.add(job.id)
        self.ready.append(job)

    def make_job(self, proposal: Proposal, seed: int | None, *, check: bool = False) -> ScheduledJob:
        job_id = job_id_of(proposal.number, seed, check=check)
        job = ScheduledJob(job_id, f"{self.name}-{job_id}", proposal.number, seed, proposal.config)
        job.budget = proposal.budget
        job.check = check
        self.jobs[job_id] = job
        return job

    def queue(self, job: ScheduledJob) -> None:
        self.ready.append(job)

    def go_on(self, job_id: str) -> None:
        """Let a job that was paused have a slot again."""
        job = self.jobs.get(job_id)
        if job is not None and job.status == "PAUSED":
            job.status, job.keep_work = "PENDING", True
            self.ready.append(job)

    def promote(self) -> None:
        self._overseer.promote()

    # -- what happens --------------------------------------------------------------------------------------------

    def handle_all(self, items: list[Any]) -> None:
        """Act on what has come, after what came while the disk was full."""
        for item in (*self._take_backlog(), *items):
            self._handle(item)

    def _hear_report(self, token: str, step: int, value: float) -> None:
        """What a call in this thread says on its way."""
        if not self._inline.hear(token, step, value):
            self._handle(Event("report", token, {"tag": self.plan.rule.attribute, "step": step, "value": value}))

    def _handle(self, item: Any) -> None:
        if isinstance(item, Interrupt):
            self.stop(item.reason, kill=True, status="ERROR")
            return
        job = self.running.get(item.token)
        if job is None:
            return
        if item.kind == "started":
            job.status, job.started = "RUNNING", item.info.get("wall", self.clock.wall())
            job.begun = job.last_report = self.clock.now()
            self.journal.append("started", job=job.id, attempt=job.attempt, wall=job.started)
            self.view.changed(self, job)
        elif item.kind == "report":
            assert isinstance(job.reader, MemoryReader)
            step, value, wall = item.info["step"], item.info["value"], self.clock.wall()
            job.reader.add(item.info["tag"], step, value, wall)
            job.last_report = self.clock.now()
            self.journal.append("reported", job=job.id, step=step, value=value, wall=wall)
            if self.journal.seconds_unseen() > GROUP_SECONDS:  # whoever looks on wants to see it before the trial ends
                self.commit()
            self._overseer.assess(job)
        else:
            self._on_end(job, item)

    def _on_end(self, job: ScheduledJob, event: Event) -> None:
        del self.running[job.token]
        if self.plan.gpus is not None:
            self.plan.gpus.give_back(job.id)
        info = event.info
        if "values" in info and isinstance(job.reader, MemoryReader):
            job.reader.values = info["values"]
        if "verdict" in info and job.verdict is None:  # it was skipped, or has ended itself early
            job.verdict = info["verdict"]
        status, reason = self._status_of(job, event)
        if status != "ERROR" and job.reader is not None:
            job.reward, complaint = job.reader.result()
            if job.reward is None and status == "FINISHED":
                job.error = complaint
        self.record_end(job, status, reason, info)
        if self.plan.assessor is not None and job.reader is not None and status == "FINISHED" and not job.check:
            self.plan.assessor.assess_job(job.id, job.reader.history())
            self.plan.assessor.job_end(job.id)
            self._overseer.promote()
        if status == "ERROR" and job.retries < self.plan.max_retries and self.killing is None:
            delay = min(self.plan.retry_delay * 2.0**job.retries, LONGEST_RETRY_DELAY)
            job.retries += 1
            job.keep_work = False
            job.status = "PENDING"
            heapq.heappush(self.delayed, (self.clock.now() + delay, next(self.order), job))
            return
        self.settle(job)

    def _status_of(self, job: ScheduledJob, event: Event) -> tuple[str, str | None]:
        info = event.info
        reason = info.get("reason")
        if event.kind == "ended" and info.get("code") == 0 and reason is None:
            return "FINISHED", None  # also when it was told to end, but had finished by then
        if job.verdict is not None:
            return job.verdict
        if reason == "time_limit":
            return "STOPPED", "time_limits_per_job"
        return "ERROR", reason

    def record_end(self, job: ScheduledJob, status: str, reason: str | None, info: Mapping[str, Any]) -> None:
        job.status, job.reason = status, reason
        job.started = info.get("started", job.started)
        job.ended = info.get("ended", job.ended if job.ended is not None else self.clock.wall())
        if status == "ERROR":
            job.error = _what_went_wrong(info, reason)
        record: dict[str, Any] = {"job": job.id, "attempt": job.attempt, "status": status, "wall": job.ended}
        found = {
            "reward": job.reward,
            "reason": reason,
            "error": job.error,
            "code": info.get("code"),
            "started": job.started,
        }
        record.update((key, value) for key, value in found.items() if value is not None)
        if "returned" in info:
            self.journal.append("returned", number=job.number, **info["returned"])
        self.journal.append("ended", **record)
        self.view.changed(self, job)

    def settle(self, job: ScheduledJob) -> None:
        """A job is done: see what that means for its proposal."""
        if job.check:
            return
        trial = self.trials.get(job.number)
        if trial is None:  # it was paused, went on, and has ended now
            trial = self.trials[job.number] = Trial(self.proposals[job.number], [])
        trial.open.discard(job.id)
        if job.status in ("KILLED", "ERROR"):
            trial.failed = "KILLED" if job.status == "KILLED" or trial.failed == "KILLED" else "ERROR"
        else:
            trial.statuses.append(job.status)
            if job.reward is not None:
                trial.rewards[job.seed] = job.reward
            if isinstance(job.reader, MemoryReader):
                trial.values = job.reader.values
        if job.status != "PAUSED":
            job.reader = None  # a search of a hundred thousand jobs keeps none of their points
        if trial.open:
            return
        if trial.waiting and trial.failed is None and self.killing is None:
            incumbent = self.best[2] if self.best is not None else None
            if not self.plan.seeds.loses(trial.rewards, incumbent):
                self.queue_seed(trial)
                return
            trial.raced_out = True
            self.journal.append("raced", number=job.number, seeds=len(trial.rewards))
        self._observe(trial)

    def _observe(self, trial: Trial) -> None:
        proposal = trial.proposal
        del self.trials[proposal.number]
        rewards = list(trial.rewards.values())
        complete = trial.raced_out or len(rewards) == len(self.plan.seeds.seeds)
        reward = self.plan.seeds.reward(rewards) if rewards and complete and trial.failed is None else None
        values: dict[str, float] = dict(trial.values) if len(rewards) == 1 else {}
        if reward is not None:
            values[self.plan.rule.attribute] = reward
        status = trial.status
        self.journal.append("observed", number=proposal.number, status=status, values=values, reward=reward)
        self.searcher.observe(Observation(proposal.number, None, 1, status, values))
        self.exhausted = False
        if reward is None or math.isnan(reward) or trial.raced_out:
            return
        self.note_reward(reward, proposal, dict(trial.rewards))
        self.plan.stop.rules.after_result(self, reward)

    def note_reward(self, reward: float, proposal: Proposal, rewards: dict[int | None, float]) -> None:
        self.ranking.append((reward, proposal.number))
        if self.best is None or (reward > self.best[0] if self.maximize else reward < self.best[0]):
            self.best = (reward, proposal, rewards)

    def cancel(self, jobs: list[ScheduledJob], status: str, reason: str) -> None:
        for job in jobs:
            job.verdict = (status, reason)
        if jobs:
            self.commit()
            self.site.cancel([job.token for job in jobs], reason, self.plan.limits.grace_seconds)

    # -- the journal ---------------------------------------------------------------------------------------------

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
                self.view.note("the disk is full: the search waits until its journal can be written")
            self._backlog += self.clock.wait(DISK_FULL_SECONDS)
            if any(isinstance(item, Interrupt) for item in self._backlog):
                raise OperantError(
                    "interrupted while the disk was full; what had been decided last is not in the journal"
                )

    def _take_backlog(self) -> list[Any]:
        items, self._backlog = self._backlog, []
        return items

    def adopt(self, job: ScheduledJob, found: Found) -> None:
        """Take over an attempt of an earlier controller: it has ended, or goes on and will be heard of."""
        job.begun = job.last_report = self.clock.now()
        job.reader = self.workspace.reader(job) if self.workspace is not None else MemoryReader(self.plan.rule)
        self.running[job.token] = job
        if found.state == "ended":
            self.clock.put(Event("ended", job.token, found.record))


def _what_went_wrong(info: Mapping[str, Any], reason: str | None) -> str:
    if info.get("error"):
        return str(info["error"])
    told = {"memory_limit": "it passed its memory limit", "no_report_timeout": "it reported nothing for too long"}
    if reason is not None:
        return told.get(reason, reason.replace("_", " "))
    if info.get("signal"):
        return f"killed by signal {info['signal']}"
    return f"exit code {info.get('code')}"
