"""TPE, Gaussian process and scikit-optimize's options as whole searchers."""

from __future__ import annotations

import math

import numpy as np
import pytest

from operant.errors import ConfigError
from operant.searchers import Observation, Proposal, build_searcher

BOX = [{"type": "Real", "name": f"x{i}", "data": [-5.0, 5.0]} for i in range(2)]
MIXED = [
    *BOX,
    {"type": "Categorical", "name": "k", "data": ["a", "b", "c"]},
    {"type": "Int", "name": "n", "data": [1, 9]},
]


def loss(config):
    total = (config["x0"] - 1) ** 2 + (config["x1"] + 2) ** 2
    return total + 3 * (config.get("k", "b") != "b") + 0.3 * (config.get("n", 4) - 4) ** 2


def run(searcher, trials):
    for _ in range(trials):
        proposal = searcher.propose()
        searcher.observe(Observation(proposal.number, values={"acc": loss(proposal.config)}))
    return searcher.reward(searcher.best)


def build(kind, args, **options):
    return build_searcher({"type": kind, "optimize_mode": "minimize", **options}, args)


@pytest.mark.parametrize(
    ("kind", "options", "trials", "bar"),
    [
        ("TpeSearcher", {}, 80, 1.0),
        ("GpSearcher", {}, 30, 1e-3),
        ("SkoptSearcher", {"acq_func": "gp_hedge"}, 30, 3.5),  # hedging may stay with a wrong category for long
        ("SkoptSearcher", {"acq_func": "EI", "acq_optimizer": "sampling"}, 40, 0.3),
        ("SkoptSearcher", {"acq_func": "LCB", "acq_func_kwargs": {"kappa": 1.0}}, 30, 1e-2),
        ("SkoptSearcher", {"acq_func": "PI", "acq_func_kwargs": {"xi": 0.01}}, 30, 1e-1),
    ],
    ids=lambda value: str(value) if isinstance(value, (str, dict)) else "",
)
def test_finds_the_bottom_of_a_mixed_bowl(kind, options, trials, bar):
    found = [run(build(kind, MIXED, seed=seed, **options), trials) for seed in range(3)]
    assert np.median(found) < bar


@pytest.mark.parametrize(("estimator", "bar"), [("rf", 1.5), ("et", 1.5), ("gbrt", 4.0)])
def test_trees_lead_to_the_bottom_too(estimator, bar):
    searcher = build("SkoptSearcher", BOX, base_estimator=estimator, acq_func="EI")
    assert run(searcher, 24) < bar


@pytest.mark.parametrize("kind", ["TpeSearcher", "GpSearcher", "SkoptSearcher"])
def test_parallel_proposals_spread(kind):
    searcher = build(kind, BOX)
    run(searcher, 10)
    batch = [searcher.propose() for _ in range(6)]
    points = searcher.space.encode_many([proposal.config for proposal in batch])
    nearest = [min(np.abs(points[i] - points[j]).max() for j in range(6) if j != i) for i in range(6)]
    assert np.median(nearest) > 1e-3


@pytest.mark.parametrize("kind", ["TpeSearcher", "GpSearcher", "SkoptSearcher"])
def test_restoring_fits_nothing(kind, monkeypatch):
    from operant.searchers._gp_model import GaussianProcess
    from operant.searchers._parzen import Kernels

    def refuse(*args, **kwargs):
        raise AssertionError("a model was fitted")

    searcher = build(kind, BOX)
    rng = np.random.default_rng(0)
    proposals = [Proposal(n, searcher.space.sample(rng)) for n in range(200)]
    observations = [Observation(p.number, values={"acc": loss(p.config)}) for p in proposals]
    with monkeypatch.context() as patched:
        patched.setattr(GaussianProcess, "fit", refuse)
        patched.setattr(Kernels, "components", refuse)
        searcher.restore(observations, proposals)
    assert searcher.propose().number == 200


def test_a_gaussian_process_takes_only_as_many_points_as_it_may():
    searcher = build("GpSearcher", BOX, most_points=20)
    run(searcher, 30)
    assert len(searcher._surrogate._process) == 20


