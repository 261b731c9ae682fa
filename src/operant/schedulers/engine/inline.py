"""Trials that are calls in the controller's own thread, one after the other, with nothing in between.

A search of cheap functions spends its time in the scheduler. This is the shortest way through it: what is written is
the same as the loop would write, in the order in which it would, but nothing is queued and nobody is woken up. As
soon as something else is to be done - a trial failed, somebody paused the search - the loop goes on.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from operant.schedulers.engine.trial import MemoryReader, ScheduledJob, Trial
from operant.searchers import Observation, Proposal
from operant.sites import Event, FunctionSite, Limits, Submission
from operant.tracking.journal import compact
from operant.tracking.journal.journal import GROUP_SECONDS

if TYPE_CHECKING:
    from operant.schedulers.engine.overseer import Overseer
    from operant.schedulers.engine.scheduler import Scheduler

__all__ = ["InlineTrials"]

_NOTHING: dict[str, Any] = {}
_NO_LIMITS = Limits()


class InlineTrials:
    """The part of a scheduler that calls functions."""

    def __init__(self, scheduler: Scheduler, overseer: Overseer) -> None:
        self.scheduler = scheduler
        self.overseer = overseer
        plan = scheduler.plan
        self.applies = (
            isinstance(scheduler.site, FunctionSite)
            and scheduler.workspace is None
            and plan.filter is None
            and plan.assessor is None
            and plan.gpus is None
            and plan.seeds.seeds == (None,)
        )
        self._checks = plan.seeds.check_top > 0
        """Whether the best proposals are asked for at the end. Else none is kept: objects that stay cost the garbage
        collector more time than it took to make them."""
        self._token: str | None = None
        """Of the call under way."""
        self._reports: list[tuple[int, float, float]] = []
        """(step, value, wall) that it has reported and that no line tells yet."""

    def run(self) -> None:
        """Call one trial after the other until there is something to decide."""
        if not self.applies:
            return
        scheduler, due = self.scheduler, 0.0
        clock, searcher, stop, view = scheduler.clock, scheduler.searcher, scheduler.plan.stop, scheduler.view
        careful = searcher.looks_at_results
        self._lines = compact.Lines(scheduler.journal.epoch, scheduler.plan.rule.attribute)
        while self._nothing_else():
            now = clock.now()
            if clock.has_mail():
                scheduler.handle_all(clock.wait(0.0))
                continue
            if now >= due:
                self.overseer.look_after(now)
                due = now + self.overseer.timeout()
                continue
            stop.before_iter(scheduler)
            if scheduler.is_stop or not searcher.ready():
                return
            proposal = searcher.propose()
            if proposal is None:
                scheduler.exhausted = True
                return
            self._try(proposal, now)
            if careful:  # its next proposal may take a while, and this result is to survive it
                scheduler.commit()
            view.tick(scheduler)

    def _nothing_else(self) -> bool:
        scheduler = self.scheduler
        return not (
            scheduler.is_stop
            or scheduler.exhausted
            or scheduler.paused
            or scheduler.ready
            or scheduler.delayed
            or scheduler.running
        )

    def _try(self, proposal: Proposal, now: float) -> None:
        scheduler, number, config = self.scheduler, proposal.number, proposal.config
        site, journal, job_id = scheduler.site, scheduler.journal, str(number)
        assert isinstance(site, FunctionSite)
        job = scheduler.jobs[job_id] = ScheduledJob(job_id, f"{scheduler.name}-{job_id}", number, None, config)
        job.budget, job.attempt = proposal.budget, 1
        token = job.token = self._token = compact.token_of(number, journal.epoch)
        job.begun = job.last_report = now
        scheduler.tries += 1
        scheduler.running[token] = job
        try:
            # In one block with the result of the trial before, which is then safe before this call begins.
            journal.commit_line(*self._lines.begun(number, config, proposal.extras))
        except OSError:
            scheduler.commit()  # which knows what to do when the disk is full
        folder = scheduler.folder
        try:
            info = site.call(Submission(token, job_id, 1, [], folder, folder, _NOTHING, _NO_LIMITS, config))
        except BaseException:  # ctrl-C: the search ends here
            self._tell_reports(job)
            raise
        finally:
            self._token = None
        scheduler.plan.stop.after_iter(scheduler)
        ended_well = self._ended_well(job, proposal, info)
        if not ended_well or self._checks:
            scheduler.proposals[number] = proposal
        if not ended_well:
            self._tell_reports(job)
            trial = scheduler.trials[number] = Trial(proposal, [])
            trial.open.add(job_id)
            scheduler.handle_all([Event("ended", token, info)])

    def hear(self, token: str, step: int, value: float) -> bool:
        """A report of the call under way; False when that is not one of these trials.

        Reports wait until the trial has ended, and are then part of its line. Only when nothing was written for a while
        they are written by themselves: whoever looks on wants to see them before the trial ends.
        """
        if token != self._token:
            return False
        self._reports.append((step, value, self.scheduler.clock.wall()))
        if self.scheduler.journal.seconds_unseen() > GROUP_SECONDS:
            self._tell_reports(self.scheduler.running[token])
            self.scheduler.commit()
        return True

    def _tell_reports(self, job: ScheduledJob) -> None:
        """Records of their own for the reports that wait."""
        scheduler = self.scheduler
        if not isinstance(job.reader, MemoryReader):
            job.reader = MemoryReader(scheduler.plan.rule)
        for step, value, wall in self._reports:
            job.reader.add(scheduler.plan.rule.attribute, step, value, wall)
            scheduler.journal.append("reported", job=job.id, step=step, value=value, wall=wall)
        self._reports.clear()

    def _ended_well(self, job: ScheduledJob, proposal: Proposal, info: Mapping[str, Any]) -> bool:
        """Take note of an end that needs no decision; False of any other."""
        scheduler = self.scheduler
        values: Mapping[str, float] = info.get("values", _NOTHING)
        reward = values.get(scheduler.plan.rule.attribute)
        if reward is None or info["code"] != 0 or job.verdict is not None:
            return False
        number, started, ended = job.number, info["started"], info["ended"]
        del scheduler.running[job.token]
        job.status, job.reward, job.reader, job.started, job.ended = "FINISHED", reward, None, started, ended
        line = self._lines.done(number, values, started, ended, info.get("returned"), self._reports)
        scheduler.journal.append_line(*line)
        if self._reports:
            self._reports.clear()
        scheduler.view.changed(scheduler, job)
        scheduler.searcher.observe(Observation(number, None, 1, "FINISHED", values))
        if reward == reward:
            scheduler.note_reward(reward, proposal, {None: reward})
            scheduler.plan.stop.rules.after_result(scheduler, reward)
        return True
