from __future__ import annotations

import math
import pickle
from itertools import product
from typing import Any

import pytest

from operant.errors import ConfigError
from operant.searchers import NotReady, Observation, Proposal, SpellingNote, build_searcher
from operant.searchers.base_searcher import BaseSearcher
from operant.searchers.builder import SEARCHERS
from operant.searchers.random import RandomSearcher
from operant.space import (
    ArgumentError,
    Categorical,
    Dict,
    Int,
    List,
    Real,
    Space,
    build_space,
    place_argument_error,
)

ARGS = [
    {"type": "Categorical", "name": "batch-size", "data": [1024, 512]},
    {
        "type": "File",
        "name": "config",
        "file": "config.yaml",
        "args": [
            {"type": "Categorical", "name": "epochs", "data": [3, 4, 5]},
            {"type": "Nested", "data": [{"s.step": 1, "s.gamma": 0.5}, {"s.step": 2, "s.gamma": 0.7}]},
        ],
    },
]


@pytest.fixture
def gml_searcher():
    """A searcher written as one for GML's HPO is."""

    @SEARCHERS.register_module(force=True)
    class MySearcher(BaseSearcher):
        def __init__(self, search_space, reward_attribute="acc"):
            for key, value in search_space.kwspaces.items():
                stepped = isinstance(value, Real) and value.step is not None
                if not isinstance(value, (Categorical, Int)) and not stepped:
                    raise TypeError(f"{key} is {type(value).__name__}")
            super().__init__(search_space, reward_attribute)
            self._configs = self._build_configs()

        def _build_configs(self):
            def recur(s):
                if isinstance(s, (Categorical, Int, Real)):
                    return s.data
                if isinstance(s, List):
                    return list(map(list, product(*map(recur, s))))
                if isinstance(s, Dict):
                    keys = list(s)
                    return [dict(zip(keys, v, strict=True)) for v in product(*[recur(s[k]) for k in keys])]
                if isinstance(s, Space):
                    raise ValueError(f"type {type(s)} is not supported")
                return [s]

            return recur(self.space)

        def get_config(self):
            if not self._configs:
                return None
            new_config = self._configs.pop()
            key = pickle.dumps(new_config)
            if key not in self._results:
                self._results[key] = self._reward_while_pending()
            return new_config

        def __len__(self):
            return len(self._configs)

    yield MySearcher
    del SEARCHERS._classes["MySearcher"]


@pytest.mark.parametrize("sampling", ["uniform", "sobol", "lhs"])
def test_a_random_point_depends_on_seed_and_number_alone(sampling: str) -> None:
    """Many are made at once, but which were asked for before must not matter."""
    space = [
        {"type": "Real", "name": "x", "data": [0.0, 1.0]},
        {"type": "Real", "name": "y", "data": [1e-5, 1.0], "log": True},
        {"type": "Int", "name": "n", "data": [1, 1000]},
    ]

    def config_of(searcher: RandomSearcher) -> dict[str, Any]:
        proposal = searcher.propose()
        assert proposal is not None
        return proposal.config

    whole = RandomSearcher(space, seed=7, sampling=sampling)
    configs = [config_of(whole) for _ in range(200)]
    for number in (0, 1, 63, 64, 65, 199):
        alone = RandomSearcher(space, seed=7, sampling=sampling)
        alone._next_number = number
        assert config_of(alone) == configs[number]
    assert config_of(RandomSearcher(space, seed=8, sampling=sampling)) != configs[0]
    assert len({config["x"] for config in configs}) == 200


def test_a_searcher_in_gmls_style_runs(gml_searcher):
    searcher = build_searcher({"type": "MySearcher", "reward_attribute": "Test Acc", "seed": 3}, ARGS)
    assert len(searcher) == 12
    assert searcher.seed == 3
    proposals = [searcher.propose() for _ in range(12)]
    assert searcher.propose() is None
    assert proposals[0].config == {
        "batch-size": 512, "config(epochs)": 5, "config(s.step)": 2, "config(s.gamma)": 0.7
    }  # fmt: skip
    assert set(searcher._results.values()) == {-math.inf}
    searcher.observe(Observation(0, values={"Test Acc": 0.5}))
    assert sorted(searcher._results.values())[-1] == 0.5
    assert len({searcher.space.key(p.config) for p in proposals}) == 12


def test_a_restored_searcher_in_gmls_style_does_not_repeat_itself(gml_searcher):
    original = build_searcher({"type": "MySearcher"}, ARGS)
    proposals = [original.propose() for _ in range(5)]
    copy = build_searcher({"type": "MySearcher"}, ARGS)
    copy.restore([Observation(1, values={"acc": 0.7})], proposals)
    assert 0.7 in copy._results.values()
    rest = [copy.propose() for _ in range(7)]
    assert [p.number for p in rest] == list(range(5, 12))
    assert rest[0] == original.propose()
    assert len({copy.space.key(p.config) for p in [*proposals, *rest]}) == 12


