"""Runs one search: asks, filters, journals, submits, watches and tells the searcher what came of it.

One loop that waits for events and acts on them. Everything it decides is in the journal before it is done, so a
controller that dies at any moment can be followed by another that goes on where it stopped.
"""

from __future__ import annotations

import secrets
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any, NamedTuple

from operant.errors import OperantError
from operant.schedulers.engine.control import NoView, ResultHook, SearchControl, View
from operant.schedulers.engine.inline import InlineTrials, calls_inline
from operant.schedulers.engine.live_state import DISK_FULL, DISK_FULL_SECONDS, Interrupt, LiveState, MemoryReader
from operant.schedulers.engine.monitor import Monitor, Results
from operant.schedulers.engine.records import JobRecord, ProposalRecord
from operant.schedulers.engine.restore import Restore
from operant.schedulers.engine.workspace import Workspace
from operant.schedulers.planning.plan import SearchPlan
from operant.schedulers.planning.rewards import JobReader
from operant.searchers import Observation, Proposal
from operant.sites import Event, FunctionSite, Site, Submission, make_token
from operant.sites.base import Clock, SystemClock
from operant.status import FAILED, Status
from operant.tracking.journal import Journal
from operant.tracking.journal.journal import GROUP_SECONDS

MOST_FILTERED = 1000


class Outcome(NamedTuple):
    """How a search ended."""

    status: str
    """FINISHED, KILLED (told to stop), STOPPED (jobs of a cluster go on), ERROR (interrupted, or no job succeeded)."""
    reason: str
    best: Proposal | None
    reward: float | None
    tries: int
    checks: dict[int, dict[str, Any]]


