"""Runs one job's program and sees to its end: nothing it started stays behind, and what became of it is on disk.

One file of standard library, so that it also runs where Operant is not installed:

    python wrapper.py run SPEC.json     one job, described by a JSON file
    python wrapper.py run LIST NUMBER   the same, where line NUMBER of a file, counted from 0, names that JSON file
    python wrapper.py fetch             the same, where no folder is shared: by the controller's HTTP channel
    python wrapper.py serve FD          a fork server: each job that arrives on the socket gets a wrapper of its own

The wrapper claims its attempt atomically (a second copy leaves at once), is the subreaper of all that the
program starts, and ends them together: when the program ends, when the controller says so or is gone, when a
limit is passed. `exit-<attempt>.json` then says what happened.

Where a site may start the same attempt again, after a preemption or a lost node, it counts these starts in
OPERANT_RESTART: a later one takes the claim of the earlier one over. SIGUSR1 is a site's warning that it will soon
end the job; programs that handle it get it too, and OPERANT_REQUEUE is the command that lets it be started again.
"""

from __future__ import annotations

import ctypes
import errno
import functools
import gc
import json
import os
import select
import signal
import socket
import struct
import sys
import time
from typing import Any

PR_SET_PDEATHSIG = 1
PR_SET_CHILD_SUBREAPER = 36
LEFTOVER_GRACE = 0.5  # seconds between asking what the program left behind to end, and ending it
SRUN_GRACE = 5.0
MEMORY_POLL = 0.25
CHUNK = 1 << 18
HEADER = struct.Struct("<I")
HANDLED = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP, signal.SIGCHLD, signal.SIGUSR1)
ROOM_SECONDS = 60.0  # how long a job without a controller waits for room on a full disk
PAGE = os.sysconf("SC_PAGE_SIZE")
RESULT_NAMES = ("result.json", "result.pkl")
"""Where a program may leave its result, in the folder in which it runs."""
STREAMS = ("stdout", "stderr", "reports")
"""Files in a job's folder that only grow: what the program prints, and what a function reports."""
TOKEN_NAME = "OPERANT_JOB_TOKEN"
"""The variable by which processes of an attempt are found when everybody who saw to them has been killed."""

_libc = ctypes.CDLL(None, use_errno=True)


def prctl(option: int, value: int) -> None:
    if _libc.prctl(option, value, 0, 0, 0) != 0:
        raise OSError(ctypes.get_errno(), "prctl")


# -- what the program prints --------------------------------------------------------------------------------------


class Output:
    """A file that keeps the first and the last part of what is written to it, whatever comes between.

    A program that prints without end must not fill the disk; its first lines say what it was, its last ones
    why it ended. A disk that is full already costs output, never the job.
    """

    def __init__(self, path: str, limit: int, goes_on: bool = False) -> None:
        self.received = 0
        self.lost = 0
        self._head_left = limit // 2
        self._tail_limit = limit - limit // 2
        self._tail: list[bytes] = []
        self._tail_bytes = 0
        mode = os.O_APPEND if goes_on else os.O_TRUNC
        self._descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | mode | os.O_CLOEXEC, 0o644)
        self._begin = os.lseek(self._descriptor, 0, os.SEEK_END)

    def write(self, data: bytes) -> None:
        self.received += len(data)
        if self._head_left:
            head, data = data[: self._head_left], data[self._head_left :]
            self._head_left -= len(head)
            self._put(head)
        if data:
            self._tail.append(data)
            self._tail_bytes += len(data)
            while self._tail_bytes - len(self._tail[0]) >= self._tail_limit:
                self._tail_bytes -= len(self._tail.pop(0))

    def close(self) -> dict[str, int]:
        tail = b"".join(self._tail)[-self._tail_limit :]
        written = os.lseek(self._descriptor, 0, os.SEEK_CUR) - self._begin
        dropped = self.received - written - self.lost - len(tail)
        if dropped > 0:
            self._put(b"\n[... %d bytes left out here: the output passed its limit ...]\n" % dropped)
        self._put(tail)
        os.close(self._descriptor)
        return {"bytes": self.received, "left_out": max(dropped, 0) + self.lost}

    def _put(self, data: bytes) -> None:
        view = memoryview(data)
        try:
            while view:
                view = view[os.write(self._descriptor, view) :]
        except OSError as error:
            if error.errno not in (errno.ENOSPC, errno.EDQUOT, errno.EIO):
                raise
            self.lost += len(view)


# -- who belongs to the program -----------------------------------------------------------------------------------


