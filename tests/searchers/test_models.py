"""The parts inside the model-based searchers: their formulas against numeric ones and brute force."""

from __future__ import annotations

import math

import numpy as np
import pytest

from operant.searchers._acquisition import Acquisition, Maximiser
from operant.searchers._gp_model import GaussianProcess
from operant.searchers._outputs import Outputs, choose_rows
from operant.searchers._parzen import Kernels, log_density
from operant.searchers._surrogate import promising_points
from operant.searchers.base_searcher import Trial
from operant.searchers.tpe import TpeSearcher
from operant.space import build_space

MIXED = build_space(
    [
        {"type": "Real", "name": "x", "data": [0.0, 1.0]},
        {"type": "Categorical", "name": "k", "data": ["a", "b", "c"]},
        {"type": "Int", "name": "n", "data": [1, 8]},
        {"type": "Real", "name": "m", "data": [0.0, 1.0], "when": {"k": "b"}},
    ]
)


@pytest.fixture
def data():
    rng = np.random.default_rng(0)
    points = MIXED.encode_many([MIXED.sample(rng) for _ in range(25)])
    return points, np.sin(5 * points[:, 0]) + points[:, 2] + 0.1 * rng.normal(size=25)


def test_the_gradient_of_the_posterior_of_the_hyper_parameters(data):
    process = GaussianProcess(MIXED.layout)
    process.condition(*data)
    parameters = np.array([0.3, -0.5, 0.8, 0.1, 0.2, -3.0])
    _, gradient = process._loss(parameters)
    for i in range(len(parameters)):
        step = np.zeros(len(parameters))
        step[i] = 1e-5
        numeric = (process._loss(parameters + step)[0] - process._loss(parameters - step)[0]) / 2e-5
        assert gradient[i] == pytest.approx(numeric, rel=1e-4, abs=1e-6)


def test_the_gradient_of_mean_and_deviation(data):
    process = GaussianProcess(MIXED.layout)
    process.fit(*data)
    point, columns = np.array([0.3, 1 / 6, 0.4, 0.5]), np.array([0, 2])
    mean, deviation, by_mean, by_deviation = process.predict_gradient(point, columns)
    predicted = process.predict(point[None])
    assert (mean, deviation) == pytest.approx((predicted[0][0], predicted[1][0]))
    for place, column in enumerate(columns):
        step = np.zeros(4)
        step[column] = 1e-5
        up, down = process.predict((point + step)[None]), process.predict((point - step)[None])
        assert by_mean[place] == pytest.approx((up[0][0] - down[0][0]) / 2e-5, rel=1e-3, abs=1e-6)
        assert by_deviation[place] == pytest.approx((up[1][0] - down[1][0]) / 2e-5, rel=1e-3, abs=1e-6)


def test_an_extended_process_is_the_one_conditioned_on_everything(data):
    points, y = data
    whole, grown = GaussianProcess(MIXED.layout), GaussianProcess(MIXED.layout)
    whole.condition(points, y)
    grown.condition(points[:20], y[:20])
    copy = grown.copy()
    grown.extend(points[20:], y[20:])
    for ours, theirs in zip(whole.predict(points), grown.predict(points), strict=True):
        assert ours == pytest.approx(theirs, abs=1e-8)
    assert len(copy) == 20, "the copy did not grow with it"


def test_smoothed_results_are_the_means_at_their_points(data):
    process = GaussianProcess(MIXED.layout)
    process.fit(*data)
    assert process.smoothed() == pytest.approx(process.predict(data[0])[0], abs=1e-8)
    assert np.abs(process.smoothed() - data[1]).max() > 1e-3


def test_what_only_refines_a_known_trial_comes_after_what_is_away_from_it():
    space = build_space([{"type": "Real", "name": f"x{i}", "data": [0.0, 1.0]} for i in range(2)])
    points = np.random.default_rng(0).random((30, 2))
    process = GaussianProcess(space.layout)
    process.fit(points, -np.sum((points - 0.5) ** 2, axis=1))
    maximiser, candidates = Maximiser(space.layout), np.random.default_rng(1).random((200, 2))
    options = process, Acquisition("EI", -0.01), maximiser, candidates, 4
    best = promising_points(*options)[0]
    assert maximiser.distances(best[None], np.array([0.5, 0.5]))[0] < 0.1
    far_from_all = promising_points(*options, known=points + 0.2)[0]
    assert np.array_equal(far_from_all, best)
    elsewhere = promising_points(*options, known=best[None] + 0.005)[0]
    assert maximiser.distances(elsewhere[None], best)[0] > 0.1


