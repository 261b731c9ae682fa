"""Trials as calls in this process: one after the other where they are asked for, or by a few threads."""

from __future__ import annotations

import functools
import queue
import threading
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any

from operant.hpo.judging import Judge
from operant.hpo.trials import Function, TrialEnd, call_trial
from operant.sites import Event, Found, FunctionSite, Submission
from operant.sites.clock import SystemClock

__all__ = ["InlineSite", "ThreadSite", "TrialClock", "TrialSite"]


class TrialClock(SystemClock):
    """Tells those who reported when the loop has taken note: it has, when it comes back for more."""

    def __init__(self) -> None:
        super().__init__()
        self._taken: list[Any] = []

    def wait(self, timeout: float | None) -> list[Any]:
        for item in self._taken:
            if isinstance(item, Event) and "handled" in item.info:
                item.info["handled"].set()
        self._taken = super().wait(timeout)
        return self._taken


class TrialSite:
    """What places for trials have in common."""

    outlives_controller = False
    takes_configs = True

    def __init__(self, function: Function, judge: Judge, *, reports_count: bool = False) -> None:
        self.function = function
        self.judge = judge
        self.reports_count = reports_count
        """Whether someone looks at reports while a trial runs, so that it waits for the answer."""
        self.on_submit: Callable[[Submission], None] | None = None
        self._emit: Callable[[Event], None] = lambda event: None

    def start(self, emit: Callable[[Event], None]) -> None:
        self._emit = emit

    def submit(self, jobs: Sequence[Submission]) -> list[str]:
        for job in jobs:
            if self.on_submit is not None:
                self.on_submit(job)
            self.run(job)
        return [job.token for job in jobs]

    def run(self, job: Submission) -> None:
        """Let a worker call the function for this trial."""
        raise NotImplementedError

    def cancel(self, tokens: Iterable[str], reason: str = "cancelled", grace: float | None = None) -> None:
        raise NotImplementedError

    def close(self) -> None:
        raise NotImplementedError

    def find(self, tokens: Sequence[str]) -> dict[str, Found]:
        """Calls die with their process."""
        return dict.fromkeys(tokens, Found("unknown", {}))

    def emit_report(self, token: str, step: int, value: float, ended: threading.Event | None = None) -> None:
        """Pass on a report; when it counts, wait until it was looked at."""
        info: dict[str, Any] = {"tag": self.judge.name, "step": step, "value": value}
        if self.reports_count:
            handled = info["handled"] = threading.Event()
        self._emit(Event("report", token, info))
        while self.reports_count and not handled.wait(0.5):
            if ended is not None and ended.is_set():  # the search is over: nobody will look any more
                return


class InlineSite(FunctionSite):
    """Calls the function in the thread that runs the search: nothing is faster, and ctrl-C reaches it."""

    def __init__(self, function: Function, judge: Judge) -> None:
        super().__init__(function, judge.name)
        self.judge = judge

    def result_of(self, job: Submission) -> Any:
        return self.function(self.judge.shape.build(job.config), int(job.job_id) + 1)

    def outcome(self, job: Submission, end: TrialEnd) -> Mapping[str, Any]:
        return self.judge.outcome(job, end)


class ThreadSite(TrialSite):
    """A few threads. A call in a thread cannot be ended from outside, only at its next report."""

    def __init__(self, function: Function, judge: Judge, workers: int, *, reports_count: bool = False) -> None:
        super().__init__(function, judge, reports_count=reports_count)
        self.workers = workers
        self._jobs: queue.SimpleQueue[Submission | None] = queue.SimpleQueue()
        self._lock = threading.Lock()
        self._running: dict[str, _Threaded] = {}
        self._closed = threading.Event()
        self._started = 0

    def start(self, emit: Callable[[Event], None]) -> None:
        super().start(emit)
        for _ in range(self.workers):
            self._start_worker()

    def run(self, job: Submission) -> None:
        self._running[job.token] = _Threaded(self, job.token)
        self._jobs.put(job)

    def cancel(self, tokens: Iterable[str], reason: str = "cancelled", grace: float | None = None) -> None:
        for token in tokens:
            with self._lock:
                trial = self._running.get(token)
                if trial is None:
                    continue
                trial.stop = True
                if reason == "assessor":
                    continue  # it hears of it at its next report
                # Nobody waits for it any more; its thread goes on until the call returns, and another takes its place.
                del self._running[token]
            self._start_worker()
            self._emit(Event("ended", token, {"code": None, "reason": reason}))

    def close(self) -> None:
        self._closed.set()
        for _ in range(self._started):
            self._jobs.put(None)

    def _start_worker(self) -> None:
        self._started += 1
        threading.Thread(target=self._work, name="operant-trial", daemon=True).start()

    def _work(self) -> None:
        while (job := self._jobs.get()) is not None:
            trial = self._running.get(job.token)
            if trial is None:
                continue
            self._emit(Event("started", job.token, {}))
            try:
                end = call_trial(functools.partial(self._call, job), trial)
            except KeyboardInterrupt:  # raised by the function itself: signals reach the main thread only
                self._emit(Event("ended", job.token, {"code": 1, "error": "KeyboardInterrupt"}))
                continue
            with self._lock:
                if self._running.pop(job.token, None) is None:
                    return  # given up: another thread does its work by now
            self._emit(self.judge.event(job, end))

    def _call(self, job: Submission) -> Any:
        return self.function(self.judge.shape.build(job.config), int(job.job_id) + 1)


class _Threaded:
    def __init__(self, site: ThreadSite, token: str) -> None:
        self.site, self.token = site, token
        self.stop = False

    def send(self, step: int, value: float) -> bool:
        if not self.stop:
            self.site.emit_report(self.token, step, value, self.site._closed)
        return self.stop
