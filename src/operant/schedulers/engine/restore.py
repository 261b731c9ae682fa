"""Going on with a search: what its journal says, handed to the searcher in bulk and to the scheduler as work to do."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from operant._util.garbage import no_garbage_collection
from operant._util.signing import sign
from operant.assessors import AssessResult
from operant.errors import UsageError
from operant.schedulers.engine.live_state import Attempt, LiveState, MemoryReader, Trial
from operant.schedulers.engine.monitor import Results
from operant.schedulers.engine.records import JobRecord, ProposalRecord
from operant.schedulers.engine.state import named_by
from operant.schedulers.engine.workspace import Workspace
from operant.schedulers.planning.limits import last_valid, limits_of, set_limit
from operant.schedulers.planning.plan import SearchPlan
from operant.schedulers.planning.rewards import JobReader
from operant.sites import Event, Found, Site
from operant.status import UNDER_WAY, USABLE, Status
from operant.tracking.identity import process_identity

_SHOWN_NAMES = 3


class Restore:
    """Takes over what a journal leaves behind: :meth:`open` before the site starts, :meth:`take_over` after."""

    def __init__(
        self, state: LiveState, plan: SearchPlan, site: Site, workspace: Workspace | None, results: Results
    ) -> None:
        self.state = state
        self.plan = plan
        self.site = site
        self.workspace = workspace
        self.results = results
        self._changed_space = False

    def open(self, *, resume: bool, force: bool, origin: Mapping[str, Any] | None) -> None:
        """Refuse what cannot be gone on with, and say in the journal that a controller begins."""
        state, plan = self.state, self.plan
        self._refuse_damaged(force)
        if state.proposals:  # of a search whose site never started there is nothing to keep
            if not resume:
                raise UsageError(
                    f"there is a search {state.name!r} already: --resume goes on with it, `search-ctl rm --task "
                    f"{state.name}` removes it"
                )
            begun_with = state.opened.get("config", {})
            before, now = (config.get("task") or {} for config in (begun_with, plan.config))
            self._changed_space = bool(changed_keys(before.get("search_args"), now.get("search_args")))
            if state.opened.get("digest") != plan.digest and not force:
                keys = ", ".join(changed_keys(begun_with, plan.config)) or "its configuration"
                raise UsageError(
                    f"the search {state.name!r} was begun with another configuration ({keys}); "
                    f"--force goes on with the changed one"
                )
            self._say_if_code_changed()
        who = process_identity()
        limits = limits_of(plan)
        still = state.limits_under({"digest": plan.digest, "limits": limits})
        for name, value in limits.items():
            set_limit(plan, name, last_valid(still, name, value))
        acted_on = self.site.outlives_controller or (origin or {}).get("file")
        state.open(
            name=state.name,
            config=plan.config,
            digest=plan.digest,
            limits=limits,
            maximize=plan.maximize,
            reward=plan.rule.attribute,
            scalars=plan.scalars,
            compare=plan.compare,
            origin=origin,
            **({"signature": sign(named_by({"config": plan.config, "origin": origin}))} if acted_on else {}),
            **({"unreadable": state.damage.total} if state.damage.total else {}),
            **({"outlives": True} if self.site.outlives_controller else {}),
            code=None if self.workspace is None else self.workspace.snapshot.name,
            host=who["host"],
            pid=who["pid"],
            wall=state.clock.wall(),
        )

    def _refuse_damaged(self, force: bool) -> None:
        """Whoever goes on with a damaged journal must know what he goes on without; he is asked once."""
        state, damage = self.state, self.state.damage
        if not damage or (damage.total and damage.total <= state.opened.get("unreadable", 0)):
            return
        known = state.proposals
        lost = max(known, default=-1) + 1 - len(known)
        again = sum(one.status is None and not one.filtered for one in known.values())
        text = (
            f"{damage}; {lost} proposals of the search {state.name!r} are lost with all that came of them, "
            f"{again} have no result and are run again"
        )
        if not force:
            raise UsageError(f"{text}; --force goes on without them")
        state.note(text)

    def _say_if_code_changed(self) -> None:
        """Jobs of one search may run with different code; nobody should find that out by accident."""
        workspace, before = self.workspace, self.state.opened.get("code")
        if workspace is None or before is None or workspace.snapshot.name == before:
            return
        names = workspace.snapshot.differs_from(workspace.snapshot.folder.parent / before)
        more = [f"{len(names) - _SHOWN_NAMES} more"] if len(names) > _SHOWN_NAMES else []
        shown = ", ".join([*names[:_SHOWN_NAMES], *more])
        self.state.note(
            f"the code has changed since this search was last run ({shown or 'its files'}): "
            f"jobs that start from here on run with the new one ({workspace.snapshot.name}, not {before})"
        )

    def take_over(self) -> None:
        """Bring the searcher up to date, decide what became of jobs under way, and queue what is left to do."""
        if not self.state.proposals:
            return
        with no_garbage_collection():
            found = self._find_attempts()
            # What failed is run again, and what was under way goes on or is run again.
            unsettled = UNDER_WAY | {Status.ERROR}
            reopened = {job.number for job in self.state.jobs.values() if job.status in unsettled and not job.is_check}
            self._restore_searcher(reopened)
            liked = self._restore_assessor()
            self.state.reports.clear()
            self._queue(reopened, found)
        # Shown again what all jobs reported, the assessor may have come to like one that it had told to pause.
        for name in liked:
            self.state.go_on(name)
        self.results.promote()

    def _find_attempts(self) -> dict[str, Found]:
        """Ask the site for attempts that were under way; those that it does not know have ended with an ERROR."""
        state = self.state
        under_way = [job for job in state.jobs.values() if job.status in UNDER_WAY]
        found = self.site.find([job.token for job in under_way if job.token]) if under_way else {}
        for job in under_way:
            known = found.get(job.token)
            # What has ended well counts; what ended badly is an ERROR like all others, and is run again.
            good = known is not None and _goes_on_or_went_well(known)
            if known is not None and known.state != "unknown" and self.site.outlives_controller:
                if job.is_check:
                    self._adopt(job, known)  # all others are adopted with their trial
                continue
            if job.is_check:
                self._settle_check(job, known.record if good and known is not None and known.state == "ended" else None)
            elif not good:
                state.lost(job, Status.ERROR, reason="controller_lost")
        return found

    def _settle_check(self, job: JobRecord, record: Mapping[str, Any] | None) -> None:
        """A job of the final check was under way: its result counts, or it is run again with the rest of the check."""
        status, reward = Status.ERROR, job.reward
        if record is not None and self.workspace is not None:
            reward, _ = self.workspace.reader(job).result(record)
            status = Status.ERROR if reward is None else Status.FINISHED
        self.state.lost(job, status, reward=reward)

    def _restore_searcher(self, reopened: set[int]) -> None:
        state, searcher, space = self.state, self.plan.searcher, self.plan.space
        fitting = [one for one in state.proposals.values() if not self._changed_space or space.contains(one.config)]
        known = {one.number for one in fitting}
        heard = [state.proposals[number] for number in state.heard if number in known and number not in reopened]
        observations = [one.as_observation() for one in heard]
        proposals = [one.as_proposal() for one in fitting]
        searcher.restore(observations, proposals)
        # Numbers are never given twice, also not those of proposals that a changed space no longer holds.
        searcher._next_number = max(searcher._next_number, max(state.proposals) + 1)

    def _restore_assessor(self) -> list[str]:
        """Show the assessor again what earlier jobs reported, and return the paused jobs that it likes by now."""
        assessor, liked = self.plan.assessor, list[str]()
        if assessor is None:
            return liked
        for job in self.state.jobs.values():
            if job.is_check or not (job.status in USABLE or job.status == Status.PAUSED):
                continue
            reader = self._reader(job)
            reader.refresh(ended=True)
            history = reader.history()
            if history:
                result = assessor.assess_job(job.id, history)
                if job.status == Status.PAUSED and result is AssessResult.Good:
                    liked.append(job.id)
                if job.status == Status.FINISHED:
                    assessor.job_end(job.id)
        return liked

    def _reader(self, job: JobRecord) -> JobReader | MemoryReader:
        if self.workspace is not None:
            return self.workspace.reader(job)
        rule = self.plan.rule
        reader = MemoryReader(rule)
        for step, value, wall in self.state.reports.get(job.id, ()):
            reader.add(rule.attribute, step, value, wall)
        return reader

    def _queue(self, reopened: set[int], found: Mapping[str, Found]) -> None:
        """Open the trials again that have jobs which failed, or were under way, or never began."""
        jobs: dict[int, list[JobRecord]] = {number: [] for number in reopened}
        for job in self.state.jobs.values():
            if job.number in jobs and not job.is_check:
                jobs[job.number].append(job)
        for number, record in self.state.proposals.items():
            if number in reopened:
                self._reopen(record, jobs[number], found)
            elif record.status is None and not record.filtered:
                self._reopen(record, self._jobs_of(number), found)

    def _jobs_of(self, number: int) -> list[JobRecord]:
        return [job for job in self.state.jobs.values() if job.number == number and not job.is_check]

    def _reopen(self, record: ProposalRecord, jobs: list[JobRecord], found: Mapping[str, Found]) -> None:
        if not jobs:
            self.state.open_trial(record.number, self.plan.seeds)
            return
        state, begun = self.state, {job.seed for job in jobs}
        trial = Trial(record, [seed for seed in self.plan.seeds.seeds if seed not in begun])
        state.trials[record.number] = trial
        for job in jobs:
            if job.status in UNDER_WAY:
                trial.open.add(job.id)
                self._adopt(job, found[job.token])
            elif job.status == Status.ERROR:
                trial.open.add(job.id)
                state.ready.append(job)
            else:
                trial.add(job)
        if not trial.open:
            self.results.conclude(trial)

    def _adopt(self, job: JobRecord, found: Found) -> None:
        """Take over an attempt of an earlier controller: it has ended, or goes on and will be heard of."""
        clock = self.state.clock
        reader = self.workspace.reader(job) if self.workspace is not None else MemoryReader(self.plan.rule)
        attempt = self.state.running[job.token] = Attempt(job, reader, clock.now())
        place = self.state.places.get(job.id)
        if place is not None and found.record.get("node"):  # it began while nobody looked
            self.state.placed(attempt, {"id": place["id"], "node": place["node"] or found.record["node"]})
        if not found.record.get("waiting"):
            attempt.begun = clock.now()
            if found.state == "running" and job.status == Status.PENDING:  # it began while nobody looked
                self.state.started(attempt, clock.wall())
        if found.state == "ended":
            clock.put(Event("ended", job.token, found.record))


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
