"""Many jobs through the Slurm site, against a stand-in that answers like a busy cluster: late, or wrongly."""

from __future__ import annotations

import json
import os
import random
import socketserver
import subprocess
import sys
import tempfile
import threading
import time
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from itertools import pairwise
from pathlib import Path

import psutil
import pytest
from tests.machine import patience
from tests.system.cluster_search import Search

from operant.sites import Event, Submission, wrapper
from operant.sites.cluster_jobs import SiteAwayError, SiteJob
from operant.sites.slurm import SlurmSite


class Task:
    """One element of an array, as the stand-in knows it."""

    def __init__(self, name: str, index: int, spec: Path, array: int) -> None:
        self.name, self.index, self.spec, self.id = name, index, spec, f"{array}_{index}"
        self.state, self.node, self.restart = "PENDING", "", 0
        self.ends_at = self.ended_at = 0.0
        self.process: subprocess.Popen[bytes] | None = None


class BusyCluster:
    """`sbatch`, `squeue`, `sacct` and `scancel` of a cluster that has much to do.

    One call in ten fails, and half of the `sbatch` that do have arrived all the same; rows are lost from lists; jobs
    that ended leave the queue after a minute and reach the accounting late. Time is simulated unless ``real``.
    """

    def __init__(self, latency: float, slots: int, *, real: bool = False) -> None:
        self.latency, self.slots, self.real = latency, slots, real
        self.random = random.Random(1)
        self.clock = 1000.0
        self.tasks: dict[str, Task] = {}
        self.waiting: list[Task] = []
        self.running: list[Task] = []
        self.calls: list[tuple[float, str]] = []
        self.began: Counter[tuple[str, int]] = Counter()

    def now(self) -> float:
        return time.monotonic() if self.real else self.clock

    def pass_time(self, seconds: float) -> None:
        if self.real:
            time.sleep(seconds)
        else:
            self.clock += seconds
        self.go_on()

    def run(self, argv: list[str], text: str = "", *, forgiving: bool = False) -> str:
        if "--test-only" in argv:
            return ""
        self.calls.append((self.now(), argv[0]))
        self.pass_time(self.latency)
        fails = self.random.random() < 0.1
        if argv[0] == "sbatch" and (not fails or self.random.random() < 0.5):
            array = len(self.tasks) + 1
            options = dict(one.partition("=")[::2] for one in argv)
            listed = Path(text.rpartition(" run ")[2].split()[0]).read_text().splitlines()
            for index, spec in enumerate(listed):
                task = Task(options["--job-name"], index, Path(spec), array)
                self.tasks[task.id] = task
                self.waiting.append(task)
            if not fails:
                return f"{array}\n"
        if fails:
            raise SiteAwayError("Socket timed out on send/recv operation")
        if argv[0] == "scancel":
            for name in argv[2:]:
                self.finish(self.tasks[name], "CANCELLED")
        rows = [one for one in self.tasks.values() if self.random.random() > 0.02]
        if argv[0] == "squeue":
            shown = [one for one in rows if not one.ended_at or self.now() < one.ended_at + 60]
            return "\n".join(f"{one.name}|{one.index}|{one.id}|{one.state}|{one.node}|N/A|None" for one in shown)
        if argv[0] == "sacct":
            shown = [one for one in rows if one.ended_at and self.now() > one.ended_at + 30]
            return "\n".join(f"{one.name}|{one.id}|{one.state}|{one.node}|0:0" for one in shown)
        return ""

    def go_on(self) -> None:
        """What happens on the nodes meanwhile."""
        for task in [one for one in self.running if one.process is not None and one.process.poll() is not None]:
            self.finish(task, "COMPLETED")
        for task in [one for one in self.running if one.process is None and self.now() >= one.ends_at]:
            self.end_simulated(task)
        while self.waiting and len(self.running) < self.slots:
            task = self.waiting.pop(0)
            task.state, task.node = "RUNNING", f"n{self.random.randrange(100)}"
            self.running.append(task)
            if self.real:
                argv = [sys.executable, "-I", "-S", wrapper.__file__, "run", str(task.spec)]
                task.process = subprocess.Popen(argv)
            else:
                self.begin_simulated(task)

    def wait_for_processes(self) -> None:
        for task in self.tasks.values():
            if task.process is not None:
                task.process.wait(patience(20))

    def begin_simulated(self, task: Task) -> None:
        spec = json.loads(task.spec.read_text())
        task.ends_at = self.now() + self.random.uniform(1, 120)
        if not wrapper.claim(spec["folder"], spec["attempt"], spec["token"], task.restart):
            task.ends_at = self.now()
            return
        self.began[spec["token"], task.restart] += 1
        notice = f"{Path(spec['folder']).name}.{spec['attempt']}.{task.restart}.started"
        (Path(spec["notices"]) / notice).touch()

    def end_simulated(self, task: Task) -> None:
        spec = json.loads(task.spec.read_text())
        holder = wrapper.read_json(f"{spec['folder']}/claim-1")
        fate = self.random.random()
        if fate < 0.01 and task.restart == 0:  # preempted, and started again by Slurm itself
            self.running.remove(task)
            task.state, task.restart = "PENDING", 1
            self.waiting.append(task)
            return
        if fate > 0.01 and holder.get("token") == spec["token"]:  # else its node is lost, and it has no exit file
            record = {"token": spec["token"], "attempt": 1, "code": 0, "started": time.time(), "ended": time.time()}
            os.close(wrapper.write_exit(spec["folder"], 1, record))
            if fate < 0.9:  # else the notice is lost
                name = f"{Path(spec['folder']).name}.1.{task.restart}.ended"
                (Path(spec["notices"]) / name).touch()
        self.finish(task, "COMPLETED" if fate > 0.01 else "NODE_FAIL")

    def finish(self, task: Task, state: str) -> None:
        if task.ended_at:
            return
        task.state, task.ended_at = state, self.now()
        for one in (self.running, self.waiting):
            if task in one:
                one.remove(task)


