"""Controllers that die and are followed by others, in simulated time."""

from __future__ import annotations

from pathlib import Path

import pytest
from tests.schedulers.simulated import World, by_x, config

from operant.errors import UsageError
from operant.schedulers.engine.state import read_state
from operant.schedulers.views.live import LiveSearch
from operant.sites import Simulation, Submission
from operant.tracking.journal import LeaseHeldError


class Crash(Exception):
    """The controller dies here, without a word."""


def crash_at(world: World, seconds: float) -> None:
    """Let the controller die: nothing is journaled afterwards, and its jobs are gone with it."""

    def die() -> list[object]:
        raise Crash

    world.clock.plan(seconds, die)
    scheduler = world.prepare()
    scheduler._abandon = lambda: None  # type: ignore[method-assign]
    scheduler._close = lambda: None  # type: ignore[method-assign]
    with pytest.raises(Crash):
        scheduler.run()
    world.site.running.clear()


def test_resume_reruns_what_was_under_way_first_and_goes_on(tmp_path: Path) -> None:
    world = World(tmp_path, config({"stop_criterion": {"max_tries": 6}}), by_x(seconds=2.0))
    crash_at(world, 3.0)
    assert read_state(world.folder)[1] == "ERROR"
    assert world.statuses == {"0": "FINISHED", "1": "FINISHED", "2": "ERROR", "3": "ERROR"}
    before = len(world.site.submitted)
    outcome = world.run(resume=True)
    assert [job.job_id for job in world.site.submitted[before:]] == ["2", "3", "4", "5"]
    assert outcome.tries == 6 and outcome.reward == 5.0
    assert world.state.jobs["2"].attempt == 2


def test_a_job_that_finished_unnoticed_is_not_run_again(tmp_path: Path) -> None:
    world = World(tmp_path, config({"stop_criterion": {"max_tries": 4}}), by_x(seconds=2.0))
    crash_at(world, 3.0)
    token = world.state.jobs["2"].token
    world.site.records[token] = {"code": 0, "reason": None, "values": {"acc": 99.0}, "started": 1.0, "ended": 2.0}
    outcome = world.run(resume=True)
    assert outcome.reward == 99.0 and world.state.jobs["2"].attempt == 1
    assert [job.job_id for job in world.site.submitted].count("2") == 1


def test_finished_work_is_never_proposed_again(tmp_path: Path) -> None:
    world = World(tmp_path, config({"stop_criterion": {"max_tries": 20}}), by_x())
    crash_at(world, 5.5)
    world.run(resume=True)
    assert [one.config["x"] for one in world.state.proposals.values()] == list(range(20))


def test_program_errors_are_rerun_once_for_each_resume(tmp_path: Path) -> None:
    def behaviour(job: Submission) -> Simulation:
        return Simulation(1.0, {"acc": 1.0}, code=1 if job.attempt == 1 and job.config["x"] == 1 else 0)

    world = World(tmp_path, config({"stop_criterion": {"max_tries": 3}}), behaviour)
    world.run()
    assert world.statuses["1"] == "ERROR"
    world.run(resume=True)
    assert set(world.statuses.values()) == {"FINISHED"} and len(world.site.submitted) == 4


def test_killed_jobs_stay_killed(tmp_path: Path) -> None:
    world = World(tmp_path, config({"stop_criterion": {"max_tries": 4}}), by_x(seconds=3.0))
    world.tell(1.0, {"type": "stop"})
    world.run()
    world.run(resume=True)
    assert world.statuses == {"0": "KILLED", "1": "KILLED", "2": "FINISHED", "3": "FINISHED"}


def test_a_changed_config_is_refused_unless_forced(tmp_path: Path) -> None:
    world = World(tmp_path, config({"stop_criterion": {"max_tries": 2}}), by_x())
    world.run()
    world.cfg = config({"stop_criterion": {"max_tries": 4}})
    with pytest.raises(UsageError, match=r"another configuration \(scheduler\.stop_criterion\.max_tries\).*--force"):
        world.run(resume=True)
    assert world.run(resume=True, force=True).tries == 4


