from __future__ import annotations

import numpy as np
import pytest

from operant.benchmark import FORMULAS, make_function, run_search
from operant.errors import ConfigError


@pytest.mark.parametrize("name", ["ackley", "rosenbrock", "levy"])
@pytest.mark.parametrize("seed", [0, 1])
def test_a_formula_has_its_optimum_where_it_was_moved_to_and_not_in_the_middle(name, seed):
    function = make_function(name, 4, shift_seed=seed)
    assert function(function.offset, 0) == pytest.approx(0.0, abs=1e-9)
    middle = np.full(4, (function.low + function.high) / 2)
    assert function(middle, 0) < -0.1
    assert (function.offset > function.low).all() and (function.offset < function.high).all()


def test_known_optima():
    best = [0.20169, 0.150011, 0.476874, 0.275332, 0.311652, 0.6573]
    assert make_function("hartmann")(best, 0) == pytest.approx(3.32237, abs=1e-4)
    assert make_function("michalewicz", 2)([2.20, 1.57], 0) == pytest.approx(1.8013, abs=1e-3)


def test_a_rover_that_goes_straight_is_worth_more_than_one_that_wanders():
    rover = make_function("rover")
    straight = np.linspace([0.05, 0.05], [0.95, 0.95], 30).ravel()
    assert rover(straight, 0) > rover(np.random.default_rng(0).random(60), 0)
    assert np.isfinite(rover(np.full(60, 0.5), 0))


@pytest.mark.parametrize("name", FORMULAS)
def test_every_formula_can_be_searched(name):
    outcome = run_search("random", {"type": "RandomSearcher"}, make_function(name), 0, 5)
    assert outcome.samples == 5 and np.isfinite(outcome.best) and outcome.curve() == sorted(outcome.curve())


def test_the_number_of_arguments_decides_where_there_is_no_name():
    pytest.importorskip("mujoco")
    assert make_function(None, 16).name == "swimmer"
    assert make_function(None, 33).name == "hopper"
    with pytest.raises(ConfigError, match="give `func_type`"):
        make_function(None, 7)
    with pytest.raises(ConfigError, match="swimmer has 16 arguments, but there are 5"):
        make_function("swimmer", 5)
    with pytest.raises(ConfigError, match="did you mean 'ackley'"):
        make_function("akley")


class Lucky:
    """One episode in a sample is far better than the policy is."""

    name, dims, low, high = "lucky", 2, -1.0, 1.0

    def __call__(self, point, seed):
        return 10.0

    def returns(self, point, seed, rollouts):
        self.fresh = seed
        return [9.0 if point[0] < 0.5 else 11.0] * rollouts


def test_a_threshold_counts_as_reached_only_when_fresh_episodes_confirm_it():
    function = Lucky()
    outcome = run_search("random", {"type": "RandomSearcher"}, function, 1, 30, threshold=10.0, confirm_rollouts=20)
    assert outcome.hit == outcome.checks > 1 and outcome.confirmed == 11.0
    assert outcome.confirming_episodes == 20 * outcome.checks
    assert function.fresh[:2] == [1, outcome.hit - 1] and len(function.fresh) == 3
