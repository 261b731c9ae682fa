"""Threads and processes: reports, early stops, time limits, and what is left behind."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import threading
import time
from pathlib import Path
from typing import Any

import pytest
from tests.machine import patience

from operant.assessors import AssessResult, BaseAssessor, MedianStopAssessor
from operant.hpo import NoResultError, R, hpo, randint, report, uniform
from operant.schedulers.engine.state import read_state
from operant.sites.calls import StopTrial
from operant.tracking.journal import post_message
from operant.tracking.places import find_root

KINDS = ("thread", "process")


class Unreadable:
    """Fails whoever looks at it: this process, or the one that it is sent to."""

    def __float__(self) -> float:
        raise LookupError("no number")

    def __reduce__(self) -> Any:
        return int, ("no number",)


def grid(function: Any, kind: str, last: int, workers: int = 1) -> Any:
    made = hpo(function).grid(silent=True).workers(kind).max_workers(workers).maximize(R)
    return made.spaces({"a": randint(1, last)})


def test_max_workers_is_what_it_says() -> None:
    together = threading.Barrier(4)

    def meet(config: Any) -> int:
        together.wait(60)  # breaks, and fails the trial, unless four are here at once
        return 1

    search = grid(meet, "thread", 8, workers=4).max_retries(0)
    search.run()
    assert {one.status for one in search.history} == {"FINISHED"}


def test_processes_run_at_the_same_time() -> None:
    def meet(config: dict[str, int]) -> int:
        me = config["a"]
        Path(f"here-{me}").touch()
        deadline = time.monotonic() + patience(60)
        while not all(Path(f"here-{one}").exists() for one in range(1, 4)):
            if time.monotonic() > deadline:
                raise TimeoutError
            time.sleep(0.01)
        return os.getpid()

    search = grid(meet, "process", 3, workers=3).max_retries(0)
    search.run()
    pids = {one.result for one in search.history}
    assert len(pids) == 3 and os.getpid() not in pids


@pytest.mark.parametrize("kind", KINDS)
def test_whatever_a_function_returns_it_fails_its_own_trial_only(kind: str) -> None:
    def odd(config: dict[str, int]) -> Any:
        deep: Any = 1
        for _ in range(5000):
            deep = [deep]
        return ({"acc": 10**400}, {"acc": 0.5}, {"acc": Unreadable()}, {"acc": 0.1, "deep": deep})[config["a"] - 1]

    search = hpo(odd).grid(silent=True).workers(kind).maximize(R["acc"]).spaces({"a": randint(1, 4)}).max_retries(0)
    best = search.run()
    assert best is not None and best[1] == {"acc": 0.5}
    assert [one.status for one in search.history][:3] == ["ERROR", "FINISHED", "ERROR"]
    assert "too large" in search.history[0].error


@pytest.mark.parametrize("kind", KINDS)
def test_reports_count_when_nothing_is_returned(kind: str) -> None:
    def tells(config: dict[str, int]) -> None:
        for step in range(3):
            report(step, config["a"] * 10 + step)

    search = grid(tells, kind, 2)
    search.run()
    assert [one.target for one in search.history] == [12, 22]


def test_report_outside_of_a_search_does_nothing() -> None:
    report(0, 1.0)


@pytest.mark.parametrize("kind", KINDS)
def test_a_report_must_be_numbers(kind: str) -> None:
    search = grid(lambda c: report("one", 1.0), kind, 1).max_retries(0)
    with pytest.raises(NoResultError, match="two numbers"):
        search.run()
    assert search.history[0].status == "ERROR"


class EndsLow(BaseAssessor):
    def assess_job(self, job_id: Any, history: Any) -> AssessResult:
        return AssessResult.Bad if len(history) >= 3 and history[-1]["value"] < 2 else AssessResult.Good

    def job_end(self, job_id: Any) -> None: ...


@pytest.mark.parametrize("kind", KINDS)
def test_an_assessor_ends_a_trial_at_its_report(kind: str) -> None:
    """The trial waits for the verdict, so it never gets further than the report that was judged bad."""

    def learns(config: dict[str, int]) -> float:
        try:
            for step in range(10):
                report(step, float(config["a"]))
                Path(f"{config['a']}-{step}").touch()
        except StopTrial:
            Path(f"{config['a']}-cleaned").touch()
            raise
        return float(config["a"])

    search = grid(learns, kind, 3, workers=2).early_stop(EndsLow())
    best = search.run()
    assert best.config == {"a": 3}
    assert [one.status for one in search.history] == ["STOPPED", "FINISHED", "FINISHED"]
    assert search.history[0].target == 1.0 and search.history[0].reason == "assessor"
    assert sorted(path.name for path in Path.cwd().glob("1-*")) == ["1-0", "1-1", "1-cleaned"]
    state, _ = read_state(find_root() / "searches" / search.search_name)
    assert state.jobs["0"].status == "STOPPED" and state.jobs["0"].reward == 1.0


def test_assessors_by_name_and_settings() -> None:
    def learns(config: dict[str, int]) -> float:
        for step in range(4):
            report(step, float(-config["a"]))
        return float(-config["a"])

    for given in ("MedianStopAssessor", {"type": "MedianStopAssessor", "start_step": 2}, MedianStopAssessor):
        made = hpo(learns).grid(silent=True).max_workers(1).spaces({"a": randint(1, 3)}).maximize(R).early_stop(given)
        made.run()
        assert [one.status for one in made.history] == ["FINISHED", "STOPPED", "STOPPED"]
    with pytest.raises(ValueError, match="was made to minimize"):
        grid(learns, "thread", 2).early_stop(MedianStopAssessor("minimize")).run()


def test_a_trial_that_hangs_is_killed_with_all_it_started() -> None:
    def hangs(config: dict[str, int]) -> int:
        if config["a"] == 2:
            report(0, 0.5)
            child = subprocess.Popen(["sleep", "600"])
            Path("child").write_text(str(child.pid))
            signal.signal(signal.SIGTERM, signal.SIG_IGN)
            while True:
                time.sleep(1)
        return config["a"]

    search = grid(hangs, "process", 3, workers=2).time_limit(1.5)
    assert search.run().config == {"a": 3}
    hung = search.history[1]
    assert (hung.status, hung.reason, hung.target) == ("STOPPED", "time_limits_per_job", 0.5)
    assert not _is_alive(int(Path("child").read_text()))


def _is_alive(pid: int) -> bool:
    try:
        state = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0]
    except FileNotFoundError:
        return False
    return state != "Z"


def test_processes_that_die_say_how() -> None:
    def dies(config: dict[str, int]) -> Any:
        if config["a"] == 1:
            os.kill(os.getpid(), signal.SIGKILL)
        if config["a"] == 2:
            os._exit(7)
        if config["a"] == 3:
            return lambda: None
        return "x" * 100_000 if config["a"] == 4 else config["a"]

    search = grid(dies, "process", 5).max_retries(0).stop_when(False)
    search._given["objective"] = R.apply(lambda value: value if isinstance(value, int) else len(value))
    search.run()
    assert "SIGKILL" in (search.history[0].error or "")
    assert "exit code 7" in (search.history[1].error or "")
    assert "cannot be sent" in (search.history[2].error or "")
    assert search.history[3].target == 100_000 and search.history[4].target == 5


def test_processes_need_no_importable_function() -> None:
    offset = 3
    search = hpo(lambda c: c["x"] + offset).random(silent=True).workers("process").max_workers(2)
    assert search.max_steps(3).maximize(R).spaces({"x": uniform(0, 1)}).run().result > 3


def test_no_process_is_left() -> None:
    search = grid(lambda c: os.getppid(), "process", 4, workers=2)
    search.run()
    workers = {one.result for one in search.history}
    assert workers and not any(_is_alive(pid) for pid in workers)


ORPHANS = """
import os, time
from pathlib import Path
from operant.hpo import hpo, R, randint

