"""Jobs as calls in processes of their own: they use all cores, and one that hangs can be killed.

Each worker is a small process, forked before anything else has threads. It forks again for each trial, so every
trial begins with the same state, functions need not be importable, and killing one harms nobody else.
"""

from __future__ import annotations

import multiprocessing
import os
import pickle
import signal
import sys
import tempfile
import threading
from collections.abc import Callable, Iterable
from multiprocessing.connection import Connection, wait
from pathlib import Path
from typing import Any, NoReturn

from operant.sites.base import Event, Submission
from operant.sites.calls import TrialEnd, call_trial
from operant.sites.function import Call, Check, WorkerSite

# Messages up to this size are written to a pipe whole or not at all, also by a process that is being killed.
_ATOMIC_BYTES = 2048
_POLL_SECONDS = 0.05
_GRACE_SECONDS = 2.0


class ProcessSite(WorkerSite):
    """A few worker processes, forked when the site is made."""

    def __init__(self, call: Call, check: Check, attribute: str, workers: int, *, reports_count: bool = False) -> None:
        super().__init__(call, check, attribute, reports_count=reports_count)
        self._folder = tempfile.TemporaryDirectory(prefix="operant-trials-")
        self._life, self._hold = multiprocessing.Pipe(duplex=False)
        """Never written to: its reading end closes when this process is gone, however it went."""
        self._workers = [self._fork_worker() for _ in range(workers)]
        self._free = list(self._workers)
        self._lock = threading.Lock()

    def start(self, emit: Callable[[Event], None]) -> None:
        super().start(emit)
        for worker in self._workers:
            worker.thread = threading.Thread(target=self._listen, args=(worker,), name="operant-trial", daemon=True)
            worker.thread.start()

    def run(self, job: Submission) -> None:
        with self._lock:
            worker = self._free.pop()
            worker.job, worker.end, worker.pid, worker.reason = job, None, None, None
        worker.requests.send(("run", job))

    def cancel(self, tokens: Iterable[str], reason: str = "cancelled", grace: float | None = None) -> None:
        wanted = set(tokens)
        for worker in self._workers:
            with self._lock:
                if worker.job is None or worker.job.token not in wanted:
                    continue
                worker.reason = reason
                job = worker.job
                if reason != "assessor":  # who has just reported gets the answer to that, and can still clean up
                    worker.signal(signal.SIGTERM)
            killer = threading.Timer(_GRACE_SECONDS if grace is None else grace, self._kill, (worker, job))
            killer.daemon = True
            killer.start()

    def close(self) -> None:
        self._closed.set()
        self._hold.close()  # workers see that, kill what they run, and end
        for worker in self._workers:
            os.waitpid(worker.process, 0)
            if worker.thread is not None:
                worker.thread.join(1.0)
            worker.requests.close()
            worker.answers.close()
        self._life.close()
        self._folder.cleanup()

    def _kill(self, worker: _Worker, job: Submission) -> None:
        with self._lock:
            if worker.job is job:
                worker.signal(signal.SIGKILL)

    def _fork_worker(self) -> _Worker:
        their_requests, requests = multiprocessing.Pipe(duplex=False)
        answers, their_answers = multiprocessing.Pipe(duplex=False)
        sys.stdout.flush()
        sys.stderr.flush()
        process = os.fork()
        if process == 0:
            try:
                self._hold.close()
                requests.close()
                answers.close()
                pipes = (their_requests, their_answers, self._life)
                _serve(self.call_job, self.reports_count, Path(self._folder.name), pipes)
            finally:
                os._exit(1)
        their_requests.close()
        their_answers.close()
        return _Worker(process, requests, answers)

    def _listen(self, worker: _Worker) -> None:
        while True:
            try:
                kind, *content = worker.answers.recv()
            except (EOFError, OSError):
                return
            job = worker.job
            if job is None:
                continue
            if kind == "started":
                with self._lock:
                    worker.pid = content[0]
                    if worker.reason is not None:  # it was to end before it had begun
                        worker.signal(signal.SIGTERM)
                self._emit(Event("started", job.token, {}))
            elif kind == "report":
                step, value = content
                self.emit_report(job.token, step, value)
                if self.reports_count:
                    try:
                        worker.requests.send(("answer", worker.reason is not None))
                    except OSError:  # the search was closed in between
                        return
            elif kind == "end":
                worker.end = _end_of(content[0])
            elif kind == "end in file":
                worker.end = _end_of(Path(content[0]).read_bytes())
                Path(content[0]).unlink()
            else:
                self._gone(worker, job, content[0])

    def _gone(self, worker: _Worker, job: Submission, status: int) -> None:
        with self._lock:
            end, reason = worker.end, worker.reason
            worker.job = worker.pid = None
            self._free.append(worker)
        if end is not None and (reason is None or end.kind == "ok"):
            self.emit_end(job, end)
            return
        if reason is not None:
            self._emit(Event("ended", job.token, {"code": None, "reason": reason}))
            return
        what = f"it was killed by {signal.Signals(-status).name}" if status < 0 else f"it left with exit code {status}"
        self.emit_end(job, TrialEnd("failed", None, 0.0, what))


