"""Trials of a fluent search as jobs of a site."""

from __future__ import annotations

import pytest
from tests.sites.test_channel import Processes

from operant.errors import ConfigError
from operant.hpo import R, choice, hpo, uniform
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


def test_a_result_that_the_function_left_itself_fails_that_trial_only() -> None:
    def careless(config: dict[str, float]) -> dict[str, float]:
        import os
        from pathlib import Path

        if config["x"] > 0.8:
            return {"acc": config["x"]}
        Path("result.json").write_text('{"acc": 9}' if config["x"] > 0.2 else "[" * 100_000, encoding="utf-8")
        with Path("../reports").open("ab") as stream:
            stream.write(b"1 0.5\nno report\n1 x\n-1 2\n" + b"9" * 5000 + b" 3\n")
        os._exit(0)

    search = hpo(careless).grid().maximize(R["acc"]).spaces({"x": choice([0.1, 0.5, 0.9])}).max_retries(0)
    best = search.max_workers(3).site("local").name("careless").run()
    assert best is not None and best[1] == {"acc": 0.9}
    jobs = describe(find_root() / "searches" / "careless")["jobs"]
    assert [job["status"] for job in jobs] == ["ERROR", "ERROR", "FINISHED"]
    assert all("not by returning" in job["error"] for job in jobs[:2])


def test_a_wrong_setting_is_told_before_anything_starts() -> None:
    search = hpo(lively).random().maximize(R["acc"]).spaces({"x": uniform(0.0, 1.0)}).max_steps(1)
    with pytest.raises(ConfigError, match="partition"):
        search.site("slurm", partitoin="short").run()
