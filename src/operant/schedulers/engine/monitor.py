"""What becomes of jobs: :class:`Results` takes those that have ended, :class:`Monitor` watches those that run."""

from __future__ import annotations

import math
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from operant._util.statistics import mean_interval
from operant.assessors import AssessResult
from operant.errors import ConfigError
from operant.schedulers.engine.control import NoView, ResultHook, SearchControl, View
from operant.schedulers.engine.live_state import Attempt, LiveState, MemoryReader, Trial
from operant.schedulers.engine.records import JobRecord
from operant.schedulers.planning.limits import LIMITS, set_limit
from operant.schedulers.planning.plan import SearchPlan
from operant.schedulers.planning.rewards import JobReader
from operant.searchers import Observation
from operant.sites import Event
from operant.status import DONE, Status
from operant.tracking.journal import collect_messages

LONGEST_RETRY_DELAY = 300.0
INBOX_SECONDS = 0.3
MOST_REFUSED = 10
TAIL_SECONDS = 0.25
_FINISHED, _STOPPED, _ERROR = Status.FINISHED, Status.STOPPED, Status.ERROR
_BY_USER = "stopped by its user"
_NOTHING: dict[str, Any] = {}


class Results:
    """The part of a scheduler that takes results: from the end of an attempt to the searcher's next observation."""

    def __init__(
        self,
        state: LiveState,
        plan: SearchPlan,
        control: SearchControl,
        view: View,
        hook: ResultHook | None,
    ) -> None:
        self.state = state
        self.plan = plan
        self.control = control
        self.view = view
        self.hook = hook
        self._shows = type(view) is not NoView
        self._refused_in_row = 0

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
        self._refused_in_row = self._refused_in_row + 1 if reason == "refused" else 0
        if self._refused_in_row == MOST_REFUSED:
            self.control.stop(f"its site refuses jobs: {info.get('error')}", kill=False, status=Status.ERROR)
        if status != _ERROR:
            reward, complaint = reader.result(info)
            if reward is None and status == _FINISHED:
                error = complaint
                if complaint is not None and not reader.reported:
                    status = _ERROR  # a program that has nothing to show for itself has not succeeded
        elif reason is None and not info.get("error") and isinstance(reader, JobReader):
            error = ": ".join(filter(None, (_what_went_wrong(info, None), reader.last_line())))
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
            info.get("ended", job.ended),
            info.get("returned"),
            (
                ("reward", job.reward if reward is None else reward),
                ("reason", reason),
                ("error", error or job.error),
                ("code", info.get("code")),
                ("started", info.get("started", job.started)),
            ),
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
        status = state.observed_trial(trial, values, reward)
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
                if job.status != _FINISHED and job.token not in state.running:
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


