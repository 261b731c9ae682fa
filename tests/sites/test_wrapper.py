"""What the wrapper promises, with real processes."""

from __future__ import annotations

import ast
import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from tests.machine import patience

from operant.sites import Event, Limits, LocalSite, Submission, wrapper
from operant.sites.base import SystemClock
from operant.sites.local import end_leftovers, read_exit

PYTHON = sys.executable


class Machine:
    """A local site and its events."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.clock = SystemClock()
        self.site = LocalSite(folder)
        self.site.start(self.clock.put)
        self.count = 0
        self._unread: list[Event] = []

    def submit(self, *argv: str, limits: Limits | None = None, attempt: int = 1, job: str | None = None) -> Submission:
        self.count += 1
        name = job or str(self.count)
        folder = self.folder / "jobs" / name
        (folder / "work").mkdir(parents=True, exist_ok=True)
        found = Submission(f"{name}/{attempt}/t{self.count}", name, attempt, list(argv), folder, folder / "work")
        found.limits = limits or Limits(grace_seconds=0.5)
        self.site.submit([found])
        return found

    def program(self, text: str, **options: Any) -> Submission:
        return self.submit(PYTHON, "-c", text, **options)

    def wait(self, kind: str = "ended") -> Event:
        deadline = time.monotonic() + patience(30)
        while time.monotonic() < deadline:
            for event in self._unread:
                if event.kind in (kind, "lost"):
                    self._unread.remove(event)
                    return event
            self._unread += self.clock.wait(1.0)
        raise AssertionError(f"no {kind} event came")


@pytest.fixture
def machine(tmp_path: Path) -> Iterator[Machine]:
    found = Machine(tmp_path)
    yield found
    found.site.close()


def alive(pid: int) -> bool:
    """Whether it runs; a zombie does not."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] not in "ZX"
    except OSError:
        return False


def wait_until(condition: Any, seconds: float = 20.0) -> bool:
    deadline = time.monotonic() + patience(seconds)
    while time.monotonic() < deadline:
        if condition():
            return True
        time.sleep(0.01)
    return False


def read_pid(path: Path) -> int:
    assert wait_until(lambda: path.exists() and path.read_text().strip()), f"{path} never came"
    return int(path.read_text())


def test_output_code_and_exit_file(machine: Machine) -> None:
    job = machine.program("import sys; print('out'); print('err', file=sys.stderr); sys.exit(7)")
    event = machine.wait()
    assert (event.kind, event.info["code"], event.info["signal"], event.info["reason"]) == ("ended", 7, None, None)
    assert (job.folder / "stdout").read_text() == "out\n" and (job.folder / "stderr").read_text() == "err\n"
    written = json.loads((job.folder / "exit-1.json").read_text())
    assert written["token"] == job.token and written["code"] == 7 and written["started"] <= written["ended"]


def test_a_program_that_is_not_there(machine: Machine) -> None:
    machine.submit("no-such-program-anywhere")
    event = machine.wait()
    assert event.info["code"] == 127 and "no-such-program-anywhere" in event.info["error"]


def test_death_by_signal_is_told(machine: Machine) -> None:
    machine.program("import os; os.kill(os.getpid(), 9)")
    event = machine.wait()
    assert (event.info["code"], event.info["signal"]) == (None, 9)


def test_the_final_length_of_segments_is_told(machine: Machine) -> None:
    text = "import os, pathlib; p = pathlib.Path('../run'); p.mkdir(); (p / 'seg-00-0000.seg').write_bytes(b'x' * 321)"
    machine.program(text)
    assert machine.wait().info["segments"] == {"seg-00-0000.seg": 321}


def test_of_result_files_those_count_that_the_attempt_wrote(machine: Machine) -> None:
    work = machine.folder / "jobs" / "x" / "work"
    work.mkdir(parents=True)
    (work / "result.json").write_text("1")
    machine.program("pass", job="x")
    assert machine.wait().info["results"] == []
    machine.program("open('result.json', 'w').write('1')", job="x", attempt=2)
    assert machine.wait().info["results"] == ["result.json"]
    machine.program("import os; open('n', 'w'); os.rename('n', 'result.pkl')", job="x", attempt=3)
    assert machine.wait().info["results"] == ["result.pkl"]


