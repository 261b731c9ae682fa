"""Watches what runs: limits, silence, the assessor's answers, and messages from outside."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from operant.assessors import AssessResult
from operant.errors import ConfigError
from operant.schedulers.engine.control import SearchControl
from operant.schedulers.engine.live_state import Attempt, LiveState
from operant.schedulers.engine.results import Results
from operant.schedulers.planning.limits import LIMITS, set_limit
from operant.schedulers.planning.plan import SearchPlan
from operant.status import Status
from operant.tracking.journal import collect_messages

__all__ = ["Monitor"]

INBOX_SECONDS = 0.3
TAIL_SECONDS = 0.25
_BY_USER = "stopped by its user"


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

    def timeout(self) -> float:
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
        now = self.state.clock.now()
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