def test_a_changed_space_keeps_numbers_unique(tmp_path: Path) -> None:
    args = [{"type": "Categorical", "name": "x", "data": [1, 2, 3]}]
    world = World(tmp_path, config(search_args=args), by_x())
    world.run()
    searcher = {"type": "RandomSearcher"}
    world.cfg = config(
        {"stop_criterion": {"max_tries": 5}}, searcher, search_args=[{"type": "Int", "name": "x", "data": [10, 90]}]
    )
    world.run(resume=True, force=True)
    assert sorted(world.state.proposals) == [0, 1, 2, 3, 4]


def pausing(tmp_path: Path) -> World:
    """Successive halving that pauses: of those that reached the only rung, the better half goes on."""

    def behaviour(job: Submission) -> Simulation:
        x = float(job.config["x"])
        reports = [(1.0 * step, "acc", step, x) for step in (1, 2, 3)]
        return Simulation(4.0, {"acc": x}, reports=reports)

    assessor = {"type": "AshaAssessor", "min_step": 1, "reduction_factor": 2, "max_step": 2, "rest": "pause"}
    args = [{"type": "Categorical", "name": "x", "data": [6.0, 4.0, 1.0, 0.5]}]
    return World(tmp_path, config({"parallel_size": 1, "assessor": assessor}, search_args=args), behaviour)


def test_a_paused_job_goes_on_under_the_next_controller(tmp_path: Path) -> None:
    whole = pausing(tmp_path / "whole")
    whole.run()
    expected = {"0": "FINISHED", "1": "FINISHED", "2": "STOPPED", "3": "STOPPED"}
    assert whole.statuses == expected
    world = pausing(tmp_path / "crash")
    crash_at(world, 6.5)
    assert world.statuses == {"0": "FINISHED", "1": "PAUSED", "2": "PAUSED", "3": "ERROR"}
    outcome = world.run(resume=True)
    assert world.statuses == expected and outcome.reward == 6.0
    assert [world.state.jobs[one].attempt for one in "0123"] == [1, 2, 1, 2]


def test_a_paused_job_whose_time_has_come_goes_on_at_once(tmp_path: Path) -> None:
    """The controller died after the report that lets it go on, and before it had a slot."""
    world = pausing(tmp_path)
    crash_at(world, 7.0)  # the fourth job is told to pause in this very moment
    assert world.statuses["1"] == "PAUSED"
    world.run(resume=True)
    assert world.statuses["1"] == "FINISHED" and world.state.jobs["1"].attempt == 2


def test_a_paused_job_that_went_on_and_died_begins_again(tmp_path: Path) -> None:
    world = pausing(tmp_path)
    crash_at(world, 8.5)
    assert world.statuses["1"] == "ERROR" and world.state.jobs["1"].attempt == 2
    world.run(resume=True)
    assert world.statuses["1"] == "FINISHED" and world.state.jobs["1"].attempt == 3


def test_without_resume_an_existing_search_is_refused(tmp_path: Path) -> None:
    world = World(tmp_path, config({"stop_criterion": {"max_tries": 1}}), by_x())
    world.run()
    with pytest.raises(UsageError, match="--resume"):
        world.run()


def test_a_second_controller_is_refused_with_host_and_pid(tmp_path: Path) -> None:
    import os

    world = World(tmp_path, config({"stop_criterion": {"max_tries": 2}}), by_x())
    refused: list[str] = []

    def second() -> list[object]:
        other = World(tmp_path, world.cfg, by_x())
        with pytest.raises(LeaseHeldError) as error:
            other.run(resume=True)
        refused.append(str(error.value))
        return []

    world.clock.plan(0.5, second)
    world.run()
    assert refused and f"process {os.getpid()} on host" in refused[0]


def test_time_limits_go_on_counting_after_a_resume(tmp_path: Path) -> None:
    world = World(tmp_path, config({"stop_criterion": {"time_limits": "20s"}}), by_x(seconds=2.0))
    crash_at(world, 11.0)
    world.clock.wait(3600.0)  # nobody was there; this hour is not the search's
    began = world.clock.now()
    world.run(resume=True)
    assert world.clock.now() - began == pytest.approx(10.0)