def test_another_category_is_as_far_as_the_ends_of_a_range():
    one, other = MIXED.encode({"x": 0.2, "k": "a", "n": 3}), MIXED.encode({"x": 0.2, "k": "c", "n": 3})
    assert Maximiser(MIXED.layout).distances(np.array([one, other]), one).tolist() == [0.0, 1.0]


def test_a_process_interpolates_and_is_unsure_far_away(data):
    process = GaussianProcess(MIXED.layout)
    process.fit(*data)
    mean, deviation = process.predict(data[0])
    assert np.corrcoef(mean, data[1])[0, 1] > 0.98
    assert deviation.max() < 0.5
    few = GaussianProcess(MIXED.layout)
    few.condition(np.array([[0.1, 1 / 6, 0.1, 0.5], [0.2, 1 / 6, 0.2, 0.5]]), np.array([0.0, 1.0]))
    near, far = few.predict(np.array([[0.15, 1 / 6, 0.15, 0.5], [0.9, 5 / 6, 0.9, 0.5]]))[1]
    assert far > 3 * near


@pytest.mark.parametrize("name", ["EI", "PI", "LCB"])
@pytest.mark.parametrize(("mean", "deviation"), [(0.1, 0.5), (-5.0, 0.1), (-50.0, 0.01), (2.0, 1.0)])
def test_derivatives_of_the_acquisition_also_where_it_is_tiny(name, mean, deviation):
    acquisition = Acquisition(name, best=0.3)

    def value(m, s):
        return float(acquisition(np.array([m]), np.array([s]))[0][0])

    _, by_mean, by_deviation = acquisition(np.array([mean]), np.array([deviation]))
    h = 1e-6
    assert by_mean[0] == pytest.approx((value(mean + h, deviation) - value(mean - h, deviation)) / (2 * h), rel=1e-4)
    d = h * deviation
    assert by_deviation[0] == pytest.approx(
        (value(mean, deviation + d) - value(mean, deviation - d)) / (2 * d), rel=1e-4
    )


def test_log_expected_improvement_against_the_integral():
    rng = np.random.default_rng(0)
    samples = rng.normal(0.2, 0.7, size=2_000_000)
    expected = np.maximum(samples - 0.5, 0).mean()
    value = Acquisition("EI", best=0.5)(np.array([0.2]), np.array([0.7]))[0][0]
    assert math.exp(value) == pytest.approx(expected, rel=5e-3)


def test_the_maximiser_tries_choices_and_follows_the_gradient():
    maximiser = Maximiser(MIXED.layout)
    target = np.array([0.37, 5 / 6, 7.5 / 8, 0.5])

    def value(points):
        return -((points - target) ** 2).sum(axis=1)

    def gradient(point, columns):
        return float(value(point[None])[0]), -2 * (point - target)[columns]

    point, best = maximiser.improve(np.array([0.9, 1 / 6, 0.5 / 8, 0.1]), value, gradient)
    assert point == pytest.approx(target, abs=1e-4)
    assert best == pytest.approx(0, abs=1e-6)


def test_parzen_densities_are_those_of_scipy():
    from scipy.stats import truncnorm

    space = build_space([{"type": "Real", "name": "x", "data": [0.0, 1.0]}, *[
        {"type": "Categorical", "name": "k", "data": ["a", "b", "c"]}]])  # fmt: skip
    kernels = Kernels(space.layout)
    centres, widths, active = (
        np.array([[0.2, 1 / 6], [0.9, 5 / 6]]),
        np.array([[0.1], [0.3]]),
        np.ones((2, 2), bool),
    )
    points = np.array([[0.25, 1 / 6], [0.8, 0.5], [0.0, 5 / 6]])
    density = log_density(
        kernels.points(points, np.ones((3, 2), bool)),
        kernels.components(centres, active, widths, 0.1),
        np.log([0.5, 0.5]),
    )
    forget = 0.3 / 1.3
    for x, u, log_value in zip(points[:, 0], points[:, 1], density, strict=True):
        total = 0.0
        for (mu, c), (s,) in zip(centres, widths, strict=True):
            number = truncnorm.pdf(x, (0 - mu) / s, (1 - mu) / s, mu, s)
            category = 3 * (forget / 3 + (1 - forget) * (int(3 * u) == int(3 * c)))
            total += 0.5 * number * category
        assert log_value == pytest.approx(math.log(total))


