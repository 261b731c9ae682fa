"""Looks after what runs: limits, silence, the assessor's verdicts, and messages from outside."""

from __future__ import annotations

import heapq
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any

from operant.assessors import AssessResult
from operant.errors import ConfigError
from operant.schedulers.engine.trial import ScheduledJob
from operant.schedulers.planning.limits import LIMITS, set_limit
from operant.tracking.journal import collect_messages

if TYPE_CHECKING:
    from operant.schedulers.engine.scheduler import Scheduler

__all__ = ["Overseer"]

INBOX_SECONDS = 0.3
TAIL_SECONDS = 0.25


class Overseer:
    """The part of a scheduler that acts when time passes or a job reports."""

    def __init__(self, scheduler: Scheduler) -> None:
        self.scheduler = scheduler
        plan = scheduler.plan
        self._inbox_at = self._tails_at = 0.0
        judged = plan.assessor is not None or plan.no_report_timeout is not None
        self._watches_tails = judged or scheduler.view.live

    def look_after(self, now: float) -> None:
        if now >= self._inbox_at:
            self._inbox_at = now + INBOX_SECONDS
            self._read_inbox()
        if self._watches_tails and now >= self._tails_at:
            self._tails_at = now + TAIL_SECONDS
            for job in list(self.scheduler.running.values()):
                if job.begun is not None and job.reader is not None and job.reader.refresh():
                    job.last_report = now
                    self.assess(job)
        limit, silence = self.scheduler.plan.limits.seconds, self.scheduler.plan.no_report_timeout
        for job in list(self.scheduler.running.values()) if limit is not None or silence is not None else ():
            if job.begun is None or job.verdict is not None:
                continue
            if limit is not None and now >= job.begun + limit:
                self.scheduler.cancel([job], "STOPPED", "time_limits_per_job")
            elif silence is not None and now >= job.last_report + silence:
                self.scheduler.cancel([job], "ERROR", "no_report_timeout")
        total = self.scheduler.plan.stop.rules.time_limits
        if total is not None and self.scheduler.killing is None and self.scheduler.elapsed >= total:
            self.scheduler.stop("time_limits", kill=True)

    def timeout(self) -> float:
        """Seconds until something is due though nothing happens."""
        times = [self._inbox_at]
        if self._watches_tails:
            times.append(self._tails_at)
        if self.scheduler.delayed:
            times.append(self.scheduler.delayed[0][0])
        limit, silence = self.scheduler.plan.limits.seconds, self.scheduler.plan.no_report_timeout
        if limit is not None or silence is not None:
            for job in self.scheduler.running.values():
                if job.begun is not None and job.verdict is None:
                    times += [job.begun + limit] if limit is not None else []
                    times += [job.last_report + silence] if silence is not None else []
        now = self.scheduler.clock.now()
        total = self.scheduler.plan.stop.rules.time_limits
        if total is not None and self.scheduler.killing is None:
            times.append(now + total - self.scheduler.elapsed)
        return max(0.0, min(times) - now)

    def assess(self, job: ScheduledJob) -> None:
        if self.scheduler.plan.assessor is None or job.verdict is not None or job.reader is None or job.check:
            return
        history = job.reader.history()
        if len(history) <= job.judged:
            return
        job.judged = len(history)
        result = self.scheduler.plan.assessor.assess_job(job.id, history)
        answer = result if isinstance(result, AssessResult) else AssessResult.Good
        self.scheduler.journal.append("assessed", job=job.id, iteration=history[-1]["iteration"], result=answer.value)
        if answer is AssessResult.Bad:
            self.scheduler.cancel([job], "STOPPED", "assessor")
        elif answer is AssessResult.Pause:
            self.scheduler.cancel([job], "PAUSED", "assessor")
        self.promote()

    def promote(self) -> None:
        """Let jobs go on that the assessor had told to pause."""
        promotions: Callable[[], Any] | None = getattr(self.scheduler.plan.assessor, "promotions", None)
        for job_id in promotions() if promotions is not None else ():
            self.scheduler.go_on(job_id)

    def _stop_jobs(self, wanted: set[str]) -> None:
        """End these jobs: those that run are cancelled, those that wait for a slot or for their turn never start."""
        scheduler, reason = self.scheduler, "stopped by its user"
        running = [job for job in scheduler.running.values() if job.id in wanted]
        scheduler.cancel(running, "KILLED", reason)
        waiting = [job for job in (*scheduler.ready, *(one for _, _, one in scheduler.delayed)) if job.id in wanted]
        for job in waiting:
            if job in scheduler.ready:
                scheduler.ready.remove(job)
            else:
                scheduler.delayed[:] = [one for one in scheduler.delayed if one[2] is not job]
                heapq.heapify(scheduler.delayed)
            if job.attempt == 0:
                scheduler.journal.append("planned", job=job.id, number=job.number, seed=job.seed, status="KILLED")
                job.status = "KILLED"
            else:
                scheduler.record_end(job, "KILLED", reason, {})
            scheduler.settle(job)
        for job in scheduler.jobs.values():
            if job.id in wanted and job.status == "PAUSED":
                scheduler.record_end(job, "KILLED", reason, {})

    def _read_inbox(self) -> None:
        for message in collect_messages(self.scheduler.folder):
            content = message.content
            self.scheduler.journal.append("message", content=content, wall=self.scheduler.clock.wall())
            kind = content["type"]
            if kind == "stop" and content.get("jobs"):
                self._stop_jobs({str(one) for one in content["jobs"]})
            elif kind == "stop":
                self.scheduler.stop("stopped by its user", kill=True, status="KILLED")
            elif kind in ("pause", "resume"):
                self.scheduler.paused = kind == "pause"
            elif kind == "limits":
                self._change_limits(content)
            self.scheduler.commit()
            message.done()

    def _change_limits(self, content: Mapping[str, Any]) -> None:
        """Other limits from now on; one that cannot be is said and left as it was."""
        scheduler = self.scheduler
        for name in LIMITS:
            if name in content:
                try:
                    set_limit(scheduler.plan, name, LIMITS[name](content[name]))
                except ConfigError as error:
                    scheduler.view.note(f"a limit stays as it is: {error}")
        if scheduler.end[1] == "max_tries" and scheduler.killing is None:
            # It had come to its end, and may go on; the rule itself stops it again where it does not.
            scheduler.is_stop, scheduler.end = False, ("FINISHED", "all done")