def f(config):
    Path(f"pid-{config['a']}").write_text(str(os.getpid()))
    time.sleep(600)

hpo(f).grid(silent=True).workers("process").max_workers(2).maximize(R).spaces({"a": randint(1, 2)}).run()
"""


def test_trials_die_with_a_killed_controller() -> None:
    Path("program.py").write_text(ORPHANS)
    program = subprocess.Popen([sys.executable, "program.py"])
    try:
        pids = [int(_wait_for_text(Path(f"pid-{one}"))) for one in (1, 2)]
    finally:
        program.kill()
        program.wait()
    deadline = time.monotonic() + patience(30)
    while any(_is_alive(pid) for pid in pids):
        assert time.monotonic() < deadline, "trials outlived their controller"
        time.sleep(0.02)


def _wait_for_text(path: Path) -> str:
    deadline = time.monotonic() + patience(60)
    while not path.exists() or not path.read_text():
        assert time.monotonic() < deadline
        time.sleep(0.02)
    return path.read_text()


@pytest.mark.parametrize("kind", KINDS)
def test_a_search_can_be_stopped_from_outside(kind: str) -> None:
    """Threads cannot be ended, but nobody waits for them."""
    begun = Path.cwd() / "begun"

    def waits(config: Any) -> int:
        begun.touch()
        time.sleep(200)
        return 1

    def stop() -> None:
        deadline = time.monotonic() + patience(60)
        while not begun.exists() and time.monotonic() < deadline:
            time.sleep(0.02)
        post_message(find_root() / "searches" / "long", {"type": "stop"})

    stopper = threading.Thread(target=stop)
    search = grid(waits, kind, 5, workers=2).name("long")
    if kind == "thread":
        stopper.start()
        with pytest.raises(NoResultError, match="stopped by its user"):
            search.run()
    else:  # forked before there are threads
        code = f"import time; from tests.hpo.test_workers import stop_when_begun as s; s({str(begun)!r})"
        helper = subprocess.Popen([sys.executable, "-c", code], cwd=Path(__file__).parents[2], env=_env())
        with pytest.raises(NoResultError, match="stopped by its user"):
            search.run()
        helper.wait()
    assert {one.status for one in search.history} == {"KILLED"}
    if kind == "thread":
        stopper.join()


def _env() -> dict[str, str]:
    return {**os.environ, "OPERANT_DIR": str(find_root())}


def stop_when_begun(path: str) -> None:
    deadline = time.monotonic() + patience(60)
    while not Path(path).exists() and time.monotonic() < deadline:
        time.sleep(0.02)
    post_message(find_root() / "searches" / "long", {"type": "stop"})
