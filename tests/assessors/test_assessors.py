from __future__ import annotations

import math

import numpy as np
import pytest

from operant.assessors import (
    ASSESSORS,
    AshaAssessor,
    AssessResult,
    BaseAssessor,
    CurveFittingAssessor,
    HyperbandAssessor,
    MedianStopAssessor,
    build_assessor,
)
from operant.assessors._curves import FAMILIES, extrapolate
from operant.errors import ConfigError

GOOD, BAD, PAUSE = AssessResult.Good, AssessResult.Bad, AssessResult.Pause


def reports(*values):
    return [{"iteration": 10 * i, "value": v, "created": 1640238929992 + i} for i, v in enumerate(values)]


def curve(top, rate=0.5, steps=20, sign=1.0, start=0.0):
    return [start + sign * top * (1 - math.exp(-rate * i)) for i in range(1, steps + 1)]


class TestMedianStop:
    def test_needs_a_finished_job(self):
        assert MedianStopAssessor().assess_job("a", reports(0.0)) is GOOD

    @pytest.mark.parametrize(("mode", "sign"), [("maximize", 1), ("minimize", -1)])
    def test_compares_the_best_so_far_with_the_median_of_averages(self, mode, sign):
        assessor = MedianStopAssessor(mode, start_step=2)
        for job, values in {"a": (1, 2, 3), "b": (3, 4, 5), "c": (5, 6, 7)}.items():
            assessor.assess_job(job, reports(*(sign * v for v in values)))
            assessor.job_end(job)
        # At step 2 the averages are 1.5, 3.5 and 5.5: the median is 3.5, and equal is not worse.
        assert assessor.assess_job("d", reports(sign * 3.4)) is GOOD
        assert assessor.assess_job("d", reports(sign * 3.4, sign * 1)) is BAD
        assert assessor.assess_job("d", reports(sign * 3.5, sign * 1)) is GOOD

    def test_waits_for_as_many_finished_jobs_as_it_is_told(self):
        assessor = MedianStopAssessor(min_finished=2)
        for job, verdict in (("a", GOOD), ("b", BAD)):
            assessor.assess_job(job, reports(5.0))
            assessor.job_end(job)
            assert assessor.assess_job("c", reports(1.0)) is verdict

    def test_recent_values_leave_the_slow_beginning_out(self):
        rising = [float(step) for step in range(10)]  # average 4.5, of the last five 7
        for measure, verdict in (("average", GOOD), ("recent", BAD)):
            assessor = MedianStopAssessor(measure=measure)
            assessor.assess_job("a", reports(*rising))
            assessor.job_end("a")
            assert assessor.assess_job("b", reports(*(0.8 * value for value in rising))) is verdict
        with pytest.raises(ConfigError, match="measure"):
            MedianStopAssessor(measure="mean")

    def test_recent_values_are_not_held_to_what_noise_may_have_done(self):
        assessor = MedianStopAssessor(measure="recent")
        assessor.assess_job("a", reports(*[1.0] * 10))
        assessor.job_end("a")
        assert assessor.assess_job("smooth", reports(*[0.9] * 10)) is BAD
        assert assessor.assess_job("noisy", reports(*(0.9 + 0.3 * (-1) ** (i // 2) for i in range(10)))) is GOOD
        assert assessor.assess_job("poor", reports(*(0.3 + 0.3 * (-1) ** (i // 2) for i in range(10)))) is BAD

    def test_finished_jobs_that_were_shorter_do_not_count(self):
        assessor = MedianStopAssessor()
        assessor.assess_job("a", reports(9.0))
        assessor.job_end("a")
        assert assessor.assess_job("b", reports(1.0, 1.0)) is GOOD

    def test_a_job_of_nothing_but_nan_is_bad(self):
        assessor = MedianStopAssessor()
        assessor.assess_job("a", reports(1.0))
        assessor.job_end("a")
        assert assessor.assess_job("b", reports(math.nan)) is BAD

    def test_the_ended_jobs_own_history_counts_whoever_was_judged_last(self):
        assessor = MedianStopAssessor()
        assessor.assess_job("good", reports(10.0))
        assessor.assess_job("other", reports(0.0))
        assessor.job_end("good")
        assert assessor.assess_job("new", reports(5.0)) is BAD


class TestCurveFitting:
    def test_there_are_the_twelve_families(self):
        assert len({family.name for family in FAMILIES}) == 12

    @pytest.mark.parametrize(("start", "top"), [(0.0, 0.9), (-500.0, 400.0), (1e6, 1e5)])
    def test_extrapolates_saturating_curves(self, start, top):
        values = curve(top, rate=0.3, steps=40, start=start)
        expected = extrapolate(values[:12], 40)
        assert expected == pytest.approx(values[-1], abs=0.06 * top)

    @pytest.mark.parametrize("power", [0.5, 1.0, 2.0])
    def test_the_twin_of_the_best_job_is_never_stopped(self, power):
        # What goes on growing runs away from the other families, which all level off: it is right, and fits far better.
        line = [2.0 * step**power for step in range(1, 101)]
        assessor = CurveFittingAssessor(epoch_num=100)
        assessor.assess_job("best", reports(*line))
        assessor.job_end("best")
        answers = [assessor.assess_job("twin", reports(*line[:steps])) for steps in range(6, 30, 3)]
        assert set(answers) == {GOOD}

    def test_what_jumps_to_and_fro_is_followed_by_nothing(self):
        assert extrapolate([1, 199, 0, 199, 1, 209, 2], 100) is None

    def test_a_flat_curve_stays_flat(self):
        assert extrapolate([0.5] * 6, 100) == 0.5

    def test_too_few_values_give_no_answer(self):
        assert extrapolate([0.1, 0.2], 20) is None

    @pytest.mark.parametrize(
        ("mode", "best", "worse", "similar"),
        [
            ("maximize", curve(0.9), curve(0.6), curve(0.89)),
            ("maximize", curve(300, start=-500), curve(100, start=-500), curve(298, start=-500)),
            ("minimize", curve(-2, start=3), curve(-1, start=3), curve(-1.99, start=3)),
        ],
        ids=["accuracy", "negative reward", "loss"],
    )
    def test_stops_what_will_end_worse(self, mode, best, worse, similar):
        assessor = CurveFittingAssessor(epoch_num=20, optimize_mode=mode, start_step=4)
        assert assessor.assess_job("worse", reports(*worse[:10])) is GOOD, "nothing has finished yet"
        assessor.assess_job("best", reports(*best))
        assessor.job_end("best")
        assert assessor.assess_job("worse", reports(*worse[:3])) is GOOD, "before start_step"
        assert assessor.assess_job("worse", reports(*worse[:10])) is BAD
        assert assessor.assess_job("similar", reports(*similar[:10])) is GOOD

    def test_the_ended_jobs_own_last_value_counts(self):
        assessor = CurveFittingAssessor(epoch_num=20, start_step=4)
        assessor.assess_job("poor", reports(*curve(0.1)))
        assessor.assess_job("good", reports(*curve(0.9)))
        assessor.job_end("poor")
        assert assessor.assess_job("new", reports(*curve(0.5)[:10])) is GOOD
        assessor.job_end("good")
        assert assessor.assess_job("new", reports(*curve(0.5)[:11])) is BAD

    def test_gap_judges_only_now_and_then(self):
        assessor = CurveFittingAssessor(epoch_num=20, start_step=4, gap=3)
        assessor.assess_job("good", reports(*curve(0.9)))
        assessor.job_end("good")
        poor = curve(0.3)
        answers = [assessor.assess_job("poor", reports(*poor[:n])) for n in range(4, 11)]
        assert answers == [BAD, GOOD, GOOD, BAD, GOOD, GOOD, BAD]

    def test_survives_noise_and_nan(self):
        rng = np.random.default_rng(0)
        assessor = CurveFittingAssessor(epoch_num=30, start_step=4)
        assessor.assess_job("good", reports(*curve(0.9, steps=30)))
        assessor.job_end("good")
        noisy = rng.normal(size=20)
        noisy[3] = math.nan
        assert all(isinstance(assessor.assess_job("n", reports(*noisy[:i])), AssessResult) for i in range(20))
        assert assessor.assess_job("nan", reports(*noisy[:8], math.nan)) is BAD


class TestAsha:
    def test_the_best_third_goes_on(self):
        assessor = AshaAssessor(min_step=2, reduction_factor=3)
        answers = [assessor.assess_job(i, reports(0, v)) for i, v in enumerate([1, 5, 3, 2, 4, 6, 0, 5.5])]
        assert answers == [GOOD, GOOD, BAD, BAD, BAD, GOOD, BAD, GOOD]

    def test_before_the_first_rung_all_go_on_and_past_rungs_use_their_own_value(self):
        assessor = AshaAssessor(min_step=2, reduction_factor=2)
        assessor.assess_job("a", reports(0, 5, 0, 9))
        assert assessor.assess_job("b", reports(0)) is GOOD
        assert assessor.assess_job("b", reports(0, 6, 0, 8)) is BAD, "first at step 2, second at step 4"
        assert assessor.assess_job("c", reports(0, 4, 99)) is BAD, "judged by step 2 although it went on"

    def test_the_answer_at_a_rung_is_given_once(self):
        assessor = AshaAssessor(min_step=1, reduction_factor=2)
        assert assessor.assess_job("a", reports(1)) is GOOD
        assessor.assess_job("b", reports(5))
        assessor.assess_job("c", reports(6))
        assert assessor.assess_job("a", reports(1)) is GOOD

    def test_no_rung_at_the_end(self):
        assessor = AshaAssessor(min_step=2, reduction_factor=2, max_step=4)
        assessor.assess_job("a", reports(1, 1, 1, 9))
        assert assessor.assess_job("b", reports(2, 2, 2, 0)) is GOOD

    def test_paused_jobs_are_promoted_when_they_are_good_after_all(self):
        assessor = AshaAssessor(min_step=1, reduction_factor=2, rest="pause")
        assessor.assess_job("a", reports(5))
        assert assessor.assess_job("b", reports(4)) is PAUSE
        assert list(assessor.promotions()) == []
        assert assessor.assess_job("c", reports(3)) is PAUSE
        assert assessor.assess_job("d", reports(2)) is PAUSE
        assert list(assessor.promotions()) == ["b"]
        assert list(assessor.promotions()) == []
        assert assessor.assess_job("b", reports(4)) is GOOD

    def test_iterations_as_resource(self):
        assessor = AshaAssessor(min_step=20, reduction_factor=2, resource="iteration")
        assert assessor.assess_job("a", reports(1, 1)) is GOOD
        assessor.assess_job("a", reports(1, 1, 5))
        assert assessor.assess_job("b", reports(1, 1, 4)) is BAD

    def test_minimise(self):
        assessor = AshaAssessor("minimize", min_step=1, reduction_factor=2)
        assert [assessor.assess_job(i, reports(v)) for i, v in enumerate([1.0, 2.0, 0.5])] == [
            GOOD,
            BAD,
            GOOD,
        ]


class TestHyperband:
    def test_brackets_start_later_and_later_with_the_shares_of_the_paper(self):
        assessor = HyperbandAssessor(max_step=27, reduction_factor=3)
        assert [bracket.min_step for bracket in assessor.brackets] == [1, 3, 9, 27]
        assert assessor._upper == [27, 39, 45, 49]
        counts = np.bincount([assessor.bracket_of(f"job-{i}") for i in range(4900)], minlength=4) / 100
        assert counts == pytest.approx([27, 12, 6, 4], rel=0.15)

    def test_each_job_is_judged_in_its_own_bracket(self):
        assessor = HyperbandAssessor(max_step=9, reduction_factor=3)
        ids = [f"j{i}" for i in range(60)]
        last = [i for i in ids if assessor.bracket_of(i) == 2]
        first = [i for i in ids if assessor.bracket_of(i) == 0]
        assert all(assessor.assess_job(i, reports(-float(n))) is GOOD for n, i in enumerate(last))
        assert {assessor.assess_job(i, reports(-float(n))) for n, i in enumerate(first)} == {GOOD, BAD}


def test_build_assessor_as_in_gml():
    assessor = build_assessor(
        {"type": "CurveFittingAssessor", "epoch_num": 24, "optimize_mode": "maximize", "start_step": 4}
    )
    assert isinstance(assessor, CurveFittingAssessor)


def test_a_class_of_the_users_own_is_registered_and_built():
    @ASSESSORS.register_module(force=True)
    class MyAssessor(BaseAssessor):
        def __init__(self, optimize_mode="maximize"):
            pass

        def assess_job(self, trial_job_id, latest_trial_history):
            return AssessResult.Good

        def job_end(self, trial_job_id):
            pass

    try:
        assessor = build_assessor({"type": "MyAssessor"})
        assert assessor.assess_job("a", reports(1.0)) is GOOD
        assert list(assessor.promotions()) == []
    finally:
        del ASSESSORS._classes["MyAssessor"]


@pytest.mark.parametrize(
    ("cfg", "message"),
    [
        ({"type": "MedianAssessor"}, "did you mean 'MedianStopAssessor'"),
        ({"type": "MedianStopAssessor", "start_steps": 3}, "start_steps: .*did you mean 'start_step'"),
        ({"type": "CurveFittingAssessor"}, "'epoch_num' is missing"),
        ({"type": "CurveFittingAssessor", "epoch_num": 3, "threshold": 2}, "threshold"),
        ({"type": "AshaAssessor", "reduction_factor": 1}, "from 2 on"),
        ({"type": "AshaAssessor", "rest": "paus"}, "did you mean 'pause'"),
        ({"type": "HyperbandAssessor", "max_step": 3, "min_step": 4}, "above `max_step`"),
        ({"start_step": 3}, "`type` is missing"),
    ],
)
def test_mistakes_name_the_key(cfg, message):
    with pytest.raises(ConfigError, match=message):
        build_assessor(cfg)