def descendants(root: int) -> list[int]:
    """All living processes below `root`, parents before children. As its subreaper, none can leave it."""
    children: dict[int, list[int]] = {}
    for name in os.listdir("/proc"):
        if not name.isdigit():
            continue
        try:
            with open("/proc/%s/stat" % name, "rb") as stream:
                # The command may hold anything, so count from its closing bracket.
                fields = stream.read().rpartition(b")")[2].split(None, 2)
        except OSError:
            continue
        if fields and fields[0] not in (b"Z", b"X"):
            children.setdefault(int(fields[1]), []).append(int(name))
    found: list[int] = []
    waiting = [root]
    while waiting:
        below = children.get(waiting.pop(), [])
        found += below
        waiting += below
    return found


def catches(pid: int, number: int) -> bool:
    """Whether a process has a handler of its own for a signal."""
    try:
        with open("/proc/%d/status" % pid, "rb") as stream:
            for line in stream:
                if line.startswith(b"SigCgt:"):
                    return bool(int(line.split()[1], 16) >> (number - 1) & 1)
    except OSError:
        pass
    return False


def memory_of(pids: list[int]) -> int:
    """Bytes that these processes hold for themselves, shared libraries not counted."""
    total = 0
    for pid in pids:
        try:
            with open("/proc/%d/statm" % pid, "rb") as stream:
                fields = stream.read().split()
            total += (int(fields[1]) - int(fields[2])) * PAGE
        except (OSError, IndexError):
            continue
    return total


def identity(pid: int) -> dict[str, object]:
    """What tells this process from a later one with the same number."""
    try:
        with open("/proc/%d/stat" % pid, "rb", 0) as stream:
            ticks = int(stream.read().rpartition(b")")[2].split()[19])
        boot = boot_id()
    except OSError:
        ticks, boot = 0, ""
    found = {"pid": pid, "ticks": ticks, "boot": boot, "host": socket.gethostname()}
    node = os.environ.get("OPERANT_NODE") or os.environ.get("SLURMD_NODENAME")  # what the site calls this machine
    return dict(found, node=node) if node else found


@functools.lru_cache(maxsize=1)
def boot_id() -> str:
    with open("/proc/sys/kernel/random/boot_id", "rb") as stream:
        return stream.read().strip().decode()


# -- files that others rely on ------------------------------------------------------------------------------------


def claim(folder: str, attempt: int, token: str, restart: int = 0, who: dict[str, Any] | None = None) -> bool:
    """Take the attempt, or find that it is taken: of any number of copies one gets True, and later each restart."""
    # Nodes that share the folder may have processes with the same number.
    staged = os.path.join(
        folder, ".claim-%d-%s-%d-%d" % (attempt, socket.gethostname(), os.getpid(), time.monotonic_ns())
    )
    final = os.path.join(folder, "claim-%d" % attempt)
    descriptor = os.open(staged, os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_CLOEXEC, 0o644)
    try:
        os.write(descriptor, json.dumps(dict(who or identity(os.getpid()), token=token, restart=restart)).encode())
        os.close(descriptor)
        os.link(staged, final)
    except FileExistsError:
        holder = read_json(final)
        if not restart or holder.get("token") != token or holder.get("restart", 0) >= restart:
            return False
        os.rename(staged, final)
        for name in ("exit-%d.json" % attempt, "cancel-%d" % attempt):
            if os.path.exists(os.path.join(folder, name)):
                os.rename(os.path.join(folder, name), os.path.join(folder, "%s.restart-%d" % (name, restart)))
        return True
    finally:
        try:
            os.unlink(staged)
        except FileNotFoundError:  # it has taken the place of the former claim
            pass
    return True


def read_json(path: str) -> dict[str, Any]:
    """What a small file says; nothing where there is none, or it is damaged."""
    try:
        with open(path, encoding="utf-8") as stream:
            found = json.load(stream)
    except (OSError, ValueError, RecursionError):
        return {}
    return found if isinstance(found, dict) else {}


def write_exit(folder: str, attempt: int, record: dict[str, object]) -> int:
    """Put the exit file in place and return its descriptor, which the caller syncs and closes."""
    staged = os.path.join(folder, ".exit-%d" % attempt)
    descriptor = os.open(staged, os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_CLOEXEC, 0o644)
    try:
        os.write(descriptor, json.dumps(record).encode())
        os.rename(staged, os.path.join(folder, "exit-%d.json" % attempt))
    except BaseException:
        os.close(descriptor)
        raise
    return descriptor


def exit_code(status: int) -> int:
    """What `wait` says, as an exit code, or minus the number of a signal."""
    return -os.WTERMSIG(status) if os.WIFSIGNALED(status) else os.WEXITSTATUS(status)


def segment_lengths(run_dir: str) -> dict[str, int]:
    try:
        with os.scandir(run_dir) as entries:
            return {one.name: one.stat().st_size for one in entries if one.name.endswith(".seg")}
    except OSError:
        return {}


