"""Real searches whose controllers, disks and programs misbehave."""

from __future__ import annotations

import json
import os
import random
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import yaml
from tests.machine import patience

from operant.schedulers.engine.state import read_state

PYTHON = sys.executable
JOBS = 12

# It leaves the pids of itself and of a detached grandchild, takes a moment, and has a reward that depends on x only.
PROGRAM = """
import json, os, sys, time
x = int(sys.argv[1])
pids = os.path.join(sys.argv[2], "pids")
def note():
    ticks = open("/proc/self/stat").read().rpartition(")")[2].split()[19]
    open(os.path.join(pids, "%d-%s" % (os.getpid(), ticks)), "w").close()
note()
if x % 3 == 0 and os.fork() == 0:
    os.setsid()
    if os.fork() == 0:
        note()
        time.sleep(600)
    os._exit(0)
time.sleep(0.02 * (x % 5))
json.dump({"acc": (x * 7) % 11}, open("result.json", "w"))
"""


def write_search(folder: Path, jobs: int = JOBS, program: str = PROGRAM, **scheduler: Any) -> None:
    (folder / "code").mkdir(parents=True)
    (folder / "pids").mkdir()
    (folder / "code" / "program.py").write_text(program)
    config = {
        "task": {
            "template": f"{PYTHON} -I -S program.py {{x}} {folder}",
            "search_args": [{"type": "Categorical", "name": "x", "data": list(range(jobs))}],
        },
        "searcher": {"type": "GridSearcher", "reward_attribute": "acc"},
        "scheduler": {"parallel_size": 3, "grace_period": 1, **scheduler},
    }
    (folder / "code" / "search.yaml").write_text(yaml.safe_dump(config))


def start(folder: Path, *options: str) -> subprocess.Popen[str]:
    command = [PYTHON, "-m", "operant.cli.search_scripts", "run", "--task", "s", "search.yaml", *options]
    env = {**os.environ, "OPERANT_DIR": str(folder / ".operant"), "OMP_NUM_THREADS": "1"}
    return subprocess.Popen(
        command, cwd=folder / "code", env=env, text=True, stdout=subprocess.PIPE, stderr=subprocess.STDOUT
    )


def search_folder(folder: Path) -> Path:
    return folder / ".operant" / "searches" / "s"


def wait_until(condition: Callable[..., Any], seconds: float = 20.0) -> None:
    deadline = time.monotonic() + patience(seconds)
    while not condition():
        assert time.monotonic() < deadline, "it never came"
        time.sleep(0.01)


def survivors(folder: Path) -> list[str]:
    """Programs and grandchildren that still run."""
    found = []
    for path in (folder / "pids").iterdir():
        pid, ticks = path.name.split("-")
        try:
            fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
        except OSError:
            continue
        if fields[19] == ticks and fields[0] not in "ZX":
            found.append(path.name)
    return found


def good_exits(folder: Path) -> dict[str, int]:
    """How often each job has finished well."""
    found: dict[str, int] = {}
    for path in (search_folder(folder) / "jobs").glob("*/exit-*.json"):
        if json.loads(path.read_text())["code"] == 0:
            found[path.parent.name] = found.get(path.parent.name, 0) + 1
    return found


def kill_and_resume(folder: Path, seed: int) -> None:
    rng = random.Random(seed)
    write_search(folder)
    for _ in range(rng.randint(1, 3)):
        begun = (search_folder(folder) / "journal.log").exists()
        controller = start(folder, *(["--resume"] if begun else []))
        wait_until(lambda one=controller: (search_folder(folder) / "jobs").is_dir() or one.poll() is not None)
        time.sleep(rng.uniform(0.0, 0.35))
        controller.kill()
        controller.communicate()
    begun = (search_folder(folder) / "journal.log").exists()
    controller = start(folder, *(["--resume"] if begun else []))
    output, _ = controller.communicate(timeout=patience(60))
    assert controller.returncode == 0, output
    state, status = read_state(search_folder(folder))
    assert status == "FINISHED" and [job.status for job in state.jobs.values()] == ["FINISHED"] * JOBS
    # Each job finished, and none of them twice.
    assert good_exits(folder) == {str(number): 1 for number in range(JOBS)}
    assert sorted(one.config["x"] for one in state.proposals.values()) == list(range(JOBS))
    assert state.best is not None and (state.best.reward, state.best.config["x"]) == (10.0, 3)
    assert survivors(folder) == []


def test_a_work_folder_that_was_half_made_is_made_anew(tmp_path: Path) -> None:
    """Killed between two files of a job's folder, a controller leaves one that the next must not take for whole."""
    write_search(tmp_path, jobs=2)
    folder = search_folder(tmp_path)
    (folder / "jobs" / "1" / ".work").mkdir(parents=True)
    (folder / "jobs" / "1" / ".work" / "search.yaml").write_text("torn")
    controller = start(tmp_path)
    output, _ = controller.communicate(timeout=patience(60))
    assert controller.returncode == 0, output
    assert good_exits(tmp_path) == {"0": 1, "1": 1}
    assert sorted(path.name for path in (folder / "jobs" / "1" / "work").iterdir()) == [
        "program.py",
        "result.json",
        "search.yaml",
    ]
    assert not (folder / "jobs" / "1" / ".work").exists()


