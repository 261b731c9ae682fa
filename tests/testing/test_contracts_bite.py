"""The contract suites fail for plug-ins that break the contract."""

from __future__ import annotations

import random

import pytest

from operant.assessors import AssessResult, BaseAssessor
from operant.searchers import BaseSearcher, Proposal
from operant.testing import AssessorContract, SearcherContract


class RepeatingSearcher(BaseSearcher):
    def _propose(self, number):
        return Proposal(number, self.space.decode([0.5] * self.space.dimensions))


class UnseededSearcher(BaseSearcher):
    def _propose(self, number):
        return Proposal(number, self.space.decode([random.random() for _ in range(self.space.dimensions)]))


class OneWaySearcher(BaseSearcher):
    """Follows the reward's sign, but not the mode."""

    def _propose(self, number):
        shift = 0.01 if any(self.reward(t) > 0 for t in self.trials.values() if t.state == "finished") else 0.0
        return Proposal(number, self.space.decode([(number / 50 + shift) % 1.0] * self.space.dimensions))


class EagerAssessor(BaseAssessor):
    def assess_job(self, job_id, history):
        return AssessResult.Bad

    def job_end(self, job_id):
        pass


def contract(suite, make):
    made = type("Made", (suite,), {"build": lambda self, *args, **options: make(*args, **options)})
    return made()


@pytest.mark.parametrize(
    ("searcher", "test"),
    [
        (RepeatingSearcher, "test_nothing_is_proposed_twice"),
        (RepeatingSearcher, "test_a_finite_space_is_visited_completely_and_then_there_is_no_more"),
        (RepeatingSearcher, "test_many_may_be_pending_and_are_told_apart"),
        (UnseededSearcher, "test_the_same_seed_and_results_give_the_same_proposals"),
        (UnseededSearcher, "test_a_restored_search_goes_on_as_the_recorded_one"),
        (UnseededSearcher, "test_lag_makes_timing_irrelevant"),
        (OneWaySearcher, "test_minimising_is_maximising_the_negative"),
    ],
)
def test_a_broken_searcher_is_caught(searcher, test):
    with pytest.raises(AssertionError):
        getattr(contract(SearcherContract, searcher), test)()


@pytest.mark.parametrize(
    "test", ["test_the_first_job_is_never_stopped", "test_a_better_job_than_all_before_is_never_stopped"]
)
def test_a_broken_assessor_is_caught(test):
    with pytest.raises(AssertionError):
        getattr(contract(AssessorContract, EagerAssessor), test)()
