"""Runs one search: asks, filters, journals, submits, watches and tells the searcher what came of it.

One loop that waits for events and acts on them. Everything it decides is in the journal before it is done, so a
controller that dies at any moment can be followed by another that goes on where it stopped.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any, NamedTuple

from operant.schedulers.engine.control import NoView, ResultHook, SearchControl, View
from operant.schedulers.engine.dispatcher import Dispatcher
from operant.schedulers.engine.inline import InlineTrials, calls_inline
from operant.schedulers.engine.live_state import Interrupt, LiveState
from operant.schedulers.engine.monitor import Monitor
from operant.schedulers.engine.restore import Restore
from operant.schedulers.engine.results import Results
from operant.schedulers.engine.workspace import Workspace
from operant.schedulers.planning.plan import SearchPlan
from operant.searchers import Proposal
from operant.sites import Event, FunctionSite, Site
from operant.sites.clock import Clock, SystemClock
from operant.status import Status
from operant.tracking.journal import Journal
from operant.tracking.journal.journal import GROUP_SECONDS

__all__ = ["Outcome", "Scheduler"]


class Outcome(NamedTuple):
    """How a search ended."""

    status: str
    """FINISHED, KILLED (told to stop) or ERROR (interrupted)."""
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
        self.results = Results(self.state, plan, self.clock, self.control, self.view, hook)
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
                if state.killing is None and self.plan.seeds.check_top:
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
            self._dispatcher.dispatch()
            if not self._has_work():
                return
            self.view.tick(self.control)
            self._handle_all(self.clock.wait(self._monitor.timeout()))
            self._monitor.check(self.clock.now())

    def _has_work(self) -> bool:
        state = self.state
        if state.killing is not None:
            return bool(state.running)
        return bool(state.running or state.delayed or state.ready or (state.paused and not state.is_stop))

    # -- events --------------------------------------------------------------------------------------------------

    def _handle_all(self, items: list[Any]) -> None:
        """Act on what has come, after what came while the disk was full."""
        earlier, self.state.backlog = self.state.backlog, []
        for item in (*earlier, *items):
            if isinstance(item, Interrupt):
                self.control.stop(item.reason, kill=True, status=Status.ERROR)
                continue
            if item.token in self.state.running:
                self._handle(item)
            if "handled" in item.info:  # who reported waits for the answer
                item.info["handled"].set()

    def _handle(self, event: Event) -> None:
        """An attempt has started, reported or ended."""
        state, attempt = self.state, self.state.running[event.token]
        if event.kind == "started":
            state.started(attempt, event.info.get("wall", self.clock.wall()))
            self.view.changed(self.control, attempt.job)
        elif event.kind == "report":
            attempt.last_report = self.clock.now()
            tag, step, value = (event.info[key] for key in ("tag", "step", "value"))
            state.reported(attempt, tag, step, value, self.clock.wall())
            if state.journal.seconds_unseen() > GROUP_SECONDS:  # who looks on wants to see it before the trial ends
                state.commit()
            self._monitor.assess(attempt)
        else:
            self.results.take(event)

    def _hear(self, token: str, step: int, value: float) -> None:
        """What a call in this thread says on its way."""
        if self._inline is None or not self._inline.hear(token, step, value):
            self._handle(Event("report", token, {"tag": self.plan.rule.attribute, "step": step, "value": value}))

    # -- the end -------------------------------------------------------------------------------------------------

    def _abandon(self) -> None:
        """Something is wrong with the controller itself: end the jobs, so that none is left alone."""
        state = self.state
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
        try:
            self.site.close()
        finally:
            state.close()
            self.view.close(self.control)
