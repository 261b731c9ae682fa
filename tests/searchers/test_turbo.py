from __future__ import annotations

import numpy as np

from operant.searchers import Observation, Trial, build_searcher
from operant.searchers._trust_region import TrustRegion
from operant.space import build_space

BOX = [{"type": "Real", "name": f"x{i}", "data": [-5.0, 5.0]} for i in range(4)]


def value(config):
    return -sum((number - 2.0) ** 2 for number in config.values())


def trial(number, score):
    config = {f"x{i}": float(number % 5) for i in range(4)}
    return Trial(number, config, state="finished", score=score)


def test_a_bowl_is_found():
    searcher = build_searcher({"type": "TurboSearcher"}, BOX)
    for _ in range(60):
        proposal = searcher.propose()
        searcher.observe(Observation(proposal.number, values={"acc": value(proposal.config)}))
    assert searcher.best.score > -0.05


def test_the_box_grows_with_successes_shrinks_with_failures_and_collapses():
    region = TrustRegion(build_space(BOX), 100)
    for n in range(3):
        region.tell(trial(n, float(n + 1)))
    assert region._length == 1.6
    for n in range(3, 7):
        region.tell(trial(n, 0.0))
    assert region._length == 0.8
    for n in range(7, 40):
        region.tell(trial(n, 0.0))
    assert region.over


def test_candidates_lie_in_the_box_and_differ_from_its_centre():
    region = TrustRegion(build_space(BOX), 100)
    for n in range(6):
        region.add(trial(n, float(n)))
    region._length = 0.1
    points = region.ask(np.random.default_rng(0), [], 0)
    centre = region.centre()
    assert (np.abs(points - centre).max(axis=1) > 0).all()
    assert np.exp(np.log(np.abs(points - centre).max(axis=0)).mean()) <= 0.05 + 1e-9


def test_a_collapsed_box_is_followed_by_a_new_one():
    searcher = build_searcher({"type": "TurboSearcher", "n_initial_points": 4}, BOX[:2])
    for n in range(80):
        proposal = searcher.propose()
        searcher.observe(Observation(proposal.number, values={"acc": float(-n)}))
    assert searcher._number >= 1
