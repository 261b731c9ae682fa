"""Jobs as processes of this machine, each under its own wrapper, all gone when the controller is."""

from __future__ import annotations

import json
import os
import select
import signal
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from operant._util.checks import is_number, is_whole
from operant.sites import wrapper
from operant.sites.base import SITES, Event, Found, Submission, parse_token
from operant.tracking.identity import boot_id, is_alive, start_ticks

MISSING_EXIT_SECONDS = 2.0
DYING_SECONDS = 30.0
_LEFTOVER_SECONDS = 0.5  # between asking what a job left behind to end, and ending it
_MESSAGE = 1 << 18
_LARGEST_FILE = 1 << 22  # of what wrappers write
_LONGEST_TEXT = 10_000
_LATEST = 1e11  # seconds since 1970


@dataclass(slots=True)
class _Attempt:
    submission: Submission
    control: socket.socket
    ended: bool = False


@SITES.register_module("local")
class LocalSite:
    """Starts jobs through a small fork server, so that a job costs little more than its own program.

    Between the controller and each wrapper there is one socket: orders go down, events come up, and
    its closing tells either side that the other is gone.
    """

    outlives_controller = False

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self._emit: Callable[[Event], None] = lambda event: None
        self._attempts: dict[str, _Attempt] = {}
        self._by_descriptor: dict[int, _Attempt] = {}
        self._lock = threading.Lock()
        self._poll: select.epoll | None = None
        self._wake: tuple[int, int] = (-1, -1)
        self._thread: threading.Thread | None = None
        self._server: tuple[subprocess.Popen[bytes], socket.socket] | None = None
        self._closed = False

    def start(self, emit: Callable[[Event], None]) -> None:
        self._emit = emit
        self._closed = False
        self._poll = select.epoll()
        self._wake = os.pipe2(os.O_CLOEXEC)
        self._poll.register(self._wake[0], select.EPOLLIN)
        self._thread = threading.Thread(target=self._listen, name="operant-local-site", daemon=True)
        self._thread.start()

    def submit(self, jobs: Sequence[Submission]) -> list[str]:
        assert self._poll is not None, "start() comes before submit()"
        for job in jobs:
            mine, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
            attempt = _Attempt(job, mine)
            with self._lock:
                self._attempts[job.token] = attempt
                self._by_descriptor[mine.fileno()] = attempt
            try:
                self._send(json.dumps(spec_of(job)).encode(), theirs)
            finally:
                theirs.close()
            self._poll.register(mine.fileno(), select.EPOLLIN)
        return [job.token for job in jobs]

    def cancel(self, tokens: Iterable[str], reason: str = "cancelled", grace: float | None = None) -> None:
        for token in tokens:
            with self._lock:
                attempt = self._attempts.get(token)
            if attempt is None or attempt.ended:
                continue
            try:
                attempt.control.send(json.dumps({"cancel": reason, "grace": grace}).encode())
            except OSError:  # it has just ended; its event says how
                continue

    def find(self, tokens: Sequence[str]) -> dict[str, Found]:
        """Jobs die with their controller, so each has either written its exit file, is about to, or never ran."""
        deadline = time.monotonic() + DYING_SECONDS
        found = {token: self._find_one(token, deadline) for token in tokens}
        lost = {token for token, one in found.items() if one.state == "unknown"}
        if lost:
            end_leftovers(self.folder, lost)
        return found

    def close(self) -> None:
        if self._closed or self._poll is None:
            return
        self._closed = True
        self.cancel(list(self._attempts), "controller_closed", 0.0)
        deadline = time.monotonic() + DYING_SECONDS
        while self._attempts and time.monotonic() < deadline:
            time.sleep(0.005)
        if self._server is not None:
            process, channel = self._server
            channel.close()
            process.wait()
        os.write(self._wake[1], b"x")
        assert self._thread is not None
        self._thread.join()
        for descriptor in self._wake:
            os.close(descriptor)
        self._poll.close()

    # -- the fork server ----------------------------------------------------------------------------------------

    def _send(self, spec: bytes, control: socket.socket) -> None:
        for last_try in (False, True):
            if self._server is None:
                self._server = _start_server()
            try:
                channel = self._server[1]
                socket.send_fds(channel, [wrapper.HEADER.pack(len(spec))], [control.fileno()])
                channel.sendall(spec)
                return
            except (BrokenPipeError, ConnectionError):
                # The fork server was killed. Its wrappers live on; a new server takes the next jobs.
                self._server[1].close()
                self._server[0].wait()
                self._server = None
                if last_try:
                    raise

    # -- the listening thread -----------------------------------------------------------------------------------

    def _listen(self) -> None:
        assert self._poll is not None
        while True:
            for descriptor, _ in self._poll.poll():
                if descriptor == self._wake[0]:
                    return
                self._hear(self._by_descriptor[descriptor])

    def _hear(self, attempt: _Attempt) -> None:
        try:
            message = attempt.control.recv(_MESSAGE)
        except ConnectionError:
            message = b""
        token = attempt.submission.token
        if not message:
            self._forget(attempt)
            if not attempt.ended:
                # Wrappers write the file before they go; a short wait is for a disk that is slow to show it.
                event = _read_late(attempt.submission)
                if event.kind == "lost":
                    end_leftovers(self.folder, [token])
                self._emit(event)
            return
        info = json.loads(message)
        kind = info.pop("event")
        if kind == "failed":
            attempt.ended = True
            self._emit(Event("ended", token, {"code": None, "error": info["error"], "reason": "wrapper_failed"}))
        elif kind == "refused":
            attempt.ended = True
            self._emit(Event("lost", token, {"error": "this attempt had been claimed by another process"}))
        else:
            attempt.ended = kind == "ended"
            self._emit(Event(kind, token, info))

    def _forget(self, attempt: _Attempt) -> None:
        assert self._poll is not None
        self._poll.unregister(attempt.control.fileno())
        with self._lock:
            self._by_descriptor.pop(attempt.control.fileno(), None)
            self._attempts.pop(attempt.submission.token, None)
        attempt.control.close()

    def _find_one(self, token: str, deadline: float) -> Found:
        job_id, attempt = parse_token(token)
        folder = self.folder / "jobs" / job_id
        while True:
            holder = _read_json(folder / f"claim-{attempt}")
            if holder is None:
                # A wrapper may be about to claim it. Whoever comes second leaves, so this is settled for good.
                if not folder.is_dir() or wrapper.claim(str(folder), attempt, f"{token}/never"):
                    return Found("unknown", {})
                continue
            runs = bool(
                _still_runs(holder)
            )  # asked before the file is read: one that ends in between has then written it
            record = read_exit(folder, attempt)
            if record is not None and record.get("token") == token:
                return Found("ended", record)
            if holder.get("token") != token or not runs:
                return Found("unknown", {})
            if time.monotonic() > deadline:
                return Found("running", {"pid": holder.get("pid")})
            time.sleep(0.02)


