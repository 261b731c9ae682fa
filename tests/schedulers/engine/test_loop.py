"""The scheduler's logic, in simulated time."""

from __future__ import annotations

import itertools
from pathlib import Path

import pytest
from tests.schedulers.simulated import World, by_x, config

from operant.errors import OperantError
from operant.schedulers.engine.control import NoView
from operant.schedulers.views.overview import describe
from operant.sites import Simulation, Submission
from operant.tracking.journal import JournalReader


def test_runs_all_tries_and_finds_the_best(tmp_path: Path) -> None:
    world = World(tmp_path, config({"stop_criterion": {"max_tries": 10}}), by_x())
    outcome = world.run()
    assert (outcome.status, outcome.reason, outcome.tries) == ("FINISHED", "max_tries", 10)
    assert outcome.reward == 9.0 and outcome.best is not None and outcome.best.config == {"x": 9}
    assert set(world.statuses.values()) == {"FINISHED"}
    assert world.site.peak == 2
    # Five rounds of two jobs, one second each: nothing was waited for but the jobs.
    assert world.clock.now() == pytest.approx(1005.0)


def test_of_equals_the_earliest_is_the_best_for_whoever_runs_it_and_whoever_looks(tmp_path: Path) -> None:
    def behaviour(job: Submission) -> Simulation:
        return Simulation(9.0 - job.config["x"], {"acc": 1.0})  # the last one ends first

    world = World(tmp_path, config({"parallel_size": 4, "stop_criterion": {"max_tries": 4}}), behaviour)
    outcome = world.run()
    assert outcome.best is not None and outcome.best.number == 0
    assert describe(tmp_path / "s")["best"]["number"] == 0


def test_a_search_in_which_nothing_succeeded_has_failed(tmp_path: Path) -> None:
    cfg = config({"stop_criterion": {"max_tries": 3}})
    outcome = World(tmp_path, cfg, lambda job: Simulation(1.0, code=1)).run()
    assert (outcome.status, outcome.reason, outcome.tries) == ("ERROR", "no job succeeded", 3)


def test_every_decision_is_journaled_before_it_is_acted_on(tmp_path: Path) -> None:
    seen: list[list[str]] = []

    def behaviour(job: Submission) -> Simulation:
        seen.append([entry.record["type"] for entry in JournalReader(tmp_path / "s").poll()])
        return Simulation(1.0, {"acc": 0.0})

    World(tmp_path, config({"parallel_size": 1, "stop_criterion": {"max_tries": 2}}), behaviour).run()
    assert seen[0][-2:] == ["proposed", "submitting"]
    assert seen[1][-5:] == ["started", "ended", "observed", "proposed", "submitting"]


def test_minimise_with_max_reward_kills_what_runs(tmp_path: Path) -> None:
    def behaviour(job: Submission) -> Simulation:
        return Simulation(1.0 if job.config["x"] == 3 else 50.0, {"acc": float(-job.config["x"])})

    cfg = config({"parallel_size": 5, "stop_criterion": {"max_reward": -3}}, searcher={"optimize_mode": "minimize"})
    world = World(tmp_path, cfg, behaviour)
    outcome = world.run()
    assert outcome.reason == "max_reward" and outcome.reward == -3.0
    assert world.statuses == {"0": "KILLED", "1": "KILLED", "2": "KILLED", "3": "FINISHED", "4": "KILLED"}


def test_max_tries_drains(tmp_path: Path) -> None:
    world = World(tmp_path, config({"stop_criterion": {"max_tries": 3}}), by_x(seconds=7.0))
    world.run()
    assert set(world.statuses.values()) == {"FINISHED"} and not world.site.cancelled


def test_time_limits_kill_at_the_second(tmp_path: Path) -> None:
    world = World(tmp_path, config({"stop_criterion": {"time_limits": "10s"}}), by_x(seconds=4.0))
    outcome = world.run()
    assert outcome.reason == "time_limits" and world.clock.now() == pytest.approx(1010.0)
    assert sorted(world.statuses.values()) == ["FINISHED"] * 4 + ["KILLED"] * 2


def test_time_limits_per_job_stop_the_one_job_and_keep_its_reward(tmp_path: Path) -> None:
    def behaviour(job: Submission) -> Simulation:
        if job.config["x"] == 1:
            return Simulation(never_ends=True, reports=[(1.0, "acc", 0, 0.7), (2.0, "acc", 1, 0.8)])
        return Simulation(1.0, {"acc": 0.1})

    world = World(tmp_path, config({"stop_criterion": {"max_tries": 3, "time_limits_per_job": "5s"}}), behaviour)
    outcome = world.run()
    assert world.statuses == {"0": "FINISHED", "1": "STOPPED", "2": "FINISHED"}
    assert world.state.jobs["1"].reason == "time_limits_per_job" and outcome.reward == 0.8
    assert world.clock.now() == pytest.approx(1005.0)


