"""Tables and help as they stand on a terminal of 80 columns."""

from __future__ import annotations

from pathlib import Path

import pytest
from tests.cli.terminal import Terminal

from operant import SummaryWriter
from operant.cli import _terminal, main
from operant.cli._terminal import print_table

ROWS = [["run-20261116-033536-bcpvd", "run", "FINISHED", "x" * 40], ["short", "short", "RUNNING", "y"]]
HEADINGS = ["ID", "NAME", "STATUS", "TAGS"]


def wide(patch: pytest.MonkeyPatch, room: int) -> None:
    """A terminal of this width, without colours."""
    patch.setattr(_terminal, "terminal_columns", lambda: room)
    patch.setenv("NO_COLOR", "1")


def test_a_column_that_can_be_spared_falls_away_and_an_id_is_never_cut(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    for room, left_out in ((120, False), (79, False), (70, True), (60, True)):
        wide(monkeypatch, room)
        assert print_table(HEADINGS, ROWS, "ID", spare="NAME") is left_out
        lines = capsys.readouterr().out.splitlines()
        assert ("NAME" in lines[0]) is not left_out
        assert ROWS[0][0] in lines[1] and max(map(len, lines)) <= room
    assert "…" in lines[1]


def test_a_text_goes_on_below_itself(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    wide(monkeypatch, 40)
    text = "one two three four five six seven eight nine ten"
    print_table(["KEY", "MEANING"], [["a.long.key", text], ["b", "short"]], fold=True)
    lines = capsys.readouterr().out.splitlines()
    assert max(map(len, lines)) <= 40
    assert " ".join(line[12:] for line in lines[1:-1]) == text and lines[2].startswith(" " * 12)
    assert lines[-1] == "b           short"


def test_a_pipe_gets_everything_on_one_line(capsys: pytest.CaptureFixture[str]) -> None:
    print_table(HEADINGS, ROWS, "ID", spare="NAME", fold=True)
    lines = capsys.readouterr().out.splitlines()
    assert len(lines) == 3 and lines[1].endswith("x" * 40) and "NAME" in lines[0]


@pytest.mark.parametrize("words", [["--help"], ["runs"], ["train", "--list"], ["train", "--settings", "dqn"]])
def test_what_commands_print_fits_into_80_columns(words: list[str]) -> None:
    with SummaryWriter("a-training-with-a-long-name", tags=["train", "seeds", "baseline"], system_metrics=False) as one:
        one.add_scalar("x", 1.0, 0)
    with Terminal(words) as screen:
        pass
    lines = screen.raw.decode().replace("\x1b[1m", "").replace("\x1b[0m", "").replace("\x1b[32m", "").splitlines()
    assert screen.code == 0 and max(map(len, lines)) <= 80
    if words == ["runs"]:
        assert one.run_id in lines[1]


def test_a_job_has_an_address_where_the_table_has_no_room_for_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    from operant.schedulers.naive_scheduler import NaiveScheduler

    monkeypatch.setenv("OPERANT_DIR", str(tmp_path / ".operant"))
    names = [f"a-setting-with-a-long-name-{number}" for number in range(4)]
    config = {
        "task": {"search_args": [{"type": "Categorical", "name": name, "data": [1]} for name in names]},
        "searcher": {"type": "GridSearcher", "reward_attribute": "acc"},
    }
    NaiveScheduler(tmp_path / ".operant" / "searches" / "long", config, function=lambda x: 1.0).run()
    wide(monkeypatch, 80)
    assert main(["show", "--task", "long"]) == 0
    shown = capsys.readouterr().out
    assert "a job's page is http://127.0.0.1:4270/run?id=long/JOB" in shown
    assert "\n0    FINISHED  1       0 s   a-setting-with-a-long-name-0=1 " in shown
    wide(monkeypatch, 200)
    assert main(["show", "--task", "long"]) == 0
    assert "http://127.0.0.1:4270/run?id=long/0" in capsys.readouterr().out