def test_get_config_of_a_built_in_searcher_is_shaped_like_the_space():
    searcher = build_searcher({"type": "GridSearcher"}, ARGS)
    assert searcher.get_config() == {
        "batch-size": 1024,
        "config": {"epochs": 3, "s.step+s.gamma": {"s.step": 1, "s.gamma": 0.5}},
    }


def test_numbers_and_best_and_minimise():
    searcher = build_searcher({"type": "RandomSearcher", "optimize_mode": "minimize"}, ARGS)
    for value in (3.0, 1.0, math.nan, 2.0):
        proposal = searcher.propose()
        searcher.observe(Observation(proposal.number, values={"acc": value}))
    assert [t.state for t in searcher.trials.values()] == ["finished", "finished", "failed", "finished"]
    assert searcher.best.number == 1
    assert searcher.reward(searcher.best) == 1.0


def test_observations_of_several_seeds_are_averaged_and_a_failed_seed_changes_nothing():
    searcher = build_searcher({"type": "GridSearcher"}, ARGS)
    searcher.propose()
    searcher.observe(Observation(0, seed=0, values={"acc": 1.0}))
    searcher.observe(Observation(0, seed=1, values={"acc": 2.0}))
    searcher.observe(Observation(0, seed=2, status="ERROR"))
    assert searcher.trials[0].score == 1.5
    searcher.observe(Observation(0, seed=1, attempt=2, values={"acc": 0.0}))
    assert searcher.best.score == 0.5


def test_observing_what_was_never_proposed_is_refused():
    searcher = build_searcher({"type": "GridSearcher"}, ARGS)
    with pytest.raises(ValueError, match="never proposed"):
        searcher.observe(Observation(0))
    searcher.propose()
    with pytest.raises(ValueError, match="did you mean 'FINISHED'"):
        searcher.observe(Observation(0, status="FINISHD"))


def test_lag_waits_and_hides_what_is_too_new():
    searcher = build_searcher({"type": "RandomSearcher", "lag": 2}, ARGS)
    first, second = searcher.propose(), searcher.propose()
    searcher.observe(Observation(second.number, values={"acc": 9.0}))
    assert not searcher.ready()
    with pytest.raises(NotReady, match="lag 2"):
        searcher.propose()
    searcher.observe(Observation(first.number, values={"acc": 1.0}))
    assert searcher.ready()
    searcher.propose()
    assert searcher.best.number == 0
    assert [t.number for t in searcher.pending] == [1, 2]


def test_restored_searchers_go_on_where_the_recorded_ones_stopped():
    original = build_searcher({"type": "RandomSearcher", "seed": 7}, ARGS)
    proposals = [original.propose() for _ in range(5)]
    observations = [Observation(p.number, values={"acc": float(p.number)}) for p in proposals[:3]]
    for one in observations:
        original.observe(one)
    copy = build_searcher({"type": "RandomSearcher", "seed": 7}, ARGS)
    copy.restore(observations, proposals)
    assert copy.propose() == original.propose()
    assert [t.number for t in copy.pending] == [3, 4, 5]
    assert copy.best.number == 2


@pytest.mark.parametrize(
    ("cfg", "message"),
    [
        ({"type": "RandomSercher"}, "type: unknown searcher 'RandomSercher'; did you mean 'RandomSearcher'"),
        ({"type": "RandomSearcher", "sampling": "sobbol"}, "sampling: .*did you mean 'sobol'"),
        ({"type": "RandomSearcher", "optimise_mode": "x"}, "optimise_mode: .*did you mean 'optimize_mode'"),
        ({"type": "GridSearcher", "optimize_mode": "minimise"}, "did you mean 'minimize'"),
        ({"type": "GridSearcher", "seed": -1}, "seed: `seed` must be a whole number"),
        ({"type": "GridSearcher", "lag": 0}, "lag: `lag` must be a whole number from 1"),
        ({"type": "BatchSearcher"}, "only Nested arguments, but 'batch-size' is Categorical"),
    ],
)
def test_mistakes_name_the_key_and_the_nearest(cfg, message):
    with pytest.raises(ConfigError, match=message):
        build_searcher(cfg, ARGS)


def test_a_grid_over_a_continuous_argument_is_refused():
    with pytest.raises(ConfigError, match=r"'lr' is a Real without `step`"):
        build_searcher({"type": "GridSearcher"}, [{"type": "Real", "name": "lr", "data": [0, 1]}])


