"""A search in pictures: the numbers behind them."""

from __future__ import annotations

import math
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.schedulers.simulated import World, config

from operant.errors import UsageError
from operant.schedulers.analysis import chart_data
from operant.schedulers.analysis.axes import SettingAxis, axes_of
from operant.schedulers.analysis.chart_data import best_so_far, lanes
from operant.schedulers.engine.state import SearchState
from operant.schedulers.views.live import LiveSearch
from operant.sites import Simulation, Submission

SPACE = [
    {"type": "Real", "name": "lr", "data": [1e-4, 1.0], "log": True},
    {"type": "Real", "name": "noise", "data": [0, 1]},
    {"type": "Categorical", "name": "act", "data": ["relu", "tanh", "gelu"]},
]


def searched(tmp_path: Path, tries: int = 60) -> LiveSearch:
    def behave(job: Submission) -> Simulation:
        reward = -abs(math.log10(job.config["lr"]) + 2) + (0.3 if job.config["act"] == "tanh" else 0.0)
        return Simulation(1.0, values={"acc": reward})

    searcher = {"type": "RandomSearcher", "seed": 1}
    cfg = config({"stop_criterion": {"max_tries": tries}, "parallel_size": 3}, searcher, search_args=SPACE)
    World(tmp_path, cfg, behave).run()
    return LiveSearch(tmp_path / "s")


def test_best_so_far_both_ways() -> None:
    rewards = [None, 1.0, float("nan"), 0.5, 3.0, 2.0]
    assert best_so_far(rewards) == [None, 1.0, 1.0, 1.0, 3.0, 3.0]
    assert best_so_far(rewards, maximize=False) == [None, 1.0, 1.0, 0.5, 0.5, 0.5]


@given(st.lists(st.tuples(st.integers(0, 50), st.one_of(st.none(), st.integers(0, 20))), max_size=40))
def test_lanes_never_overlap_and_are_as_few_as_possible(jobs: list[tuple[int, int | None]]) -> None:
    started = [float(start) for start, _ in jobs]
    ended = [None if took is None else float(start + took) for start, took in jobs]
    found = lanes(started, ended)
    spans = [(a, math.inf if b is None else b, lane) for a, b, lane in zip(started, ended, found, strict=True)]
    for place, (start, end, lane) in enumerate(spans):
        for other_start, other_end, other in spans[place + 1 :]:
            assert lane != other or min(end, other_end) <= max(start, other_start)
    most = max((sum(a <= at < b for a, b, _ in spans) for at, _, _ in spans), default=0)
    used = {lane for (a, b, lane) in spans if b > a}
    assert len(used) <= max(most, 1) + sum(a == b for a, b, _ in spans)


def test_columns_settings_and_axes(tmp_path: Path) -> None:
    search = searched(tmp_path, 20)
    columns, settings, parents = chart_data.job_columns(search)
    assert len(parents) == 20 and {len(one) for one in (*columns.values(), *settings.values())} == {20}
    assert columns["best_so_far"][-1] == max(columns["reward"]) and max(columns["lane"]) == 2
    lr, noise, act = axes_of(search.state)
    assert (lr.log, lr.low, noise.kind, act.choices) == (True, 1e-4, "real", ("relu", "tanh", "gelu"))
    assert lr.place(1e-2) == pytest.approx(0.5) and lr.place("x") is None and act.place("gelu") == 2
    assert [len(one["values"]) for one in chart_data.slices(search)] == [20, 20, 20]


def test_importance_ranks_what_matters_and_says_when_it_cannot(tmp_path: Path) -> None:
    pytest.importorskip("sklearn", reason="operant[search] is not installed")
    found = chart_data.importance(chart_data.trials_of(searched(tmp_path)))
    assert found["names"] == ["lr", "act", "noise"] and found["note"] is None
    assert sum(found["importance"]) == pytest.approx(1) and found["importance"][0] > 0.5
    few = chart_data.importance(chart_data.trials_of(searched(tmp_path / "few", 5)))
    assert few["importance"] == [] and "at least" in few["note"]


def test_contour_is_high_where_the_rewards_are(tmp_path: Path) -> None:
    search = searched(tmp_path)
    found = chart_data.contour(search, "lr", "noise")
    grid = np.array([[np.nan if value is None else value for value in row] for row in found["z"]])
    column = np.nanargmax(np.nanmean(grid, axis=0))
    assert 10**-2.8 < found["x"]["values"][column] < 10**-1.2 and np.isfinite(grid).mean() > 0.5
    assert len(chart_data.contour(search, "act", "lr")["z"][0]) == 3
    with pytest.raises(UsageError, match="did you mean 'lr'"):
        chart_data.contour(search, "lrr", "act")


def test_axes_without_a_description_come_from_what_was_tried() -> None:
    state = SearchState().fold_all(
        {"type": "proposed", "number": n, "config": {"lr": 10.0**-n, "k": n % 2, "o": [n % 2], "x": n * 0.1}}
        for n in range(1, 9)
    )
    found = {axis.name: axis for axis in axes_of(state)}
    assert found["lr"].log and found["lr"].high == 0.1 and found["x"].kind == "real" and not found["x"].log
    assert found["k"].choices == (0, 1) and found["o"].place([1]) == 1.0
    assert SettingAxis("c", "real", False, 2.0, 2.0).ticks(5) == [2.0]


def test_a_search_is_followed_as_its_journal_grows(tmp_path: Path) -> None:
    search = searched(tmp_path, 10)
    summary = search.summary()
    assert (summary["status"], summary["tries"], summary["max_tries"]) == ("FINISHED", 10, 10)
    assert not search.refresh()
    searched_again = config(
        {"stop_criterion": {"max_tries": 15}}, {"type": "RandomSearcher", "seed": 1}, search_args=SPACE
    )
    before = search.version
    World(tmp_path, searched_again, lambda job: Simulation(1.0, values={"acc": 9.0})).run(resume=True, force=True)
    assert search.refresh() and search.version > before
    assert search.summary()["tries"] == 15 and search.summary()["best"]["reward"] == 9.0
    assert {job for job, version in search.changed.items() if version > before} == {str(n) for n in range(10, 15)}
