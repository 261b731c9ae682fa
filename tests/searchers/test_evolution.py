from __future__ import annotations

import numpy as np
import pytest

from operant.errors import ConfigError
from operant.searchers import Observation, SpellingNote, build_searcher

ARGS = [
    {"type": "Real", "name": "x", "data": [0.0, 1.0]},
    {"type": "Int", "name": "n", "data": [1, 100]},
    {"type": "Categorical", "name": "k", "data": ["a", "b", "c"]},
]


def run(searcher, trials):
    for _ in range(trials):
        proposal = searcher.propose()
        reward = -abs(proposal.config["x"] - 0.3) - abs(proposal.config["n"] - 60) / 100
        searcher.observe(Observation(proposal.number, values={"acc": reward - (proposal.config["k"] != "b")}))
        yield proposal


def test_gmls_configuration_builds_with_a_note():
    cfg = {
        "type": "EvolutionSearhcer", "optimize_mode": "maximize", "population_size": 32, "mutate_prob": 0.1,
        "reward_attribute": "acc", "gen_trial_limit": 100, "seed": 2021,
    }  # fmt: skip
    with pytest.warns(SpellingNote, match="EvolutionSearhcer"):
        searcher = build_searcher(cfg, ARGS)
    assert type(searcher).__name__ == "EvolutionSearcher"


def test_the_first_generation_is_spread_and_children_name_a_good_parent():
    searcher = build_searcher({"type": "EvolutionSearcher", "population_size": 10}, ARGS)
    proposals = list(run(searcher, 60))
    assert sorted(int(p.config["x"] * 10) for p in proposals[:10]) == list(range(10))
    assert all(p.parent is None for p in proposals[:10])
    assert all(p.parent is not None and p.parent < p.number for p in proposals[10:])


def test_it_gets_better_than_random_search():
    best = {}
    for kind in ("EvolutionSearcher", "RandomSearcher"):
        scores = []
        for seed in range(8):
            searcher = build_searcher({"type": kind, "seed": seed}, ARGS)
            list(run(searcher, 150))
            scores.append(searcher.best.score)
        best[kind] = np.median(scores)
    assert best["EvolutionSearcher"] > best["RandomSearcher"] / 2


def test_without_mutation_children_still_differ_from_their_parents():
    searcher = build_searcher({"type": "EvolutionSearcher", "population_size": 4, "mutate_prob": 0.0}, ARGS)
    keys = [searcher.space.key(p.config) for p in run(searcher, 40)]
    assert len(set(keys)) == 40


def test_a_changed_score_moves_an_individual_in_the_population():
    searcher = build_searcher({"type": "EvolutionSearcher", "population_size": 4}, ARGS)
    list(run(searcher, 4))
    worst = searcher._population[-1][1]
    searcher.observe(Observation(worst, seed=None, attempt=2, values={"acc": 5.0}))
    assert searcher._population[0][1] == worst
    assert len(searcher._population) == 4


@pytest.mark.parametrize(
    ("option", "message"),
    [
        ({"population_size": 1}, "from 2 (on|to)"),
        ({"mutate_prob": 1.5}, "between 0 and 1"),
        ({"gen_trial_limit": 0}, "from 1 on"),
        ({"mutate_scale": 0}, "above 0"),
        ({"mutation_prob": 0.1}, "did you mean 'mutate_prob'"),
    ],
)
def test_mistakes_name_the_option(option, message):
    with pytest.raises(ConfigError, match=message):
        build_searcher({"type": "EvolutionSearcher", **option}, ARGS)
