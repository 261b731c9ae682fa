"""Workers beside a process that goes on."""

from __future__ import annotations

import os
import signal
import socket
import subprocess
import sys
import threading
import time
from pathlib import Path

import mains
import psutil
import pytest
from tests.machine import patience, spawned, wait_until

from operant.framework import Parallel, Task
from operant.framework.parallel.local_engine import ExitCallback, LocalEngine, WorkerHandle
from operant.framework.parallel.queues import QueueSettings
from operant.framework.parallel.spec import WorkerSpec


def _take(router, wanted: int) -> list[tuple[int, int]]:
    queue = router.queue("numbers", QueueSettings(4, "block", None))
    return [queue.get(timeout=patience(60)) for _ in range(wanted)]


def test_this_process_is_node_0_and_ends_the_others(tmp_path: Path) -> None:
    with Parallel.beside(2, mains.feed, str(tmp_path)) as router, Task(router=router) as task:
        taken = _take(router, 40)
        assert task.match_labels("node.0") and len(spawned()) == 2
    assert {node for node, _ in taken} <= {1, 2}
    for node in (1, 2):
        numbers = [number for one, number in taken if one == node]
        assert numbers == list(range(len(numbers)))  # none lost, none twice
    assert not spawned()


@pytest.mark.parametrize("how", ["kill", "raise", "stop"])
def test_who_dies_raises_or_falls_silent_is_told_and_replaced(tmp_path: Path, how: str) -> None:
    told: list[tuple[int, str]] = []
    beside = Parallel.beside(
        1,
        mains.feed,
        str(tmp_path),
        how,
        stall_timeout=patience(1.0) if how == "stop" else None,
        on_restart=lambda node, why: told.append((node, why)),
    )
    with beside as router, Task(router=router):
        taken = _take(router, 8)
    assert [number for _, number in taken] == [0, 1, 2, 0, 1, 2, 3, 4]
    reason = {"kill": "SIGKILL", "raise": "no more numbers", "stop": "stall_timeout"}[how]
    assert len(told) == 1 and told[0][0] == 1 and reason in told[0][1]
    assert not spawned()


def test_an_error_of_this_process_ends_the_others(tmp_path: Path) -> None:
    with pytest.raises(KeyError), Parallel.beside(1, mains.feed, str(tmp_path)) as router, Task(router=router):
        _take(router, 2)
        raise KeyError("mine")
    assert not spawned()


def test_workers_end_when_this_process_is_killed(tmp_path: Path) -> None:
    program = (
        "import sys, time; sys.path[:0] = sys.argv[2:]\nimport mains\nfrom operant.framework import Parallel\n"
        "with Parallel.beside(2, mains.feed, sys.argv[1]):\n    time.sleep(600)\n"
    )
    marks = tmp_path / "marks"
    marks.mkdir()
    here = Path(__file__).parent
    script = tmp_path / "program.py"
    script.write_text("if __name__ == '__main__':\n    " + program.replace("\n", "\n    "))
    process = subprocess.Popen([sys.executable, str(script), str(marks), str(here)])
    wait_until(lambda: len([one for one in marks.iterdir() if one.read_text()]) == 2, "two workers", 60)
    pids = [int(one.read_text()) for one in marks.iterdir()]
    os.kill(process.pid, signal.SIGKILL)
    process.wait()
    wait_until(lambda: not any(_lives(pid) for pid in pids), "the end of the workers")


def _lives(pid: int) -> bool:
    try:
        return psutil.Process(pid).status() != psutil.STATUS_ZOMBIE
    except psutil.NoSuchProcess:
        return False


def test_a_link_that_breaks_is_made_again(tmp_path: Path) -> None:
    """Nobody died: whoever had dialled dials again, and nothing that was put is lost."""
    told: list[tuple[int, str]] = []
    beside = Parallel.beside(1, mains.feed, str(tmp_path), on_restart=lambda *news: told.append(news))
    with beside as router, Task(router=router):
        taken = _take(router, 5)
        link = router.link_to(1)
        assert link is not None
        link.sock.shutdown(socket.SHUT_RDWR)
        taken += _take(router, 20)
        assert router.link_to(1) is not link
    numbers = sorted({number for _, number in taken})
    assert numbers == list(range(len(numbers))) and len(numbers) >= 24  # what was on its way may come twice
    assert not told and not spawned()


class _Waiting:
    """A worker that has no place yet, as far as anybody knows."""

    inner: WorkerHandle | None = None

    def has_place(self) -> bool:
        return False

    def ask_to_end(self) -> None:
        if self.inner is not None:
            self.inner.ask_to_end()

    def kill(self) -> None:
        if self.inner is not None:
            self.inner.kill()

    def release(self) -> None:
        if self.inner is not None:
            self.inner.release()


class _Cramped(LocalEngine):
    """Starts node.1 again only when there is room."""

    def __init__(self) -> None:
        super().__init__()
        self.room = threading.Event()

    def start(self, spec: WorkerSpec, on_exit: ExitCallback) -> WorkerHandle:
        if spec.incarnation == 0:
            return super().start(spec, on_exit)
        handle, start = _Waiting(), super().start

        def wait() -> None:
            if spec.node_id == 1:
                self.room.wait()
            handle.inner = start(spec, on_exit)

        threading.Thread(target=wait, daemon=True).start()
        return handle


def test_one_that_waits_for_a_place_is_not_late(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    engine, told, silence = _Cramped(), list[int](), patience(1.0)
    monkeypatch.setattr("operant.framework.parallel.runner._engine", lambda *_: engine)
    beside = Parallel.beside(
        2, mains.feed, str(tmp_path), stall_timeout=silence, on_restart=lambda node, _: told.append(node)
    )
    with beside as router, Task(router=router):
        _take(router, 2)
        monkeypatch.setattr("operant.framework.parallel.supervisor._START_TIMEOUT", silence / 4)
        wait_until((tmp_path / "1").exists, "node.1")
        os.kill(int((tmp_path / "1").read_text()), signal.SIGKILL)
        wait_until(lambda: told == [1] or not _take(router, 1), "the end of node.1")
        os.kill(int((tmp_path / "2").read_text()), signal.SIGKILL)
        wait_until(lambda: _take(router, 1) == [(2, 0)], "the next life of node.2")
        enough = time.monotonic() + 2.5 * silence
        wait_until(lambda: _take(router, 1) and time.monotonic() > enough, "some time", 4 * silence)
        assert told == [1, 2]  # though nothing was heard of node.1 for long
        engine.room.set()
        wait_until(lambda: _take(router, 1)[0][0] == 1, "the next life of node.1")
    assert told == [1, 2] and not spawned()