def read_exit(folder: Path, attempt: int) -> dict[str, Any] | None:
    """What the wrapper of an attempt left; None while there is none.

    The program could write there, too: a field is left out that no wrapper would fill so.
    """
    record = _read_json(folder / f"exit-{attempt}.json")
    return None if record is None else {key: value for key, value in record.items() if _is_of_exit(key, value)}


def _is_of_exit(key: str, value: Any) -> bool:
    match key:
        case "code" | "signal" | "attempt" | "restart" | "leftovers" | "peak_bytes":
            return value is None or (is_whole(value) and abs(value) < 2**63)
        case "started" | "ended" | "seconds" | "cpu_seconds":
            return is_number(value) and 0 <= value < _LATEST
        case "token" | "reason" | "error":
            return value is None or (isinstance(value, str) and len(value) < _LONGEST_TEXT)
        case "results":
            return isinstance(value, list)
        case _:
            return key in ("stdout", "stderr", "segments") and isinstance(value, dict)


def spec_of(job: Submission) -> dict[str, Any]:
    """What the wrapper is told."""
    return {
        "token": job.token,
        "attempt": job.attempt,
        "argv": job.argv,
        "cwd": str(job.work),
        "folder": str(job.folder),
        "stdout": str(job.folder / "stdout"),
        "stderr": str(job.folder / "stderr"),
        "run_dir": str(job.folder / "run"),
        "env": dict(job.env),
        "time_limit": job.limits.seconds,
        "memory_limit": job.limits.memory_bytes,
        "output_limit": job.limits.output_bytes,
        "grace": job.limits.grace_seconds,
    }


def _start_server() -> tuple[subprocess.Popen[bytes], socket.socket]:
    mine, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_STREAM)
    with theirs:
        process = subprocess.Popen(
            [sys.executable, "-I", "-S", wrapper.__file__, "serve", str(theirs.fileno())],
            pass_fds=[theirs.fileno()],
            stdin=subprocess.DEVNULL,
            start_new_session=True,  # ctrl-C in the terminal is for the controller alone
        )
    return process, mine


