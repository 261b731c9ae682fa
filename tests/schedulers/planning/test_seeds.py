"""Seeds as an axis, racing and the final check, in simulated time."""

from __future__ import annotations

import math
from pathlib import Path

import pytest
from tests.schedulers.simulated import World, config

from operant._util.statistics import iqm, mean_interval, paired_worse, t_cdf
from operant.errors import ConfigError
from operant.schedulers.planning.rewards import SeedPlan
from operant.sites import Simulation, Submission


def noisy(job: Submission) -> Simulation:
    """Proposal x is worth x, seeds differ by a little; it needs the seed from its id, as a program its variable."""
    seed = int(job.job_id.rpartition("-s")[2])
    return Simulation(1.0, {"acc": float(job.config["x"]) + 0.01 * seed})


def test_each_proposal_runs_once_for_each_seed(tmp_path: Path) -> None:
    world = World(tmp_path, config({"stop_criterion": {"max_tries": 3}}, seeds=[0, 1, 2]), noisy)
    outcome = world.run()
    assert sorted(world.statuses) == sorted(f"{n}-s{s}" for n in range(3) for s in range(3))
    assert outcome.tries == 3 and outcome.reward == pytest.approx(2.01)


@pytest.mark.parametrize(("how", "expected"), [("mean", 3.2), ("iqm", 2.5), ("min", 1.0)])
def test_rewards_over_seeds(how: str, expected: float) -> None:
    plan = SeedPlan.parse([0, 1, 2, 3, 4], how, None, None, "maximize")
    assert plan.reward([1.0, 2.0, 2.5, 3.0, 7.5]) == pytest.approx(expected, abs=0.01)
    worst = SeedPlan.parse([0, 1], "min", None, None, "minimize")
    assert worst.reward([1.0, 2.0]) == 2.0


def test_racing_drops_what_is_worse_after_two_seeds(tmp_path: Path) -> None:
    def behaviour(job: Submission) -> Simulation:
        seed = int(job.job_id.rpartition("-s")[2])
        quality = {0: 5.0, 1: 1.0, 2: 9.0, 3: 2.0}[job.config["x"]]
        return Simulation(1.0, {"acc": quality + 0.1 * seed})

    cfg = config({"parallel_size": 1, "stop_criterion": {"max_tries": 4}}, seeds=[0, 1, 2, 3], racing=True)
    world = World(tmp_path, cfg, behaviour)
    outcome = world.run()
    ran = [job.job_id for job in world.site.submitted]
    assert [one for one in ran if one.startswith("1-")] == ["1-s0", "1-s1"]
    assert [one for one in ran if one.startswith("3-")] == ["3-s0", "3-s1"]
    assert len([one for one in ran if one.startswith(("0-", "2-"))]) == 8
    assert outcome.best is not None and outcome.best.number == 2
    assert [one.raced_out for one in world.state.proposals.values()] == [False, True, False, True]


def test_a_failed_seed_makes_the_proposal_fail(tmp_path: Path) -> None:
    def behaviour(job: Submission) -> Simulation:
        return Simulation(1.0, {"acc": 1.0}, code=1 if job.job_id == "0-s1" else 0)

    world = World(tmp_path, config({"stop_criterion": {"max_tries": 2}}, seeds=[0, 1]), behaviour)
    outcome = world.run()
    assert world.state.proposals[0].status == "ERROR" and outcome.best is not None and outcome.best.number == 1
    world.site.behaviour = lambda job: Simulation(1.0, {"acc": 3.0})
    assert world.run(resume=True).best.number == 0  # type: ignore[union-attr]
    assert world.state.proposals[0].reward == 2.0


def test_final_check_reruns_the_best_on_seeds_it_has_not_seen(tmp_path: Path) -> None:
    cfg = config({"stop_criterion": {"max_tries": 5}}, seeds=[0, 1], final_check={"top": 2, "seeds": 3})
    world = World(tmp_path, cfg, noisy)
    outcome = world.run()
    checks = [job.job_id for job in world.site.submitted if job.job_id.startswith("check-")]
    assert checks == [f"check-{n}-s{s}" for n in (4, 3) for s in (2, 3, 4)]
    assert outcome.checks[4]["mean"] == pytest.approx(4.03) and outcome.checks[4]["runs"] == 3
    assert outcome.checks[4]["low"] < 4.03 < outcome.checks[4]["high"]
    assert outcome.reward == pytest.approx(4.005)  # what was found is not changed by it
    assert world.state.checks[3]["mean"] == pytest.approx(3.03)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"seeds": []}, "list of whole numbers"),
        ({"seeds": [1, 1]}, "twice"),
        ({"seeds": [0, 1], "racing": True}, "at least 3"),
        ({"seeds": [0, 1], "seed_reward": "median"}, "did you mean|known are"),
        ({"final_check": {"top": 0}}, "whole number from 1"),
        ({"final_check": {"best": 2}}, "unknown key of final_check"),
    ],
)
def test_mistakes(options: dict[str, object], message: str) -> None:
    from operant.schedulers.planning.plan import make_plan

    with pytest.raises(ConfigError, match=message):
        make_plan(config(**options), function=True)


def test_statistics_agree_with_scipy() -> None:
    stats = pytest.importorskip("scipy.stats")
    for freedom in (1, 2, 4, 9, 40):
        for t in (-5.0, -1.3, -0.2, 0.0, 0.7, 2.5, 11.0):
            assert t_cdf(t, freedom) == pytest.approx(stats.t.cdf(t, freedom), abs=1e-9)
    values = [0.3, 0.5, 0.9, 0.1, 0.4]
    low, high = stats.t.interval(0.95, 4, sum(values) / 5, stats.sem(values))
    assert mean_interval(values)[1:] == pytest.approx((low, high), abs=1e-6)
    ours, theirs = [1.0, 2.0, 1.5], [2.0, 2.5, 2.2]
    worse = stats.ttest_rel(ours, theirs, alternative="less").pvalue < 0.1
    assert paired_worse(ours, theirs) == worse
    assert not paired_worse(theirs, ours) and not paired_worse([1.0, 5.0], [2.0, 2.0])
    assert iqm([1.0, 2.0, 3.0, 4.0]) == pytest.approx(stats.trim_mean([1.0, 2.0, 3.0, 4.0], 0.25))
    assert math.isinf(mean_interval([1.0])[1])