def test_the_wrapper_runs_under_the_python_of_old_images(tmp_path: Path) -> None:
    ast.parse(Path(wrapper.__file__).read_text(), feature_version=(3, 8))
    texts = {name: str(tmp_path / name) for name in ("stdout", "stderr")}
    spec = {"token": "x/1/t", "attempt": 1, "argv": ["true"], "cwd": str(tmp_path), "folder": str(tmp_path), **texts}
    (tmp_path / "spec.json").write_text(json.dumps(spec))
    without = "del functools.cache, os.waitstatus_to_exitcode, os.pidfd_open, socket.send_fds, socket.recv_fds"
    start = f"import functools, os, runpy, socket\n{without}\nrunpy.run_path({wrapper.__file__!r}, run_name='__main__')"
    subprocess.run([PYTHON, "-I", "-S", "-c", start, "run", str(tmp_path / "spec.json")], check=True)
    assert json.loads((tmp_path / "exit-1.json").read_text())["code"] == 0


def test_cancel_is_gentle_first(machine: Machine) -> None:
    text = "import signal, sys, time\nsignal.signal(15, lambda *_: (print('bye'), sys.exit(3)))\n"
    text += "print(1, flush=True)\ntime.sleep(60)"
    job = machine.program(text, limits=Limits(grace_seconds=20))
    assert wait_until(lambda: (job.folder / "stdout").exists() and (job.folder / "stdout").read_text())
    machine.site.cancel([job.token], "because")
    event = machine.wait()
    assert (event.info["code"], event.info["reason"]) == (3, "because")
    assert (job.folder / "stdout").read_text() == "1\nbye\n"


def test_a_program_that_ignores_sigterm_is_killed(machine: Machine) -> None:
    text = "import signal, time; signal.signal(15, signal.SIG_IGN); print(1, flush=True); time.sleep(600)"
    job = machine.program(text)
    assert wait_until(lambda: (job.folder / "stdout").exists() and (job.folder / "stdout").read_text())
    machine.site.cancel([job.token], "because", 0.2)
    event = machine.wait()
    assert (event.info["signal"], event.info["reason"]) == (9, "because")


FORKS = """
import os, sys, time, signal
signal.signal(15, signal.SIG_IGN)
if os.fork() == 0:
    os.setsid()
    if os.fork() == 0:
        os.setsid()
        os.close(1); os.close(2)
        open('grandchild', 'w').write(str(os.getpid()))
        time.sleep(600)
    os._exit(0)
while not os.path.exists('grandchild') or not open('grandchild').read():
    time.sleep(0.01)
{}
"""


@pytest.mark.parametrize("then", ["sys.exit(0)", "time.sleep(600)"])
def test_detached_grandchildren_end_with_the_job(machine: Machine, then: str) -> None:
    job = machine.program(FORKS.format(then))
    pid = read_pid(job.work / "grandchild")
    if "sleep" in then:
        machine.site.cancel([job.token])
    event = machine.wait()
    assert not alive(pid)
    assert "sleep" in then or (event.info["code"] == 0 and event.info["leftovers"] >= 1)


def test_a_time_limit_holds(machine: Machine) -> None:
    machine.program("import time; time.sleep(600)", limits=Limits(seconds=0.3, grace_seconds=0.2))
    event = machine.wait()
    assert event.info["reason"] == "time_limit"


def test_a_memory_limit_holds_for_all_processes_together(machine: Machine) -> None:
    text = "import os, time\nif os.fork() == 0:\n    x = bytearray(200 << 20)\n    time.sleep(60)\ntime.sleep(60)"
    machine.program(text, limits=Limits(memory_bytes=100 << 20))
    assert machine.wait().info["reason"] == "memory_limit"


def test_a_program_that_prints_without_end_keeps_head_and_tail(machine: Machine) -> None:
    """The full gigabyte is in the long tier; the path is the same."""
    check_printer(machine, megabytes=40)