def test_a_new_score_of_an_old_trial_reaches_the_model():
    searcher = build("GpSearcher", BOX)
    run(searcher, 70)
    before = searcher._surrogate.model([], 0)[1]
    best = searcher.best.number
    searcher.observe(Observation(best, attempt=2, values={"acc": 500.0}))
    searcher.propose()
    rows = searcher._history.scores[searcher._surrogate._rows]
    assert -500.0 in rows
    assert math.isfinite(before)


def test_hedging_comes_to_prefer_what_did_well():
    searcher = build("SkoptSearcher", BOX, acq_func="gp_hedge")
    run(searcher, 30)
    named = {(trial.notes or {}).get("acq_func") for trial in searcher.trials.values()}
    assert {"EI", "LCB", "PI"} & named
    assert any(gain != 0 for gain in searcher._gains.values())


def test_a_proposal_that_was_run_again_earns_its_function_once():
    searcher = build("SkoptSearcher", BOX, acq_func="gp_hedge")
    run(searcher, 30)
    number = next(trial.number for trial in searcher.trials.values() if "acq_func" in (trial.notes or {}))
    function = searcher.trials[number].notes["acq_func"]
    before = searcher._gains[function]
    gained = searcher._gained[number]
    for attempt in (2, 3):
        searcher.observe(Observation(number, attempt=attempt, values={"acc": 500.0}))
    worst = -1.0  # none is worse: it beats no result, and its function has lost what it had gained by it
    assert searcher._gains[function] == pytest.approx(before - gained + worst)


def test_dummy_is_random_search():
    searcher = build("SkoptSearcher", BOX, base_estimator="dummy")
    run(searcher, 20)
    assert len(searcher.trials) == 20


def test_random_state_and_random_starts_are_other_names():
    searcher = build("SkoptSearcher", BOX, random_state=5, n_random_starts=3)
    assert (searcher.seed, searcher.n_initial_points) == (5, 3)
    assert searcher.propose() == build("SkoptSearcher", BOX, seed=5).propose()


@pytest.mark.parametrize(
    ("kind", "option", "message"),
    [
        ("SkoptSearcher", {"base_estimator": "GPP"}, "did you mean 'GP'"),
        ("SkoptSearcher", {"acq_func": "EIps"}, "time of each trial"),
        ("SkoptSearcher", {"acq_func": "gp_hegde"}, "did you mean 'gp_hedge'"),
        ("SkoptSearcher", {"base_estimator": "RF", "acq_optimizer": "lbfgs"}, "only the base_estimator GP"),
        ("SkoptSearcher", {"acq_func_kwargs": {"kapa": 1}}, "acq_func_kwargs.kapa: .*did you mean 'kappa'"),
        ("SkoptSearcher", {"acq_optimizer_kwargs": {"n_point": 1}}, "did you mean 'n_points'"),
        ("SkoptSearcher", {"acq_optimizer_kwargs": 3}, "is a mapping"),
        ("SkoptSearcher", {"random_state": -1}, "random_state"),
        ("GpSearcher", {"most_points": 3}, "from 10 on"),
        ("TpeSearcher", {"n_candidates": 0}, "from 1 (on|to)"),
        ("TpeSearcher", {"good_fraction": 0}, "above 0"),
    ],
)
def test_mistakes_name_the_option(kind, option, message):
    with pytest.raises(ConfigError, match=message):
        build(kind, BOX, **option)


@pytest.mark.parametrize("kind", ["GpSearcher", "SkoptSearcher"])
def test_proposals_do_not_depend_on_the_number_of_threads(kind, monkeypatch):
    """The order of a sum does, so the models are made with one thread, whatever the process has."""
    from threadpoolctl import threadpool_info, threadpool_limits

    from operant.searchers._surrogate import Surrogate

    used = []
    model = Surrogate.model

    def spy(self, *args):
        used.extend(library["num_threads"] for library in threadpool_info())
        return model(self, *args)

    monkeypatch.setattr(Surrogate, "model", spy)
    found = []
    for threads in (1, 2):
        searcher = build(kind, MIXED)
        with threadpool_limits(threads):
            run(searcher, 14)
            found.append(searcher.propose().config)
            assert {library["num_threads"] for library in threadpool_info()} == {threads}
    assert found[0] == found[1] and set(used) == {1}