def test_limits_that_were_changed_stay_so_after_a_resume(tmp_path: Path) -> None:
    world = World(tmp_path, config({"parallel_size": 1, "stop_criterion": {"max_tries": 30}}), by_x(seconds=1.0))
    world.tell(1.5, {"type": "limits", "parallel_size": 4, "max_tries": 12})
    world.tell(2.5, {"type": "limits", "max_tries": "many"})  # which cannot be, then as now
    crash_at(world, 3.2)
    assert LiveSearch(world.folder).summary()["max_tries"] == 12
    world.site.peak = 0
    outcome = world.run(resume=True)
    assert (outcome.reason, outcome.tries, world.site.peak) == ("max_tries", 12, 4)


def test_a_limit_changed_by_message_gives_way_to_one_that_the_configuration_changes_later(tmp_path: Path) -> None:
    world = World(tmp_path, config({"parallel_size": 1, "stop_criterion": {"max_tries": 30}}), by_x(seconds=1.0))
    world.tell(1.5, {"type": "limits", "parallel_size": 3, "max_tries": 12})
    crash_at(world, 3.2)
    world.cfg["scheduler"]["stop_criterion"]["max_tries"] = 8
    world.site.peak = 0
    outcome = world.run(resume=True, force=True)
    assert (outcome.tries, world.site.peak) == (8, 3)
    assert LiveSearch(world.folder).summary()["max_tries"] == 8
    outcome = world.run(resume=True)  # and stays given way to
    assert (outcome.tries, outcome.reason) == (8, "max_tries")


def test_a_time_limit_told_by_message_holds_after_a_resume(tmp_path: Path) -> None:
    world = World(tmp_path, config(), by_x(seconds=2.0))
    world.tell(3.0, {"type": "limits", "time_limits": "20s"})
    crash_at(world, 11.0)
    began = world.clock.now()
    assert world.run(resume=True).reason == "time_limits"
    assert world.clock.now() - began == pytest.approx(10.0)


@pytest.mark.parametrize("at", [0.2, 1.0, 1.7, 3.3, 5.1, 6.4])
def test_a_crash_at_any_moment_gives_the_same_best_and_loses_nothing(tmp_path: Path, at: float) -> None:
    def behaviour(job: Submission) -> Simulation:
        return Simulation(0.7 + 0.31 * (job.config["x"] % 3), {"acc": float((job.config["x"] * 37) % 29)})

    def whole(folder: Path, crash: float | None) -> World:
        world = World(folder, config({"parallel_size": 3, "stop_criterion": {"max_tries": 20}}), behaviour)
        if crash is not None:
            crash_at(world, crash)
            finished = {job.id for job in world.state.jobs.values() if job.status == "FINISHED"}
            before = len(world.site.submitted)
            world.run(resume=True)
            assert not finished & {job.job_id for job in world.site.submitted[before:]}
        else:
            world.run()
        return world

    best = whole(tmp_path / "a", None).state.best
    again = whole(tmp_path / "b", at).state.best
    assert best is not None and again is not None and (best.number, best.reward) == (again.number, again.reward)


def test_a_crash_in_the_final_check_loses_none_of_it(tmp_path: Path) -> None:
    cfg = config({"stop_criterion": {"max_tries": 2}}, final_check={"top": 1, "seeds": 4})
    world = World(tmp_path, cfg, by_x())
    crash_at(world, 2.5)  # one second of search, one of the first two checks; two more were under way
    assert len(world.site.submitted) == 6
    outcome = world.run(resume=True)
    again = [job.job_id for job in world.site.submitted[6:]]
    assert again == ["check-1-s1002", "check-1-s1003"] and outcome.checks[1]["runs"] == 4
    assert {job.attempt for job in world.site.submitted[6:]} == {2}
    assert world.run(resume=True).checks[1]["runs"] == 4 and len(world.site.submitted) == 8
