"""Trials that are calls in the controller's own thread, one after the other, with nothing in between.

A search of cheap functions spends its time in the scheduler. This is the shortest way through it: what is written is
the same as the loop would write, in the order in which it would, but nothing is queued and nobody is woken up. As
soon as something else is to be done - a trial failed, somebody paused the search - the loop goes on.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from operant.schedulers.trial import MemoryReader, ScheduledJob, Trial
from operant.searchers import Observation, Proposal
from operant.sites import FunctionSite, Submission
from operant.tracking.journal import compact

if TYPE_CHECKING:
    from operant.schedulers.overseer import Overseer
    from operant.schedulers.scheduler import Scheduler

__all__ = ["InlineTrials"]


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

    def run(self) -> None:
        """Call one trial after the other until there is something to decide."""
        if not self.applies:
            return
        scheduler, due = self.scheduler, 0.0
        clock, searcher = scheduler.clock, scheduler.searcher
        while self._nothing_else():
            now = clock.now()
            if clock.has_mail():
                scheduler.handle_all(clock.wait(0.0))
                continue
            if now >= due:
                self.overseer.look_after(now)
                due = now + self.overseer.timeout()
                continue
            scheduler.plan.stop.before_iter(scheduler)
            if scheduler.is_stop or not searcher.ready():
                return
            proposal = searcher.propose()
            if proposal is None:
                scheduler.exhausted = True
                return
            self._try(proposal, now)
            if searcher.looks_at_results:  # its next proposal may take a while, and this result is to survive it
                scheduler.commit()
            scheduler.view.tick(scheduler)

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
        scheduler, number = self.scheduler, proposal.number
        site, journal = scheduler.site, scheduler.journal
        assert isinstance(site, FunctionSite)
        job = scheduler.make_job(proposal, None)
        job.attempt = 1
        job.token = compact.token_of(number, journal.epoch)
        job.reader = MemoryReader(scheduler.plan.rule)
        job.begun = job.last_report = now
        scheduler.tries += 1
        scheduler.proposals[number] = proposal
        scheduler.running[job.token] = job
        journal.append_line(*compact.begun(journal.epoch, number, proposal.config, proposal.extras))
        scheduler.commit()
        event = site.call(
            Submission(job.token, job.id, 1, [], scheduler.folder, scheduler.folder, config=proposal.config)
        )
        scheduler.plan.stop.after_iter(scheduler)
        if not self._ended_well(job, proposal, event.info):
            trial = scheduler.trials[number] = Trial(proposal, [])
            trial.open.add(job.id)
            scheduler.handle_all([event])

    def _ended_well(self, job: ScheduledJob, proposal: Proposal, info: Mapping[str, Any]) -> bool:
        """Take note of an end that needs no decision; False of any other."""
        scheduler, attribute = self.scheduler, self.scheduler.plan.rule.attribute
        values: Mapping[str, float] = info.get("values", {})
        reward = values.get(attribute)
        if reward is None or info["code"] != 0 or job.verdict is not None:
            return False
        del scheduler.running[job.token]
        job.status, job.reward, job.reader = "FINISHED", reward, None
        job.started, job.ended = info["started"], info["ended"]
        journal, returned = scheduler.journal, info.get("returned")
        journal.append_line(
            *compact.done(journal.epoch, job.number, values, attribute, info["started"], info["ended"], returned)
        )
        scheduler.view.changed(scheduler, job)
        scheduler.searcher.observe(Observation(job.number, None, 1, "FINISHED", values))
        if reward == reward:
            scheduler.note_reward(reward, proposal, {None: reward})
            scheduler.plan.stop.rules.after_result(scheduler, reward)
        return True
