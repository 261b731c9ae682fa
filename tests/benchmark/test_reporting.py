from __future__ import annotations

import pytest

from operant.benchmark.comparing import Outcome
from operant.benchmark.reporting import charts, compare, read_outcomes, searcher_options, table
from operant.cli import main
from operant.errors import UsageError


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


def outcome(seed, hit, **more):
    rises = [(1, 1.0), (2, 2.0)]
    return Outcome("lamcts", "swimmer", seed, hit or 100, 300.0 + seed, 100, 3, hit=hit, rises=rises, **more)


def test_the_table_counts_misses_as_never_reached():
    runs = [outcome(0, 50, confirming_episodes=20), outcome(1, 60, confirming_episodes=20), outcome(2, None)]
    assert table(runs, "swimmer").splitlines()[2] == "| lamcts | 3 | 2 | 60 | 200 | 301 |"
    missed = [outcome(0, 50), outcome(1, None), outcome(2, None)]
    assert table(missed, "swimmer").splitlines()[2] == "| lamcts | 3 | 1 | not reached | not reached | 301 |"


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
    assert "| random | 2 | - |" in capsys.readouterr().out
    assert sorted(path.suffix for path in tmp_path.iterdir()) == [".html", ".jsonl", ".md", ".png"]
