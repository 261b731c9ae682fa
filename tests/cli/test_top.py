"""`operant top` on a real terminal, watching a real search."""

from __future__ import annotations

import os
import re
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml
from hypothesis import given
from hypothesis import strategies as st
from tests.cli.terminal import PATIENCE, Terminal
from tests.machine import patience

from operant import SummaryWriter
from operant.cli import main
from operant.cli.watching.draw import cells, line, log_lines, rule, shrink
from operant.cli.watching.keyboard import split_keys
from operant.cli.watching.scenes import SearchScene
from operant.schedulers.engine.state import read_state
from operant.tracking.journal import controller_is_alive

PROGRAM = r"""
import sys, time
from operant import SummaryWriter
x = int(sys.argv[1])
print("\x1b]0;owned\x07\x1b[31mred\x1b[0m job", x, flush=True)
with SummaryWriter("job", system_metrics=False) as writer:
    for step in range(3):
        writer.add_scalar("acc", x + step / 10, step)
    writer.flush()
    if x >= 90:
        time.sleep(600)
"""


@pytest.fixture
def project(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("OPERANT_DIR", str(tmp_path / ".operant"))
    monkeypatch.chdir(tmp_path)
    (tmp_path / "program.py").write_text(PROGRAM)
    return tmp_path


@pytest.fixture
def search(project: Path) -> Iterator[Callable[..., Path]]:
    started: list[subprocess.Popen[bytes]] = []

    def start(values: list[Any], **scheduler: Any) -> Path:
        config = {
            "task": {
                "template": f"{sys.executable} program.py {{x}}",
                "search_args": [
                    {"type": "Categorical", "name": "x", "data": values},
                    {"type": "Categorical", "name": "note", "data": ["\x1b[2Jgone"]},
                ],
            },
            "searcher": {"type": "GridSearcher", "reward_attribute": "acc"},
            "scheduler": {"parallel_size": 3, "grace_period": 0.2, **scheduler},
        }
        (project / "search.yaml").write_text(yaml.safe_dump(config))
        command = [sys.executable, "-m", "operant.cli.search_scripts", "run", "-t", "s", "search.yaml"]
        started.append(subprocess.Popen(command, stdout=subprocess.DEVNULL))
        return project / ".operant" / "searches" / "s"

    yield start
    for one in started:
        if one.poll() is None:
            one.send_signal(signal.SIGINT)
        one.wait(PATIENCE)


def wait_until(true: Callable[[], object]) -> None:
    deadline = time.monotonic() + patience(PATIENCE)
    while not true():
        assert time.monotonic() < deadline
        time.sleep(0.02)


def numbers(frame: str) -> dict[str, int]:
    """The status table of a picture."""
    lines = frame.splitlines()
    heading = next((at for at, line in enumerate(lines) if line.split()[:2] == ["defined", "waiting"]), None)
    if heading is None or len(lines) <= heading + 1 or len(lines[heading + 1].split()) != 6:
        return {}
    return dict(zip(lines[heading].split(), map(int, lines[heading + 1].split()), strict=True))


def test_a_key_stops_a_job(search: Callable[..., Path]) -> None:
    folder = search([1, 2, 98, 99, 3])
    wait_until(lambda: (folder / "journal.log").exists())
    with Terminal(["top", "--task", "s"]) as screen:
        frame = screen.wait_for(
            lambda one: numbers(one).get("running") == 2 and numbers(one)["success"] == 3 and "98.2" in one, "two jobs"
        )
        assert numbers(frame) == {
            "defined": 5, "waiting": 0, "running": 2, "finished": 3, "success": 3, "abnormal": 0,
        }  # fmt: skip
        assert re.search(r"best acc 3\.2 \(proposal 4\) +[▁▂▃▄▅▆▇█]+", frame)
        assert re.search(r"▶ +2 .* 2 +98\.2 .* s\b", frame) and re.search(r"\n +3 .* 2 +99\.2 .* s\b", frame)
        assert "job 4 finished acc 3.2" in frame  # the last lines of its log
        assert all(len(line) <= 80 for line in frame.splitlines())

        screen.press("\x1b[B")
        screen.wait_for(lambda one: re.search(r"▶ +3 ", one), "the second job chosen")
        screen.press("l")
        frame = screen.wait_for(lambda one: "output of job 3" in one, "its output")
        assert "red job 99" in frame
        screen.press("s")
        screen.wait_for(lambda one: "stop job 3?" in one, "the question")
        screen.press("n")
        screen.press("s")
        screen.press("y")
        wait_until(lambda: read_state(folder)[0].jobs["3"].status == "KILLED")
        frame = screen.wait_for(lambda one: numbers(one).get("abnormal") == 1, "the killed job in the table")
        assert numbers(frame)["running"] == 1
        screen.press("q")
    assert screen.code == 0
    state, status = read_state(folder)
    assert status == "RUNNING" and state.jobs["2"].status == "RUNNING"
    assert state.messages == [{"type": "stop", "jobs": ["3"]}]
    # Nothing that a job printed or was set to reached the terminal as a command.
    assert b"\x1b]0;" not in screen.raw and b"\x1b[2Jgone" not in screen.raw
    assert b"\x1b[?1049l" in screen.raw and screen.after == screen.before


def test_pause_resize_and_stop_the_search(search: Callable[..., Path]) -> None:
    folder = search([98, 1, 2], parallel_size=1)
    wait_until(lambda: (folder / "jobs" / "0" / "claim-1").exists())
    with Terminal(["top"], columns=80, rows=20) as screen:
        frame = screen.wait_for(lambda one: "1 searches and 0 runs under way" in one, "the list")
        assert re.search(r"▶ +s +RUNNING", frame)
        screen.press("\r")
        frame = screen.wait_for(lambda one: numbers(one).get("running") == 1, "the search")
        screen.press("p")
        screen.wait_for(lambda one: "PAUSED" in one and "asked to pause" in one, "that it is paused")
        screen.resize(60, 12)
        narrow = screen.wait_for(lambda one: numbers(one) and max(map(len, one.splitlines())) <= 60, "60 columns")
        assert len(narrow.splitlines()) <= 12
        screen.press("S")
        screen.wait_for(lambda one: "stop the search s and kill its 1" in one, "the question")
        screen.press("y")
        wait_until(lambda: not controller_is_alive(folder))
        screen.wait_for(lambda one: "KILLED" in one and "stopped by its user" in one, "its end")
        screen.press("\x1b[D")
        screen.wait_for(lambda one: "0 searches" in one, "the list without it")
        screen.press("q")
    assert screen.code == 0
    assert read_state(folder)[0].jobs["0"].status == "KILLED"


@pytest.mark.parametrize(("ending", "code"), [("SIGTERM", 128 + signal.SIGTERM), ("ctrl-C", 130), ("q", 0)])
def test_however_it_ends_the_terminal_is_in_order(project: Path, ending: str, code: int) -> None:
    with Terminal(["top"]) as screen:
        screen.wait_for(lambda one: "0 searches" in one, "the list")
        screen.press("\x1a")  # ctrl-Z does nothing
        screen.wait_for(lambda one: "0 searches" in one, "that it goes on")
        if ending == "SIGTERM":
            screen.process.send_signal(signal.SIGTERM)
        else:
            screen.press("\x03" if ending == "ctrl-C" else ending)
    assert screen.code == code
    assert b"\x1b[?1049l" in screen.raw and screen.after == screen.before


def test_without_a_terminal_it_prints_once(search: Callable[..., Path], capsys: pytest.CaptureFixture[str]) -> None:
    folder = search([1, 2])
    wait_until(lambda: (folder / "journal.log").exists() and read_state(folder)[0].closed)
    wait_until(lambda: not controller_is_alive(folder))
    with SummaryWriter("own", system_metrics=False, config={"total_steps": 100}) as writer:
        writer.add_scalar("evaluation/return", 7.5, 25)
        for name, value in {"lag": 1.25, "queue": 0.5, "restarts": 2, "0/steps_per_second": 1000}.items():
            writer.add_scalar(f"workers/{name}", value, 25)
        for tag, value in {"replay/ratio": 8, "time/learn": 6, "time/collect": 3, "time/step": 10}.items():
            writer.add_scalar(tag, value, 25)
        writer.flush()
        assert main(["top"]) == 0
        text = capsys.readouterr().out
        assert "0 searches and 1 runs under way" in text and re.search(r"own-\S+ +█░░░ 25% +25 +7\.5", text)
        assert "1 workers, 1,000 steps/s, lag 1.2, queue 50%, dropped 0, restarts 2" in text
        assert "replay ratio 8.0, learn 60%, collect 30%" in text
    assert main(["top", "--task", "s"]) == 0
    text = capsys.readouterr().out
    assert text.startswith("s  FINISHED  2 tries") and "\x1b" not in text
    assert numbers(text) == {
        "defined": 2, "waiting": 0, "running": 0, "finished": 2, "success": 2, "abnormal": 0,
    }  # fmt: skip
    assert "best acc 2.2 (proposal 1)" in text and "note=�[2Jgone" in text
    assert main(["top", "--task", "t"]) == 1 and "unknown search 't'" in capsys.readouterr().err
    assert main(["top", "--interval", "0"]) == 1


def test_what_is_asked_of_a_dead_search_is_not_left_for_the_next(search: Callable[..., Path]) -> None:
    folder = search([98])
    wait_until(lambda: (folder / "jobs" / "0" / "claim-1").exists())
    scene = SearchScene(folder)
    wait_until(lambda: (scene.refresh(), scene.chosen)[1])
    holder = read_lease_pid(folder)
    os.kill(holder, signal.SIGSTOP)  # it cannot read its inbox any more
    scene.press("s")
    scene.press("y")
    assert len(list((folder / "inbox").glob("*.json"))) == 1
    os.kill(holder, signal.SIGKILL)
    wait_until(lambda: not controller_is_alive(folder))
    scene.refresh()
    assert not list((folder / "inbox").glob("*.json")) and "ended before it could stop job 0" in scene.said
    assert scene.search.counts()["abnormal"] == 1 and scene.search.status == "ERROR"
    scene.press("s")
    assert scene.said == "nothing is running"
    for width, height in ((1, 4), (20, 5), (80, 24), (300, 100)):  # however small the window, it is filled exactly
        assert len(scene.draw(width, height)) == height


def read_lease_pid(folder: Path) -> int:
    from operant.tracking.journal.lease import read_lease

    return int(read_lease(folder)["pid"])


@pytest.mark.parametrize(
    ("sent", "keys"),
    [
        (b"\x1b[A\x1bOBq", ["up", "down", "q"]),
        (b"\x1b[1;5Cs", ["s"]),  # ctrl-right means nothing here
        (b"\x1b", ["back"]),
        (b"\r\t\x7f\x01", ["enter", "tab", "back"]),
        ("é".encode() + b"y", ["y"]),
    ],
)
def test_keys(sent: bytes, keys: list[str]) -> None:
    assert list(split_keys(sent)) == keys


def test_log_lines_are_what_a_terminal_would_have_left(tmp_path: Path) -> None:
    log = tmp_path / "log"
    log.write_bytes(b"old\n" * 9000 + b"\x1b]8;;http://x\x07link\x1b]8;;\x07\n 10%\r 99%\r\n\n\xff\x1b[1mend\x1b[0m")
    assert log_lines(log, 3) == ["link", " 99%", "\ufffdend"]
    assert log_lines(log, 0) == [] and log_lines(tmp_path / "none", 3) == []


@given(st.text())
def test_nothing_that_a_terminal_obeys_gets_through(text: str) -> None:
    shown = [line(text).plain, rule(text, 80).plain, cells([text, text], [10, -10]).plain]
    assert all(char.isprintable() for one in shown for char in one)
    assert len(shown[2]) <= 21


def test_a_search_without_a_log_file_is_told_from_its_journal(tmp_path: Path) -> None:
    from operant.schedulers.naive_scheduler import NaiveScheduler

    config = {
        "task": {"search_args": [{"type": "Categorical", "name": "x", "data": [1, 2]}]},
        "searcher": {"type": "GridSearcher", "reward_attribute": "acc"},
    }
    NaiveScheduler(tmp_path / "f", config, function=lambda x: float(x["x"])).run()
    text = [one.plain for one in SearchScene(tmp_path / "f").draw(80, 24)]
    assert any("job 1 finished reward 2" in one for one in text) and any(
        "the search ended: FINISHED" in one for one in text
    )


@pytest.mark.parametrize("kind", ["thread", "process"])
def test_what_functions_report_on_their_way_is_shown(project: Path, kind: str) -> None:
    from operant.hpo import R, hpo, randint, report

    def climb(config: Any) -> float:
        for step in range(1, 4):
            report(step, config["a"] + step / 8)
        wait_until((project / "go-on").exists)
        return float(config["a"])

    search = hpo(climb).grid(silent=True).workers(kind).max_workers(2).maximize(R).spaces({"a": randint(1, 2)})
    folder = project / ".operant" / "searches" / "climbs"
    hunt = threading.Thread(target=search.name("climbs").run)
    hunt.start()
    try:
        wait_until(lambda: (folder / "journal.log").exists())
        scene = SearchScene(folder)

        def rows() -> list[list[str]]:
            """What is shown of each running job, without the mark of the chosen one."""
            scene.refresh()
            lines = [one.plain.replace("▶", " ").split() for one in scene.draw(80, 24)]
            heading = next((at for at, words in enumerate(lines) if words[:2] == ["job", "progress"]), len(lines))
            return lines[heading : heading + 3]

        wait_until(lambda: [words[1:3] for words in rows()[1:]] == [["3", "1.375"], ["3", "2.375"]])
        assert rows()[0] == ["job", "progress", "step", "target", "elapsed"]
    finally:
        (project / "go-on").touch()
        hunt.join(PATIENCE)
    assert not hunt.is_alive() and [one.result for one in search.history] == [1.0, 2.0]


def test_a_long_curve_keeps_its_end() -> None:
    assert shrink([0.0] * 999 + [1.0], 10) == "▁" * 9 + "█"
    assert shrink([0.0, 1.0], 10) == "▁█"