def _end_of(data: bytes) -> TrialEnd:
    """How a call ended, as its process sent it; what it returned may be of a class that only that process knows."""
    try:
        end: TrialEnd = pickle.loads(data)
    except Exception as error:
        text = f"what it returned cannot be read in another process: {type(error).__name__}: {error}"
        return TrialEnd("failed", None, 0.0, text)
    return end


class _Worker:
    """This process's end of one worker."""

    def __init__(self, process: int, requests: Connection[Any, Any], answers: Connection[Any, Any]) -> None:
        self.process, self.requests, self.answers = process, requests, answers
        self.thread: threading.Thread | None = None
        self.job: Submission | None = None
        self.end: TrialEnd | None = None
        self.pid: int | None = None
        self.reason: str | None = None

    def signal(self, number: int) -> None:
        if self.pid is not None:
            try:
                os.killpg(self.pid, number)
            except ProcessLookupError:
                return


Pipes = tuple["Connection[Any, Any]", "Connection[Any, Any]", "Connection[Any, Any]"]


def _serve(call: Call, reports_count: bool, folder: Path, pipes: Pipes) -> NoReturn:
    """A worker's life: a child for each trial, until the controller is gone."""
    requests, answers, life = pipes
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # ctrl-C is for the controller, which then ends the trials
    while True:
        if life in wait([requests, life]):
            os._exit(0)
        kind, *content = requests.recv()
        if kind != "run":  # an answer that came too late for the trial that was to get it
            continue
        child = os.fork()
        if child == 0:
            try:
                _run_trial(call, content[0], reports_count, folder, pipes)
            finally:
                os._exit(1)
        status = _wait_for(child, life)
        answers.send(("gone", status))


def _run_trial(call: Call, job: Submission, reports_count: bool, folder: Path, pipes: Pipes) -> None:
    requests, answers, _ = pipes
    os.setsid()  # so that what it starts can be killed with it
    answers.send(("started", os.getpid()))
    signal.signal(signal.SIGINT, signal.SIG_DFL)
    end = call_trial(call, _ByPipe(requests, answers, reports_count), job)
    try:
        data = pickle.dumps(end)
    except Exception as error:
        text = f"what it returned cannot be sent to another process: {type(error).__name__}: {error}"
        data = pickle.dumps(TrialEnd("failed", None, end.seconds, text))
    if len(data) <= _ATOMIC_BYTES:
        answers.send(("end", data))
    else:
        path = folder / f"{os.getpid()}.end"
        path.write_bytes(data)
        answers.send(("end in file", str(path)))
    sys.stdout.flush()
    sys.stderr.flush()
    os._exit(0)


def _wait_for(child: int, life: Connection[Any, Any]) -> int:
    """Its exit code, or minus its signal; when the controller is gone, the child goes too."""
    watch = os.pidfd_open(child) if hasattr(os, "pidfd_open") else None
    while True:
        over = wait([life, watch] if watch is not None else [life], None if watch is not None else _POLL_SECONDS)
        if life in over:
            try:
                os.killpg(child, signal.SIGKILL)
            except ProcessLookupError:  # it has not had the time for a group of its own
                os.kill(child, signal.SIGKILL)
            os._exit(0)
        found, status = os.waitpid(child, os.WNOHANG)
        if found:
            if watch is not None:
                os.close(watch)
            return os.waitstatus_to_exitcode(status)


class _ByPipe:
    def __init__(self, requests: Connection[Any, Any], answers: Connection[Any, Any], waits: bool) -> None:
        self.requests, self.answers, self.waits = requests, answers, waits

    def send(self, step: int, value: float) -> bool:
        self.answers.send(("report", step, value))
        return bool(self.requests.recv()[1]) if self.waits else False