def result_stamps(folder: str) -> dict[str, tuple[int, int]]:
    """What tells the result files that are there from those that will be written: by this host's own clock."""
    stamps = {}
    for name in RESULT_NAMES:
        try:
            found = os.lstat(os.path.join(folder, name))
        except OSError:
            continue
        stamps[name] = (found.st_ino, found.st_mtime_ns)
    return stamps


# -- one job ------------------------------------------------------------------------------------------------------


class Supervisor:
    """One attempt of one job, from its claim to its exit file."""

    def __init__(self, spec: dict[str, Any], control: socket.socket | None) -> None:
        self.spec = spec
        self.control = control
        self.folder = spec["folder"]
        self.attempt = spec["attempt"]
        self.grace = float(spec.get("grace", 5.0))
        self.restart = int(os.environ.get("OPERANT_RESTART") or 0)
        self.requeue_at: float | None = None
        """When a site that has warned is asked to start the attempt again."""
        self.pid = 0
        self.status: int | None = None
        self.reason: str | None = None
        self.error: str | None = None
        self.may_end_well = False
        """Whether exit code 0 can only mean that the program finished before it was told to end."""
        self.kill_at: float | None = None
        self.leftovers = 0
        self.waited = 0.0
        self.cpu_seconds = 0.0
        self.peak_kilobytes = 0
        self.outputs: dict[int, Output] = {}
        self.stamps: dict[str, tuple[int, int]] = {}

    def run(self, wake: int) -> int:
        """See to it; `wake` is what `watch_signals` gave."""
        if not claim(self.folder, self.attempt, self.spec["token"], self.restart):
            if self.control is not None:
                self._tell({"event": "refused"})
            return 0
        if self.control is not None and select.select([self.control], [], [], 0)[0] and not self._listen():
            return 0  # its controller is gone already; it never began
        self.stamps = {} if self.restart else result_stamps(self.spec["cwd"])
        began, began_wall = time.monotonic(), time.time()
        if self.reason is not None:  # it was cancelled before it began
            return self._finish(began_wall, 0.0)
        pipes = self._start()
        self._tell({"event": "started", "pid": self.pid, "wall": began_wall})
        limit = self.spec.get("time_limit")
        self._watch(wake, pipes, None if limit is None else began + limit)
        self._end_leftovers(wake)
        self._drain(pipes)
        for descriptor in pipes:
            os.close(descriptor)
        if self._requeue():
            return 0
        return self._finish(began_wall, time.monotonic() - began)

    def _start(self) -> list[int]:
        spec = self.spec
        limit = int(spec.get("output_limit", 16 << 20))
        out, out_in = os.pipe2(os.O_CLOEXEC)
        err, err_in = os.pipe2(os.O_CLOEXEC)
        failed, failed_in = os.pipe2(os.O_CLOEXEC)
        goes_on = self.restart > 0
        self.outputs = {out: Output(spec["stdout"], limit, goes_on), err: Output(spec["stderr"], limit, goes_on)}
        environment = dict(os.environ, **spec.get("env", {}))
        kept = os.path.join(spec.get("run_dir", ""), "checkpoints")
        if goes_on and os.path.isdir(kept) and os.listdir(kept):
            environment["OPERANT_RESUME_FROM"] = environment.get("OPERANT_CKPT_DIR", kept)
        environment[TOKEN_NAME] = spec["token"]
        # A signal that arrives while there are two of us must not be handled by the wrong one.
        signal.pthread_sigmask(signal.SIG_BLOCK, HANDLED)
        parent = os.getpid()  # 1 in a container
        self.pid = os.fork()
        if self.pid == 0:
            self._become_program(environment, out_in, err_in, failed_in, parent)
        signal.pthread_sigmask(signal.SIG_UNBLOCK, HANDLED)
        for descriptor in (out_in, err_in, failed_in):
            os.close(descriptor)
        self.error = os.read(failed, 4096).decode("utf-8", "replace") or None
        os.close(failed)
        os.set_blocking(out, False)
        os.set_blocking(err, False)
        return [out, err]

    def _become_program(self, environment: dict[str, str], out: int, err: int, failed: int, parent: int) -> None:
        spec = self.spec
        argv = spec["argv"]
        try:
            signal.set_wakeup_fd(-1)
            for number in (*HANDLED, signal.SIGPIPE):
                signal.signal(number, signal.SIG_DFL)
            signal.pthread_sigmask(signal.SIG_UNBLOCK, HANDLED)
            os.setpgid(0, 0)
            prctl(PR_SET_PDEATHSIG, signal.SIGKILL)
            if os.getppid() != parent:  # the wrapper died before that took effect
                os._exit(1)
            null = os.open(os.devnull, os.O_RDONLY)
            for source, target in ((null, 0), (out, 1), (err, 2)):
                os.dup2(source, target)
            os.chdir(spec["cwd"])
            os.execvpe(argv[0], argv, environment)
        except BaseException as error:
            if isinstance(error, OSError) and error.strerror:
                text = "cannot run %r in %s: %s" % (argv[0], spec["cwd"], error.strerror)
            else:
                text = "cannot run %r: %s" % (argv, error)
            os.write(failed, text.encode("utf-8", "replace")[:4096])
        finally:
            os._exit(127)

    def _watch(self, wake: int, pipes: list[int], deadline: float | None) -> None:
        poll = select.poll()
        for descriptor in (wake, *pipes):
            poll.register(descriptor, select.POLLIN)
        if self.control is not None:
            poll.register(self.control, select.POLLIN)
        memory_limit = self.spec.get("memory_limit")
        while self.status is None:
            times = [time.monotonic() + MEMORY_POLL] if memory_limit else []
            times += [at for at in (deadline, self.kill_at, self.requeue_at) if at is not None]
            timeout = max(0.0, min(times) - time.monotonic()) * 1000 + 1 if times else None
            for descriptor, _ in poll.poll(timeout):
                if descriptor == wake:
                    _empty(wake)
                    self._reap()
                elif descriptor in self.outputs:
                    if not self._copy(descriptor):
                        poll.unregister(descriptor)
                elif not self._listen():
                    poll.unregister(descriptor)
            now = time.monotonic()
            if deadline is not None and now >= deadline:
                deadline = None
                self.stop("time_limit")
            if self.requeue_at is not None and now >= self.requeue_at:
                self.requeue_at = None
                self.stop("requeued")
            if memory_limit and self.reason is None and memory_of(descendants(os.getpid())) > memory_limit:
                self.stop("memory_limit", 0.0)
            if self.kill_at is not None and now >= self.kill_at:
                self._signal_all(signal.SIGKILL)
                self.kill_at = now + 0.05  # again, for what was started meanwhile

    def stop(self, reason: str, grace: float | None = None) -> None:
        """Ask everything to end, and make it end when the grace is over."""
        self._reap()
        if self.status is not None:
            return  # it has ended by itself
        if self.reason is None:
            self.reason = reason
            self.may_end_well = self.pid > 0 and not catches(self.pid, signal.SIGTERM)
            self._signal_all(signal.SIGTERM)
            # A stopped process acts on SIGTERM only when it goes on.
            self._signal_all(signal.SIGCONT)
        # An srun that is killed leaves its steps on the cluster; told to end, it ends them within a moment.
        least = SRUN_GRACE if os.path.basename(self.spec["argv"][0]) == "srun" else 0.0
        at = time.monotonic() + max(least, self.grace if grace is None else grace)
        self.kill_at = at if self.kill_at is None else min(self.kill_at, at)

    def warn(self) -> None:
        """The site will soon end this job: tell who wants to know, and be started again where that is allowed."""
        for pid in descendants(os.getpid()):
            if catches(pid, signal.SIGUSR1):
                os.kill(pid, signal.SIGUSR1)
        if self.restart < int(self.spec.get("requeues", 0)) and os.environ.get("OPERANT_REQUEUE"):
            self.requeue_at = time.monotonic() + float(self.spec.get("warn", 0.0)) / 2

    def _requeue(self) -> bool:
        """Ask the site for another start, if that is why the program was ended, and it had not finished by then."""
        if self.reason != "requeued" or (self.may_end_well and self.status == 0):
            return False
        for pause in (0.5, 1.0, 2.0, 0.0):  # a busy site may not answer at once
            if os.system(os.environ["OPERANT_REQUEUE"] + " >/dev/null") == 0:
                return True
            time.sleep(pause)
        return False

    def terminate(self) -> None:
        """A signal says that it shall end; whoever meant that may have left word of why, and of how fast."""
        order = read_json(os.path.join(self.folder, "cancel-%d" % self.attempt))
        self.stop(order.get("cancel", "terminated"), order.get("grace"))

    def _listen(self) -> bool:
        """Hear the controller; silence for ever means that it is gone."""
        assert self.control is not None
        try:
            message = self.control.recv(65536)
        except (ConnectionError, InterruptedError):
            message = b""
        if not message:
            self.stop("controller_lost", 1.0)
            return False
        order = json.loads(message)
        self.stop(order.get("cancel", "cancelled"), order.get("grace"))
        return True

    def _copy(self, descriptor: int) -> bool:
        try:
            data = os.read(descriptor, CHUNK)
        except BlockingIOError:
            return True
        if data:
            self.outputs[descriptor].write(data)
        return bool(data)

    def _reap(self) -> bool:
        """Take note of children that ended; False when none are left."""
        while True:
            try:
                pid, status, used = os.wait4(-1, os.WNOHANG)
            except ChildProcessError:
                return False
            if pid == 0:
                return True
            self.cpu_seconds += used.ru_utime + used.ru_stime
            self.peak_kilobytes = max(self.peak_kilobytes, used.ru_maxrss)
            if pid == self.pid:
                self.status = status

    def _signal_all(self, number: int) -> None:
        for pid in descendants(os.getpid()):
            try:
                os.kill(pid, number)
            except (ProcessLookupError, PermissionError):
                continue

    def _end_leftovers(self, wake: int) -> None:
        """The program has ended; what it left behind, detached or not, ends with it."""
        if not self._reap():
            return
        left = descendants(os.getpid())
        self.leftovers = len(left)
        if self.reason is None:
            self._signal_all(signal.SIGTERM)
            kill_at = time.monotonic() + LEFTOVER_GRACE
        else:
            kill_at = time.monotonic()
        while self._reap():
            now = time.monotonic()
            if now >= kill_at:
                self._signal_all(signal.SIGKILL)
                kill_at = now + 0.05
            select.select([wake], [], [], max(0.0, kill_at - now))
            _empty(wake)

    def _drain(self, pipes: list[int]) -> None:
        for descriptor in pipes:
            while True:
                try:
                    data = os.read(descriptor, CHUNK)
                except (BlockingIOError, OSError):
                    break
                if not data:
                    break
                self.outputs[descriptor].write(data)

    def _finish(self, began_wall: float, seconds: float) -> int:
        code = None if self.status is None else exit_code(self.status)
        if code == 0 and self.may_end_well:
            self.reason = None
        stamps = result_stamps(self.spec["cwd"])
        printed = [output.close() for output in self.outputs.values()] or [{"bytes": 0, "left_out": 0}] * 2
        record = {
            "token": self.spec["token"],
            "attempt": self.attempt,
            "code": code if code is None or code >= 0 else None,
            "signal": -code if code is not None and code < 0 else None,
            "reason": self.reason,
            "error": self.error,
            "started": began_wall,
            "ended": began_wall + seconds,
            "seconds": seconds,
            "cpu_seconds": self.cpu_seconds,
            "peak_bytes": self.peak_kilobytes * 1024,
            "leftovers": self.leftovers,
            "stdout": printed[0],
            "stderr": printed[1],
            "results": [name for name in stamps if stamps[name] != self.stamps.get(name)],
            "segments": segment_lengths(self.spec.get("run_dir", "")),
        }
        told = False
        while True:
            try:
                descriptor = write_exit(self.folder, self.attempt, record)
                break
            except OSError as error:
                if error.errno not in (errno.ENOSPC, errno.EDQUOT):
                    raise
            # The disk is full. The controller can know all the same; the file comes when there is room.
            told = told or (self.control is not None and self._tell(dict(record, event="ended")))
            if not self._wait_for_room():
                return code or 1
        if not told:
            # A file that is in place survives the death of every process, so nobody need wait for the disk.
            self._tell(dict(record, event="ended"))
        os.fsync(descriptor)
        os.close(descriptor)
        return 0 if code == 0 and self.reason is None else code if code is not None and code > 0 else 1

    def _wait_for_room(self) -> bool:
        """Wait a little; False when the controller is gone as well, or where there is none for long enough."""
        if self.control is None:
            time.sleep(0.5)
            self.waited += 0.5
            return self.waited < ROOM_SECONDS
        readable, _, _ = select.select([self.control], [], [], 0.5)
        return not readable or bool(self.control.recv(65536))

    def _tell(self, event: dict[str, object]) -> bool:
        if self.control is None:
            return self._leave_notice(str(event["event"]))
        try:
            self.control.send(json.dumps(event).encode())
        except OSError:  # nobody listens any more; the exit file is what counts
            return False
        return True

    def _leave_notice(self, kind: str) -> bool:
        """An empty file in a folder that the controller looks through: one look tells the news of all jobs."""
        folder = self.spec.get("notices")
        if folder is None:
            return False
        name = "%s.%d.%d.%s" % (os.path.basename(self.folder), self.attempt, self.restart, kind)
        try:
            os.close(os.open(os.path.join(folder, name), os.O_WRONLY | os.O_CREAT | os.O_CLOEXEC, 0o644))
        except OSError:  # the disk is full, or the search was removed; the site's word has to do
            return False
        return True


