"""Going on with a search: what its journal says, handed to the searcher in bulk and to the scheduler as work to do."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from operant.assessors import AssessResult
from operant.errors import UsageError
from operant.schedulers.engine.state import FINAL, JobRecord, ProposalRecord, SearchState, no_garbage_collection
from operant.schedulers.engine.trial import MemoryReader, ScheduledJob, Trial
from operant.schedulers.planning.limits import last_valid, limits_of, set_limit
from operant.searchers import Observation, Proposal
from operant.sites import Found
from operant.tracking.identity import process_identity
from operant.tracking.journal import Journal

if TYPE_CHECKING:
    from operant.schedulers.engine.scheduler import Scheduler
    from operant.schedulers.planning.rewards import JobReader

__all__ = ["Restored", "changed_keys"]

_USABLE = ("FINISHED", "STOPPED")
_SHOWN_NAMES = 3


class Restored:
    """The state that a journal leaves behind. Made before the site starts; ``take_over`` comes after."""

    def __init__(self, scheduler: Scheduler, journal: Journal, *, resume: bool, force: bool) -> None:
        self.scheduler = scheduler
        self._proposals: dict[int, Proposal] = {}
        self._changed_space = False
        self._liked: list[str] = []
        self.state = state = SearchState().fold_all(journal.replay_lines())
        plan = scheduler.plan
        if state.opened:
            if not resume:
                raise UsageError(
                    f"there is a search {scheduler.name!r} already: --resume goes on with it, `search-ctl rm --task "
                    f"{scheduler.name}` removes it"
                )
            before, now = (config.get("task", {}) for config in (state.opened["config"], plan.config))
            self._changed_space = bool(changed_keys(before.get("search_args"), now.get("search_args")))
            if state.opened["digest"] != plan.digest and not force:
                keys = ", ".join(changed_keys(state.opened["config"], plan.config)) or "its configuration"
                raise UsageError(
                    f"the search {scheduler.name!r} was begun with another configuration ({keys}); "
                    f"--force goes on with the changed one"
                )
            self._say_if_code_changed()
        who = process_identity()
        limits = limits_of(plan)
        still = state.limits_under({"digest": plan.digest, "limits": limits})
        for name, value in limits.items():
            set_limit(plan, name, last_valid(still, name, value))
        journal.append(
            "opened",
            name=scheduler.name,
            config=plan.config,
            digest=plan.digest,
            limits=limits,
            maximize=plan.maximize,
            reward=plan.rule.attribute,
            scalars=plan.scalars,
            compare=plan.compare,
            origin=scheduler.origin,
            code=None if scheduler.workspace is None else scheduler.workspace.snapshot.name,
            host=who["host"],
            pid=who["pid"],
            wall=scheduler.clock.wall(),
        )

    def _say_if_code_changed(self) -> None:
        """Jobs of one search may run with different code; nobody should find that out by accident."""
        workspace, before = self.scheduler.workspace, self.state.opened.get("code")
        if workspace is None or before is None or workspace.snapshot.name == before:
            return
        names = workspace.snapshot.differs_from(workspace.snapshot.folder.parent / before)
        more = [f"{len(names) - _SHOWN_NAMES} more"] if len(names) > _SHOWN_NAMES else []
        shown = ", ".join([*names[:_SHOWN_NAMES], *more])
        self.scheduler.view.note(
            f"the code has changed since this search was last run ({shown or 'its files'}): "
            f"jobs that start from here on run with the new one ({workspace.snapshot.name}, not {before})"
        )

    def take_over(self) -> None:
        """Bring the searcher up to date, decide what became of jobs under way, and queue what is left to do."""
        with no_garbage_collection():
            self._take_over()

    def _take_over(self) -> None:
        scheduler, state = self.scheduler, self.state
        if not state.proposals:
            return
        scheduler.seconds_before = state.seconds_before
        under_way = [job for job in state.jobs.values() if job.status not in FINAL and job.status != "PAUSED"]
        found = scheduler.site.find([job.token for job in under_way if job.token]) if under_way else {}
        scheduler.check_records = {job.id: job for job in state.jobs.values() if job.is_check}
        for job in [job for job in under_way if job.is_check]:
            self._settle_check(job, found.get(job.token))
        under_way = [job for job in under_way if not job.is_check]
        # What has ended well counts; what ended badly is an ERROR like all others, and is run again.
        adopted = {job.id for job in under_way if job.token in found and _goes_on_or_went_well(found[job.token])}
        for job in under_way:
            if job.id not in adopted:
                job.status, job.reason = "ERROR", "controller_lost"
                scheduler.journal.append("ended", job=job.id, attempt=job.attempt, status="ERROR", reason=job.reason)
        again = [job for job in state.jobs.values() if job.status == "ERROR" and not job.is_check]
        self._restore_searcher({job.number for job in again} | {job.number for job in under_way})
        self._restore_assessor()
        by_number: dict[int, list[JobRecord]] = {}
        for job in state.jobs.values():
            if not job.is_check:
                by_number.setdefault(job.number, []).append(job)
        reopened = {job.number for job in again} | {job.number for job in under_way}
        self._go_through(reopened, by_number, adopted, found)
        # Shown again what all jobs reported, the assessor may have come to like one that it had told to pause.
        for job_id in self._liked:
            scheduler.go_on(job_id)
        scheduler.promote()

    def _go_through(
        self, reopened: set[int], by_number: dict[int, list[JobRecord]], adopted: set[str], found: Mapping[str, Any]
    ) -> None:
        scheduler, state = self.scheduler, self.state
        for number, record in state.proposals.items():
            if record.filtered:
                continue
            scheduler.tries += 1
            if number in reopened or record.status is None:
                self._reopen(record, by_number.get(number, []), adopted, found)
            else:
                self._keep(record, by_number.get(number, []))

    def _settle_check(self, record: JobRecord, found: Found | None) -> None:
        """A job of the final check was under way: its result counts, or it is run again with the rest of the check."""
        scheduler = self.scheduler
        record.status = "ERROR"
        if (
            found is not None
            and found.state == "ended"
            and _goes_on_or_went_well(found)
            and scheduler.workspace is not None
        ):
            record.status = "FINISHED"
            record.reward, _ = scheduler.workspace.reader(self._job(record)).result()
        scheduler.journal.append(
            "ended", job=record.id, attempt=record.attempt, status=record.status, reward=record.reward
        )

    def _restore_searcher(self, reopened: set[int]) -> None:
        scheduler, state = self.scheduler, self.state
        space = scheduler.plan.space
        fitting = [one for one in state.proposals.values() if not self._changed_space or space.contains(one.config)]
        known = {one.number for one in fitting}
        proposals = [self._proposal(one) for one in fitting]
        observations = [Observation(one.number, status="FILTERED") for one in fitting if one.filtered]
        last = {number: place for place, number in enumerate(state.observed)}
        for place, number in enumerate(state.observed):
            if last[number] != place or number in reopened or number not in known:
                continue
            record = state.proposals[number]
            observations.append(Observation(number, None, 1, str(record.status), record.values))
        scheduler.searcher.restore(observations, proposals)
        # Numbers are never given twice, also not those of proposals that a changed space no longer holds.
        beyond = max(state.proposals) + 1
        scheduler.searcher._next_number = max(scheduler.searcher._next_number, beyond)

    def _restore_assessor(self) -> None:
        """Show the assessor again what earlier jobs reported."""
        scheduler = self.scheduler
        assessor = scheduler.plan.assessor
        if assessor is None:
            return
        for record in self.state.jobs.values():
            if record.status in ("FINISHED", "STOPPED", "PAUSED") and not record.is_check:
                reader = self._reader(record)
                reader.refresh(ended=True)
                history = reader.history()
                if history:
                    result = assessor.assess_job(record.id, history)
                    if record.status == "PAUSED" and result is AssessResult.Good:
                        self._liked.append(record.id)
                    if record.status == "FINISHED":
                        assessor.job_end(record.id)

    def _reader(self, record: JobRecord) -> JobReader | MemoryReader:
        if self.scheduler.workspace is not None:
            return self.scheduler.workspace.reader(self._job(record))
        rule = self.scheduler.plan.rule
        reader = MemoryReader(rule)
        for step, value, wall in self.state.reports.get(record.id, ()):
            reader.add(rule.attribute, step, value, wall)
        return reader

    def _keep(self, record: ProposalRecord, jobs: list[JobRecord]) -> None:
        """A proposal that is done: it counts for the best, and its paused jobs may yet go on."""
        scheduler = self.scheduler
        for job in jobs:
            if job.status == "PAUSED":
                scheduler.jobs[job.id] = self._job(job)
                scheduler.proposals[record.number] = self._proposal(record)
            else:
                scheduler.earlier[job.status] += 1
        if record.reward is None or record.raced_out or record.status not in _USABLE or record.reward != record.reward:
            return
        proposal = self._proposal(record)
        scheduler.proposals[record.number] = proposal
        rewards = {job.seed: job.reward for job in jobs if job.reward is not None}
        scheduler.note_reward(record.reward, proposal, rewards)

    def _reopen(
        self, record: ProposalRecord, jobs: list[JobRecord], adopted: set[str], found: Mapping[str, Any]
    ) -> None:
        """A proposal with jobs that failed, or were under way, or never began."""
        scheduler = self.scheduler
        proposal = self._proposal(record)
        if not jobs:
            scheduler.open_trial(proposal)
            return
        begun = {job.seed for job in jobs}
        trial = Trial(proposal, [seed for seed in scheduler.plan.seeds.seeds if seed not in begun])
        scheduler.trials[record.number] = trial
        scheduler.proposals[record.number] = proposal
        for one in jobs:
            job = self._job(one)
            scheduler.jobs[job.id] = job
            if one.status in _USABLE:
                trial.statuses.append(one.status)
                if one.reward is not None:
                    trial.rewards[one.seed] = one.reward
            elif one.id in adopted:
                trial.open.add(job.id)
                scheduler.adopt(job, found[one.token])
            elif one.status == "ERROR":
                trial.open.add(job.id)
                scheduler.queue(job)
            else:
                trial.failed = "KILLED"
        if not trial.open:
            scheduler.settle(scheduler.jobs[jobs[-1].id])

    def _proposal(self, record: ProposalRecord) -> Proposal:
        found = self._proposals.get(record.number)
        if found is None:
            found = Proposal(record.number, record.config, record.budget, record.parent, record.notes)
            self._proposals[record.number] = found
        return found

    def _job(self, record: JobRecord) -> ScheduledJob:
        scheduler = self.scheduler
        proposal = self.state.proposals[record.number]
        job = ScheduledJob(record.id, f"{scheduler.name}-{record.id}", record.number, record.seed, proposal.config)
        job.budget = proposal.budget
        job.attempt, job.token, job.status = record.attempt, record.token, record.status
        job.reward, job.started, job.ended = record.reward, record.started, record.ended
        return job


def _goes_on_or_went_well(found: Found) -> bool:
    if found.state == "ended":
        return found.record.get("code") == 0 and found.record.get("reason") is None
    return found.state == "running"


def changed_keys(before: Any, after: Any, path: str = "") -> list[str]:
    """The dotted keys in which two configurations differ."""
    if isinstance(before, Mapping) and isinstance(after, Mapping):
        found = []
        for key in {**before, **after}:
            if key not in before or key not in after:
                found.append(f"{path}{key}")
            else:
                found += changed_keys(before[key], after[key], f"{path}{key}.")
        return found
    return [] if _plain(before) == _plain(after) else [path.rstrip(".")]


def _plain(value: Any) -> Any:
    if isinstance(value, (list, tuple)):
        return [_plain(one) for one in value]
    return value