class Monitor:
    """The part of a scheduler that acts when time passes or a job reports.

    :param live: whether somebody wants to see what jobs report, so that it is read though no assessor asks for it.
    """

    def __init__(
        self, state: LiveState, plan: SearchPlan, folder: Path, control: SearchControl, results: Results, *, live: bool
    ) -> None:
        self.state = state
        self.plan = plan
        self.folder = folder
        self.control = control
        self.results = results
        self._inbox_at = self._tails_at = 0.0
        self._reads_tails = live or plan.assessor is not None or plan.no_report_timeout is not None

    def check(self, now: float) -> None:
        """Do what is due."""
        if now >= self._inbox_at:
            self._inbox_at = now + INBOX_SECONDS
            self._read_inbox()
        if self._reads_tails and now >= self._tails_at:
            self._tails_at = now + TAIL_SECONDS
            for attempt in list(self.state.running.values()):
                if attempt.begun is not None and attempt.reader.refresh():
                    attempt.last_report = now
                    self.assess(attempt)
        self._check_limits(now)

    def _check_limits(self, now: float) -> None:
        limit, silence = self.plan.limits.seconds, self.plan.no_report_timeout
        for attempt in list(self.state.running.values()) if limit is not None or silence is not None else ():
            if attempt.begun is None or attempt.verdict is not None:
                continue
            if limit is not None and now >= attempt.begun + limit:
                self.control.cancel([attempt], Status.STOPPED, "time_limits_per_job")
            elif silence is not None and now >= attempt.last_report + silence:
                self.control.cancel([attempt], Status.ERROR, "no_report_timeout")
        total = self.plan.stop.rules.time_limits
        if total is not None and self.state.killing is None and self.control.elapsed >= total:
            self.control.stop("time_limits", kill=True)

    def timeout(self, now: float) -> float:
        """Seconds until something is due though nothing happens."""
        times = [self._inbox_at]
        if self._reads_tails:
            times.append(self._tails_at)
        if self.state.delayed:
            times.append(self.state.delayed[0][0])
        limit, silence = self.plan.limits.seconds, self.plan.no_report_timeout
        if limit is not None or silence is not None:
            for attempt in self.state.running.values():
                if attempt.begun is not None and attempt.verdict is None:
                    times += [attempt.begun + limit] if limit is not None else []
                    times += [attempt.last_report + silence] if silence is not None else []
        total = self.plan.stop.rules.time_limits
        if total is not None and self.state.killing is None:
            times.append(now + total - self.control.elapsed)
        return max(0.0, min(times) - now)

    def assess(self, attempt: Attempt) -> None:
        """Show the assessor what a job has reported since it was last asked, and do what it says."""
        job, assessor = attempt.job, self.plan.assessor
        if assessor is None or attempt.verdict is not None or job.is_check:
            return
        history = attempt.reader.history()
        if len(history) <= attempt.assessed:
            return
        attempt.assessed = len(history)
        result = assessor.assess_job(job.id, history)
        answer = result if isinstance(result, AssessResult) else AssessResult.Good
        self.state.assessed(job, history[-1]["iteration"], answer.value)
        if answer is AssessResult.Bad:
            self.control.cancel([attempt], Status.STOPPED, "assessor")
        elif answer is AssessResult.Pause:
            self.control.cancel([attempt], Status.PAUSED, "assessor")
        self.results.promote()

    # -- messages ------------------------------------------------------------------------------------------------

    def _read_inbox(self) -> None:
        for message in collect_messages(self.folder):
            content = message.content
            self.state.message(content, self.state.clock.wall())
            kind = content["type"]
            if kind == "stop" and content.get("jobs"):
                self._stop_jobs({str(one) for one in content["jobs"]})
            elif kind == "stop" and content.get("detach"):
                self.control.detach("detached by its user")
            elif kind == "stop":
                self.control.stop(_BY_USER, kill=True, status=Status.KILLED)
            elif kind == "limits":
                self._change_limits(content)
            self.state.commit()
            message.done()

    def _stop_jobs(self, wanted: set[str]) -> None:
        """End these jobs: those that run are cancelled, those that wait for a slot or for their turn never start."""
        state = self.state
        running = [attempt for attempt in state.running.values() if attempt.job.id in wanted]
        self.control.cancel(running, Status.KILLED, _BY_USER)
        for job in [one for one in state.waiting if one.id in wanted]:
            state.withdraw(job)
            if job.attempt == 0:
                state.never_begun(job, Status.KILLED)
            else:
                self.results.end(job, Status.KILLED, _BY_USER)
            self.results.settle(job)
        for job in state.jobs.values():
            if job.id in wanted and job.status == Status.PAUSED:
                self.results.end(job, Status.KILLED, _BY_USER)

    def _change_limits(self, content: Mapping[str, Any]) -> None:
        """Other limits from now on; one that cannot be is said and left as it was."""
        for name in LIMITS:
            if name in content:
                try:
                    set_limit(self.plan, name, LIMITS[name](content[name]))
                except ConfigError as error:
                    self.state.note(f"a limit stays as it is: {error}")
        if self.state.end[1] == "max_tries" and self.state.killing is None:
            self.state.go_on_proposing()
