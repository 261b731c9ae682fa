"""Trials of a fluent search as jobs of a site."""

from __future__ import annotations

import pytest
from tests.sites.test_channel import Processes

from operant.errors import ConfigError
from operant.hpo import R, hpo, uniform
from operant.schedulers.views.overview import describe
from operant.sites import SITES, report
from operant.tracking.places import find_root


def lively(config: dict[str, float]) -> dict[str, float]:
    report(1, config["x"])
    if config["x"] > 0.8:
        raise ValueError("too large")
    return {"acc": config["x"], "twice": 2 * config["x"]}


@pytest.mark.parametrize("site", ["local", "processes"])
def test_each_trial_is_a_job_elsewhere(site: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(SITES._classes, "processes", Processes)  # which see nothing of the search's folder
    offset = 1.0  # goes along: functions of the main program and closures need not be importable there

    def shifted(config: dict[str, float]) -> dict[str, float]:
        return {"acc": config["x"] + offset}

    search = hpo(shifted).random().maximize(R["acc"]).spaces({"x": uniform(0.0, 1.0)}).seed(1)
    best = search.max_steps(2).max_workers(2).site(site).name("elsewhere").run()
    assert best is not None and best[1]["acc"] > 1.0
    folder = find_root() / "searches" / "elsewhere"
    assert {job["status"] for job in describe(folder)["jobs"]} == {"FINISHED"}
    assert (folder / "jobs" / "0" / "exit-1.json").exists()


def test_what_a_function_raises_and_reports_comes_back() -> None:
    search = hpo(lively).grid().maximize(R["acc"]).spaces({"x": uniform(0.0, 1.0)}).max_steps(2)
    search.max_workers(2).max_retries(0).site("local").name("lively").run()
    jobs = describe(find_root() / "searches" / "lively")["jobs"]
    assert [job["status"] for job in jobs] == ["FINISHED", "ERROR"]
    assert "too large" in jobs[1]["error"]


def test_a_wrong_setting_is_told_before_anything_starts() -> None:
    search = hpo(lively).random().maximize(R["acc"]).spaces({"x": uniform(0.0, 1.0)}).max_steps(1)
    with pytest.raises(ConfigError, match="partition"):
        search.site("slurm", partitoin="short").run()
