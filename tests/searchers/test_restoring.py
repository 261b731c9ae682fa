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
