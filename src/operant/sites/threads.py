"""Jobs as calls by a few threads of this process."""

from __future__ import annotations

import queue
import threading
from collections.abc import Callable, Iterable

from operant.sites.base import Event, Submission
from operant.sites.calls import call_trial
from operant.sites.function import Call, Check, WorkerSite


class ThreadSite(WorkerSite):
    """A few threads. A call in a thread cannot be ended from outside, only at its next report."""

    def __init__(self, call: Call, check: Check, attribute: str, workers: int, *, reports_count: bool = False) -> None:
        super().__init__(call, check, attribute, reports_count=reports_count)
        self.workers = workers
        self._jobs: queue.SimpleQueue[Submission | None] = queue.SimpleQueue()
        self._lock = threading.Lock()
        self._running: dict[str, _Threaded] = {}
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
                end = call_trial(self.call_job, trial, job)
            except KeyboardInterrupt:  # raised by the function itself: signals reach the main thread only
                self._emit(Event("ended", job.token, {"code": 1, "error": "KeyboardInterrupt"}))
                continue
            with self._lock:
                if self._running.pop(job.token, None) is None:
                    return  # given up: another thread does its work by now
            self.emit_end(job, end)


class _Threaded:
    def __init__(self, site: ThreadSite, token: str) -> None:
        self.site, self.token = site, token
        self.stop = False

    def send(self, step: int, value: float) -> bool:
        if not self.stop:
            self.site.emit_report(self.token, step, value)
        return self.stop
