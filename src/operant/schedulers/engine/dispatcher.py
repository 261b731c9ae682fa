"""Fills free slots: asks the searcher, filters, journals, prepares, and hands jobs to the site."""

from __future__ import annotations

import errno
import heapq
import secrets
from typing import TYPE_CHECKING

from operant.errors import OperantError
from operant.schedulers.engine.trial import MemoryReader, ScheduledJob
from operant.searchers import Observation, Proposal
from operant.sites import Submission, make_token

if TYPE_CHECKING:
    from operant.schedulers.engine.scheduler import Scheduler

__all__ = ["DISK_FULL", "DISK_FULL_SECONDS", "Dispatcher"]

MOST_FILTERED = 1000
DISK_FULL = (errno.ENOSPC, errno.EDQUOT)
DISK_FULL_SECONDS = 1.0


class Dispatcher:
    """The part of a scheduler that starts jobs."""

    def __init__(self, scheduler: Scheduler) -> None:
        self.scheduler = scheduler
        self._filtered_in_row = 0
        self._disk_full_until = 0.0

    def dispatch(self) -> None:
        """Fill the free slots. What is to be started is in the journal before the site hears of it."""
        submissions: list[Submission] = []
        now = self.scheduler.clock.now()
        while self.scheduler.delayed and self.scheduler.delayed[0][0] <= now:
            self.scheduler.ready.append(heapq.heappop(self.scheduler.delayed)[2])
        try:
            while (
                len(self.scheduler.running) < self.scheduler.plan.parallel_size
                and now >= self._disk_full_until
                and not self.scheduler.paused
            ):
                job = self._next_job()
                submission = None if job is None else self._submission(job)
                if submission is None:
                    break
                submissions.append(submission)
        except BaseException:
            for submission in submissions:  # nobody has heard of these yet
                self.scheduler.record_end(
                    self.scheduler.running.pop(submission.token), "ERROR", "controller_failed", {}
                )
            raise
        self.scheduler.commit(durable=bool(submissions) and self.scheduler.site.outlives_controller)
        if submissions:
            self.scheduler.site.submit(submissions)
        for _ in submissions:
            self.scheduler.plan.stop.after_iter(self.scheduler)

    def _next_job(self) -> ScheduledJob | None:
        if self.scheduler.killing is not None:
            return None
        if not self.scheduler.ready and not self._propose():
            return None
        return self.scheduler.ready.popleft()

    def _propose(self) -> bool:
        """Ask the searcher until a proposal passes the filter, and queue its first jobs."""
        if self.scheduler.is_stop or self.scheduler.exhausted:
            return False
        self.scheduler.plan.stop.before_iter(self.scheduler)
        while not self._stops():
            if not self.scheduler.searcher.ready():
                return False
            proposal = self.scheduler.searcher.propose()
            if proposal is None:
                self.scheduler.exhausted = True
                return False
            self.scheduler.journal.append("proposed", number=proposal.number, config=proposal.config, **proposal.extras)
            if not self._is_filtered(proposal):
                self.scheduler.tries += 1
                self.scheduler.open_trial(proposal)
                return True
        return False

    def _stops(self) -> bool:
        """Criteria may have changed their mind since it was last looked at."""
        return self.scheduler.is_stop

    def _is_filtered(self, proposal: Proposal) -> bool:
        if self.scheduler.plan.filter is None:
            return False
        job = ScheduledJob(
            str(proposal.number), f"{self.scheduler.name}-{proposal.number}", proposal.number, None, proposal.config
        )
        if not self.scheduler.plan.filter.filter(job):
            self._filtered_in_row = 0
            return False
        self.scheduler.journal.append("filtered", number=proposal.number)
        self.scheduler.searcher.observe(Observation(proposal.number, status="FILTERED"))
        self._filtered_in_row += 1
        if self._filtered_in_row >= MOST_FILTERED:
            raise OperantError(
                f"the filter dropped {MOST_FILTERED} proposals in a row, the last being {proposal.config}: "
                f"it seems to leave nothing"
            )
        return True

    def _submission(self, job: ScheduledJob) -> Submission | None:
        """Give the job its slot; None, with the job back in front of the queue, while it cannot have one."""
        gpus = None
        if self.scheduler.plan.gpus is not None:
            gpus = self.scheduler.plan.gpus.take(job.id)
            if gpus is None:
                self.scheduler.ready.appendleft(job)
                return None
        job.attempt += 1
        job.token = make_token(job.id, job.attempt, secrets.token_hex(8))
        job.status, job.reward, job.reason, job.error, job.verdict = "PENDING", None, None, None, None
        job.started = job.ended = job.begun = None
        job.judged = 0
        job.last_report = self.scheduler.clock.now()
        try:
            if self.scheduler.workspace is not None:
                submission = self.scheduler.workspace.prepare(job, gpus)
                job.reader = self.scheduler.workspace.reader(job)
            else:
                submission = Submission(
                    job.token,
                    job.id,
                    job.attempt,
                    [],
                    self.scheduler.folder,
                    self.scheduler.folder,
                    config=job.arg_dict,
                )
                job.reader = MemoryReader(self.scheduler.plan.rule)
        except OSError as error:
            if error.errno not in DISK_FULL:
                raise
            self._wait_for_disk(job)
            return None
        self.scheduler.journal.append(
            "submitting", job=job.id, number=job.number, seed=job.seed, attempt=job.attempt, token=job.token
        )
        self.scheduler.running[job.token] = job
        return submission

    def _wait_for_disk(self, job: ScheduledJob) -> None:
        job.attempt -= 1
        job.keep_work = False
        if self.scheduler.plan.gpus is not None:
            self.scheduler.plan.gpus.give_back(job.id)
        self._disk_full_until = self.scheduler.clock.now() + DISK_FULL_SECONDS
        heapq.heappush(self.scheduler.delayed, (self._disk_full_until, next(self.scheduler.order), job))
        self.scheduler.view.note("the disk is full: no job is started until there is room")