@pytest.mark.long
def test_a_program_that_prints_a_gigabyte(machine: Machine) -> None:
    check_printer(machine, megabytes=1024)


def check_printer(machine: Machine, megabytes: int) -> None:
    text = f"""
import os
def put(data):
    while data:
        data = data[os.write(1, data):]
put(b"first\\n")
for _ in range({megabytes}):
    put(b"x" * (1 << 20))
put(b"last\\n")
"""
    job = machine.program(text, limits=Limits(output_bytes=1 << 20))
    event = machine.wait()
    content = (job.folder / "stdout").read_bytes()
    assert len(content) < (1 << 20) + 200 and content.startswith(b"first\n") and content.endswith(b"last\n")
    assert b"bytes left out here" in content
    assert event.info["stdout"]["bytes"] == (megabytes << 20) + 11
    assert event.info["stdout"]["left_out"] == event.info["stdout"]["bytes"] - (1 << 20)


def test_an_attempt_is_claimed_once(machine: Machine) -> None:
    first = machine.submit(PYTHON, "-c", "print(1)", job="same")
    assert machine.wait().token == first.token
    machine.submit(PYTHON, "-c", "open('ran-twice', 'w')", job="same")
    event = machine.wait()
    assert event.kind == "lost" and not (first.work / "ran-twice").exists()


def test_of_many_copies_one_gets_the_claim(tmp_path: Path) -> None:
    spec = {
        "token": "j/1/t", "attempt": 1, "argv": ["/bin/sh", "-c", "echo ran >> ran"], "cwd": str(tmp_path),
        "folder": str(tmp_path), "stdout": str(tmp_path / "o"), "stderr": str(tmp_path / "e"),
    }  # fmt: skip
    (tmp_path / "spec.json").write_text(json.dumps(spec))
    command = [PYTHON, "-I", "-S", wrapper.__file__, "run", str(tmp_path / "spec.json")]
    copies = [subprocess.Popen(command) for _ in range(6)]
    assert [copy.wait() for copy in copies] == [0] * 6
    assert (tmp_path / "ran").read_text() == "ran\n"
    assert json.loads((tmp_path / "exit-1.json").read_text())["code"] == 0


def test_a_killed_wrapper_takes_its_program_with_it(machine: Machine) -> None:
    job = machine.program(FORKS.format("open('main', 'w').write(str(os.getpid())); time.sleep(600)"))
    grandchild, main = read_pid(job.work / "grandchild"), read_pid(job.work / "main")
    holder = json.loads((job.folder / "claim-1").read_text())
    os.kill(holder["pid"], signal.SIGKILL)
    event = machine.wait()
    assert event.kind == "lost"
    assert wait_until(lambda: not alive(main) and not alive(grandchild))


def test_a_killed_fork_server_costs_nothing(machine: Machine) -> None:
    job = machine.program("import time; open('up', 'w').write('1'); time.sleep(0.5)")
    read_pid(job.work / "up")
    assert machine.site._server is not None
    machine.site._server[0].kill()
    assert machine.wait().info["code"] == 0  # the job that ran went on
    machine.program("print(2)")
    assert machine.wait().info["code"] == 0  # and the next one found a new server


def holder_of(job: Submission) -> int:
    return int(json.loads((job.folder / "claim-1").read_text())["pid"])


def test_a_wrapper_sees_to_one_job_after_the_other(machine: Machine) -> None:
    """Nothing of an earlier job shows in a later one: neither what it used, nor what it printed, nor its limits."""
    hungry = machine.submit(PYTHON, "-c", "x = b'1' * (200 << 20); print('one')", job="a")
    first = machine.wait().info
    assert first["code"] == 0 and first["peak_bytes"] > 200 << 20
    seen = {holder_of(hungry)}
    for name in "bcde":
        job = machine.submit(PYTHON, "-c", "print('two')", job=name)
        info = machine.wait().info
        assert info["code"] == 0 and info["peak_bytes"] < 100 << 20 and info["cpu_seconds"] < 60
        assert (job.folder / "stdout").read_text() == "two\n"
        seen.add(holder_of(job))
    assert len(seen) < 5
    machine.site.close()
    assert wait_until(lambda: not any(map(alive, seen)))


