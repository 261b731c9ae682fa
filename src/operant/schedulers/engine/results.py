"""What becomes of an attempt that has ended: a status and a reward, another attempt, an observation."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

from operant._util.statistics import mean_interval
from operant.schedulers.engine.control import NoView, ResultHook, SearchControl, View
from operant.schedulers.engine.live_state import Attempt, LiveState, MemoryReader, Trial
from operant.schedulers.engine.state import JobRecord
from operant.schedulers.planning.plan import SearchPlan
from operant.searchers import Observation
from operant.sites import Event
from operant.sites.clock import Clock
from operant.status import DONE, Status

__all__ = ["Results"]

LONGEST_RETRY_DELAY = 300.0
_FINISHED, _STOPPED, _ERROR = Status.FINISHED, Status.STOPPED, Status.ERROR
_NOTHING: dict[str, Any] = {}


class Results:
    """The part of a scheduler that takes results: from the end of an attempt to the searcher's next observation."""

    def __init__(
        self,
        state: LiveState,
        plan: SearchPlan,
        clock: Clock,
        control: SearchControl,
        view: View,
        hook: ResultHook | None,
    ) -> None:
        self.state = state
        self.plan = plan
        self.clock = clock
        self.control = control
        self.view = view
        self.hook = hook
        self._shows = type(view) is not NoView

    # -- from an attempt to its job ------------------------------------------------------------------------------

    def take(self, event: Event) -> None:
        """An attempt is over, so its site says."""
        state, plan, info = self.state, self.plan, event.info
        attempt = state.running.pop(event.token)
        job, reader = attempt.job, attempt.reader
        if plan.gpus is not None:
            plan.gpus.give_back(job.id)
        if "verdict" in info and attempt.verdict is None:  # it was skipped, or has ended itself early
            attempt.verdict = info["verdict"]
        status, reason = self._status_of(attempt, event)
        reward, error = None, None
        if status != _ERROR:
            reward, complaint = reader.result(info)
            if reward is None and status == _FINISHED:
                error = complaint
                if complaint is not None and not reader.reported:
                    status = _ERROR  # a program that has nothing to show for itself has not succeeded
        retry = self.end(job, status, reason, info, reward=reward, error=error)
        if plan.assessor is not None and status == _FINISHED and not job.is_check:
            plan.assessor.assess_job(job.id, reader.history())
            plan.assessor.job_end(job.id)
            self.promote()
        if retry:
            retries = state.retries.get(job.id, 0)
            state.retries[job.id] = retries + 1
            state.delay(job, min(plan.retry_delay * 2.0**retries, LONGEST_RETRY_DELAY))
            return
        self.settle(job, reader.values if isinstance(reader, MemoryReader) else None)

    def _status_of(self, attempt: Attempt, event: Event) -> tuple[str, str | None]:
        reason = event.info.get("reason")
        if event.kind == "ended" and event.info.get("code") == 0 and reason is None:
            return _FINISHED, None  # also when it was told to end, but had finished by then
        if attempt.verdict is not None:
            return attempt.verdict
        if reason == "time_limit":
            return _STOPPED, "time_limits_per_job"
        return _ERROR, reason

    def end(
        self,
        job: JobRecord,
        status: str,
        reason: str | None,
        info: Mapping[str, Any] = _NOTHING,
        *,
        reward: float | None = None,
        error: str | None = None,
    ) -> bool:
        """Journal how an attempt ended, and say whether there is to be another one."""
        if status == _ERROR:
            error = error or _what_went_wrong(info, reason)
        self.state.ended(
            job,
            status,
            info.get("ended", job.ended if job.ended is not None else self.clock.wall()),
            info.get("returned"),
            reward=job.reward if reward is None else reward,
            reason=reason,
            error=error or job.error,
            code=info.get("code"),
            started=info.get("started", job.started),
        )
        if self._shows:
            self.view.changed(self.control, job)
        retry = self._may_retry(job)
        if self.hook is not None and status in DONE:
            decision = self.hook(job, retry)
            if decision is not None:
                retry = retry and not decision.final
                if decision.stop is not None:
                    self.control.stop(decision.stop, kill=False)
        return retry

    def _may_retry(self, job: JobRecord) -> bool:
        state = self.state
        failed = job.status == _ERROR and state.killing is None
        return failed and state.retries.get(job.id, 0) < self.plan.max_retries

    # -- from a job to its trial ---------------------------------------------------------------------------------

    def open_trial(self, number: int) -> None:
        """Queue the first jobs of a proposal."""
        seeds = self.plan.seeds
        trial = self.state.trials[number] = Trial(self.state.proposals[number], seeds.seeds)
        for _ in seeds.first():
            self.state.queue_seed(trial)

    def settle(self, job: JobRecord, values: Mapping[str, float] | None = None) -> None:
        """A job is done, or paused: see what that means for its trial."""
        if job.is_check:
            return
        trials = self.state.trials
        trial = trials.get(job.number)
        if trial is None:  # it was paused, went on, and has ended now
            trial = trials[job.number] = Trial(self.state.proposals[job.number], ())
        trial.add(job, values)
        if not trial.open:
            self.conclude(trial)

    def conclude(self, trial: Trial) -> None:
        """No job of a trial is under way: run its next seed, or tell the searcher what came of it."""
        state, seeds = self.state, self.plan.seeds
        if trial.waiting and trial.failed is None and state.killing is None:
            best = state.best
            if not seeds.loses(trial.rewards, None if best is None else state.rewards_of(best, seeds.seeds)):
                state.queue_seed(trial)
                return
            state.raced(trial)
        rewards = list(trial.rewards.values())
        complete = trial.raced_out or len(rewards) == len(seeds.seeds)
        reward = seeds.reward(rewards) if rewards and complete and trial.failed is None else None
        values = dict(trial.values) if len(rewards) == 1 else {}
        if reward is not None:
            values[self.plan.rule.attribute] = reward
        status = trial.status
        state.observed_trial(trial, status, values, reward)
        self.plan.searcher.observe(Observation(trial.proposal.number, None, 1, status, values))
        if reward is not None and not math.isnan(reward) and not trial.raced_out:
            self.plan.stop.rules.after_result(self.control, reward)

    def promote(self) -> None:
        """Let jobs go on that the assessor had told to pause."""
        promotions = getattr(self.plan.assessor, "promotions", None)
        for name in promotions() if promotions is not None else ():
            self.state.go_on(name)

    # -- the final check -----------------------------------------------------------------------------------------

    def queue_checks(self) -> None:
        """Let the best proposals run again on seeds that the search has not seen: were they good, or lucky?"""
        state, seeds = self.state, self.plan.seeds
        state.is_stop = True  # the search is over, but these jobs still have to run: nothing more is proposed
        for proposal in state.ranking()[: seeds.check_top]:
            for seed in seeds.check_seeds:
                job = state.new_job(proposal, seed, check=True)
                job = state.jobs.get(job.id, job)  # an earlier controller may have begun it
                if job.status != _FINISHED:
                    state.ready.append(job)

    def sum_up_checks(self) -> dict[int, dict[str, Any]]:
        """``final_check: {top: 3, seeds: 5}``: means of the best proposals with 95 % intervals."""
        state, seeds, checks = self.state, self.plan.seeds, dict[int, dict[str, Any]]()
        for proposal in state.ranking()[: seeds.check_top]:
            names = [state.new_job(proposal, seed, check=True).id for seed in seeds.check_seeds]
            rewards = [state.jobs[name].reward for name in names if name in state.jobs]
            good = [reward for reward in rewards if reward is not None]
            if good:
                centre, low, high = mean_interval(good)
                found = {"number": proposal.number, "mean": centre, "low": low, "high": high, "runs": len(good)}
                checks[proposal.number] = found
                state.checked(**found)
        state.commit()
        return checks


def _what_went_wrong(info: Mapping[str, Any], reason: str | None) -> str:
    if info.get("error"):
        return str(info["error"])
    told = {"memory_limit": "it passed its memory limit", "no_report_timeout": "it reported nothing for too long"}
    if reason is not None:
        return told.get(reason, reason.replace("_", " "))
    if info.get("signal"):
        return f"killed by signal {info['signal']}"
    return f"exit code {info.get('code')}"
