"""Workers that die, hang, stop, and what becomes of the others."""

from __future__ import annotations

import os
import threading
import time
from pathlib import Path
from typing import Any

import mains
import psutil
import pytest
from tests.machine import patience, spawned

from operant.framework import Parallel, WorkerDied


@pytest.mark.parametrize(
    ("topology", "node", "how", "expected"),
    [
        ("star", 0, "raise", "ValueError: the reward is not a number"),
        ("star", 1, "raise", "ValueError: the reward is not a number"),
        ("star", 0, "kill", "was killed by signal 9 (SIGKILL)"),
        ("star", 1, "kill", "was killed by signal 9 (SIGKILL)"),
        ("mesh", 2, "kill", "was killed by signal 9 (SIGKILL)"),
        ("star", 1, "exit", "ended with exit code 7"),
    ],
)
def test_the_death_of_one_ends_all_with_its_reason(topology: Any, node: int, how: str, expected: str) -> None:
    with pytest.raises(WorkerDied) as caught:
        Parallel.runner(3, topology=topology)(mains.fail_on, node, how)
    assert f"node.{node}" in str(caught.value) and expected in str(caught.value)
    if how == "raise":
        assert "in middleware 'work', forward, at total_step 3" in str(caught.value)
    assert _no_worker_left()


def test_a_death_from_outside_is_noticed_while_all_wait(tmp_path: Path) -> None:
    """Nobody's own code can notice it: they would wait for ever."""
    error: list[BaseException] = []

    def run() -> None:
        try:
            Parallel.runner(3, topology="star")(mains.wait_and_mark, str(tmp_path))
        except WorkerDied as caught:
            error.append(caught)

    thread = threading.Thread(target=run)
    thread.start()
    while len([mark for mark in tmp_path.iterdir() if mark.read_text()]) < 3:
        time.sleep(0.01)
    os.kill(int((tmp_path / "1").read_text()), 9)
    thread.join()
    assert "node.1 was killed by signal 9" in str(error[0])


@pytest.mark.parametrize("how", ["hang", "stop"])
def test_a_hung_worker_is_found_by_stall_timeout(how: str) -> None:
    with pytest.raises(WorkerDied, match=r"node\.1 made no pass for 1\.0 s \(stall_timeout\) and was killed"):
        Parallel.runner(2, stall_timeout=1.0)(mains.fail_on, 1, how)


def test_a_worker_that_waits_for_a_hung_one_is_not_blamed() -> None:
    with pytest.raises(WorkerDied, match=r"node\.1 made no pass"):
        Parallel.runner(2, stall_timeout=1.0)(mains.wait_for_the_hung, 1)


@pytest.mark.parametrize(("node", "how"), [(0, "kill"), (1, "raise")])
def test_a_dead_worker_comes_back_with_its_registered_state(
    node: int, how: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("MARKS", str(tmp_path))
    results = Parallel.runner(2, auto_recover=True)(mains.die_and_go_on, node, [4, 5], 10, how)
    assert results[node] == (10, 5, 2)
    assert results[1 - node] == (10, 0, 0)


def test_retries_have_an_end(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("MARKS", str(tmp_path))
    with pytest.raises(WorkerDied, match=r"RuntimeError: once(.|\n)*after 2 restarts"):
        Parallel.runner(2, auto_recover=True, max_retries=2)(mains.die_and_go_on, 1, [1, 2, 3], 20, "raise")


def test_items_that_die_with_the_host_of_a_queue_are_told_and_counted() -> None:
    told = Parallel.runner(3, topology="star", auto_recover=True)(mains.lose_a_queue)
    assert [lost for lost, _ in told] == [4, 4, 4]  # whoever asks, the one that came back too
    assert told[0][1] == []
    sentences = [one for _, said in told[1:] for one in said]
    assert all("node.0, which hosted it, died with" in one for one in sentences)
    assert sum(int(one.split("died with ")[1].split()[0]) for one in sentences) == 4


def test_a_stopped_reader_does_not_hold_up_the_writer() -> None:
    n_steps, n_published = Parallel.runner(2)(mains.write_past_a_stopped_reader, 300)[0]
    # One snapshot may be under way when the reader stops, and one is due when it goes on.
    assert n_steps >= 300 and n_published < 100


def test_a_kill_in_the_middle_of_a_publish_leaves_whole_values(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("MARKS", str(tmp_path))
    _, n_read = Parallel.runner(2, auto_recover=True)(mains.die_while_publishing, 3)
    assert n_read > 3


def test_an_orphaned_worker_ends(tmp_path: Path) -> None:
    import subprocess
    import sys

    script = tmp_path / "orphan.py"
    script.write_text(
        f"import sys; sys.path[:0] = {sys.path!r}\n"
        "import mains\nfrom operant.framework import Parallel\n"
        "if __name__ == '__main__':\n"
        f"    Parallel.runner(2)(mains.wait_and_mark, {str(tmp_path / 'marks')!r})\n"
    )
    (tmp_path / "marks").mkdir()
    supervisor = subprocess.Popen([sys.executable, str(script)])
    while len([mark for mark in (tmp_path / "marks").iterdir() if mark.read_text()]) < 2:
        time.sleep(0.01)
    workers = [psutil.Process(int(mark.read_text())) for mark in (tmp_path / "marks").iterdir()]
    supervisor.kill()
    supervisor.wait()
    _, alive = psutil.wait_procs(workers, timeout=patience(20))
    assert not alive


def test_starts_and_stops_leave_nothing_behind() -> None:
    _start_and_stop(3)


@pytest.mark.long
def test_a_hundred_starts_and_stops_leave_nothing_behind() -> None:
    _start_and_stop(100)


def _start_and_stop(n: int) -> None:
    def held() -> tuple[int, int, int]:
        process = psutil.Process()
        return process.num_fds(), threading.active_count(), len(process.children(recursive=True))

    run = Parallel.runner(2, topology="star")
    run(mains.train_and_evaluate, 3)  # the first run starts what Python itself keeps
    shm_before = set(os.listdir("/dev/shm"))  # noqa: PTH208
    before = held()
    for index in range(n):
        if index % 3 == 2:
            with pytest.raises(WorkerDied):
                run(mains.fail_on, index % 2, "kill")
        else:
            run(mains.train_and_evaluate, 3)
    _wait_until(lambda: held() <= before)
    assert held() <= before
    assert not {name for name in set(os.listdir("/dev/shm")) - shm_before if "operant" in name}  # noqa: PTH208


def _no_worker_left() -> bool:
    return not spawned()


def _wait_until(predicate: Any) -> None:
    deadline = time.monotonic() + patience(10)
    while not predicate() and time.monotonic() < deadline:
        time.sleep(0.01)