def test_a_wrapper_that_dies_between_two_jobs_costs_nothing(machine: Machine) -> None:
    first = machine.submit(PYTHON, "-c", "print(1)", job="a")
    assert machine.wait().info["code"] == 0
    os.kill(holder_of(first), signal.SIGKILL)
    assert wait_until(lambda: not alive(holder_of(first)))
    second = machine.submit(PYTHON, "-c", "print(2)", job="b")
    third = machine.submit(PYTHON, "-c", "print(3)", job="c")
    ended = {machine.wait().token, machine.wait().token}
    assert ended == {second.token, third.token} and (third.folder / "stdout").read_text() == "3\n"


CONTROLLER = """
import sys, time
from pathlib import Path
from operant.sites import LocalSite, Submission
base = Path(sys.argv[1])
site = LocalSite(base)
site.start(lambda event: None)
folder = base / "jobs" / "j"
(folder / "work").mkdir(parents=True)
site.submit([Submission("j/1/t", "j", 1, [sys.executable, "-c", sys.argv[2]], folder, folder / "work")])
print("up", flush=True)
time.sleep(600)
"""


def test_jobs_end_with_their_controller_and_say_so(tmp_path: Path) -> None:
    text = FORKS.format("open('main', 'w').write(str(os.getpid())); time.sleep(600)")
    controller = subprocess.Popen([PYTHON, "-c", CONTROLLER, str(tmp_path), text], stdout=subprocess.PIPE)
    work = tmp_path / "jobs" / "j" / "work"
    grandchild, main = read_pid(work / "grandchild"), read_pid(work / "main")
    controller.kill()
    controller.communicate()
    found = LocalSite(tmp_path).find(["j/1/t", "other/1/t"])
    assert found["j/1/t"].state == "ended" and found["j/1/t"].record["reason"] == "controller_lost"
    assert found["other/1/t"].state == "unknown"
    assert not alive(main) and not alive(grandchild)


def kill_all_at_once(tmp_path: Path, controller: subprocess.Popen[bytes]) -> None:
    """The controller, its fork server and the wrapper; stopped first, so that none can see another go."""
    wrapper_pid = json.loads((tmp_path / "jobs" / "j" / "claim-1").read_text())["pid"]
    server = int(Path(f"/proc/{wrapper_pid}/stat").read_text().rpartition(")")[2].split()[1])
    for number in (signal.SIGSTOP, signal.SIGKILL):
        for pid in (controller.pid, server, wrapper_pid):
            os.kill(pid, number)
    controller.communicate()
    assert wait_until(lambda: not alive(wrapper_pid) and not alive(server))


@pytest.mark.parametrize("by", ["find", "end_leftovers"])
def test_daemons_of_jobs_end_though_all_who_saw_to_them_were_killed(tmp_path: Path, by: str) -> None:
    text = FORKS.format("open('main', 'w').write(str(os.getpid())); time.sleep(600)")
    controller = subprocess.Popen([PYTHON, "-c", CONTROLLER, str(tmp_path), text], stdout=subprocess.PIPE)
    work = tmp_path / "jobs" / "j" / "work"
    grandchild, main = read_pid(work / "grandchild"), read_pid(work / "main")
    kill_all_at_once(tmp_path, controller)
    assert alive(grandchild)
    other = tmp_path / "other" / "jobs" / "j"  # of another search with a job of that name
    other.mkdir(parents=True)
    claim = json.loads((tmp_path / "jobs" / "j" / "claim-1").read_text())
    (other / "claim-1").write_text(json.dumps({**claim, "token": "j/1/another"}))
    assert end_leftovers(tmp_path / "other") == 0
    (other / "claim-1").write_text(json.dumps({**claim, "boot": "before the machine was started again"}))
    assert end_leftovers(tmp_path / "other") == 0 and alive(grandchild)
    if by == "find":
        assert LocalSite(tmp_path).find(["j/1/t"])["j/1/t"].state == "unknown"
    else:
        assert end_leftovers(tmp_path) >= 1
    assert wait_until(lambda: not alive(main) and not alive(grandchild))  # a killed process ends a moment later
    assert end_leftovers(tmp_path) == 0