def test_silence_is_an_error_and_is_retried(tmp_path: Path) -> None:
    def behaviour(job: Submission) -> Simulation:
        if job.attempt == 1:
            return Simulation(never_ends=True, reports=[(2.0, "acc", 0, 0.1)])
        return Simulation(1.0, {"acc": 0.5})

    cfg = config({"stop_criterion": {"max_tries": 1}, "no_report_timeout": "30s", "max_retries": 1, "retry_delay": 4})
    world = World(tmp_path, cfg, behaviour)
    assert world.run().reward == 0.5
    # Silent since second 2, ended at 32, four seconds of back-off, one of work.
    assert world.clock.now() == pytest.approx(1037.0)
    assert world.state.jobs["0"].attempt == 2


def test_retries_back_off_and_give_up(tmp_path: Path) -> None:
    starts: list[float] = []

    def behaviour(job: Submission) -> Simulation:
        starts.append(world.clock.now())
        return Simulation(1.0, code=3)

    world = World(tmp_path, config({"stop_criterion": {"max_tries": 1}, "max_retries": 3, "retry_delay": 2}), behaviour)
    outcome = world.run()
    gaps = [round(b - a) for a, b in itertools.pairwise(starts)]
    assert gaps == [3, 5, 9]  # one second of work and 2, 4, 8 of waiting
    assert world.statuses == {"0": "ERROR"} and outcome.reward is None
    assert world.state.jobs["0"].error == "exit code 3"


def test_a_job_that_finished_before_its_cancel_counts(tmp_path: Path) -> None:
    def behaviour(job: Submission) -> Simulation:
        # It takes the cancel calmly and finishes by itself in between.
        return Simulation(5.5, {"acc": 1.0}, ignores_cancel_for=3.0)

    world = World(tmp_path, config({"stop_criterion": {"max_tries": 1, "time_limits_per_job": "5s"}}), behaviour)
    world.run()
    assert world.statuses == {"0": "FINISHED"}


def test_stop_message_kills_and_says_so(tmp_path: Path) -> None:
    world = World(tmp_path, config(), by_x(seconds=3.0))
    world.tell(4.0, {"type": "stop"})
    outcome = world.run()
    assert outcome.status == "KILLED"
    assert world.statuses == {"0": "FINISHED", "1": "FINISHED", "2": "KILLED", "3": "KILLED"}
    assert world.state.messages == [{"type": "stop"}]
    assert not list((world.folder / "inbox").glob("*.json"))


def test_stop_message_for_one_job(tmp_path: Path) -> None:
    world = World(tmp_path, config({"stop_criterion": {"max_tries": 3}}), by_x(seconds=3.0))
    world.tell(1.0, {"type": "stop", "jobs": ["1"]})
    assert world.run().status == "FINISHED"
    assert world.statuses == {"0": "FINISHED", "1": "KILLED", "2": "FINISHED"}


def test_stop_message_for_a_job_that_waits(tmp_path: Path) -> None:
    """One waits for its second attempt, one for a slot: neither is started."""
    failing = config({"stop_criterion": {"max_tries": 2}, "max_retries": 3, "retry_delay": 1000, "parallel_size": 1})
    world = World(
        tmp_path, failing, lambda job: Simulation(2.0, code=3 if job.job_id == "0" else 0, values={"acc": 1.0})
    )
    world.tell(3.0, {"type": "stop", "jobs": ["0"]})
    assert world.run().status == "FINISHED"
    assert world.statuses == {"0": "KILLED", "1": "FINISHED"} and world.clock.now() < 1100
    seeds = config({"stop_criterion": {"max_tries": 1}, "seeds": [0, 1], "parallel_size": 1})
    world = World(tmp_path / "other", seeds, by_x(seconds=3.0))
    world.tell(1.0, {"type": "stop", "jobs": ["0-s1"]})
    assert world.run().status == "FINISHED"
    assert world.statuses == {"0-s0": "FINISHED", "0-s1": "KILLED"} and len(world.site.submitted) == 1


def test_pause_and_resume_messages(tmp_path: Path) -> None:
    world = World(tmp_path, config({"stop_criterion": {"max_tries": 4}}), by_x(seconds=1.0))
    world.tell(0.5, {"type": "pause"})
    world.tell(60.0, {"type": "resume"})
    assert world.run().tries == 4
    assert world.clock.now() > 1060.0


def test_limits_change_while_it_runs(tmp_path: Path) -> None:
    world = World(tmp_path, config({"parallel_size": 1, "stop_criterion": {"max_tries": 100}}), by_x(seconds=1.0))
    world.tell(2.5, {"type": "limits", "parallel_size": 4})
    world.tell(5.5, {"type": "limits", "max_tries": 12})
    assert world.run().reason == "max_tries"
    assert world.site.peak == 4 and len(world.statuses) in range(12, 20)
    assert [one["type"] for one in world.state.messages] == ["limits", "limits"]


def test_more_tries_reopen_a_search_that_drains(tmp_path: Path) -> None:
    world = World(tmp_path, config({"stop_criterion": {"max_tries": 2}}), by_x(seconds=3.0))
    world.tell(2.0, {"type": "limits", "max_tries": 5})
    outcome = world.run()
    assert (outcome.tries, outcome.reason) == (5, "max_tries") and set(world.statuses.values()) == {"FINISHED"}