def test_parzen_components_say_nothing_about_what_they_do_not_have():
    kernels = Kernels(MIXED.layout)
    centre, widths = np.array([[0.5, 0.5, 0.5, 0.2]]), np.full((1, 3), 0.1)
    without = np.array([[True, True, True, False]])
    everything = np.ones((1, 4), bool)
    near, far = np.array([[0.5, 0.5, 0.5, 0.2]]), np.array([[0.5, 0.5, 0.5, 0.9]])
    features = kernels.components(centre, without, widths, 0.1)
    values = [log_density(kernels.points(p, everything), features, np.zeros(1))[0] for p in (near, far)]
    assert values[0] == pytest.approx(values[1])
    features = kernels.components(centre, everything, widths, 0.1)
    values = [log_density(kernels.points(p, everything), features, np.zeros(1))[0] for p in (near, far)]
    assert values[0] > values[1] + 5


def test_bandwidths_are_the_distance_to_the_neighbours():
    space = build_space([{"type": "Real", "name": "x", "data": [0.0, 1.0]}])
    kernels = Kernels(space.layout)
    points = np.array([[0.1], [0.3], [0.35], [0.8], [0.8]])
    least = 1 / 7
    widths = kernels.bandwidths(points, kernels.neighbours(points), least)[:, 0]
    assert widths == pytest.approx([0.2, 0.2, 0.45, 0.45, least], abs=1e-9) or widths == pytest.approx(
        [0.2, 0.2, 0.45, least, least], abs=1e-9
    )


@pytest.mark.parametrize(
    ("scores", "weights"),
    [
        ([0.0, 5.0, 1.0, 2.0], [1.6, 0.4]),  # 4 and 1 above the best of the others
        ([0.0, 5.0, math.nan, 2.0], [10 / 7, 4 / 7]),
        ([1.0, 1.0, 1.0, 1.0], [1.0, 1.0]),
        ([math.nan, 5.0, math.nan, 2.0], [1.0, 1.0]),
        ([-1e308, 1e308, -1e308, 1e308], [1.0, 1.0]),
    ],
)
def test_good_trials_weigh_by_how_much_better_they_are(scores, weights):
    searcher = TpeSearcher([{"type": "Real", "name": "x", "data": [0.0, 1.0]}], good_fraction=0.5)
    for number, score in enumerate(scores):
        state = "failed" if math.isnan(score) else "finished"
        searcher._learn(Trial(number, {"x": number / 4}, state=state, score=score))
    good, found = searcher._good(np.arange(4))
    assert len(good) == 2 and found == pytest.approx(weights)
    if scores[1] > scores[3]:
        assert good.tolist() == [1, 3]


def test_outputs_press_the_bad_side_together_and_keep_the_order():
    rng = np.random.default_rng(0)
    scores = -np.exp(3 * rng.normal(size=200))
    outputs = Outputs()
    outputs.learn(scores)
    y = outputs(scores)
    assert (y.mean(), y.std()) == pytest.approx((0, 1))
    assert np.array_equal(np.argsort(y), np.argsort(scores))
    spread = (scores - scores.mean()) / scores.std()
    assert np.ptp(np.sort(y)[-100:]) > 3 * np.ptp(np.sort(spread)[-100:])
    failed = outputs(np.array([math.nan]))
    assert failed[0] == y.min()


def test_rows_for_a_model_that_cannot_take_all():
    scores = np.arange(100.0)
    scores[99] = math.nan
    rows = choose_rows(scores, 20, np.random.default_rng(0))
    assert len(set(rows)) == 20
    assert set(range(89, 99)) <= set(rows)
    assert np.array_equal(choose_rows(scores, 100, np.random.default_rng(0)), np.arange(100))
