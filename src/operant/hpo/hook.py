"""What a fluent search does with each result: keeps its history, tells event sets, and stops when a condition holds."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any

from operant.hpo.define_by_run import GrowingSearcher
from operant.hpo.event_sets import LoggingEventSet, RunnerEventSet, Task, TrialResult
from operant.hpo.expressions import ExpressionError
from operant.hpo.history import History, TrialRecord
from operant.hpo.results import CheckedResult, ResultCheck, metrics_of
from operant.schedulers.engine.control import Decision
from operant.schedulers.engine.records import JobRecord
from operant.searchers import BaseSearcher
from operant.sites import Submission
from operant.sites.calls import TrialEnd
from operant.status import USABLE, Status

if TYPE_CHECKING:
    from operant.hpo.running import Settings

_FINISHED = Status.FINISHED


class TrialHook:
    """The result hook of a fluent search."""

    def __init__(self, settings: Settings, check: ResultCheck, history: History, searcher: BaseSearcher) -> None:
        self.settings = settings
        self.check = check
        self.history = history
        history.make = self._finished
        self.wrong: ExpressionError | None = None
        """An expression that did not fit what a trial returned."""
        self._grows = searcher if isinstance(searcher, GrowingSearcher) else None
        self._jobs: Mapping[str, JobRecord] = {}
        self._condition_met = False
        self._events: list[RunnerEventSet] = list(settings.event_sets)
        if not settings.silent:
            self._events.append(LoggingEventSet(settings.rank, lambda: self.history, settings.max_steps))

    def begin(self, jobs: Mapping[str, JobRecord]) -> None:
        """The search is about to begin; these are its jobs, more of them as it goes on."""
        settings, self._jobs = self.settings, jobs
        shown = {"max_steps": settings.max_steps, "max_workers": settings.max_workers, "seed": settings.seed}
        self._tell(lambda one: one.init(settings.searcher_name, {**shown, **settings.options}, settings.function))
        self._tell(lambda one: one.init_ok(settings.target, list(self.check.shape.axes), settings.concerns))
        self._tell(lambda one: one.run_start())

    def close(self) -> None:
        """The search is over."""
        self._tell(lambda one: one.run_complete(self._condition_met))

    def __call__(self, job: JobRecord, retry: bool) -> Decision | None:
        result = self.check.results.pop(job.token, None)
        end = None if result is None else result.end
        retry = retry and not (end is not None and end.final)
        if end is not None and self._grows is not None:
            self._grows.take_result(job.number, end.value)
        if result is not None and end is not None and job.status == _FINISHED and not self._events:
            self.history.add_parts(job.number + 1, end.value, end.seconds, result.columns or None)
        else:
            record = self._record(job, result)
            if not retry:
                self.history.add(record)
            if self._events:
                self._tell_end(record, result, retry)
        if result is None or end is None:
            return None
        if result.wrong is not None and self.wrong is None:
            self.wrong = result.wrong
            return Decision(end.final, f"an expression does not fit: {result.wrong}")
        if result.stops and not self._condition_met:
            self._condition_met = True
            return Decision(end.final, "stop_when")
        return Decision(final=True) if end.final else None

    def _finished(self, task_id: int, value: Any, seconds: float, columns: dict[str, Any] | None) -> TrialRecord:
        result = CheckedResult(TrialEnd("ok", value, seconds))
        result.columns = columns or {}
        return self._record(self._jobs[str(task_id - 1)], result)

    def _record(self, job: JobRecord, result: CheckedResult | None) -> TrialRecord:
        end = None if result is None else result.end
        return TrialRecord(
            task_id=job.number + 1,
            status=job.status,
            make_config=lambda: self.check.shape.build(job.arg_dict),
            flat=self.check.shape.finished(job.arg_dict),
            result=end.value if end is not None and end.kind == "ok" else None,
            metrics=metrics_of(end) if end is not None else {},
            target=job.reward,
            columns=result.columns if result is not None else {},
            attempts=job.attempt,
            reason=job.reason,
            error=job.error or (end.error if end is not None else None),
            trace=end.trace if end is not None else None,
        )

    # -- event sets ----------------------------------------------------------------------------------------------

    def _tell(self, call: Callable[[RunnerEventSet], Any]) -> None:
        for one in self._events:
            call(one)

    @property
    def on_submit(self) -> Callable[[Submission], None] | None:
        """What a site calls before each attempt."""
        return self._submitted if self.settings.event_sets else None

    def _submitted(self, job: Submission) -> None:
        task = Task(int(job.job_id) + 1, self.check.shape.build(job.config))
        if job.attempt == 1:
            self._tell(lambda one: one.step(task))
        self._tell(lambda one: one.try_(task, job.attempt, self.settings.max_retries + 1))

    def _tell_end(self, record: TrialRecord, result: CheckedResult | None, again: bool) -> None:
        task = Task(record.task_id, record.config)
        error = record.error or record.reason or record.status
        self._tell(lambda one: one.try_complete(task, record.metrics))
        if record.status in USABLE:
            self._tell(lambda one: one.try_ok(task, record.result))
            self._tell(lambda one: one.step_ok(task, TrialResult(record.result, record.metrics, record.target)))
        elif result is not None and result.end.kind == "skip":
            self._tell(lambda one: one.try_skip(task, error))
            self._tell(lambda one: one.step_skip(task, error))
        else:
            self._tell(lambda one: one.try_fail(task, error))
            if again:
                return
            self._tell(lambda one: one.step_fail(task, error))
        self._tell(lambda one: one.step_final(task, self.history))
