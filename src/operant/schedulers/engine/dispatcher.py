"""Fills free slots: asks the searcher, filters, journals, prepares, and hands jobs to the site."""

from __future__ import annotations

import secrets
from pathlib import Path

from operant.errors import OperantError
from operant.schedulers.engine.control import SearchControl
from operant.schedulers.engine.live_state import DISK_FULL, DISK_FULL_SECONDS, Attempt, LiveState, MemoryReader
from operant.schedulers.engine.results import Results
from operant.schedulers.engine.state import JobRecord, ProposalRecord
from operant.schedulers.engine.workspace import Workspace
from operant.schedulers.planning.plan import SearchPlan
from operant.searchers import Observation
from operant.sites import Site, Submission, make_token
from operant.status import Status

__all__ = ["Dispatcher"]

MOST_FILTERED = 1000


class Dispatcher:
    """The part of a scheduler that starts jobs."""

    def __init__(
        self,
        state: LiveState,
        plan: SearchPlan,
        site: Site,
        workspace: Workspace | None,
        folder: Path,
        control: SearchControl,
        results: Results,
    ) -> None:
        self.state = state
        self.plan = plan
        self.site = site
        self.workspace = workspace
        self.folder = folder
        self.control = control
        self.results = results
        self._filtered_in_row = 0
        self._disk_full_until = 0.0

    def dispatch(self) -> None:
        """Fill the free slots. What is to be started is in the journal before the site hears of it."""
        state, submissions = self.state, list[Submission]()
        now = state.clock.now()
        state.release_delayed(now)
        try:
            while len(state.running) < self.plan.parallel_size and now >= self._disk_full_until and not state.paused:
                job = self._next_job()
                submission = None if job is None else self._submission(job)
                if submission is None:
                    break
                submissions.append(submission)
        except BaseException:
            for submission in submissions:  # nobody has heard of these yet
                self.results.end(state.running.pop(submission.token).job, Status.ERROR, "controller_failed")
            raise
        state.commit(durable=bool(submissions) and self.site.outlives_controller)
        if submissions:
            self.site.submit(submissions)
        for _ in submissions:
            self.plan.stop.after_iter(self.control)

    def _next_job(self) -> JobRecord | None:
        if self.state.killing is not None:
            return None
        if not self.state.ready and not self._propose():
            return None
        return self.state.ready.popleft()

    def _propose(self) -> bool:
        """Ask the searcher until a proposal passes the filter, and queue its first jobs."""
        state, searcher = self.state, self.plan.searcher
        if state.is_stop or state.exhausted:
            return False
        self.plan.stop.before_iter(self.control)
        while not self.control.is_stop and searcher.ready():
            proposal = searcher.propose()
            if proposal is None:
                state.exhausted = True
                return False
            if not self._is_filtered(state.proposed(proposal)):
                self.results.open_trial(proposal.number)
                return True
        return False

    def _is_filtered(self, proposal: ProposalRecord) -> bool:
        if self.plan.filter is None:
            return False
        if not self.plan.filter.filter(self.state.new_job(proposal, None)):
            self._filtered_in_row = 0
            return False
        self.state.filtered(proposal.number)
        self.plan.searcher.observe(Observation(proposal.number, status=Status.FILTERED))
        self._filtered_in_row += 1
        if self._filtered_in_row >= MOST_FILTERED:
            raise OperantError(
                f"the filter dropped {MOST_FILTERED} proposals in a row, the last being {proposal.config}: "
                f"it seems to leave nothing"
            )
        return True

    def _submission(self, job: JobRecord) -> Submission | None:
        """Give the job its slot; None, with the job back in a queue, while it cannot have one."""
        state, plan, gpus = self.state, self.plan, None
        if plan.gpus is not None:
            gpus = plan.gpus.take(job.id)
            if gpus is None:
                state.ready.appendleft(job)
                return None
        number = job.attempt + 1
        token = make_token(job.id, number, secrets.token_hex(8))
        reader: MemoryReader | None = None
        try:
            if self.workspace is not None:
                budget = state.proposals[job.number].budget
                submission = self.workspace.prepare(job, number, token, budget, gpus)
            else:
                reader = MemoryReader(plan.rule)
                submission = Submission(token, job.id, number, [], self.folder, self.folder, config=job.arg_dict)
        except OSError as error:
            if error.errno not in DISK_FULL:
                raise
            self._wait_for_disk(job)
            return None
        found = reader if self.workspace is None else self.workspace.reader(job)
        assert found is not None
        state.submitting(Attempt(job, found, state.clock.now()), number, token)
        return submission

    def _wait_for_disk(self, job: JobRecord) -> None:
        if self.plan.gpus is not None:
            self.plan.gpus.give_back(job.id)
        self._disk_full_until = self.state.clock.now() + DISK_FULL_SECONDS
        self.state.delay(job, DISK_FULL_SECONDS)
        self.state.note("the disk is full: no job is started until there is room")