def _read_late(job: Submission) -> Event:
    deadline = time.monotonic() + MISSING_EXIT_SECONDS
    while True:
        record = read_exit(job.folder, job.attempt)
        if record is not None and record.get("token") == job.token:
            return Event("ended", job.token, record)
        if time.monotonic() > deadline:
            error = "its wrapper was killed before it could say how the program ended"
            return Event("lost", job.token, {"error": error})
        time.sleep(0.02)


def _still_runs(holder: Mapping[str, Any]) -> bool | None:
    """Whether a wrapper lives; None when only another container or host could tell."""
    return is_alive({**holder, "pid_space": _pid_space()})


def _pid_space() -> str:
    try:
        return str(Path("/proc/self/ns/pid").readlink())
    except OSError:
        return ""


def _read_json(path: Path) -> dict[str, Any] | None:
    try:
        with path.open("rb") as file:
            found = json.loads(file.read(_LARGEST_FILE))
    except (FileNotFoundError, NotADirectoryError, IsADirectoryError, ValueError, RecursionError):
        return None
    return found if isinstance(found, dict) else None


# -- what nobody sees to any more -------------------------------------------------------------------------------------


def end_leftovers(folder: Path, tokens: Collection[str] | None = None) -> int:
    """End what jobs of the search in ``folder`` left running when all who saw to them were killed at once.

    Such processes carry the token of their attempt in their environment. The attempt's claim must be there, of this
    boot, older than the process, and of a wrapper that is gone; one that is about to end its job is waited for.

    :param tokens: only of these attempts; by default of all.
    :return: how many processes were ended.
    """
    ended: dict[tuple[int, int], float] = {}
    deadline = time.monotonic() + DYING_SECONDS
    while True:
        left, waits = [], False
        for pid, ticks, claim in _processes_with_claims(folder, tokens):
            if _still_runs(claim) is not False:
                waits = True
            else:
                left.append((pid, ticks))
        now = time.monotonic()
        if not (left or waits) or now > deadline:
            return len(ended)
        for process in left:
            first = ended.setdefault(process, now)
            if first == now or now > first + _LEFTOVER_SECONDS:
                _signal(*process, signal.SIGTERM if first == now else signal.SIGKILL)
        time.sleep(0.02)


def _processes_with_claims(folder: Path, tokens: Collection[str] | None) -> Iterator[tuple[int, int, dict[str, Any]]]:
    """Processes that carry the token of an attempt of this search, when they started, and who claimed the attempt."""
    mark = f"{wrapper.TOKEN_NAME}=".encode()
    own = _ancestors(os.getpid())  # who was started by a job may end what that job left, but not itself
    for folder_of in Path("/proc").glob("[1-9]*"):
        try:
            pid, environment = int(folder_of.name), (folder_of / "environ").read_bytes()
        except (OSError, ValueError):  # it has ended, or belongs to somebody else
            continue
        if mark not in environment or pid in own:
            continue
        found = [
            one[len(mark) :].decode("utf-8", "replace") for one in environment.split(b"\0") if one.startswith(mark)
        ]
        ticks = start_ticks(pid)
        if not found or ticks is None or (tokens is not None and found[0] not in tokens):
            continue
        try:
            job_id, attempt = parse_token(found[0])
        except ValueError:
            continue
        claim = _read_json(folder / "jobs" / job_id / f"claim-{attempt}") or {}
        began = claim.get("ticks")
        if (
            claim.get("token") == found[0]
            and claim.get("boot") == boot_id()
            and isinstance(began, int)
            and began <= ticks
        ):
            yield pid, ticks, claim


def _ancestors(pid: int) -> set[int]:
    found = set[int]()
    while pid > 0 and pid not in found:
        found.add(pid)
        try:
            pid = int(Path(f"/proc/{pid}/stat").read_bytes().rpartition(b")")[2].split()[1])
        except OSError:
            break
    return found


def _signal(pid: int, ticks: int, number: int) -> None:
    """Only to that very process: its number may have been given to another one since."""
    try:
        handle = os.pidfd_open(pid)
    except OSError:
        return
    try:
        if start_ticks(pid) == ticks:
            signal.pidfd_send_signal(handle, number)
    except OSError:
        pass
    finally:
        os.close(handle)
