"""What the machine can do just now, what takes long on it, and what a test session has left running on it."""

from __future__ import annotations

import contextlib
import os
import socket
import time
from collections.abc import Callable
from pathlib import Path

import psutil

__all__ = ["DEAREST", "MARK", "free_port", "left_behind", "patience", "spawned", "wait_until"]

MARK = "TEST_SESSION_OF_OPERANT"  # in the environment of all that a session starts
PYTHONS = "multiprocessing.resource_tracker"  # Python's own helper lives as long as the process it helps
QUIET_SPIN = 0.05  # seconds that `_spin` takes on an idle core of today

# Modules that take longest on two quiet cores, the longest first.
DEAREST = (
    "benchmarks/test_regress.py", "system/test_ray.py", "system/test_examples.py", "web/test_page_runs.py",
    "benchmarks/test_tracking_benchmark.py", "examples/test_task.py", "schedulers/engine/test_faults.py",
    "web/test_page_searches.py", "framework/test_faults.py", "searchers/test_contract.py", "examples/test_plugins.py",
    "searchers/test_bayes.py", "tracking/exchange/test_trackers.py", "framework/test_lockstep.py",
    "framework/test_parallel.py", "auto/test_launch.py", "system/test_wheel.py", "tracking/test_remote_notes.py",
    "examples/test_hpo.py", "training/test_devices.py", "learning/test_golden.py",
)  # fmt: skip

_spun = (float("-inf"), 1.0)


def patience(seconds: float) -> float:
    """So long may take what is done within ``seconds`` on a quiet machine.

    The factor is the greater of how much longer a piece of arithmetic takes than on an idle core (looked at every ten
    seconds) and the number of programs that want each core. A wait that ends when it may is not made longer by it.
    """
    global _spun
    if time.monotonic() - _spun[0] > 10:
        _spun = (time.monotonic(), _spin() / QUIET_SPIN)
    return seconds * max(1.0, _spun[1], 2 * os.getloadavg()[0] / (os.cpu_count() or 1))


def wait_until(condition: Callable[[], object], what: str = "it", seconds: float = 20.0) -> None:
    """Return as soon as the condition holds; it is an error if it does not within `patience(seconds)`."""
    deadline = time.monotonic() + patience(seconds)
    while not condition():
        assert time.monotonic() < deadline, f"{what} never came"
        time.sleep(0.01)


def _spin() -> float:
    began = time.perf_counter()
    sum(number * number for number in range(800_000))
    return time.perf_counter() - began


def spawned(process: psutil.Process | None = None) -> list[psutil.Process]:
    """Processes of multiprocessing's that live and descend from this one; whatever else earlier tests have left."""
    found = []
    for one in (process or psutil.Process()).children(recursive=True):
        with contextlib.suppress(psutil.NoSuchProcess):  # a zombie, too
            if "spawn_main" in " ".join(one.cmdline()):
                found.append(one)
    return found


def left_behind(mark: str) -> list[tuple[psutil.Process, str]]:
    """Processes that carry this mark, or descend from this one, each with the test that started it."""
    own = psutil.Process()
    found = {child.pid: child for child in own.children(recursive=True)}
    told: list[tuple[psutil.Process, str]] = []
    for process in [*found.values(), *(one for one in psutil.process_iter() if one.pid not in found)]:
        try:
            # Not psutil's environ(), which is slow for all processes of a machine.
            given = dict(
                entry.split("=", 1)
                for entry in Path(f"/proc/{process.pid}/environ").read_bytes().decode("utf-8", "replace").split("\0")
                if "=" in entry
            )
            marked = given.get(MARK) == mark and process.pid != own.pid
            command = " ".join(process.cmdline())
            if not (marked or process.pid in found) or process.status() == psutil.STATUS_ZOMBIE or PYTHONS in command:
                continue
            test = given.get("PYTEST_CURRENT_TEST", "a test that gave it another environment")
            told.append((process, f"{test}: {command[:200]}"))
        except (OSError, psutil.Error):
            continue  # it has ended meanwhile, or is not ours
    return told


def free_port() -> int:
    """A port of loopback that nobody listens at now."""
    with socket.create_server(("127.0.0.1", 0)) as listener:
        return int(listener.getsockname()[1])
