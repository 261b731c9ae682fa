"""What every assessor must do, as tests: subclass `AssessorContract` and say how to build yours."""

from __future__ import annotations

import math
import random
from collections.abc import Sequence
from typing import Any

from operant.assessors import AssessResult, BaseAssessor


def reports(values: Sequence[float]) -> list[dict[str, Any]]:
    """A history as assessors are given it."""
    return [{"iteration": i, "value": value, "created": 1640238929992 + 1000 * i} for i, value in enumerate(values)]


def learning_curve(top: float, steps: int) -> list[float]:
    return [top * (1 - 0.7**i) for i in range(1, steps + 1)]


class AssessorContract:
    """Subclass, override `build`, and pytest runs all of it."""

    # Reports of a whole job; a job this long has finished.
    steps: int = 20

    def build(self, **options: Any) -> BaseAssessor:
        raise NotImplementedError("override build() to make your assessor")

    def play(self, assessor: BaseAssessor, jobs: dict[str, list[float]]) -> dict[str, list[AssessResult]]:
        """Run jobs one after the other, each report assessed, until told otherwise."""
        answers: dict[str, list[AssessResult]] = {}
        for job, values in jobs.items():
            answers[job] = []
            for step in range(1, len(values) + 1):
                answers[job].append(assessor.assess_job(job, reports(values[:step])))
                if answers[job][-1] is not AssessResult.Good:
                    break
            else:
                assessor.job_end(job)
        return answers

    def test_the_first_job_is_never_stopped(self) -> None:
        answers = self.play(self.build(), {"a": learning_curve(0.5, self.steps)})
        assert set(answers["a"]) == {AssessResult.Good}

    def test_every_answer_is_one_of_the_three(self) -> None:
        rng = random.Random(0)
        jobs = {f"j{i}": [rng.gauss(0, 1) for _ in range(self.steps)] for i in range(12)}
        for answers in self.play(self.build(), jobs).values():
            assert all(isinstance(answer, AssessResult) for answer in answers)

    def test_a_better_job_than_all_before_is_never_stopped(self) -> None:
        jobs = {f"j{i}": learning_curve(1.0 + i, self.steps) for i in range(8)}
        for answers in self.play(self.build(), jobs).values():
            assert set(answers) == {AssessResult.Good}

    def test_minimising_is_maximising_the_negative(self) -> None:
        rng = random.Random(1)
        jobs = {f"j{i}": learning_curve(rng.uniform(0.1, 1), self.steps) for i in range(12)}
        flipped = {job: [-value for value in values] for job, values in jobs.items()}
        up = self.play(self.build(optimize_mode="maximize"), jobs)
        assert up == self.play(self.build(optimize_mode="minimize"), flipped)

    def test_negative_rewards_are_judged_like_others(self) -> None:
        jobs = {f"j{i}": [v - 1000 for v in learning_curve(10.0 * (8 - i), self.steps)] for i in range(8)}
        answers = self.play(self.build(), jobs)
        assert set(answers["j0"]) == {AssessResult.Good}

    def test_asking_twice_with_the_same_history_changes_nothing_for_others(self) -> None:
        jobs = {f"j{i}": learning_curve(1.0 - 0.1 * (i % 4), self.steps) for i in range(8)}
        once, twice = self.build(), self.build()
        self.play(once, jobs)
        for job, values in jobs.items():
            twice.assess_job(job, reports(values[:1]))
            twice.assess_job(job, reports(values[:1]))
        self.play(twice, jobs)
        new = reports(learning_curve(0.75, self.steps))
        assert isinstance(once.assess_job("new", new), AssessResult)
        assert isinstance(twice.assess_job("new", new), AssessResult)

    def test_empty_nan_and_infinite_histories_are_survived(self) -> None:
        assessor = self.build()
        self.play(assessor, {"a": learning_curve(0.5, self.steps)})
        assert assessor.assess_job("none", []) is AssessResult.Good
        for odd in (math.nan, math.inf, -math.inf):
            values = [*learning_curve(0.5, self.steps - 2), odd]
            assert isinstance(assessor.assess_job(f"odd {odd}", reports(values)), AssessResult)

    def test_the_end_of_a_job_that_was_never_assessed_is_survived(self) -> None:
        self.build().job_end("never seen")

    def test_promotions_name_only_paused_jobs_and_each_once(self) -> None:
        rng = random.Random(2)
        assessor = self.build()
        paused: set[str] = set()
        for i in range(30):
            job = f"j{i}"
            answers = self.play(assessor, {job: learning_curve(rng.uniform(0.1, 1), self.steps)})
            if answers[job][-1] is AssessResult.Pause:
                paused.add(job)
            for promoted in assessor.promotions():
                assert promoted in paused
                paused.remove(promoted)
