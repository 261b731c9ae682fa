from __future__ import annotations

import logging

import numpy as np
import pytest

from operant.errors import ConfigError
from operant.searchers import Observation, build_searcher
from operant.searchers._region_solvers import _stagnates
from operant.searchers._regions import Partition, two_means

BOX = [{"type": "Real", "name": f"x{i}", "data": [-5.0, 5.0]} for i in range(4)]


def value(config):
    return -sum((number - 2.0) ** 2 for number in config.values())


def build(args=BOX, **options):
    return build_searcher({"type": "LamctsSearcher", "ninits": 12, "leaf_size": 8, **options}, args)


def run(searcher, trials, reward=value):
    for _ in range(trials):
        proposal = searcher.propose()
        searcher.observe(Observation(proposal.number, values={"acc": reward(proposal.config)}))
    return searcher


def samples(count=80, seed=0):
    points = np.random.default_rng(seed).random((count, 3))
    return points, -((points - 0.8) ** 2).sum(axis=1)


@pytest.mark.parametrize("solver", ["turbo", "cmaes"])
def test_a_bowl_is_found(solver):
    assert run(build(solver=solver), 300).best.score > -1e-2


def test_regions_part_all_samples_the_better_half_first():
    points, values = samples()
    root = Partition(points, values, 10, "rbf", "auto").root
    nodes, leaves = [root], []
    while nodes:
        node = nodes.pop()
        if node.children is None:
            leaves.append(node)
            continue
        better, other = node.children
        assert better.mean >= other.mean
        assert sorted([*better.rows, *other.rows]) == sorted(node.rows)
        assert better.contains(points[better.rows]).all() and not better.contains(points[other.rows]).any()
        nodes += [better, other]
    assert len(leaves) > 2


def test_no_exploration_leads_to_the_best_region_and_much_of_it_to_the_one_seen_least():
    points, values = samples()
    partition = Partition(points, values, 10, "rbf", "auto")
    assert set(partition.walk(0.0).path) == {"l"}
    left, right = partition.root.children
    assert partition.walk(1e6).path[0] == ("l" if left.count < right.count else "r")


def test_a_walk_splits_only_what_it_passes():
    points, values = samples(400)
    partition = Partition(points, values, 10, "rbf", "auto")
    leaf = partition.walk(0.0)
    assert len(leaf.path) > 1
    assert partition.root.children[1]._looked is False


def test_equal_samples_cannot_be_parted():
    assert two_means(np.ones((9, 3))) is None
    same = Partition(np.full((30, 2), 0.5), np.arange(30.0), 5, "rbf", "auto")
    assert same.walk(1.0).path == ""


def test_proposals_come_from_the_region_of_the_run():
    searcher = run(build(), 40)
    proposal = searcher.propose()
    assert proposal.notes["path"] and searcher._region.path == proposal.notes["path"]
    assert searcher._region.contains(searcher.space.encode(proposal.config)[None]).all()


def test_without_the_partition_there_are_no_regions():
    assert {trial.notes["path"] for trial in run(build(partition=False), 60).trials.values() if trial.notes} == {""}


@pytest.mark.parametrize("solver", ["turbo", "cmaes"])
def test_a_collapsed_run_is_followed_by_one_elsewhere(solver):
    # Everything but a far corner is a plateau: the first run cannot but end on it.
    searcher = run(build(solver=solver), 400, lambda config: 100.0 if config["x0"] > -4.5 else 0.0)
    assert searcher._number >= 1
    starts = [trial.notes["start"] for trial in searcher.trials.values() if trial.notes and "start" in trial.notes]
    assert starts[-1]["spent"]
    # A plateau has no peak to go around; trust regions and CMA-ES take turns.
    trusted = ["members" in start for start in starts]
    assert trusted[:3] == ([True, False, True] if solver == "turbo" else [False] * len(starts[:3]))


def test_the_tree_can_be_read():
    searcher = build()
    assert searcher.tree() == "there is no tree yet: fewer than two trials have ended"
    run(searcher, 60)
    lines = searcher.tree().splitlines()
    assert lines[0].startswith("root: region, 60 samples, mean ") and lines[0].endswith("*")
    assert sum(int(line.split(": leaf, ")[1].split()[0]) for line in lines if ": leaf, " in line) == 60


def test_the_tree_has_the_rewards_that_the_user_knows():
    up, down = build(), build(optimize_mode="minimize")
    run(up, 40)
    run(down, 40, lambda config: -value(config))
    assert (
        ", mean -" in up.tree() and up.tree().replace("mean -", "mean ").splitlines()[0] == down.tree().splitlines()[0]
    )


def test_mistakes_are_named():
    with pytest.raises(ConfigError, match="`dims` is 16, but there are 4 search args"):
        build(dims=16)
    with pytest.raises(ConfigError, match="did you mean 'poly'"):
        build(kernel_type="polly")
    with pytest.raises(ConfigError, match="`Cp` must be a number from 0 on"):
        build(Cp=-1)


def test_enable_cuda_says_that_the_cpu_is_used(caplog):
    with caplog.at_level(logging.WARNING):
        build(enable_cuda=True)
    assert "CPU" in caplog.text


def test_the_centre_comes_first_when_asked_for():
    assert set(build(start="centre").propose().config.values()) == {0.0}
    assert set(build().propose().config.values()) != {0.0}


def test_a_run_begins_around_a_sample_that_stands_out():
    """A wide plateau with a narrow peak: CMA-ES follows its middle and stays on the plateau."""

    def reward(config):
        return 3.0 if min(config.values()) > 4.0 else 1.0 - 1e-3 * abs(sum(config.values()) - 2.0)

    searcher = run(build(sigma=0.1), 60, reward)
    peak = searcher.propose()
    searcher.observe(Observation(peak.number, values={"acc": 3.0}))
    for _ in range(300):
        proposal = searcher.propose()
        if "peak" in (proposal.notes or {}).get("start", {}):
            break
        searcher.observe(Observation(proposal.number, values={"acc": reward(proposal.config)}))
    start = proposal.notes["start"]
    assert start["peak"] == 3.0
    assert np.allclose(start["mean"], searcher.space.encode(peak.config))
    assert start["sigma"] < 0.1


def test_around_the_best_of_a_trust_region_runs_cma_es():
    rng = np.random.default_rng(0)
    searcher = run(build(solver="turbo"), 250, lambda config: value(config) + rng.normal(0.0, 5.0))
    first, second = [t.notes["start"] for t in searcher.trials.values() if t.notes and "start" in t.notes][:2]
    assert "members" in first and second["spent"] == [0]
    best = max((t for t in searcher.trials.values() if not t.notes or t.notes["run"] == 0), key=lambda t: t.score)
    assert second["peak"] == best.score and np.allclose(second["mean"], searcher.space.encode(best.config))
    assert second["sigma"] < searcher.sigma


@pytest.mark.parametrize("solver", ["turbo", "cmaes"])
def test_a_run_that_converges_stays_where_it_is(solver):
    searcher = build(solver=solver)
    for _ in range(300):
        proposal = searcher.propose()
        assert "peak" not in (proposal.notes or {}).get("start", {})
        searcher.observe(Observation(proposal.number, values={"acc": value(proposal.config)}))


def test_generations_that_failed_as_a_whole_do_not_hide_that_a_run_stands_still():
    class Run:
        generations = [[1.0, 1.1, 0.9]] * 6 + [[np.nan] * 3, [np.nan] * 3] + [[1.0, 1.1, 0.9]] * 6

    assert _stagnates(Run(), 1.0, 7)
