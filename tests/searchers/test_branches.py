from __future__ import annotations

import numpy as np
import pytest

from operant.searchers import Observation, build_searcher
from operant.searchers._acquisition import Maximiser
from operant.searchers._branches import Branches, BranchSteps
from operant.searchers.base_searcher import Trial
from operant.space import build_space

ARGS = [
    {"type": "Categorical", "name": "kind", "data": ["wide", "narrow"]},
    {"type": "Real", "name": "u", "data": [0.0, 1.0], "when": {"kind": "wide"}},
    {"type": "Real", "name": "v", "data": [0.0, 1.0], "when": {"kind": "narrow"}},
]


def loss(config):
    if config["kind"] == "wide":
        return 0.2 + (config["u"] - 0.3) ** 2
    return 1 - np.exp(-((config["v"] - 0.8) ** 2) / (2 * 0.06**2))


def narrow_found(kind, seed, trials, **options):
    searcher = build_searcher({"type": kind, "optimize_mode": "minimize", "seed": seed, **options}, ARGS)
    for _ in range(trials):
        proposal = searcher.propose()
        searcher.observe(Observation(proposal.number, values={"acc": loss(proposal.config)}))
    return searcher.best.config["kind"] == "narrow"


def test_the_better_branch_is_found_though_it_is_mostly_bad():
    assert sum(narrow_found("TpeSearcher", seed, 60) for seed in range(6)) >= 5


@pytest.mark.parametrize("kind", ["GpSearcher", "SkoptSearcher"])
def test_models_find_the_better_branch(kind):
    options = {"acq_optimizer_kwargs": {"n_points": 100}} if kind == "SkoptSearcher" else {"n_candidates": 50}
    assert sum(narrow_found(kind, seed, 40, **options) for seed in range(3)) >= 2


@pytest.mark.parametrize("kind", ["CmaEsSearcher", "LamctsSearcher", "TurboSearcher"])
def test_steps_in_random_branches_find_the_better_one(kind):
    trials = 40 if kind == "TurboSearcher" else 60
    assert sum(narrow_found(kind, seed, trials) for seed in range(3)) >= 2


def test_steps_in_branches_are_every_second_proposal_and_only_where_there_are_conditions():
    assert BranchSteps(build_space(ARGS[:1])).propose(np.random.default_rng(0)) is None
    steps, rng = BranchSteps(build_space(ARGS)), np.random.default_rng(0)
    for number in range(10):
        steps.learn(Trial(number, {"kind": "wide", "u": 0.25}, state="finished", score=float(number)))
    made = [steps.propose(rng) for _ in range(400)]
    own = [one for one in made if one is not None]
    assert 150 < len(own) < 250
    wide = [one["u"] for one in own if one["kind"] == "wide"]
    assert 0.4 < len(wide) / len(own) < 0.6
    # Half of them near the best of that branch; where nothing is known all are random.
    assert np.mean(np.abs(np.array(wide) - 0.25) < 0.1) > 0.4
    narrow = [one["v"] for one in own if one["kind"] == "narrow"]
    assert np.histogram(narrow, bins=4, range=(0, 1))[0].min() > 10


def test_a_trial_that_was_run_again_is_one_result_of_its_branch():
    """Four results are too few to step from; of the fifth's best it steps from what is now the best."""
    steps, rng = BranchSteps(build_space(ARGS)), np.random.default_rng(0)
    trials = [Trial(i, {"kind": "wide", "u": 0.1 + 0.2 * i}, state="finished", score=float(i)) for i in range(5)]
    for trial in [*trials[:4], *trials[:4]]:
        steps.learn(trial)
    assert near(steps, rng, 0.7) < 0.3
    steps.learn(trials[4])
    assert near(steps, rng, 0.9) > 0.4
    trials[4].score = -1.0
    steps.learn(trials[4])
    assert near(steps, rng, 0.7) > 0.4


def near(steps, rng, place):
    """How often a step in the wide branch is near a place."""
    made = [steps.propose(rng) for _ in range(800)]
    wide = [one["u"] for one in made if one is not None and one["kind"] == "wide"]
    return np.mean(np.abs(np.array(wide) - place) < 0.08)


def test_a_branch_is_its_arguments_and_the_choices_that_conditions_ask_about():
    args = [
        {"type": "Categorical", "name": "kind", "data": ["a", "b", "c"]},
        {"type": "Categorical", "name": "other", "data": [1, 2]},
        {"type": "Real", "name": "u", "data": [0.0, 1.0], "when": {"kind": "a"}},
    ]
    branches = Branches(build_space(args))
    b1, b2 = {"kind": "b", "other": 1}, {"kind": "b", "other": 2}
    assert branches.key(b1) == branches.key(b2)
    assert branches.key(b1) != branches.key({"kind": "c", "other": 1})
    assert branches.key({"kind": "a", "other": 1, "u": 0.1}) == branches.key({"kind": "a", "other": 2, "u": 0.9})
    found = branches.sample(np.random.default_rng(0), branches.key(b1), 5)
    assert len(found) == 5 and all(config["kind"] == "b" for config in found)


def test_candidates_stand_where_their_trials_would():
    space = build_space(ARGS)
    maximiser = Maximiser(space.layout)
    points = maximiser.candidates(np.random.default_rng(0), 50, space.encode({"kind": "wide", "u": 0.9})[None])
    landed = space.encode_many([space.decode(point) for point in points])
    assert np.array_equal(points, landed)
    # A candidate that changed its branch has not inherited the middle, where inactive arguments are put.
    narrow = points[50:][~maximiser.active(points[50:])[:, 1]]
    assert len(narrow) > 3 and np.ptp(narrow[:, 2]) > 0.3


def test_only_active_arguments_are_climbed():
    space = build_space(ARGS)
    columns_seen = []

    def gradient(point, columns):
        columns_seen.append(columns.tolist())
        return float(point[1]), np.ones(len(columns))

    start = space.encode({"kind": "wide", "u": 0.2})
    point, _ = Maximiser(space.layout).improve(start, lambda points: points[:, 1], gradient, fixed=(0,))
    assert columns_seen and all(columns == [1] for columns in columns_seen)
    assert point[2] == 0.5 and point[1] == 1.0
