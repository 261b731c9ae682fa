"""Calls of a function as jobs of another site: the function goes with them, what it returns comes back as plain data.

python -m operant.sites.elsewhere FUNCTION JOB RESULT REPORTS      what runs there
"""

from __future__ import annotations

import json
import os
import pickle
import sys
import threading
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from operant._util.files import write_file
from operant.errors import MissingExtraError, UsageError
from operant.sites import wrapper
from operant.sites.base import Event, Found, Site, Submission
from operant.sites.calls import KINDS, TrialEnd, call_trial, checked_report
from operant.sites.function import Call, Check, WorkerSite

_POLL_SECONDS = 0.2
_MOST_REPORTS = 1 << 20  # bytes at once
_ENDING_SECONDS = 60.0


class RemoteCallSite(WorkerSite):
    """Each call a job of ``inner``. Calls under way are ended with the search: their results would be nobody's."""

    def __init__(self, inner: Site, call: Call, check: Check, attribute: str, folder: Path) -> None:
        super().__init__(call, check, attribute)
        self.inner = inner
        self.folder = folder
        self._jobs: dict[str, Submission] = {}
        self._read: dict[str, int] = {}
        self._lock = threading.Lock()
        self._thread: threading.Thread | None = None

    def start(self, emit: Callable[[Event], None]) -> None:
        super().start(emit)
        try:
            import cloudpickle
        except ImportError:
            raise MissingExtraError("a function as a job of a site", "sites") from None
        self._function = self.folder / "site" / "function.pkl"
        write_file(self._function, cloudpickle.dumps(self.call_job))
        self.inner.start(self._hear)
        self._thread = threading.Thread(target=self._listen, name="operant-reports", daemon=True)
        self._thread.start()

    def run(self, job: Submission) -> None:
        folder = self.folder / "jobs" / job.job_id
        work, reports = folder / "work", folder / "reports"
        work.mkdir(parents=True, exist_ok=True)
        reports.unlink(missing_ok=True)  # of an earlier attempt
        function, described = work / "function.pkl", work / f"call-{job.attempt}"
        function.unlink(missing_ok=True)
        function.hardlink_to(self._function)
        job = replace(job, folder=folder, work=work)
        write_file(described, pickle.dumps(job))
        python = getattr(self.inner, "python", None) or sys.executable
        files = [str(one) for one in (function, described, work / "result.json", reports)]
        argv = [python, "-m", "operant.sites.elsewhere", *files]
        env = {"PYTHONPATH": os.pathsep.join(one or str(Path.cwd()) for one in sys.path)}
        with self._lock:
            self._jobs[job.token] = job
        self.inner.submit([Submission(job.token, job.job_id, job.attempt, argv, folder, work, env, job.limits)])

    def cancel(self, tokens: Iterable[str], reason: str = "cancelled", grace: float | None = None) -> None:
        self.inner.cancel(tokens, reason, grace)

    def find(self, tokens: Sequence[str]) -> dict[str, Found]:
        """Those that an earlier controller left behind are ended; they are called again."""
        left = [token for token, one in self.inner.find(tokens).items() if one.state == "running"]
        self.inner.cancel(left, "controller_lost", 0.0)
        return super().find(tokens)

    def close(self) -> None:
        self.inner.cancel(list(self._jobs), "controller_closed", 0.0)
        deadline = time.monotonic() + _ENDING_SECONDS
        while self._jobs and time.monotonic() < deadline:
            time.sleep(0.02)
        self._closed.set()
        self.inner.close()
        if self._thread is not None:
            self._thread.join()

    # -- what comes back ------------------------------------------------------------------------------------------

    def _hear(self, event: Event) -> None:
        if event.kind not in ("ended", "lost"):
            self._emit(event)
            return
        with self._lock:
            job = self._jobs.get(event.token)
        if job is None:
            return
        self._pass_on_reports(job)
        with self._lock:
            del self._jobs[event.token]
        reason, info = event.info.get("reason"), event.info
        end = _end_of(job.work / "result.json") if info.get("code") == 0 else None
        if end is not None:
            self.emit_end(job, end)
        elif reason is not None:
            self._emit(Event("ended", job.token, {"code": None, "reason": reason, "error": info.get("error")}))
        else:
            said = info.get("error") or _last_line(job.folder / "stderr")
            left = f"it left with exit code {info.get('code')}, and not by returning"
            self.emit_end(job, TrialEnd("failed", None, 0.0, said or left))

    def _listen(self) -> None:
        while not self._closed.wait(_POLL_SECONDS):
            with self._lock:
                jobs = list(self._jobs.values())
            for job in jobs:
                self._pass_on_reports(job)

    def _pass_on_reports(self, job: Submission) -> None:
        """What a call has reported since: whole lines of a file, which the call may have written to, too."""
        more = True
        while more:
            with self._lock:
                whole = b"" if job.token not in self._jobs else self._new_lines(job)
            for line in whole.splitlines():
                try:
                    step, value = line.split()
                    report = checked_report(int(step), float(value))
                except (ValueError, UsageError):
                    continue
                self.emit_report(job.token, *report)
            more = len(whole) > _MOST_REPORTS // 2

    def _new_lines(self, job: Submission) -> bytes:
        at = self._read.get(job.token, 0)
        try:
            with (job.folder / "reports").open("rb") as stream:
                stream.seek(at)
                data = stream.read(_MOST_REPORTS)
        except OSError:
            return b""
        whole = data[: data.rfind(b"\n") + 1]
        if not whole and len(data) == _MOST_REPORTS:  # nobody reports a line so long
            whole = data
        self._read[job.token] = at + len(whole)
        return whole


def _end_of(path: Path) -> TrialEnd | None:
    """How a call ended, if it was `main` that wrote this: the function may have, and left without returning."""
    found = wrapper.read_json(str(path))
    try:
        end = TrialEnd(**found)
    except TypeError:
        return None
    texts = all(one is None or isinstance(one, str) for one in (end.error, end.trace))
    return end if texts and end.kind in KINDS and isinstance(end.seconds, (int, float)) else None


def _last_line(path: Path) -> str:
    try:
        lines = path.read_text(encoding="utf-8", errors="replace").strip().splitlines()
    except OSError:
        return ""
    return lines[-1][:500] if lines else ""


class _ByFile:
    def __init__(self, path: Path) -> None:
        self.path = path

    def send(self, step: int, value: float) -> bool:
        with self.path.open("ab", buffering=0) as stream:
            stream.write(b"%d %r\n" % (step, value))
        return False  # whoever shall end is sent a signal


def _plain(value: Any) -> Any:
    if hasattr(value, "tolist"):
        return value.tolist()
    if isinstance(value, Mapping):
        return dict(value)
    raise TypeError(f"{type(value).__name__} is no plain data")


def main(argv: Sequence[str]) -> int:
    function, described, result, reports = (Path(one) for one in argv)
    # Both were written by the search that this process is a job of, for this job.
    call: Call = pickle.loads(function.read_bytes())
    job: Submission = pickle.loads(described.read_bytes())
    end = call_trial(call, _ByFile(reports), job)
    try:
        text = json.dumps(end._asdict(), default=_plain)
    except (TypeError, ValueError) as error:
        text = json.dumps(TrialEnd("failed", None, end.seconds, f"what it returned cannot be sent: {error}")._asdict())
    write_file(result, text)
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