@pytest.mark.parametrize("seed", range(3))
def test_kill_9_at_random_moments(tmp_path: Path, seed: int) -> None:
    kill_and_resume(tmp_path, seed)


@pytest.mark.long
@pytest.mark.parametrize("seed", range(100, 200))
def test_kill_9_at_a_hundred_random_moments(tmp_path: Path, seed: int) -> None:
    kill_and_resume(tmp_path, seed)


def test_jobs_of_a_killed_controller_are_errors_though_nobody_wrote_it(tmp_path: Path) -> None:
    write_search(tmp_path, program="import time\ntime.sleep(600)")
    controller = start(tmp_path)
    wait_until(lambda: len(list(search_folder(tmp_path).glob("jobs/*/claim-1"))) == 3)
    controller.kill()
    controller.communicate()
    state, status = read_state(search_folder(tmp_path))
    assert status == "ERROR" and {job.status for job in state.jobs.values()} == {"ERROR"}


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_an_interrupted_search_ends_its_jobs_as_errors(tmp_path: Path, number: signal.Signals) -> None:
    write_search(tmp_path, program=PROGRAM.replace("time.sleep(0.02 * (x % 5))", "time.sleep(600)"))
    controller = start(tmp_path)
    wait_until(lambda: len(list((tmp_path / "pids").iterdir())) >= 4)
    controller.send_signal(number)
    output, _ = controller.communicate(timeout=patience(60))
    assert controller.returncode == 1 and "interrupted" in output
    state, status = read_state(search_folder(tmp_path))
    assert status == "ERROR" and [job.status for job in state.jobs.values()] == ["ERROR"] * 3
    assert survivors(tmp_path) == []


def test_two_controllers_at_once(tmp_path: Path) -> None:
    write_search(tmp_path, jobs=3, program="import time\ntime.sleep(600)")
    first = start(tmp_path)
    wait_until(lambda: len(list(search_folder(tmp_path).glob("jobs/*/claim-1"))) == 3)
    second = start(tmp_path, "--resume")
    output, _ = second.communicate(timeout=patience(60))
    assert second.returncode == 1 and f"process {first.pid} on host" in output
    assert first.poll() is None
    first.send_signal(signal.SIGINT)
    first.communicate(timeout=patience(60))


def test_two_controllers_at_the_very_same_moment(tmp_path: Path) -> None:
    write_search(tmp_path)
    both = [start(tmp_path), start(tmp_path)]
    outputs = [one.communicate(timeout=patience(60))[0] for one in both]
    assert sorted(one.returncode for one in both) == [0, 1], outputs
    assert good_exits(tmp_path) == {str(number): 1 for number in range(JOBS)}


def test_stop_ends_a_job_that_ignores_sigterm(tmp_path: Path) -> None:
    write_search(tmp_path, jobs=3, program="import signal, time\nsignal.signal(15, signal.SIG_IGN)\ntime.sleep(600)")
    controller = start(tmp_path)
    wait_until(lambda: len(list(search_folder(tmp_path).glob("jobs/*/claim-1"))) == 3)
    env = {**os.environ, "OPERANT_DIR": str(tmp_path / ".operant")}
    command = [PYTHON, "-m", "operant.cli.search_scripts", "ctl", "stop", "-t", "s"]
    told = subprocess.run(command, env=env, capture_output=True, text=True, timeout=patience(60))
    assert told.returncode == 0 and "KILLED, 3 jobs" in told.stdout
    controller.communicate(timeout=patience(60))
    assert {job.status for job in read_state(search_folder(tmp_path))[0].jobs.values()} == {"KILLED"}


def test_a_full_disk_is_waited_out(tmp_path: Path) -> None:
    small = tmp_path / "small"
    small.mkdir()
    mounted = subprocess.run(["mount", "-t", "tmpfs", "-o", "size=2m", "tmpfs", str(small)], capture_output=True)
    if mounted.returncode != 0:
        pytest.skip("mounting a small disk needs root")
    try:
        write_search(small, jobs=6, parallel_size=1, program=PROGRAM.replace("0.02 * (x % 5)", "0.2"))
        controller = start(small)
        wait_until(lambda: (search_folder(small) / "jobs" / "1").exists())
        filler = small / "filler"
        with filler.open("wb", buffering=0) as stream:
            try:
                while True:
                    stream.write(b"x" * 4096)
            except OSError:
                pass
        assert controller.stdout is not None
        while "the disk is full" not in controller.stdout.readline():
            assert controller.poll() is None
        filler.unlink()
        controller.communicate(timeout=patience(60))
        assert controller.returncode == 0
        # The program of a job that ran meanwhile may have failed for want of room; that is its own affair.
        state, _ = read_state(search_folder(small))
        assert len(state.jobs) == 6 and {job.status for job in state.jobs.values()} <= {"FINISHED", "ERROR"}
        again = start(small, "--resume")
        again.communicate(timeout=patience(60))
        state, _ = read_state(search_folder(small))
        assert [job.status for job in state.jobs.values()] == ["FINISHED"] * 6
    finally:
        subprocess.run(["umount", "-l", str(small)], check=True)
