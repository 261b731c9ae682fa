"""Jobs that outlive their controller: what a search does with them, in simulated time."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import pytest
from tests.schedulers.simulated import World, by_x, config

from operant.schedulers.analysis.chart_data import job_row
from operant.schedulers.views.live import LiveSearch
from operant.schedulers.views.overview import describe
from operant.sites import Event, Found, SimulatedSite, Submission
from operant.status import Status


class Cluster(SimulatedSite):
    """A machine of its own: it goes on when the controller leaves, and knows what became of each attempt."""

    outlives_controller = True

    def submit(self, jobs: Sequence[Submission]) -> list[str]:
        found = super().submit(jobs)
        for job in jobs:
            self._emit(Event("placed", job.token, {"id": f"7_{job.job_id}", "node": "", "queue": "PENDING (Priority)"}))
            self._emit(Event("placed", job.token, {"id": f"7_{job.job_id}", "node": "n1", "queue": ""}))
        return found

    def find(self, tokens: Sequence[str]) -> dict[str, Found]:
        found = super().find(tokens)
        return {token: Found("running", {}) if token in self.running else found[token] for token in tokens}

    def close(self) -> None:
        """Jobs go on."""


@pytest.fixture
def world(tmp_path: Path) -> World:
    found = World(tmp_path, config({"stop_criterion": {"max_tries": 6}}), by_x(10.0))
    found.site = Cluster(found.clock, found.site.behaviour)
    return found


def test_a_detached_search_leaves_its_jobs_and_a_resume_takes_them_over(world: World) -> None:
    world.tell(15.0, {"type": "stop", "detach": True})
    outcome = world.run()
    assert outcome.status == Status.STOPPED and not world.site.cancelled and len(world.site.running) == 2
    jobs = {job["id"]: job for job in describe(world.folder)["jobs"]}
    assert jobs["0"]["status"] == "FINISHED" and jobs["3"]["reason"] == "running, no controller"
    assert LiveSearch(world.folder).status_of(world.state.jobs["3"]) == ("RUNNING", "running, no controller")
    world.clock._now += 3.0  # nobody is there, and one of them ends meanwhile
    assert world.run(resume=True).status == Status.FINISHED
    assert set(world.statuses.values()) == {"FINISHED"} and len(world.site.submitted) == 6  # none was started twice


def test_an_interrupt_leaves_them_too(world: World) -> None:
    scheduler = world.prepare()
    world.at(15.0, lambda: scheduler.interrupt("interrupted by SIGHUP"))
    assert scheduler.run().status == Status.STOPPED and not world.site.cancelled


def test_an_error_of_the_controller_leaves_them_too(world: World) -> None:
    scheduler = world.prepare()

    def fail(*_: object) -> None:
        raise RuntimeError("the controller has a fault")

    world.at(15.0, lambda: setattr(scheduler._monitor, "check", fail))
    with pytest.raises(RuntimeError, match="has a fault"):
        scheduler.run()
    assert not world.site.cancelled and len(world.site.running) == 2


def test_stop_ends_them(world: World) -> None:
    world.tell(15.0, {"type": "stop"})
    assert world.run().status == Status.KILLED
    assert len(world.site.cancelled) == 2 and not world.site.running


def test_it_is_told_where_each_job_is(world: World) -> None:
    world.run()
    job = describe(world.folder)["jobs"][4]
    assert (job["site_id"], job["node"], job["waited"]) == ("7_4", "n1", 0.0) and "queue" not in job
    search = LiveSearch(world.folder)
    assert job_row(search, search.state.jobs["4"])["where"] == "n1 7_4"


def test_jobs_of_this_machine_are_told_nothing_of_that(tmp_path: Path) -> None:
    world = World(tmp_path, config({"stop_criterion": {"max_tries": 2}}), by_x())
    world.run()
    search = LiveSearch(world.folder)
    assert "where" not in job_row(search, search.state.jobs["0"]) and "node" not in describe(world.folder)["jobs"][0]


class Refusing(Cluster):
    """It takes the first job, and none after it."""

    def submit(self, jobs: Sequence[Submission]) -> list[str]:
        taken = [job for job in jobs if job.job_id == "0"]
        for job in jobs:
            if job not in taken:
                info = {"code": None, "reason": "refused", "error": "Invalid account"}
                self.clock.plan(1.0, lambda token=job.token, info=info: [Event("ended", token, info)])  # type: ignore[misc]
        return super().submit(taken) if taken else []


def test_a_search_whose_site_refuses_its_jobs_does_not_go_on_for_ever(tmp_path: Path) -> None:
    world = World(tmp_path, config(), by_x(1000.0))  # one that was taken runs on meanwhile
    world.site = Refusing(world.clock, world.site.behaviour)
    outcome = world.run()
    assert outcome.status == Status.ERROR and "refuses" in outcome.reason and "Invalid account" in outcome.reason
    found = world.statuses
    assert found.pop("0") == "FINISHED" and list(found.values()) == ["ERROR"] * 10
    world.site = Cluster(world.clock, world.site.behaviour)  # mended
    assert world.run(resume=True).status == Status.FINISHED and set(world.statuses.values()) == {"FINISHED"}


class Silent(Cluster):
    """It says where jobs were only to whoever comes later."""

    def submit(self, jobs: Sequence[Submission]) -> list[str]:
        for job in jobs:
            self._emit(Event("placed", job.token, {"id": f"7_{job.job_id}", "node": "", "queue": ""}))
        return SimulatedSite.submit(self, jobs)

    def find(self, tokens: Sequence[str]) -> dict[str, Found]:
        return {token: Found("ended", {"code": 0, "values": {"acc": 1.0}, "node": "n7"}) for token in tokens}


def test_where_jobs_were_that_ended_while_nobody_looked(world: World) -> None:
    world.site = Silent(world.clock, world.site.behaviour)
    world.tell(5.0, {"type": "stop", "detach": True})
    world.run()
    assert {job["node"] for job in describe(world.folder)["jobs"]} == {""}
    world.run(resume=True)
    assert [job["node"] for job in describe(world.folder)["jobs"]][:2] == ["n7", "n7"]
