"""What the tests themselves rely on: nothing is left running, ctrl-C reaches children, waits grow with the load."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest
from tests.machine import DEAREST, MARK, left_behind, patience, wait_until


def test_a_process_that_a_test_leaves_behind_is_found_and_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(MARK, "this test")
    # The shell ends at once: what it started is nobody's child.
    subprocess.run(["sh", "-c", "sleep 600 & echo"], check=True, stdout=subprocess.DEVNULL)
    found = [(process, told) for process, told in left_behind("this test") if "sleep 600" in told]
    for process, _ in found:
        process.kill()
    assert len(found) == 1 and "test_a_process_that_a_test_leaves_behind" in found[0][1]
    wait_until(lambda: not left_behind("this test"), "its end")


def test_ctrl_c_reaches_children_also_in_the_background() -> None:
    child = subprocess.Popen(
        [sys.executable, "-c", "import time; print(1, flush=True); time.sleep(600)"],
        stderr=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
    )
    assert child.stdout is not None and child.stdout.readline()
    child.send_signal(signal.SIGINT)
    assert child.wait(patience(20)) == -signal.SIGINT
    child.stdout.close()


def test_the_dearest_modules_are_there() -> None:
    here = Path(__file__).parent
    assert [name for name in DEAREST if not (here / name).is_file()] == []


def test_patience_grows_with_the_load(monkeypatch: pytest.MonkeyPatch) -> None:
    assert patience(10.0) >= 10.0
    monkeypatch.setattr(os, "getloadavg", lambda: (20.0 * (os.cpu_count() or 1), 0.0, 0.0))
    assert patience(1.0) >= 20.0