def prepare() -> int:
    """Make this process one that sees to programs, and give what becomes readable when a signal arrives."""
    prctl(PR_SET_CHILD_SUBREAPER, 1)
    wake, wake_in = os.pipe2(os.O_CLOEXEC | os.O_NONBLOCK)
    signal.set_wakeup_fd(wake_in, warn_on_full_buffer=False)
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    signal.signal(signal.SIGCHLD, lambda *_: None)
    for number in (signal.SIGTERM, signal.SIGHUP):
        signal.signal(number, _terminate)
    signal.signal(signal.SIGUSR1, lambda *_: _current.warn() if _current is not None else None)
    return wake


_current: Supervisor | None = None


def _terminate(*_: object) -> None:
    if _current is None:
        os._exit(0)  # it waits for a job: nothing is lost
    _current.terminate()


def supervise(spec: dict[str, Any], control: socket.socket | None, wake: int) -> int:
    global _current
    _current = Supervisor(spec, control)
    code = _current.run(wake)
    _current = None
    return code


def prefer_as_victim() -> None:
    """When memory runs out, the kernel should take jobs before their controller; programs inherit this."""
    try:
        with open("/proc/self/oom_score_adj", "wb", 0) as stream:
            stream.write(b"500")
    except OSError:
        pass


def _empty(descriptor: int) -> None:
    try:
        while len(os.read(descriptor, 4096)) == 4096:
            pass
    except BlockingIOError:
        pass


