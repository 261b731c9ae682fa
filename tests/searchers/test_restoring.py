"""A restored search makes the very proposals that the recorded one would have, also where its model is not fitted anew
for each.
"""

from __future__ import annotations

import json

import numpy as np
import pytest

from operant.searchers import Observation, Proposal, build_searcher

BOX = [{"type": "Real", "name": f"x{i}", "data": [-5.0, 5.0]} for i in range(3)]
SEARCHERS = [
    {"type": "GpSearcher", "n_candidates": 50, "n_starts": 1},
    {"type": "SkoptSearcher", "acq_optimizer_kwargs": {"n_points": 50, "n_restarts_optimizer": 1}},
    {"type": "TurboSearcher"},
    {"type": "LamctsSearcher"},
    {"type": "LamctsSearcher", "solver": "turbo"},
    {"type": "LamctsSearcher", "solver": "gp"},
]


@pytest.mark.parametrize("options", SEARCHERS, ids=lambda one: one["type"] + one.get("solver", ""))
def test_the_same_proposals_to_the_last_bit(options):
    searcher = build_searcher(options, BOX)
    proposals, observations = [], []
    for number in range(70):
        proposal = searcher.propose()
        if number >= 66:
            copy = build_searcher(options, BOX)
            copy.restore(observations, proposals)
            assert copy.propose() == proposal
        observation = Observation(
            number, values={"acc": -sum((value - 1.3) ** 2 for value in proposal.config.values())}
        )
        searcher.observe(observation)
        fields = [proposal.config, proposal.budget, proposal.parent, proposal.notes]
        proposals.append(Proposal(number, *json.loads(json.dumps(fields))))
        observations.append(observation)


def test_a_run_of_cma_es_around_the_best_of_a_trust_region_is_taken_over():
    rng = np.random.default_rng(0)
    searcher = build_searcher({"type": "LamctsSearcher", "ninits": 12, "solver": "turbo"}, BOX)
    proposals, observations = [], []
    while len(proposals) < 250 and not (proposals and "peak" in ((proposals[-1].notes or {}).get("start") or {})):
        proposals.append(searcher.propose())
        reward = rng.normal(-sum((value - 1.3) ** 2 for value in proposals[-1].config.values()), 5.0)
        observations.append(Observation(proposals[-1].number, values={"acc": reward}))
        searcher.observe(observations[-1])
    assert "peak" in proposals[-1].notes["start"]
    copy = build_searcher({"type": "LamctsSearcher", "ninits": 12, "solver": "turbo"}, BOX)
    copy.restore(observations, proposals)
    assert copy.propose() == searcher.propose()


@pytest.mark.parametrize(
    "options",
    [
        {"type": "CmaEsSearcher"},
        {"type": "CmaEsSearcher", "surrogate": False},
        {"type": "TurboSearcher"},
        {"type": "GpSearcher", "n_candidates": 50, "n_starts": 1},
        {"type": "SkoptSearcher", "acq_optimizer_kwargs": {"n_points": 50, "n_restarts_optimizer": 1}},
        *({"type": "LamctsSearcher", "ninits": 10, "leaf_size": 8, "solver": one} for one in ("cmaes", "turbo", "gp")),
    ],
    ids=lambda one: one["type"] + str(one.get("solver", one.get("surrogate", ""))),
)
def test_trials_that_were_run_again(options):
    """Every fourth job fails, and is run again two trials later; others come to another score."""
    searcher = build_searcher(options, BOX)
    proposals, observations = [], []

    def tell(observation):
        observations.append(observation)
        searcher.observe(observation)

    for number in range(64):
        proposal = searcher.propose()
        if number > 20 and number % 3 == 0:
            copy = build_searcher(options, BOX)
            copy.restore(observations, proposals)
            assert copy.propose() == proposal
        fields = [proposal.config, proposal.budget, proposal.parent, proposal.notes]
        proposals.append(Proposal(number, *json.loads(json.dumps(fields))))
        tell(Observation(number, status="ERROR" if number % 4 == 0 else "FINISHED", values=worth(proposal.config)))
        if number >= 2 and number % 4 in (1, 2):
            again = number - (number % 4 + 1 if number % 4 == 1 else 2)
            tell(Observation(again, attempt=2, values={"acc": worth(proposals[again].config)["acc"] + number % 2}))
    assert {2} <= {trial.told for trial in searcher.trials.values()}


def worth(config):
    return {"acc": -sum((value - 1.3) ** 2 for value in config.values())}


def test_a_trial_that_was_run_again_is_one_result_of_its_generation():
    searcher = build_searcher({"type": "CmaEsSearcher", "population_size": 6}, BOX)
    for number in range(6):
        proposal = searcher.propose()
        searcher.observe(Observation(number, status="ERROR"))
        assert searcher._run.generation == (number == 5)
        if number < 5:
            searcher.observe(Observation(number, attempt=2, values=worth(proposal.config)))
    finished = [trial.score for trial in searcher.trials.values() if trial.state == "finished"]
    assert searcher._run.generations[0][:5] == finished


FEW = [
    {"type": "Int", "name": "layers", "data": [1, 6]},
    {"type": "Categorical", "name": "act", "data": ["relu", "tanh", "gelu"]},
    {"type": "Categorical", "name": "norm", "data": [True, False]},
]


@pytest.mark.parametrize(
    "options",
    [
        {"type": "LamctsSearcher", "ninits": 5, "leaf_size": 4},
        {"type": "LamctsSearcher", "ninits": 5, "leaf_size": 4, "solver": "gp"},
        {"type": "GpSearcher", "n_initial_points": 4, "n_candidates": 10, "n_starts": 1},
    ],
    ids=lambda one: one["type"] + one.get("solver", ""),
)
def test_a_space_that_is_tried_to_its_end(options):
    """What falls to a random configuration, since all that the searcher asked for is known, is taken over, too."""
    gone_through(options, FEW, 36, lambda config: float(config["layers"] == 3))


def test_jobs_that_failed_before_there_was_a_model():
    args = [{"type": "Real", "name": "lr", "data": [1e-6, 1.0], "log": True}]
    options = {"type": "CmaEsSearcher", "population_size": 4}
    gone_through(options, args, 16, lambda config: -abs(config["lr"] - 0.01), failed=(2, 6))


def gone_through(options, args, count, reward, failed=()):
    """Restore after each trial, and compare the next proposal."""
    searcher = build_searcher(options, args)
    proposals, observations = [], []
    for number in range(count):
        copy = build_searcher(options, args)
        copy.restore(observations, proposals)
        proposal = searcher.propose()
        assert copy.propose() == proposal
        fields = [proposal.config, proposal.budget, proposal.parent, proposal.notes]
        proposals.append(Proposal(number, *json.loads(json.dumps(fields))))
        values = {} if number in failed else {"acc": reward(proposal.config)}
        observations.append(Observation(number, status="ERROR" if number in failed else "FINISHED", values=values))
        searcher.observe(observations[-1])


def test_a_record_that_lacks_the_beginning_of_a_run():
    options = {"type": "LamctsSearcher", "ninits": 2}
    copy = build_searcher(options, BOX)
    proposals = [
        Proposal(0, dict.fromkeys(("x0", "x1", "x2"), 0.0)),
        Proposal(1, dict.fromkeys(("x0", "x1", "x2"), 1.0)),
        Proposal(2, dict.fromkeys(("x0", "x1", "x2"), 2.0), notes={"run": 0, "seen": 2, "path": "", "generation": 0}),
    ]
    copy.restore([Observation(number, values={"acc": float(number)}) for number in range(3)], proposals)
    assert copy.propose().notes["run"] == 1