class Site(SlurmSite):
    def __init__(self, folder: Path, cluster: BusyCluster) -> None:
        super().__init__(folder)
        self.cluster = cluster
        self._accounting = True
        self.run = cluster.run  # type: ignore[method-assign]
        (self.place / "notices").mkdir(parents=True, exist_ok=True)

    def now(self) -> float:
        return self.cluster.now()


def drive(folder: Path, cluster: BusyCluster, count: int, at_once: int) -> Counter[str]:
    """Submit so many jobs, so many at a time, and return how often each ended."""
    events: list[Event] = []
    site = Site(folder, cluster)
    site._emit = events.append
    ends: Counter[str] = Counter()
    submitted = seen = 0
    deadline = time.monotonic() + patience(600)
    while len(ends) < count:
        assert time.monotonic() < deadline, f"{len(ends)} of {count} have ended"
        jobs = []
        while submitted < count and submitted - len(ends) < at_once:
            place = folder / "jobs" / str(submitted)
            place.mkdir(parents=True)
            argv = ["true"]
            jobs.append(Submission(f"{submitted}/1/x", str(submitted), 1, argv, place, place))
            submitted += 1
        if jobs:
            site.submit(jobs)
        site.work()
        site.read_notices()
        site.reconcile()
        cluster.pass_time(0.5 if not cluster.real else 0.01)
        ends.update(one.token for one in events[seen:] if one.kind in ("ended", "lost"))
        seen = len(events)
    cluster.wait_for_processes()
    return ends


def check(cluster: BusyCluster, ends: Counter[str], count: int) -> None:
    assert len(ends) == count and set(ends.values()) == {1}  # nothing lost, nothing told twice
    assert max(cluster.began.values(), default=1) == 1  # and no program ran twice
    looks = [at for at, program in cluster.calls if program == "squeue"]
    assert min(later - at for at, later in pairwise(looks)) >= 5.0 - 1e-6


@pytest.mark.parametrize("count", [500, pytest.param(10_000, marks=pytest.mark.long)])
def test_jobs_through_a_busy_cluster(tmp_path: Path, count: int) -> None:
    before = psutil.Process().memory_info().rss
    cluster = BusyCluster(5.0, 1000)
    check(cluster, drive(tmp_path, cluster, count, 2000), count)
    assert psutil.Process().memory_info().rss - before < 300e6


_COMMAND = """#!{python} -IS
import json, os, socket, sys
asked = socket.socket(socket.AF_UNIX)
asked.connect({path!r})
argv = [os.path.basename(sys.argv[0]), *sys.argv[1:]]
asked.sendall(json.dumps([argv, sys.stdin.read() if argv[0] == "sbatch" else ""]).encode())
asked.shutdown(socket.SHUT_WR)
code, text = json.loads(asked.makefile().read())
(sys.stderr if code else sys.stdout).write(text)
sys.exit(code)
"""