# -- many jobs ----------------------------------------------------------------------------------------------------


class ForkServer:
    """Gives each job that arrives to a wrapper: one that has nothing to do, or else a new one, forked from here.

    A wrapper sees to one job at a time and then waits for the next, which saves most programs the time of a fork.
    This process leaves when its controller does; the wrappers notice that by themselves. Should a wrapper be
    killed, its program's processes fall to this process, which ends them.
    """

    def __init__(self, descriptor: int) -> None:
        self.jobs = socket.socket(fileno=descriptor)
        os.set_inheritable(descriptor, False)
        prctl(PR_SET_CHILD_SUBREAPER, 1)
        prefer_as_victim()
        signal.signal(signal.SIGINT, signal.SIG_IGN)
        self.wake, self.wake_in = os.pipe2(os.O_CLOEXEC | os.O_NONBLOCK)
        signal.set_wakeup_fd(self.wake_in, warn_on_full_buffer=False)
        signal.signal(signal.SIGCHLD, lambda *_: None)
        self.pids: dict[socket.socket, int] = {}
        """The wrappers by the socket that leads to them."""
        self.alive: set[int] = set()
        """Those that have not been buried, whether their socket is closed by now or not."""
        self.free: list[socket.socket] = []
        self.poll = select.poll()
        # What wrappers need is loaded and looked up before the first fork, and stays where it is: pages are shared.
        json.dumps(identity(os.getpid()))
        gc.disable()
        gc.freeze()

    def serve(self) -> int:
        self.poll.register(self.jobs, select.POLLIN)
        self.poll.register(self.wake, select.POLLIN)
        while True:
            for ready, _ in self.poll.poll():
                if ready == self.wake:
                    _empty(self.wake)
                    self._bury()
                elif ready == self.jobs.fileno():
                    received = _receive(self.jobs)
                    if received is None:
                        self._dismiss()
                        return 0
                    self._give_out(*received)
                else:
                    self._hear([link for link in self.pids if link.fileno() == ready])

    def _give_out(self, spec: bytes, control: socket.socket) -> None:
        while self.free:
            if _pass_on(self.free.pop(), spec, control):
                control.close()
                return
        mine, theirs = socket.socketpair()
        pid = os.fork()
        if pid == 0:
            for one in (self.jobs, mine, *self.pids):  # what stays open here would never look closed to others
                one.close()
            os.close(self.wake)
            os.close(self.wake_in)
            _work(theirs, spec, control)
        theirs.close()
        control.close()
        self.pids[mine] = pid
        self.alive.add(pid)
        self.poll.register(mine, select.POLLIN)

    def _hear(self, links: list[socket.socket]) -> None:
        for link in links:
            if _is_free(link):
                self.free.append(link)
            else:
                self._forget(link)

    def _forget(self, link: socket.socket) -> None:
        self.poll.unregister(link)
        del self.pids[link]
        if link in self.free:
            self.free.remove(link)
        link.close()

    def _dismiss(self) -> None:
        """Send wrappers home that have nothing to do; those that have will hear of it when they come for more."""
        for link in self.free:
            link.close()
        for link in self.free:
            os.waitpid(self.pids[link], 0)

    def _bury(self) -> None:
        killed = False
        while True:
            try:
                pid, status = os.waitpid(-1, os.WNOHANG)
            except ChildProcessError:
                break
            if pid == 0:
                break
            if pid in self.alive:
                self.alive.remove(pid)
                killed = killed or os.WIFSIGNALED(status)
                for link in [one for one, its in self.pids.items() if its == pid]:
                    self._forget(link)
        if killed:
            kept = set(self.alive)
            for pid in self.alive:
                kept.update(descendants(pid))
            for pid in descendants(os.getpid()):
                if pid not in kept:
                    try:
                        os.kill(pid, signal.SIGKILL)
                    except ProcessLookupError:
                        continue


