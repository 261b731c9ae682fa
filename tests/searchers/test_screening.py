from __future__ import annotations

import numpy as np
import pytest

from operant.errors import ConfigError
from operant.searchers import Observation, Proposal, build_searcher
from operant.searchers._screening import LocalModel

BOX = [{"type": "Real", "name": f"x{i}", "data": [-5.0, 5.0]} for i in range(10)]


def valley(config):
    """Narrow and turned: no argument can be judged alone."""
    x = np.array(list(config.values())) - 1.5
    return -float(np.sum(10 * (x[1:] - x[:-1]) ** 2) + np.sum(x**2))


def best_of(trials, seed, **options):
    searcher = build_searcher({"type": "CmaEsSearcher", "seed": seed, **options}, BOX)
    for _ in range(trials):
        proposal = searcher.propose()
        searcher.observe(Observation(proposal.number, values={"acc": valley(proposal.config)}))
    return searcher.best.score


def test_the_model_ranks_points_it_has_not_seen():
    rng = np.random.default_rng(0)
    points, fresh = rng.normal(size=(120, 5)), rng.normal(size=(60, 5))

    def function(x):
        return np.sin(x[:, 0]) - (x[:, 1] - 0.5) ** 2 + 0.3 * x[:, 2] * x[:, 3]

    expected = LocalModel(points, function(points) + rng.normal(0, 0.05, 120)).expected(fresh)
    ranks = [np.argsort(np.argsort(one)) for one in (expected, function(fresh))]
    assert np.corrcoef(*ranks)[0, 1] > 0.9


@pytest.mark.parametrize(
    "scores",
    [np.zeros(20), np.full(20, -1e300), np.array([1e300, -1e300] * 10), np.array([0.0] * 19 + [1e-300])],
    ids=["all the same", "all the same and huge", "huge", "tiny"],
)
def test_the_model_of_odd_scores_and_of_points_in_one_place_is_finite(scores):
    for points in (np.zeros((20, 3)), np.random.default_rng(0).normal(size=(20, 3))):
        assert np.isfinite(LocalModel(points, scores).expected(np.ones((4, 3)))).all()


def test_with_the_model_fewer_trials_lead_as_far():
    with_model, without = ([best_of(150, seed, surrogate=given) for seed in range(4)] for given in (True, False))
    assert np.median(with_model) > np.median(without) / 3  # both are below 0


def test_a_restored_search_goes_on_with_the_same_model():
    searcher = build_searcher({"type": "CmaEsSearcher"}, BOX)
    proposals: list[Proposal] = []
    observations: list[Observation] = []
    for number in range(90):
        proposal = searcher.propose()
        if number > 80:
            copy = build_searcher({"type": "CmaEsSearcher"}, BOX)
            copy.restore(observations, proposals)
            assert copy.propose() == proposal
        proposals.append(proposal)
        # The last of a generation come late, as they do from other processes.
        if number % 4 == 3:
            for late in proposals[-4:][::-1]:
                observations.append(Observation(late.number, values={"acc": valley(late.config)}))
                searcher.observe(observations[-1])
    assert any("known" in (one.notes or {}) for one in proposals)


def test_categories_are_left_to_the_strategy():
    args = [*BOX[:2], {"type": "Categorical", "name": "kind", "data": ["a", "b", "c"]}]
    searcher = build_searcher({"type": "CmaEsSearcher"}, args)
    for _ in range(60):
        proposal = searcher.propose()
        assert "known" not in (proposal.notes or {})
        searcher.observe(Observation(proposal.number, values={"acc": -abs(proposal.config["x0"])}))


def test_a_run_on_a_plateau_is_left():
    """Most results are 1,000, some far below, none above: LA-MCTS does not stay for hundreds of samples."""
    rng = np.random.default_rng(0)
    searcher = build_searcher({"type": "LamctsSearcher", "ninits": 20, "start": "centre"}, BOX)
    runs = []
    for _ in range(200):
        proposal = searcher.propose()
        runs.append((proposal.notes or {}).get("run", -1))
        value = rng.normal(1000, 5) if rng.random() < 0.85 else rng.uniform(0, 500)
        searcher.observe(Observation(proposal.number, values={"acc": value}))
    assert max(runs) >= 2
    assert max(runs.count(run) for run in set(runs)) <= 90


def test_whole_numbers_are_not_proposed_twice_and_random_ones_are_not_needed():
    args = [{"type": "Int", "name": f"n{i}", "data": [0, 100]} for i in range(2)]
    searcher = build_searcher({"type": "CmaEsSearcher"}, args)
    seen = set()
    for _ in range(150):
        proposal = searcher.propose()
        assert proposal.notes is not None
        seen.add(tuple(proposal.config.values()))
        value = -sum((number - 37) ** 2 for number in proposal.config.values())
        searcher.observe(Observation(proposal.number, values={"acc": value}))
    assert len(seen) == 150 and searcher.best.score == 0


@pytest.mark.parametrize(("kind", "key"), [("CmaEsSearcher", "surrogate"), ("LamctsSearcher", "partition")])
def test_a_word_is_not_true(kind, key):
    with pytest.raises(ConfigError, match=f"`{key}` is true or false, not 'no'"):
        build_searcher({"type": kind, key: "no"}, BOX)
