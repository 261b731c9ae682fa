"""`operant compare-scores`: which runs count, on which scale, and what is drawn."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from operant import SummaryWriter
from operant.cli import main


def record(name: str, env: str, seed: int, *returns: float, **settings: Any) -> None:
    config = {"env.id": env, "env.arguments": "{}", "name": name, "seed": seed, **settings}
    with SummaryWriter(name, config=config, system_metrics=False) as writer:
        for step, value in enumerate(returns):
            writer.add_scalar("evaluation/return", value, 100 * step)


@pytest.fixture(autouse=True)
def trained(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("OPERANT_DIR", str(tmp_path / ".operant"))
    monkeypatch.chdir(tmp_path)
    record("easy-a-seed0", "Easy", 0, 0.0, 777.0)  # made again below
    for seed in range(4):
        record(f"easy-a-seed{seed}", "Easy", seed, 0.0, 30.0, 10.0)
        record(f"easy-b-seed{seed}", "Easy", seed, 0.0, 5.0, 20.0)
        record(f"hard-a-seed{seed}", "Hard", seed, -2000.0, -1000.0)
        record(f"hard-b-seed{seed}", "Hard", seed, -2000.0, -500.0 - 250 * (seed % 2))


def compared(capsys: pytest.CaptureFixture[str], *words: str) -> Any:
    assert main(["compare-scores", *words, "--json"]) == 0
    return json.loads(capsys.readouterr().out)["groups"]


def test_a_name_stands_for_its_seeds_and_the_newest_of_a_seed_counts(capsys):
    a, b = compared(capsys, "easy-a", "easy-b")
    assert (a["runs"], a["iqm"], b["iqm"]) == (4, [10.0] * 3, [20.0] * 3)
    assert a["better"] is None and b["better"] == [1.0] * 3
    assert [one["iqm"][0] for one in compared(capsys, "easy-a", "easy-b", "--best")] == [30.0, 20.0]


def test_runs_of_other_settings_in_a_group_are_told(capsys):
    record("easy-a", "Easy", 2, 0.0, 30.0, 5000.0, total_steps=300)
    assert [one["mixed"] for one in compared(capsys, "easy-a", "easy-b")] == [["total_steps"], []]
    assert compared(capsys, "a=easy-a-seed*,hard-a", "b=*-b")[0]["mixed"] == []  # tasks may differ from each other
    assert main(["compare-scores", "easy-a", "easy-b"]) == 0
    out = capsys.readouterr().out
    assert "not of one kind: runs of easy-a differ in total_steps" in out and "5000]" in out


def test_several_environments_are_brought_to_one_scale(capsys):
    words = ("a=easy-a,hard-a", "b=*-b-seed*")
    a, b = compared(capsys, *words)
    assert a["runs"] == b["runs"] == 8 and a["iqm"][0] == 0.0
    assert 0.5 < b["iqm"][1] <= b["iqm"][0] <= 1.0
    scaled = compared(capsys, *words, "--range", "Easy=0,40", "--range", "Hard=-2000,0")
    assert scaled[0]["iqm"][0] == pytest.approx(0.375)  # 0.25 and 0.5


def test_a_name_with_brackets_is_a_name_too(capsys):
    record("net[8]-seed0", "Easy", 0, 3.0)
    assert compared(capsys, "net[8]")[0]["iqm"] == [3.0] * 3


@pytest.mark.parametrize("suffix", [".html", ".png"])
def test_charts_of_it(suffix, capsys):
    assert main(["compare-scores", "easy-a", "easy-b", "--out", f"x{suffix}"]) == 0
    assert "BETTER THAN easy-a" in capsys.readouterr().out
    written = Path(f"x{suffix}").read_bytes()
    if suffix == ".html":
        assert all(
            title in written.decode() for title in ("Interquartile mean", "Performance profile", "Sample efficiency")
        )
    else:
        assert written.startswith(b"\x89PNG")


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["nobody"], "is called nobody"),
        (["easy-a", "hard-a"], "only one of them has Easy"),
        (["easy-a", "easy-a"], "two groups are called easy-a"),
        (["easy-a", "--range", "Hard=0,1"], "a range is given for 'Hard'"),
        (["easy-a", "--range", "Easy=1"], "--range is ENV=LOW,HIGH"),
        (["easy-a", "--range", "Easy=-inf,inf"], "--range is ENV=LOW,HIGH"),
        (["easy-a", "--out", "x.gif"], "--out ends in"),
        (["x="], "'x=' names no trainings: write [LABEL=]RUNS"),
        (["easy-a", "--range", "Easy=0,1", "--range", "Easy=0,2"], "two ranges are given for Easy; leave one"),
    ],
)
def test_mistakes_are_told(words, message, capsys):
    assert main(["compare-scores", *words]) == 1
    assert message in capsys.readouterr().err


@pytest.mark.parametrize("value", [float("nan"), float("inf"), 1e300])
def test_returns_that_no_mean_has_a_place_for_are_told(value, capsys):
    record("odd-seed0", "Easy", 0, 1.0, value)
    assert main(["compare-scores", "easy-a", "odd"]) == 1
    assert f"has a return of {value:g}" in capsys.readouterr().err


def test_scores_that_are_all_the_same_have_a_scale(capsys):
    for task in ("Easy", "Hard"):
        record(f"{task}-large-seed0", task, 0, 1e60)  # beside which 1 is nothing
    (only,) = compared(capsys, "large=*-large")
    assert only["iqm"] == [0.0, 0.0, 0.0]


def test_runs_without_evaluations_are_told(capsys):
    record("silent-seed0", "Easy", 0)
    assert main(["compare-scores", "silent"]) == 1
    assert "called silent has evaluations (evaluation/return): it is no training" in capsys.readouterr().err


def test_seeds_that_failed_are_told(capsys):
    with (
        pytest.raises(ZeroDivisionError),
        SummaryWriter(
            "easy-a-seed7", config={"env.id": "Easy", "env.arguments": "{}", "seed": 7}, system_metrics=False
        ),
    ):
        raise ZeroDivisionError
    a, b = compared(capsys, "easy-a", "easy-b")
    assert (a["runs"], a["unfinished"], b["unfinished"]) == (4, 1, 0)
    assert main(["compare-scores", "easy-a", "easy-b"]) == 0
    assert "not counted: seeds of easy-a that did not finish, 1 of them" in capsys.readouterr().out
    record("easy-a-seed7", "Easy", 7, 0.0, 10.0)  # made again, to its end
    assert compared(capsys, "easy-a")[0]["unfinished"] == 0