class Scheduler:
    """One search on one site.

    :param workspace: prepares the folders of programs; without it jobs are calls, or simulated.
    :param view: shows what happens.
    :param hook: takes part in what becomes of results.
    :param resume: go on with the search that is in ``folder``.
    :param force: with ``resume``, also when the configuration has changed or another controller seems to be there.
    :param origin: where the configuration came from, for the journal.
    """

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
        hook: ResultHook | None = None,
        resume: bool = False,
        force: bool = False,
        origin: Mapping[str, Any] | None = None,
    ) -> None:
        self.plan = plan
        self.folder = folder
        self.site = site
        self.clock = clock or SystemClock()
        self.view = view or NoView()
        self._how = {"resume": resume, "force": force}
        self._origin = origin
        self.state = LiveState(name or folder.name, plan.rule.attribute, self.clock, self.view.note)
        self.control = SearchControl(self.state, plan, self.clock, site)
        self.results = Results(self.state, plan, self.control, self.view, hook)
        self._restore = Restore(self.state, plan, site, workspace, self.results)
        self._dispatcher = Dispatcher(self.state, plan, site, workspace, folder, self.control, self.results)
        self._monitor = Monitor(self.state, plan, folder, self.control, self.results, live=self.view.live)
        self._inline: InlineTrials | None = None
        if isinstance(site, FunctionSite):
            site.hear = self._hear  # a call waits for the answer, in this very thread
            if workspace is None and calls_inline(plan):
                self._inline = InlineTrials(
                    self.state, plan, site, folder, self.control, self._monitor, self.view, hook, self._handle_all
                )

    def interrupt(self, reason: str = "interrupted") -> None:
        """End everything now, from any thread or a signal handler; jobs under way count as ERROR."""
        self.clock.put(Interrupt(reason))

    def run(self) -> Outcome:
        """Run the search to its end."""
        state, checks = self.state, dict[int, dict[str, Any]]()
        with Journal.open(self.folder, force=self._how["force"]) as journal:
            state.attach(journal)
            self.control.begin()
            self._restore.open(**self._how, origin=self._origin)
            try:
                self.site.start(self.clock.put)
                self._restore.take_over()
                state.commit()
                self.plan.stop.before_run(self.control)
                self._loop()
                if state.killing is None and not state.detached and self.plan.seeds.check_top:
                    self.results.queue_checks()
                    self._loop()
                    checks = self.results.sum_up_checks()
                self.plan.stop.after_run(self.control)
            except BaseException as error:
                state.end = (Status.ERROR, f"{type(error).__name__}: {error}")
                state.killing = (Status.ERROR, "controller_failed")
                self._abandon()
                raise
            finally:
                self._close()
        best = self.control.best
        return Outcome(
            str(state.end[0]), state.end[1], best and best.proposal, best and best.reward, state.tries, checks
        )

    def _loop(self) -> None:
        while True:
            if self._inline is not None:
                self._inline.run()
            self._dispatcher.dispatch(self.clock.now())
            if not self._has_work():
                return
            self.view.tick(self.control)
            self._handle_all(self.clock.wait(self._monitor.timeout(self.clock.now())))
            self._monitor.check(self.clock.now())

    def _has_work(self) -> bool:
        state = self.state
        if state.killing is not None:
            return bool(state.running)
        if state.detached:
            return False
        return bool(state.running or state.delayed or state.ready or (state.paused and not state.is_stop))

    # -- events --------------------------------------------------------------------------------------------------

    def _handle_all(self, items: list[Any]) -> None:
        """Act on what has come, after what came while the disk was full."""
        state = self.state
        earlier, state.backlog = state.backlog, []
        for item in (*earlier, *items):
            if isinstance(item, Interrupt):
                if self.site.outlives_controller:
                    self.control.detach(item.reason)
                else:
                    self.control.stop(item.reason, kill=True, status=Status.ERROR)
                continue
            if item.kind == "note":
                state.note(item.info["text"])
                continue
            if item.token in state.running:
                self._handle(item)
            if "handled" in item.info:  # who reported waits for the answer
                item.info["handled"].set()

    def _handle(self, event: Event) -> None:
        """An attempt has been placed, has started, reported or ended."""
        state, attempt = self.state, self.state.running[event.token]
        if event.kind == "started":
            state.started(attempt, event.info.get("wall"))
            self.view.changed(self.control, attempt.job)
        elif event.kind == "report":
            attempt.last_report = self.clock.now()
            tag, step, value = (event.info[key] for key in ("tag", "step", "value"))
            state.reported(attempt, tag, step, value, self.clock.wall())
            if state.journal.seconds_unseen() > GROUP_SECONDS:  # who looks on wants to see it before the trial ends
                state.commit()
            self._monitor.assess(attempt)
        elif event.kind == "placed":
            state.placed(attempt, event.info)
            self.view.changed(self.control, attempt.job)
        else:
            self.results.take(event)

    def _hear(self, token: str, step: int, value: float) -> None:
        """What a call in this thread says on its way."""
        if self._inline is None or not self._inline.hear(token, step, value):
            self._handle(Event("report", token, {"tag": self.plan.rule.attribute, "step": step, "value": value}))

    # -- the end -------------------------------------------------------------------------------------------------

    def _abandon(self) -> None:
        """Something is wrong with the controller itself: end the jobs, so that none is left alone; those that can
        live without it are kept for whoever resumes the search."""
        state = self.state
        if self.site.outlives_controller:
            return
        self.control.cancel(list(state.running.values()), Status.ERROR, "controller_failed")
        deadline = self.clock.now() + self.plan.limits.grace_seconds + 5
        while state.running and self.clock.now() < deadline:
            for item in self.clock.wait(0.1):
                if isinstance(item, Event) and item.kind in ("ended", "lost") and item.token in state.running:
                    job = state.running.pop(item.token).job
                    self.results.end(job, Status.ERROR, "controller_failed", item.info)

    def _close(self) -> None:
        """Say what becomes of jobs that will not run, and that the search is over."""
        state, killing = self.state, self.state.killing
        status = None if killing is None else killing[0]
        for job in state.waiting if status is not None else ():
            if job.attempt == 0:
                state.never_begun(job, str(status))
            elif status == Status.KILLED:
                self.results.end(job, Status.KILLED, state.end[1])
        if state.end[0] == Status.FINISHED:
            for job in [one for one in state.jobs.values() if one.status == Status.PAUSED]:
                self.results.end(job, Status.STOPPED, "assessor")
            if state.jobs and all(job.status in FAILED for job in state.jobs.values()):
                state.end = (Status.ERROR, "no job succeeded")
        try:
            self.site.close()
        finally:
            state.close()
            self.view.close(self.control)


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
        self._secrets = _secrets()

    def dispatch(self, now: float) -> None:
        """Fill the free slots. What is to be started is in the journal before the site hears of it."""
        state, submissions = self.state, list[Submission]()
        if state.delayed:
            state.release_delayed(now)
        try:
            while len(state.running) < self.plan.parallel_size and now >= self._disk_full_until and not state.paused:
                job = self._next_job()
                submission = None if job is None else self._submission(job, now)
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
        for _ in submissions if self.plan.stop.custom else ():
            self.plan.stop.after_iter(self.control)

    def _next_job(self) -> JobRecord | None:
        if self.state.killing is not None or self.state.detached:
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
                state.open_trial(proposal.number, self.plan.seeds)
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

    def _submission(self, job: JobRecord, now: float) -> Submission | None:
        """Give the job its slot; None, with the job back in a queue, while it cannot have one."""
        state, plan, gpus = self.state, self.plan, None
        if plan.gpus is not None:
            gpus = plan.gpus.take(job.id)
            if gpus is None:
                state.ready.appendleft(job)
                return None
        number = job.attempt + 1
        token = make_token(job.id, number, next(self._secrets))
        reader: JobReader | MemoryReader
        try:
            if self.workspace is not None:
                budget = state.proposals[job.number].budget
                submission, reader = self.workspace.prepare(job, number, token, budget, gpus)
            else:
                submission = Submission(token, job.id, number, [], self.folder, self.folder, config=job.arg_dict)
                reader = MemoryReader(plan.rule)
        except OSError as error:
            if error.errno not in DISK_FULL:
                raise
            self._wait_for_disk(job)
            return None
        state.submitting(job, reader, number, token, now)
        return submission

    def _wait_for_disk(self, job: JobRecord) -> None:
        if self.plan.gpus is not None:
            self.plan.gpus.give_back(job.id)
        self._disk_full_until = self.state.clock.now() + DISK_FULL_SECONDS
        self.state.delay(job, DISK_FULL_SECONDS)
        self.state.note("the disk is full: no job is started until there is room")


def _secrets() -> Iterator[str]:
    """Sixteen hexadecimal digits that nobody can guess, again and again; the system is asked for many at once."""
    while True:
        drawn = secrets.token_hex(8 * 128)
        for place in range(0, len(drawn), 16):
            yield drawn[place : place + 16]
