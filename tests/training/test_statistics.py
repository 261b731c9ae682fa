"""Figures over seeds: against rliable 1.2.0 (20,000 draws), and what `level` means."""

from __future__ import annotations

import pytest

from operant.training.statistics import difference, improvement, interval, profile, verdict

OURS = [
    [0.501, -0.034, 0.536, 0.128, 0.563, 0.917, -0.641, 0.359],
    [1.179, 0.727, 1.804, 1.294, 0.442, 0.193, 0.226, 0.24],
    [1.836, 1.405, 1.705, 2.214, 1.982, 1.725, 0.895, 2.163],
]
THEIRS = [
    [0.494, 0.077, -0.518, -0.085, 0.38, 0.333, -0.335, -0.528],
    [0.988, 1.071, 0.813, 1.737, 1.631, 1.166, 1.146, 1.616],
    [-0.01, 1.568, 0.913, 1.015, 1.15, 1.538, 2.315, 1.572],
]


def test_the_stratified_interval_is_rliables():
    assert interval(OURS) == (
        pytest.approx(0.8769166666666667),
        pytest.approx(0.613, abs=0.03),
        pytest.approx(1.154, abs=0.03),
    )


def test_the_probability_of_improvement_is_rliables():
    found = improvement(OURS, THEIRS)
    assert found == (pytest.approx(0.5833333333333334), pytest.approx(0.427, abs=0.02), pytest.approx(0.740, abs=0.02))


def test_the_performance_profile_is_rliables():
    share, low, high = profile(OURS, [0.0, 0.5, 1.0, 1.5, 2.0])
    assert share.tolist() == pytest.approx([22 / 24, 16 / 24, 10 / 24, 7 / 24, 2 / 24])
    assert low.tolist() == pytest.approx([0.792, 0.5, 0.292, 0.167, 0.0], abs=0.05)
    assert high.tolist() == pytest.approx([1.0, 0.833, 0.542, 0.417, 0.208], abs=0.05)


def test_a_task_keeps_its_weight_in_every_draw():
    """Without strata the mean of one task at 0 and one at 1 would vary from draw to draw."""
    assert profile([[0.0] * 5, [1.0] * 5], [0.5])[1:] == ([0.5], [0.5])


def test_equal_runs_are_as_good_as_each_other_and_the_difference_has_a_sign():
    assert improvement([3.0, 3.0], [3.0, 3.0])[0] == 0.5
    middle, low, high = difference([1.0, 2.0, 3.0, 4.0], [11.0, 12.0, 13.0, 14.0])
    assert middle == pytest.approx(-10.0) and low < -10.0 < high < 0.0


@pytest.mark.parametrize(
    ("ours", "said"),
    [
        ([100.0, 101, 99, 100, 100], "level"),
        ([95.0, 94, 95, 96, 95], "level"),  # worse for sure, but by less than a tenth
        ([80.0, 81, 79, 80, 80], "below"),
        ([40.0, 120, 100, 60, 130], "undecided"),
        ([100.0, 100, 100, 100], "undecided"),  # too few seeds
    ],
)
def test_level_is_within_a_tenth_of_the_way_from_chance_to_the_peer(ours, said):
    assert verdict(ours, [100.0, 101.0, 99.0, 100.0, 100.0], chance=0.0) == said


def test_chance_gives_the_scale_also_below_zero():
    assert verdict([-160.0] * 5, [-150.0] * 5, chance=-1200.0) == "level"
    assert verdict([-160.0] * 5, [-150.0] * 5, chance=-170.0) == "below"
