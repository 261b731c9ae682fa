"""Trials that are calls in the controller's own thread, one after the other, with nothing in between.

A search of cheap functions spends its time in the scheduler. This is the shortest way through it: what is written is
the same as the loop would write, in the order in which it would, but nothing is queued and nobody is woken up. As
soon as something else is to be done - a trial failed, somebody paused the search - the loop goes on.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from operant.schedulers.engine.control import NoView, ResultHook, SearchControl, View
from operant.schedulers.engine.live_state import Attempt, LiveState, MemoryReader, Trial
from operant.schedulers.engine.monitor import Monitor
from operant.schedulers.engine.records import JobRecord
from operant.schedulers.planning.plan import SearchPlan
from operant.searchers import Observation, Proposal
from operant.sites import Event, FunctionSite, Limits, Submission
from operant.status import Status
from operant.tracking.journal.journal import GROUP_SECONDS

_NOTHING: dict[str, Any] = {}
_NO_LIMITS = Limits()
_FINISHED = Status.FINISHED


def calls_inline(plan: SearchPlan) -> bool:
    """Whether nothing but calling is to be done for a trial of this plan."""
    plain = plan.filter is None and plan.assessor is None and plan.gpus is None
    return plain and plan.seeds.seeds == (None,)


class InlineTrials:
    """The part of a scheduler that calls functions.

    :param handle: takes events of trials that do not go the short way.
    """

    def __init__(
        self,
        state: LiveState,
        plan: SearchPlan,
        site: FunctionSite,
        folder: Path,
        control: SearchControl,
        monitor: Monitor,
        view: View,
        hook: ResultHook | None,
        handle: Callable[[list[Any]], None],
    ) -> None:
        self.state = state
        self.plan = plan
        self.site = site
        self.folder = folder
        self.control = control
        self.monitor = monitor
        self.view = view
        self.hook = hook
        self.handle = handle
        self._shows = type(view) is not NoView
        # A criterion that has nothing to say is not asked: for a call of a microsecond that is much.
        self._asks = bool(plan.stop.custom)
        self._looks_at_rewards = plan.stop.rules.max_reward is not None
        self._job: JobRecord | None = None
        """That of the call under way."""
        self._reader: MemoryReader | None = None
        self._reports: list[tuple[int, float, float]] = []
        """(step, value, wall) that it has reported and that no line tells yet."""

    def run(self) -> None:
        """Call one trial after the other until there is something to decide."""
        state, monitor, control, due = self.state, self.monitor, self.control, 0.0
        clock, searcher, view = state.clock, self.plan.searcher, self.view
        before_iter = self.plan.stop.before_iter if self._asks else self.plan.stop.rules.before_iter
        careful = searcher.looks_at_results
        while self._nothing_else():
            now = clock.now()
            if clock.has_mail():
                self.handle(clock.wait(0.0))
                continue
            if now >= due:
                monitor.check(now)
                due = now + monitor.timeout(now)
                continue
            before_iter(control)
            if state.is_stop or not searcher.ready():
                return
            proposal = searcher.propose()
            if proposal is None:
                state.exhausted = True
                return
            self._try(proposal)
            if careful:  # its next proposal may take a while, and this result is to survive it
                state.commit()
            if self._shows:
                view.tick(control)

    def _nothing_else(self) -> bool:
        state = self.state
        return not (state.is_stop or state.exhausted or state.paused or state.ready or state.delayed or state.running)

    def _try(self, proposal: Proposal) -> None:
        state, folder = self.state, self.folder
        job = self._job = state.begin_inline(proposal)
        try:
            info = self.site.call(
                Submission(job.token, job.id, 1, [], folder, folder, _NOTHING, _NO_LIMITS, proposal.config)
            )
        except BaseException:  # ctrl-C: the search ends here
            self._leave_to_loop(job)
            raise
        finally:
            self._job = None
        if self._asks:
            self.plan.stop.after_iter(self.control)
        if not self._ended_well(job, info):
            self._leave_to_loop(job)
            trial = state.trials[job.number] = Trial(state.proposals[job.number], ())
            trial.open.add(job.id)
            self.handle([Event("ended", job.token, info)])
        self._reader = None

    def hear(self, token: str, step: int, value: float) -> bool:
        """A report of the call under way; False when that is not one of these trials.

        Reports wait until the trial has ended, and are then part of its line. Only when nothing was written for a while
        they are written by themselves: whoever looks on wants to see them before the trial ends.
        """
        job, state = self._job, self.state
        if job is None or token != job.token:
            return False
        self._reports.append((step, value, state.clock.wall()))
        if state.journal.seconds_unseen() > GROUP_SECONDS:
            self._write_reports(job)
            state.commit()
        return True

    def _write_reports(self, job: JobRecord) -> Attempt:
        """Records of their own for the reports that wait."""
        if self._reader is None:
            self._reader = MemoryReader(self.plan.rule)
        attempt = Attempt(job, self._reader, self.state.clock.now())
        for step, value, wall in self._reports:
            self.state.reported(attempt, self.state.attribute, step, value, wall)
        self._reports.clear()
        return attempt

    def _leave_to_loop(self, job: JobRecord) -> None:
        """Let it be an attempt like any other, from here on."""
        self.state.running[job.token] = self._write_reports(job)

    def _ended_well(self, job: JobRecord, info: Mapping[str, Any]) -> bool:
        """Take note of an end that needs no decision; False of any other."""
        values: Mapping[str, float] = info.get("values", _NOTHING)
        reward = values.get(self.plan.rule.attribute)
        if reward is None or info["code"] != 0:
            return False
        self.state.finish_inline(job, reward, values, info, self._reports)
        if self._reports:
            self._reports.clear()
        if self._shows:
            self.view.changed(self.control, job)
        if self.hook is not None:
            decision = self.hook(job, False)
            if decision is not None and decision.stop is not None:
                self.control.stop(decision.stop, kill=False)
        self.plan.searcher.observe(Observation(job.number, None, 1, _FINISHED, values))
        if self._looks_at_rewards and reward == reward:
            self.plan.stop.rules.after_result(self.control, reward)
        return True