def test_a_full_disk_costs_output_but_not_the_job(tmp_path: Path) -> None:
    small = tmp_path / "small"
    small.mkdir()
    mounted = subprocess.run(["mount", "-t", "tmpfs", "-o", "size=1m", "tmpfs", str(small)], capture_output=True)
    if mounted.returncode != 0:
        pytest.skip("mounting a small disk needs root")
    try:
        machine = Machine(small)
        job = machine.program("import os\nfor _ in range(8): os.write(1, b'x' * (1 << 20))")
        event = machine.wait()
        assert event.info["code"] == 0 and event.info["stdout"]["left_out"] > 0
        (job.folder / "stdout").unlink()  # now there is room: the exit file comes
        assert wait_until(lambda: (job.folder / "exit-1.json").exists())
        machine.site.close()
    finally:
        subprocess.run(["umount", "-l", str(small)], check=True)


def test_an_attempt_that_never_began_can_no_longer_begin(machine: Machine) -> None:
    """A wrapper may come late, after a new controller has decided that the attempt is to be made again."""
    folder = machine.folder / "jobs" / "late"
    folder.mkdir(parents=True)
    assert machine.site.find(["late/1/t1"])["late/1/t1"].state == "unknown"
    late = machine.submit(PYTHON, "-c", "open('ran', 'w')", job="late")
    assert machine.wait().kind == "lost" and not (late.work / "ran").exists()


def test_a_program_that_finishes_while_it_is_told_to_end_has_finished(machine: Machine) -> None:
    text = "import signal, time; signal.signal(15, signal.SIG_IGN); print(1, flush=True); time.sleep(0.4)"
    job = machine.program(text, limits=Limits(grace_seconds=20))
    assert wait_until(lambda: (job.folder / "stdout").exists() and (job.folder / "stdout").read_text())
    machine.site.cancel([job.token], "because")
    event = machine.wait()
    assert (event.info["code"], event.info["reason"]) == (0, None)


def test_a_job_cancelled_before_it_began_never_begins(machine: Machine) -> None:
    jobs = [
        machine.program("open('ran', 'w'); import time; time.sleep(600)", limits=Limits(grace_seconds=60))
        for _ in range(8)
    ]
    machine.site.cancel([job.token for job in jobs], "because")
    for _ in jobs:
        event = machine.wait()
        assert event.kind == "ended" and event.info["reason"] == "because"  # begun or not, it did not take the grace


def test_it_is_text_that_an_old_python_understands() -> None:
    """It runs in images and on nodes that have whatever Python they have, from 3.8 on."""
    ast.parse(Path(wrapper.__file__).read_text(encoding="utf-8"), feature_version=(3, 8))


def test_of_an_exit_file_only_that_counts_which_a_wrapper_writes(tmp_path: Path) -> None:
    """The program could have written it: the end of its attempt is judged, and the controller goes on."""
    path = tmp_path / "exit-1.json"
    sound = {"token": "0/1/x", "code": 0, "reason": None, "started": 1.5, "ended": 2, "results": ["result.json"]}
    path.write_text(json.dumps(sound))
    assert read_exit(tmp_path, 1) == sound
    odd = {
        "code": "0",
        "reason": {},
        "error": 5,
        "started": "now",
        "ended": 1e400,
        "results": 3,
        "peak_bytes": [],
        "x": 1,
    }
    path.write_text(json.dumps({"token": "0/1/x", **odd}))
    assert read_exit(tmp_path, 1) == {"token": "0/1/x"}
    for text in ("[" * 100_000, "{", '"x"', '{"token": ' + "9" * 5000 + "}"):
        path.write_text(text)
        assert read_exit(tmp_path, 1) is None