def test_a_time_limit_may_come_later(tmp_path: Path) -> None:
    world = World(tmp_path, config(), by_x(seconds=2.0))
    world.tell(3.0, {"type": "limits", "time_limits": "9s"})
    outcome = world.run()
    assert outcome.reason == "time_limits" and world.clock.now() == pytest.approx(1009.0)


def test_a_limit_that_cannot_be_is_said_and_changes_nothing(tmp_path: Path) -> None:
    world = World(tmp_path, config({"stop_criterion": {"max_tries": 4}}), by_x(seconds=1.0))
    wrong = {"parallel_size": 0, "max_tries": "many", "time_limits": "soon"}
    world.tell(0.5, {"type": "limits", **wrong})
    said: list[str] = []
    view = NoView()
    view.note = said.append  # type: ignore[method-assign]
    assert world.run(view=view).tries == 4
    assert len(said) == 3 and all(any(key in line for line in said) for key in wrong)


def test_interrupt_leaves_errors(tmp_path: Path) -> None:
    world = World(tmp_path, config({"seeds": [0, 1, 2]}), by_x(seconds=3.0))
    world.at(4.0, lambda: world.scheduler and world.scheduler.interrupt())
    assert world.run().status == "ERROR"
    assert set(world.statuses.values()) == {"FINISHED", "ERROR"}


def test_filter_drops_without_a_try_and_tells_the_searcher(tmp_path: Path) -> None:
    cfg = config({"filter_criterion": "x < 5 or x == 7", "stop_criterion": {"max_tries": 4}})
    world = World(tmp_path, cfg, by_x())
    assert world.run().tries == 4
    assert [job.config["x"] for job in world.site.submitted] == [5, 6, 8, 9]
    assert world.plan is not None and world.plan.searcher.trials[0].state == "failed"


def test_a_filter_that_leaves_nothing_is_an_error(tmp_path: Path) -> None:
    args = [{"type": "Real", "name": "x", "data": [0, 1]}]
    cfg = config({"filter_criterion": "x >= 0"}, {"type": "RandomSearcher"}, search_args=args)
    with pytest.raises(OperantError, match="1000 proposals in a row"):
        World(tmp_path, cfg, by_x()).run()


def test_an_exhausted_space_ends_the_search(tmp_path: Path) -> None:
    args = [{"type": "Categorical", "name": "x", "data": [1, 2, 3]}]
    world = World(tmp_path, config(search_args=args), by_x())
    assert (world.run().tries, world.statuses) == (3, {"0": "FINISHED", "1": "FINISHED", "2": "FINISHED"})


def test_lost_jobs_are_errors(tmp_path: Path) -> None:
    def behaviour(job: Submission) -> Simulation:
        return Simulation(1.0, code=137, error="its wrapper was killed")

    world = World(tmp_path, config({"stop_criterion": {"max_tries": 1}}), behaviour)
    world.run()
    assert world.state.jobs["0"].error == "its wrapper was killed"


@pytest.mark.parametrize("parallel", [1, 2, 3, 4])
def test_lag_makes_the_same_proposals_for_any_parallel_size_and_timing(tmp_path: Path, parallel: int) -> None:
    def proposals(folder: str, size: int, slow: int) -> list[dict[str, object]]:
        cfg = config(
            {"parallel_size": size, "stop_criterion": {"max_tries": 30}},
            {"type": "TpeSearcher", "lag": 4, "seed": 3},
            search_args=[{"type": "Real", "name": "x", "data": [-5.0, 5.0]}],
        )

        def behaviour(job: Submission) -> Simulation:
            seconds = 1.0 + (int(job.job_id) * slow) % 7
            return Simulation(seconds, {"acc": -(float(job.config["x"]) ** 2)})

        world = World(tmp_path / folder, cfg, behaviour)
        world.run()
        return [one.config for one in world.state.proposals.values()]

    assert proposals("a", 1, 1) == proposals("b", parallel, 5)


def test_gpus_are_packed(tmp_path: Path) -> None:
    from operant.schedulers.planning.gpus import GpuPool

    pool = GpuPool(["0", "1"], 0.5)
    assert [pool.take(name) for name in "abcde"] == [["0"], ["0"], ["1"], ["1"], None]
    pool.give_back("b")
    assert pool.take("f") == ["0"]
    pair = GpuPool(["0", "1", "2"], 2)
    assert pair.take("a") == ["0", "1"] and pair.take("b") is None
    pair.give_back("a")
    assert pair.take("b") == ["0", "1"]


def test_gpus_limit_how_many_run(tmp_path: Path) -> None:
    cfg = config({"parallel_size": 4, "gpus": ["a", "b"], "gpus_per_job": 1, "stop_criterion": {"max_tries": 4}})
    world = World(tmp_path, cfg, by_x())
    world.run()
    assert world.site.peak == 2 and len(world.site.submitted) == 4
