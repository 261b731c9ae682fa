from __future__ import annotations

import pytest

from operant.errors import ConfigError
from operant.searchers import Observation, build_searcher

BOX = [{"type": "Real", "name": f"x{i}", "data": [-5.0, 5.0]} for i in range(3)]
MIXED = [
    *BOX,
    {"type": "Int", "name": "n", "data": [1, 9]},
    {"type": "Categorical", "name": "k", "data": ["a", "b", "c"]},
]


def loss(config):
    total = sum((config.get(f"x{i}", 1.0) - 1.0) ** 2 for i in range(3))
    return total + (config.get("n", 4) - 4) ** 2 + 3 * (config.get("k", "b") != "b")


def run(searcher, trials, failing=lambda n: False):
    for _ in range(trials):
        proposal = searcher.propose()
        status = "ERROR" if failing(proposal.number) else "FINISHED"
        searcher.observe(Observation(proposal.number, status=status, values={"acc": loss(proposal.config)}))
    return searcher.reward(searcher.best)


def build(args, **options):
    return build_searcher({"type": "CmaEsSearcher", "optimize_mode": "minimize", **options}, args)


def test_converges_on_a_bowl():
    assert run(build(BOX), 300) < 1e-4


def test_converges_with_whole_numbers_and_categories():
    searcher = build(MIXED)
    assert run(searcher, 500) < 1e-2
    assert (searcher.best.config["n"], searcher.best.config["k"]) == (4, "b")


def test_converges_although_every_fifth_job_fails():
    assert run(build(BOX), 400, failing=lambda n: n % 5 == 0) < 1e-2


def test_a_converged_run_starts_again_elsewhere_with_twice_the_population():
    searcher = build(BOX[:1], population_size=4, surrogate=False)
    run(searcher, 1500)
    assert searcher._restarts >= 1
    assert searcher._run.population_size == 4 * 2**searcher._restarts
    stays = build(BOX[:1], population_size=4, surrogate=False, restart="none")
    run(stays, 1500)
    assert stays._restarts == 0


def test_late_results_count_for_a_while_and_then_no_more():
    searcher = build(BOX, population_size=4)
    late, very_late = searcher.propose(), searcher.propose()
    run(searcher, 8)
    assert searcher._run.generation == 2
    searcher.observe(Observation(late.number, values={"acc": loss(late.config)}))
    assert len(searcher._run._waiting) == 1
    run(searcher, 16)
    waiting = len(searcher._run._waiting)
    searcher.observe(Observation(very_late.number, values={"acc": loss(very_late.config)}))
    assert len(searcher._run._waiting) == waiting


@pytest.mark.parametrize(
    "args",
    [
        [{"type": "Categorical", "name": "k", "data": list(range(30))}],
        [{"type": "Int", "name": "n", "data": [1, 40]}],
        [{"type": "Int", "name": "n", "data": [5, 5]}, *BOX],
        [{"type": "Int", "name": "n", "data": [1, 1000]}],
    ],
    ids=["only categories", "only ordered", "a constant", "many ordered"],
)
def test_odd_spaces(args):
    searcher = build_searcher({"type": "CmaEsSearcher"}, args)
    for _ in range(30):
        proposal = searcher.propose()
        assert searcher.space.contains(proposal.config)
        searcher.observe(Observation(proposal.number, values={"acc": float(proposal.config.get("n", 0))}))


def test_mistakes_name_the_option():
    with pytest.raises(ConfigError, match="did you mean 'ipop'"):
        build(BOX, restart="ippop")
    with pytest.raises(ConfigError, match="from 4 to"):
        build(BOX, population_size=2)


def test_bipop_alternates_large_and_small_runs():
    searcher = build(BOX[:1], population_size=4, surrogate=False, restart="bipop")
    kinds = []
    for _ in range(3000):
        run(searcher, 1)
        if not kinds or kinds[-1] != (searcher._restarts, searcher._kind):
            kinds.append((searcher._restarts, searcher._kind))
    assert {kind for _, kind in kinds} == {"large", "small"}
    assert searcher._doublings < searcher._restarts


def test_the_first_run_may_start_anywhere():
    assert build(BOX, sigma=1e-6).propose().config["x0"] == pytest.approx(0.0, abs=1e-3)
    starts = [build(BOX, sigma=1e-6, start="random", seed=seed).propose().config["x0"] for seed in range(3)]
    assert len({round(start, 1) for start in starts}) > 1


def test_rewards_as_large_as_numbers_go():
    args = [{"type": "Real", "name": "x", "data": [0, 1]}, {"type": "Categorical", "name": "kind", "data": ["a", "b"]}]
    searcher = build_searcher({"type": "CmaEsSearcher", "population_size": 4}, args)
    for number in range(60):  # warnings are errors here
        proposal = searcher.propose()
        reward = (-1.0) ** number * 10.0 ** (300, 308, -300, 0)[number % 4]
        searcher.observe(Observation(proposal.number, values={"acc": reward}))
    assert searcher.best.score == 1e300
