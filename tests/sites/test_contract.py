"""The contract of sites, for every site there is."""

from __future__ import annotations

import runpy
import sys
import time
from pathlib import Path
from typing import Any

from tests.machine import patience

from operant.sites import FunctionSite, LocalSite, SimulatedClock, SimulatedSite, Simulation, Site, Submission, report
from operant.sites.function import check_scalars
from operant.sites.processes import ProcessSite
from operant.sites.threads import ThreadSite
from operant.testing import SiteContract


class TestLocalSite(SiteContract):
    patience = patience(60)

    def build(self, folder: Path) -> Site:
        return LocalSite(folder)

    def job(self, token: str, folder: Path, kind: str) -> Submission:
        code = {"good": "pass", "bad": "raise SystemExit(3)", "endless": "import time; time.sleep(600)"}[kind]
        return Submission(token, folder.name, 1, [sys.executable, "-I", "-S", "-c", code], folder, folder)


class TestExampleSite(TestLocalSite):
    """The one that the docs show."""

    def build(self, folder: Path) -> Site:
        path = Path(__file__).parents[2] / "examples" / "sites" / "own_site.py"
        site: Site = runpy.run_path(str(path))["OwnSite"](folder, poll=0.2)
        return site


def call(job: Submission) -> dict[str, float]:
    kind = job.config["kind"]
    if kind == "bad":
        raise ValueError("as it was told")
    while kind == "endless":
        time.sleep(0.01)
        report(0, 1.0)
    return {"acc": 1.0}


class Calls(SiteContract):
    patience = patience(60)

    def job(self, token: str, folder: Path, kind: str) -> Submission:
        return Submission(token, folder.name, 1, [], folder, folder, config={"kind": kind})


class TestFunctionSite(Calls):
    can_cancel = False

    def build(self, folder: Path) -> Site:
        return FunctionSite.calling(call, check_scalars, "acc")


class TestThreadSite(Calls):
    def build(self, folder: Path) -> Site:
        return ThreadSite(call, check_scalars, "acc", 3)


class TestProcessSite(Calls):
    def build(self, folder: Path) -> Site:
        return ProcessSite(call, check_scalars, "acc", 3)


class TestSimulatedSite(Calls):
    def build(self, folder: Path) -> Site:
        def behave(job: Submission) -> Simulation:
            kind = job.config["kind"]
            return Simulation(1.0, {"acc": 1.0}, code=int(kind == "bad"), never_ends=kind == "endless")

        self.clock = SimulatedClock()
        return SimulatedSite(self.clock, behave)

    def pass_time(self) -> None:
        self.events += self.clock.wait(1.0)


def test_a_report_that_counts_is_answered_before_the_call_goes_on() -> None:
    events: list[Any] = []
    site = ThreadSite(call, check_scalars, "acc", 1, reports_count=True)
    site.start(events.append)
    site.submit([Submission("0/1/x", "0", 1, [], Path(), Path(), config={"kind": "endless"})])
    deadline = time.monotonic() + patience(60)
    while not any(one.kind == "report" for one in events) and time.monotonic() < deadline:
        time.sleep(0.005)
    time.sleep(0.05)
    reports = [one for one in events if one.kind == "report"]
    assert len(reports) == 1 and reports[0].info["tag"] == "acc"  # it waits
    site.cancel(["0/1/x"], "assessor")
    reports[0].info["handled"].set()
    while not any(one.kind == "ended" for one in events) and time.monotonic() < deadline:
        time.sleep(0.005)
    assert events[-1].info["verdict"] == ("STOPPED", "assessor")
    site.close()