@contextmanager
def commands(cluster: BusyCluster, folder: Path) -> Iterator[Path]:
    """A folder with `sbatch`, `squeue`, `scancel`, `sacct` and `scontrol`, which ask the stand-in."""
    lock, ended = threading.Lock(), threading.Event()

    class Answer(socketserver.StreamRequestHandler):
        def handle(self) -> None:
            argv, text = json.load(self.rfile)
            try:
                with lock:
                    answer = (0, cluster.run(argv, text))
            except SiteAwayError as error:
                answer = (1, str(error))
            self.wfile.write(json.dumps(answer).encode())

    def go_on() -> None:
        while not ended.wait(0.01):
            with lock:
                cluster.go_on()

    path = str(folder / "socket")
    for name in ("sbatch", "squeue", "scancel", "sacct", "scontrol"):
        (folder / name).write_text(_COMMAND.format(python=sys.executable, path=path))
        (folder / name).chmod(0o755)
    server = socketserver.ThreadingUnixStreamServer(path, Answer)
    threads = [threading.Thread(target=one) for one in (server.serve_forever, go_on)]
    for thread in threads:
        thread.start()
    try:
        yield folder
    finally:
        ended.set()
        server.shutdown()
        server.server_close()
        for thread in threads:
            thread.join()


@pytest.mark.long
def test_a_search_of_a_thousand_real_processes(tmp_path: Path) -> None:
    """The whole controller, by its command line, with the commands of a cluster that is a stand-in."""
    count, cluster = 1000, BusyCluster(0.05, 8, real=True)
    search = Search(tmp_path / "project", count, "slurm", limit=3600, parallel=200)
    program = f"import sys\nopen({str(search.seen)!r}, 'a').write(sys.argv[1] + '\\n')\n"
    program += "open('result.json', 'w').write('{\"acc\": %s}' % sys.argv[1])\n"
    (search.folder / "job.py").write_text(program)
    with tempfile.TemporaryDirectory(dir="/tmp") as bin_folder, commands(cluster, Path(bin_folder)) as found:
        env = {**os.environ, "PATH": f"{found}{os.pathsep}{os.environ['PATH']}"}
        controller, peak = search.start("search", "search.yaml", "--task", "try", env=env), 0
        deadline = time.monotonic() + patience(600)
        while controller.poll() is None:
            assert time.monotonic() < deadline, search.printed()[-2000:]
            with suppress(psutil.Error):
                peak = max(peak, psutil.Process(controller.pid).memory_info().rss)
            time.sleep(0.1)
        cluster.wait_for_processes()
    assert controller.returncode == 0, search.printed()[-2000:]
    assert [job["reward"] for job in search.jobs().values()] == list(range(count))
    assert search.counts() == dict.fromkeys(range(count), 1)  # nothing lost, nothing doubled
    looks = [at for at, name in cluster.calls if name == "squeue"]
    assert len(looks) <= (looks[-1] - looks[0]) / 5.0 + 2 and peak < 300e6  # one in five seconds; commands come late


class Confused(Site):
    """Its first list of jobs is none."""

    def look(self) -> list[SiteJob]:
        self.asked = getattr(self, "asked", 0) + 1
        if self.asked == 1:
            raise ValueError("this is no list of jobs")
        return super().look()


def test_an_answer_that_nobody_expected_is_told_and_asked_again(tmp_path: Path) -> None:
    cluster = BusyCluster(0.0, 8, real=True)
    site, events = Confused(tmp_path, cluster), list[Event]()
    site.poll = 0.1
    site.start(events.append)
    (tmp_path / "jobs" / "0").mkdir(parents=True)
    site.submit([Submission("0/1/x", "0", 1, ["true"], tmp_path / "jobs" / "0", tmp_path / "jobs" / "0")])
    deadline = time.monotonic() + patience(30)
    while not any(one.kind == "ended" for one in events) and time.monotonic() < deadline:
        cluster.pass_time(0.02)
    site.close()
    cluster.wait_for_processes()
    assert events[-1].info.get("code") == 0
    assert any("no list of jobs" in one.info.get("text", "") for one in events)


class Closing(Site):
    """It is closed at the worst moment: just before a thread forgets that somebody has woken it."""

    def work(self) -> None:
        self._closed.set()
        self._wake.set()
        super().work()


def test_closing_never_waits_for_a_thread_that_sleeps(tmp_path: Path) -> None:
    site = Closing(tmp_path, BusyCluster(0.0, 8, real=True))
    site.start(lambda event: None)
    for thread in site._threads:
        thread.join(patience(10))
        assert not thread.is_alive()
    site.close()
