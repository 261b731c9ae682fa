from __future__ import annotations

import json
import os
import signal
from dataclasses import asdict, replace

import pytest

from operant.benchmark.comparing import Outcome
from operant.benchmark.reporting import charts, compare, read_outcomes, searcher_options, table
from operant.cli import main
from operant.errors import OperantError, UsageError


def test_a_comparison_goes_on_where_it_was(tmp_path):
    file = tmp_path / "ackley.jsonl"
    told = []
    searchers = {"random": searcher_options("random", "ackley", False)}
    first = compare("ackley", searchers, [1, 2], 4, file, dims=3, told=told.append)
    assert [one.seed for one in first] == [1, 2] and len(told) == 2
    file.write_text(file.read_text()[:-20])  # the second line is cut off
    assert len(read_outcomes(file)) == 1
    again = compare("ackley", searchers, [1, 2], 4, file, dims=3, told=told.append)
    assert [(one.seed, one.best) for one in again] == [(one.seed, one.best) for one in first]
    assert len(told) == 3
    assert len(read_outcomes(file)) == 2  # what came after the line that was cut off is no part of it


def test_damaged_lines_count_as_not_there(tmp_path):
    file = tmp_path / "swimmer.jsonl"
    sound = asdict(outcome(0, 50))
    damaged = [{"best": "x"}, {"seed": 1.5}, {"rises": None}, {"rises": [[1, "x"]]}, {"samples": 1}, {"hit": "no"}]
    lines = [json.dumps({**sound, **one}).encode() for one in damaged]
    file.write_bytes(b"\n".join([b"\xff\xfe\x00", b"[1]", b"null", *lines, json.dumps(sound).encode(), b""]))
    assert read_outcomes(file) == [replace(outcome(0, 50), rises=[[1, 1.0], [2, 2.0]])]


def killed(*arguments):
    os.kill(os.getpid(), signal.SIGKILL)


def test_a_worker_that_was_killed_is_told_in_a_sentence(tmp_path, monkeypatch):
    monkeypatch.setattr("operant.benchmark.reporting._search", killed)
    with pytest.raises(OperantError, match=r"was killed.*ackley\.jsonl keeps what had ended"):
        compare("ackley", {"random": {"type": "RandomSearcher"}}, [1], 4, tmp_path / "ackley.jsonl", dims=3)


def outcome(seed, hit, **more):
    rises = [(1, 1.0), (2, 2.0)]
    return Outcome("lamcts", "swimmer", seed, hit or 100, 300.0 + seed, 100, 3, hit=hit, rises=rises, **more)


def test_the_table_counts_misses_as_never_reached():
    runs = [outcome(0, 50, confirming_episodes=20), outcome(1, 60, confirming_episodes=20), outcome(2, None)]
    assert table(runs, "swimmer").splitlines()[2] == "| lamcts | 3 | 2 | 60 | 200 | 301 |"
    missed = [outcome(0, 50), outcome(1, None), outcome(2, None)]
    assert table(missed, "swimmer").splitlines()[2] == "| lamcts | 3 | 1 | not reached | not reached | 301 |"


def test_a_search_that_has_ended_is_told_with_its_threshold(tmp_path, capsys):
    arguments = ["bench", "search", "--func", "swimmer", "--searchers", "random", "--seeds", "1", "--samples", "1"]
    assert main([*arguments, "--out", str(tmp_path)]) == 0
    assert ", 325 not reached\n" in capsys.readouterr().out


def test_curves_have_median_and_quartiles_over_samples_and_over_episodes():
    over_samples, over_episodes = charts([outcome(0, 50), outcome(1, None), outcome(2, 60)], "swimmer")
    band, line, threshold = over_samples.marks
    assert (list(line.x)[:2], list(line.x)[-1], line.name) == ([1.0, 2.0], 100.0, "lamcts")
    assert list(line.y) == list(band.low) == list(band.high) == [1.0, *[2.0] * 99]
    assert list(threshold.y) == [325.0, 325.0]
    assert list(over_episodes.marks[1].x)[:2] == [3.0, 6.0]


def test_lamcts_has_gmls_settings_and_all_start_alike():
    assert searcher_options("lamcts", "hopper", False)["leaf_size"] == 100
    assert searcher_options("lamcts-no-tree", "hopper", False)["partition"] is False
    assert {searcher_options(name, "swimmer", True)["start"] for name in ("lamcts", "cmaes", "turbo")} == {"centre"}
    with pytest.raises(UsageError, match="did you mean 'turbo'"):
        searcher_options("turbi", "swimmer", False)


def test_the_command_writes_table_and_results(tmp_path, capsys):
    arguments = ["bench", "search", "--func", "levy", "--dims", "2", "--searchers", "random", "--seeds", "2"]
    assert main([*arguments, "--samples", "3", "--out", str(tmp_path)]) == 0
    told = capsys.readouterr().out
    assert "| searcher | seeds | best (median) |" in told and "| random | 2 | -" in told
    assert "reached" not in told  # a formula has no threshold
    assert sorted(path.suffix for path in tmp_path.iterdir()) == [".html", ".jsonl", ".md", ".png"]


def test_other_numbers_of_arguments_are_other_comparisons(tmp_path):
    arguments = ["bench", "search", "--func", "levy", "--searchers", "random", "--seeds", "1", "--samples", "2"]
    for dims in ("2", "3"):
        assert main([*arguments, "--dims", dims, "--out", str(tmp_path)]) == 0
    assert sorted(path.name for path in tmp_path.glob("*.jsonl")) == ["levy-2.jsonl", "levy-3.jsonl"]


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["--func", "rover", "--dims", "4"], "rover has an even number of at least 8 arguments, not 4"),
        (["--func", "rosenbrock", "--dims", "1"], "rosenbrock has at least 2 arguments, not 1"),
        (["--func", "ackly"], "unknown func_type 'ackly'; did you mean 'ackley'?"),
        (["--func", "ackley", "--searchers", ","], "--searchers names no searcher"),
        (["--func", "ackley", "--first-seed", "-1"], "--first-seed is a whole number from 0 on"),
    ],
)
def test_mistakes_are_told_in_a_sentence(tmp_path, capsys, words, message):
    assert main(["bench", "search", *words, "--out", str(tmp_path / "none")]) != 0
    assert capsys.readouterr().err == f"operant: {message}\n"
