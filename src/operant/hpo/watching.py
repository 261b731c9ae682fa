"""Follows a running search: keeps its history, calls event sets, and stops it when a condition holds."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from operant.hpo.define_by_run import GrowingSearcher
from operant.hpo.events import LoggingEventSet, RunnerEventSet, Task, TrialResult
from operant.hpo.expressions import ExpressionError
from operant.hpo.history import History, TrialRecord
from operant.hpo.judging import Judge, Verdict, metrics_of
from operant.hpo.trials import TrialEnd
from operant.schedulers.engine.scheduler import Scheduler
from operant.schedulers.engine.trial import ScheduledJob
from operant.schedulers.engine.view import NoView
from operant.sites import Submission

if TYPE_CHECKING:
    from operant.hpo.running import Settings
    from operant.hpo.thread_sites import InlineSite, TrialSite

__all__ = ["SearchView"]


class SearchView(NoView):
    def __init__(self, settings: Settings, judge: Judge, history: History) -> None:
        self.settings = settings
        self.judge = judge
        self.history = history
        history.make = self._finished
        self._jobs: dict[str, ScheduledJob] = {}
        self.wrong: ExpressionError | None = None
        self._condition_met = False
        self._events: list[RunnerEventSet] = list(settings.event_sets)
        if not settings.silent:
            self._events.append(LoggingEventSet(settings.rank, lambda: self.history, settings.max_steps))

    def begin(self, scheduler: Scheduler, site: TrialSite | InlineSite) -> None:
        settings, self._jobs = self.settings, scheduler.jobs
        shown = {"max_steps": settings.max_steps, "max_workers": settings.max_workers, "seed": settings.seed}
        self._tell(lambda one: one.init(settings.searcher_name, {**shown, **settings.options}, settings.function))
        self._tell(lambda one: one.init_ok(settings.target, list(self.judge.shape.axes), settings.concerns))
        self._tell(lambda one: one.run_start())
        if settings.event_sets:
            site.on_submit = self._submitted

    def changed(self, scheduler: Scheduler, job: ScheduledJob) -> None:
        if job.status in ("PENDING", "RUNNING", "PAUSED") or not job.token:
            return
        verdict = self.judge.verdicts.pop(job.token, None)
        if verdict is not None and verdict.end.final:
            job.retries = scheduler.plan.max_retries
        again = job.status == "ERROR" and job.retries < scheduler.plan.max_retries and scheduler.killing is None
        if verdict is not None and verdict.end.kind == "ok" and isinstance(scheduler.searcher, GrowingSearcher):
            scheduler.searcher.take_result(job.number, verdict.end.value)
        if verdict is not None and job.status == "FINISHED" and not self._events:
            self.history.add_parts(job.number + 1, verdict.end.value, verdict.end.seconds, verdict.columns or None)
        else:
            record = self._record(job, verdict)
            if not again:
                self.history.add(record)
            if self._events:
                self._tell_end(record, verdict, again)
        if verdict is None:
            return
        if verdict.wrong is not None and self.wrong is None:
            self.wrong = verdict.wrong
            scheduler.stop(f"an expression does not fit: {verdict.wrong}", kill=False)
        elif verdict.stops and not self._condition_met:
            self._condition_met = True
            scheduler.stop("stop_when", kill=False)

    def close(self, scheduler: Scheduler) -> None:
        self._tell(lambda one: one.run_complete(self._condition_met))

    def _finished(self, task_id: int, value: Any, seconds: float, columns: dict[str, Any] | None) -> TrialRecord:
        verdict = Verdict(TrialEnd("ok", value, seconds))
        verdict.columns = columns or {}
        return self._record(self._jobs[str(task_id - 1)], verdict)

    def _record(self, job: ScheduledJob, verdict: Verdict | None) -> TrialRecord:
        end = None if verdict is None else verdict.end
        return TrialRecord(
            task_id=job.number + 1,
            status=job.status,
            make_config=lambda: self.judge.shape.build(job.arg_dict),
            flat=self.judge.shape.finished(job.arg_dict),
            result=end.value if end is not None and end.kind == "ok" else None,
            metrics=metrics_of(end) if end is not None else {},
            target=job.reward,
            columns=verdict.columns if verdict is not None else {},
            attempts=job.attempt,
            reason=job.reason,
            error=job.error or (end.error if end is not None else None),
            trace=end.trace if end is not None else None,
        )

    # -- event sets ----------------------------------------------------------------------------------------------

    def _tell(self, call: Callable[[RunnerEventSet], Any]) -> None:
        for one in self._events:
            call(one)

    def _submitted(self, job: Submission) -> None:
        task = Task(int(job.job_id) + 1, self.judge.shape.build(job.config))
        if job.attempt == 1:
            self._tell(lambda one: one.step(task))
        self._tell(lambda one: one.try_(task, job.attempt, self.settings.max_retries + 1))

    def _tell_end(self, record: TrialRecord, verdict: Verdict | None, again: bool) -> None:
        task = Task(record.task_id, record.config)
        error = record.error or record.reason or record.status
        self._tell(lambda one: one.try_complete(task, record.metrics))
        if record.status in ("FINISHED", "STOPPED"):
            self._tell(lambda one: one.try_ok(task, record.result))
            self._tell(lambda one: one.step_ok(task, TrialResult(record.result, record.metrics, record.target)))
        elif verdict is not None and verdict.end.kind == "skip":
            self._tell(lambda one: one.try_skip(task, error))
            self._tell(lambda one: one.step_skip(task, error))
        else:
            self._tell(lambda one: one.try_fail(task, error))
            if again:
                return
            self._tell(lambda one: one.step_fail(task, error))
        self._tell(lambda one: one.step_final(task, self.history))