def test_a_mistake_in_an_argument_is_placed_in_the_list_of_arguments():
    args = [*ARGS, {"type": "Real", "name": "lr", "data": [0, 1]}]
    with pytest.raises(ArgumentError) as raised:
        build_searcher({"type": "GridSearcher"}, args)
    assert place_argument_error(raised.value, args).path == (2, "step")
    inside = [{"type": "File", "name": "c", "file": "c.yaml", "args": args[2:]}]
    with pytest.raises(ArgumentError) as raised:
        build_searcher({"type": "GridSearcher"}, inside)
    assert place_argument_error(raised.value, inside).path == (0, "args", 0, "step")
    with pytest.raises(ArgumentError) as raised:
        build_searcher({"type": "BatchSearcher"}, ARGS)
    assert place_argument_error(raised.value, ARGS).path == (0, "type")


def test_batch_gives_the_rows_in_order():
    rows = [{"lr": 0.5, "b": 512}, {"lr": 1, "b": 1024}]
    searcher = build_searcher({"type": "BatchSearcher"}, [{"type": "Nested", "data": rows}])
    assert [searcher.propose().config for _ in rows] == rows
    assert searcher.propose() is None


def test_grid_of_ten_to_the_thirty_starts_at_once():
    args = [{"type": "Int", "name": f"a{i}", "data": [0, 9]} for i in range(30)]
    searcher = build_searcher({}, args)
    assert searcher.space.size == 10**30
    for _ in range(10):
        last = searcher.propose()
    assert last == Proposal(9, {f"a{i}": 0 for i in range(29)} | {"a29": 9})


@pytest.mark.parametrize("sampling", ["uniform", "sobol", "lhs"])
def test_random_visits_each_point_of_a_finite_space_once(sampling):
    searcher = build_searcher({"type": "RandomSearcher", "sampling": sampling}, ARGS)
    configs = []
    while (proposal := searcher.propose()) is not None:
        configs.append(searcher.space.key(proposal.config))
    assert len(configs) == len(set(configs)) == 12


def test_new_points_are_found_in_a_rare_corner_of_the_space():
    args = [
        {"type": "Categorical", "name": "k", "data": list(range(100))},
        {"type": "Real", "name": "x", "data": [0, 1], "when": {"k": 7}},
    ]
    searcher = build_searcher({"type": "RandomSearcher"}, args)
    configs = [searcher.propose().config for _ in range(300)]
    assert {config["k"] for config in configs} == set(range(100))
    assert len({config["x"] for config in configs if config["k"] == 7}) > 150


@pytest.mark.parametrize("sampling", ["sobol", "lhs"])
def test_designs_fill_every_slice(sampling):
    space = [{"type": "Real", "name": f"x{i}", "data": [0, 1]} for i in range(3)]
    searcher = build_searcher({"type": "RandomSearcher", "sampling": sampling}, space)
    for _ in range(2):
        points = [searcher.propose().config for _ in range(64)]
        for name in ("x0", "x1", "x2"):
            assert sorted(int(p[name] * 64) for p in points) == list(range(64))


def test_the_misspelt_evolution_searcher_is_an_alias_with_a_note():
    assert SEARCHERS.resolve("EvolutionSearhcer")[0] == "EvolutionSearcher"
    assert issubclass(SpellingNote, UserWarning)


def test_a_searcher_can_be_built_over_a_ready_space():
    space = build_space(ARGS)
    assert build_searcher({"type": "GridSearcher"}, space).space is space


@pytest.mark.parametrize(
    ("kind", "key", "value"),
    [
        ("LamctsSearcher", "Cp", 10**400),
        ("LamctsSearcher", "sigma", math.inf),
        ("LamctsSearcher", "gamma_type", math.inf),
        ("LamctsSearcher", "ninits", 10**10),
        ("CmaEsSearcher", "population_size", 10**10),
        ("TurboSearcher", "n_initial_points", 10**10),
        ("TpeSearcher", "good_fraction", math.inf),
        ("TpeSearcher", "n_candidates", 10**10),
        ("GpSearcher", "n_candidates", 10**10),
        ("EvolutionSearcher", "mutate_scale", math.inf),
        ("EvolutionSearcher", "population_size", 10**10),
        ("RandomSearcher", "block", 10**10),
        ("SkoptSearcher", "n_random_starts", -1),
        ("SkoptSearcher", "acq_func_kwargs", []),
    ],
)
def test_settings_that_no_search_could_use_are_refused_at_once(kind, key, value):
    with pytest.raises(ConfigError, match=f"`{key}`"):
        build_searcher({"type": kind, key: value}, [{"type": "Real", "name": "lr", "data": [0.0, 1.0]}])


@pytest.mark.parametrize("kind", ["RandomSearcher", "TpeSearcher", "LamctsSearcher"])
def test_a_seed_that_is_left_empty_is_the_usual_one(kind):
    args = [{"type": "Real", "name": "lr", "data": [0.0, 1.0]}]
    empty, usual = build_searcher({"type": kind, "seed": None}, args), build_searcher({"type": kind, "seed": 0}, args)
    assert empty.propose() == usual.propose()