def _is_free(link: socket.socket) -> bool:
    """Whether a wrapper says that it has nothing to do; otherwise it is gone."""
    try:
        return bool(link.recv(1))
    except ConnectionError:
        return False


def _pass_on(link: socket.socket, spec: bytes, control: socket.socket) -> bool:
    try:
        socket.send_fds(link, [HEADER.pack(len(spec))], [control.fileno()])
        link.sendall(spec)
    except ConnectionError:
        return False
    return True


def _receive(channel: socket.socket) -> tuple[bytes, socket.socket] | None:
    """The next job and the socket to its controller; None when whoever gives out jobs is gone."""
    try:
        head, descriptors, _, _ = socket.recv_fds(channel, HEADER.size, 1)
    except ConnectionError:
        return None
    while head and len(head) < HEADER.size:
        head += channel.recv(HEADER.size - len(head)) or b"\0"
    if not head:
        return None
    (left,) = HEADER.unpack(head)
    parts = []
    while left:
        part = channel.recv(left)
        if not part:
            return None
        parts.append(part)
        left -= len(part)
    return b"".join(parts), socket.socket(fileno=descriptors[0])


def _work(link: socket.socket, spec: bytes, control: socket.socket) -> None:
    """A wrapper's life: one job after the other, until there is nobody to give it one."""
    try:
        signal.set_wakeup_fd(-1)
        os.setsid()
        wake = prepare()
        while True:
            supervise(json.loads(spec), control, wake)
            control.close()
            link.send(b"f")
            received = _receive(link)
            if received is None:
                return
            spec, control = received
    except BaseException as error:
        try:
            control.send(json.dumps({"event": "failed", "error": "%s: %s" % (type(error).__name__, error)}).encode())
        except OSError:
            pass
    finally:
        os._exit(0)


# -- one job without a shared folder ------------------------------------------------------------------------------


class Refused(SystemExit):
    """The controller has understood what it was asked, and does not do it."""


class FetchedJob:
    """Fetches a job from its controller, sees to it in a folder of its own, and sends what it leaves, as it comes.

    The controller may be away at any time: everything is asked again until it answers, the end for a day.
    """

    def __init__(self) -> None:
        self.url = os.environ["OPERANT_CHANNEL"] + "/" + os.environ["OPERANT_CHANNEL_JOB"]
        self.token = os.environ.pop("OPERANT_CHANNEL_TOKEN")  # for this process, not for the program
        self.restart = int(os.environ.get("OPERANT_RESTART") or 0)
        self.sent: dict[str, Any] = {}
        self.before: dict[str, int] = {}
        self.refused: set[str] = set()
        self.over = False

    def run(self) -> int:
        import shutil
        import tempfile
        import threading

        spec = json.loads(self.ask("GET", "spec"))
        who = dict(identity(os.getpid()), restart=self.restart)
        if self.ask("POST", "claim", json.dumps(who).encode(), refusals=(409,)) is None:
            return 0
        root = tempfile.mkdtemp(prefix="operant-job-")
        self.job = os.path.join(root, os.path.basename(spec["folder"]))
        self.fetch_bundle()
        # What names the job's folder there, names its folder here.
        spec = json.loads(json.dumps(spec).replace(json.dumps(spec["folder"])[1:-1], json.dumps(self.job)[1:-1]))
        spec.pop("notices", None)
        os.makedirs(spec["cwd"], exist_ok=True)
        for path in self.files():
            if not self.grows(path):
                self.sent[path] = self.stamp(path)
        prefer_as_victim()
        wake = prepare()
        thread = threading.Thread(target=self.keep_up, daemon=True)
        thread.start()
        code = supervise(spec, None, wake)
        self.over = True
        thread.join()
        record = read_json(os.path.join(self.job, "exit-%d.json" % spec["attempt"]))
        if record:
            self.send()
            self.ask("POST", "exit", json.dumps(dict(record, restart=self.restart)).encode())
        shutil.rmtree(root, ignore_errors=True)
        return code

    def fetch_bundle(self) -> None:
        """The work folder; one that is cut off is fetched anew."""
        import shutil
        import tarfile

        for pause in (0.2, 1.0, 5.0, *[30.0] * 2880, None):
            os.mkdir(self.job)
            try:
                with self.open("GET", "bundle") as stream, tarfile.open(fileobj=stream, mode="r|") as bundle:
                    # It comes from the controller that this job belongs to; links of the user's may lead anywhere.
                    bundle.extraction_filter = getattr(tarfile, "fully_trusted_filter", None)
                    bundle.extractall(self.job)
                return
            except (OSError, tarfile.TarError) as error:
                shutil.rmtree(self.job, ignore_errors=True)
                if pause is None or getattr(error, "code", 0) in (403, 404):
                    raise
                time.sleep(pause)

    def keep_up(self) -> None:
        """Beside the program: say that it has begun, send what it writes, and hear whether it shall end."""
        told = False
        while not self.over:
            try:
                if not told and _current is not None and _current.pid:
                    self.ask("POST", "started", json.dumps({"restart": self.restart}).encode(), patience=0.0)
                    told = True
                self.send(patience=0.0)
                order = self.ask("GET", "order", patience=0.0)
            except OSError:
                order = None
            if order and json.loads(order) and _current is not None:
                with open(os.path.join(self.job, "cancel-%d" % _current.attempt), "wb") as stream:
                    stream.write(order)
                os.kill(os.getpid(), signal.SIGTERM)
            time.sleep(0.5)

    def files(self) -> list[str]:
        """What is sent; a checkpoint's own description after the rest of it."""
        found = [*STREAMS, *("work/" + name for name in RESULT_NAMES)]
        for folder, folders, names in os.walk(os.path.join(self.job, "run")):
            folders[:] = [one for one in folders if not one.startswith(".")]
            base = os.path.relpath(folder, self.job)
            found += [os.path.join(base, one) for one in names if not one.startswith(".")]
        return sorted(
            (one for one in found if os.path.isfile(os.path.join(self.job, one))), key=lambda one: "state.json" in one
        )

    def stamp(self, path: str) -> Any:
        found = os.stat(os.path.join(self.job, path))
        return [found.st_mtime_ns, found.st_size]

    def grows(self, path: str) -> bool:
        return path in STREAMS or path.endswith(".seg")

    def send(self, patience: float = 86400.0) -> None:
        for path in self.files():
            if path in self.refused:
                continue
            try:
                self.send_file(path, patience)
            except FileNotFoundError:  # it was there a moment ago
                continue
            except Refused as error:  # one file, and not the end of the job with it
                self.refused.add(path)
                with open(os.path.join(self.job, "stderr"), "a", errors="replace") as stream:
                    stream.write("operant: a file of this run is not kept: %s\n" % error)
                self.send_file("stderr", patience)

    def send_file(self, path: str, patience: float) -> None:
        from urllib.parse import quote

        stamp = self.stamp(path)
        with open(os.path.join(self.job, path), "rb") as stream:
            place = "file?path=" + quote(os.fsencode(path))
            if self.grows(path):
                if path not in self.before:  # what an earlier start of this attempt has sent
                    answer = self.ask("PUT", place + "&offset=-1", b"", patience=patience)
                    self.before[path] = json.loads(answer)["size"]
                at, before = self.sent.get(path, 0), self.before[path]
                while at < stamp[1]:
                    stream.seek(at)
                    offset = "&offset=%d" % (before + at)
                    answer = self.ask("PUT", place + offset, stream.read(CHUNK), patience=patience)
                    at = self.sent[path] = json.loads(answer)["size"] - before
            elif self.sent.get(path) != stamp:
                self.ask("PUT", place, stream.read(), patience=patience)
                self.sent[path] = stamp

    def ask(
        self,
        method: str,
        place: str,
        body: bytes | None = None,
        refusals: tuple[int, ...] = (),
        patience: float = 86400.0,
    ) -> Any:
        """What the controller answers; None for a refusal that was expected. One that is away is asked again."""
        import http.client
        from urllib.error import HTTPError

        deadline, pause = time.monotonic() + patience, 0.2
        while True:
            try:
                with self.open(method, place, body) as answer:
                    return answer.read()
            except HTTPError as error:
                if error.code in refusals:
                    return None
                if error.code in (400, 403, 404):
                    said = error.read().decode("utf-8", "replace")
                    raise (Refused if error.code == 400 else SystemExit)("%s %s: %s" % (method, place, said)) from None
                failed: Exception = error
            except (OSError, http.client.HTTPException) as error:
                failed = error
            if time.monotonic() >= deadline:
                raise OSError(str(failed))
            time.sleep(pause)
            pause = min(30.0, pause * 1.5)

    def open(self, method: str, place: str, body: bytes | None = None) -> Any:
        from urllib.request import Request, urlopen

        request = Request(self.url + "/" + place, data=body, method=method)
        request.add_header("Authorization", "Bearer " + self.token)
        return urlopen(request, timeout=60)


def main(argv: list[str]) -> int:
    if len(argv) == 2 and argv[0] == "serve":
        return ForkServer(int(argv[1])).serve()
    if argv == ["fetch"]:
        return FetchedJob().run()
    if len(argv) in (2, 3) and argv[0] == "run":
        path = argv[1]
        if len(argv) == 3:
            with open(path, encoding="utf-8") as stream:
                path = stream.read().splitlines()[int(argv[2])]
        with open(path, encoding="utf-8") as stream:
            spec = json.load(stream)
        if os.getpid() != os.getsid(0):
            try:
                os.setsid()
            except PermissionError:
                pass
        prefer_as_victim()
        return supervise(spec, None, prepare())
    sys.stderr.write(str(__doc__))
    return 2


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
