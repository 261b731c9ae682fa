"""What every searcher must do, as tests: subclass `SearcherContract` and say how to build yours.

class TestMySearcher(SearcherContract):
    def build(self, search_args, **options):
        return build_searcher({"type": "MySearcher", **options}, search_args)
"""

from __future__ import annotations

import json
import math
from collections.abc import Callable
from typing import Any

import pytest

from operant.searchers import BaseSearcher, NotReady, Observation, Proposal

SearchArgs = list[dict[str, Any]]

CONTINUOUS: SearchArgs = [
    {"type": "Real", "name": "x", "data": [-2.0, 3.0]},
    {"type": "Real", "name": "lr", "data": [1e-5, 1.0], "log": True},
]
MIXED: SearchArgs = [
    {"type": "Real", "name": "x", "data": [-2.0, 3.0]},
    {"type": "Int", "name": "n", "data": [1, 9]},
    {"type": "Int", "name": "width", "data": [16, 512], "log": True},
    {"type": "Real", "name": "drop", "data": [0.0, 0.9], "step": 0.1},
    {"type": "Categorical", "name": "kind", "data": ["a", "b", "c"]},
    {"type": "Nested", "data": [{"p": 1, "q": 0.5}, {"p": 2, "q": 0.7}]},
]
CONDITIONAL: SearchArgs = [
    {"type": "Categorical", "name": "kind", "data": ["sgd", "adam"]},
    {"type": "Real", "name": "momentum", "data": [0.5, 0.99], "when": {"kind": "sgd"}},
    {"type": "Int", "name": "layers", "data": [1, 4]},
    {"type": "Int", "name": "second", "data": [8, 64], "log": True, "when": {"layers": {"min": 2}}},
]
FINITE: SearchArgs = [
    {"type": "Int", "name": "a", "data": [1, 3]},
    {"type": "Categorical", "name": "b", "data": ["x", "y"], "when": {"a": [2, 3]}},
    {"type": "Real", "name": "c", "data": [0.0, 1.0], "step": 0.5},
]
ROWS: SearchArgs = [{"type": "Nested", "data": [{"a": i, "b": i * i} for i in range(15)]}]


def toy_reward(config: dict[str, Any]) -> float:
    """A number for any configuration, higher near the middle of everything; the same in every process."""
    total = 0.0
    for name, value in config.items():
        if isinstance(value, str):
            total -= 0.1 * (sum(map(ord, value)) % 5)
        else:
            total -= abs(float(value) - 1.0) / (1.0 + len(name))
    return total


class SearcherContract:
    """Subclass, override `build`, and pytest runs all of it. `spaces`, `finite`: what yours can take."""

    spaces: tuple[SearchArgs, ...] = (CONTINUOUS, MIXED, CONDITIONAL)
    finite: SearchArgs = FINITE
    # Proposals in each test; more than the random ones that a searcher begins with.
    trials: int = 30

    def build(self, search_args: SearchArgs, **options: Any) -> BaseSearcher:
        raise NotImplementedError("override build() to make your searcher")

    # -- helpers ---------------------------------------------------------------------------------------------

    def run(
        self,
        searcher: BaseSearcher,
        trials: int,
        reward: Callable[[dict[str, Any]], float] = toy_reward,
    ) -> tuple[list[Proposal], list[Observation]]:
        """Propose and observe in turn, until the space is used up."""
        proposals: list[Proposal] = []
        observations: list[Observation] = []
        for _ in range(trials):
            proposal = searcher.propose()
            if proposal is None:
                break
            observation = Observation(proposal.number, values={"acc": reward(proposal.config)})
            searcher.observe(observation)
            proposals.append(proposal)
            observations.append(observation)
        return proposals, observations

    # -- the contract ----------------------------------------------------------------------------------------

    def test_proposals_are_numbered_configurations_of_the_space(self) -> None:
        for search_args in self.spaces:
            searcher = self.build(search_args)
            proposals, _ = self.run(searcher, self.trials)
            assert [proposal.number for proposal in proposals] == list(range(len(proposals)))
            for proposal in proposals:
                assert searcher.space.contains(proposal.config), proposal.config

    def test_proposals_are_json(self) -> None:
        for search_args in self.spaces:
            for proposal in self.run(self.build(search_args), self.trials)[0]:
                fields = [proposal.config, proposal.budget, proposal.parent, proposal.notes]
                assert json.loads(json.dumps(fields)) == fields

    def test_nothing_is_proposed_twice(self) -> None:
        for search_args in self.spaces:
            searcher = self.build(search_args)
            proposals, _ = self.run(searcher, self.trials)
            keys = [searcher.space.key(proposal.config) for proposal in proposals]
            assert len(set(keys)) == len(keys)

    def test_a_finite_space_is_visited_completely_and_then_there_is_no_more(self) -> None:
        searcher = self.build(self.finite)
        size = int(searcher.space.size)
        proposals, _ = self.run(searcher, size + 1)
        assert len({searcher.space.key(proposal.config) for proposal in proposals}) == size
        assert searcher.propose() is None
        assert searcher.propose() is None

    def test_many_may_be_pending_and_are_told_apart(self) -> None:
        for search_args in self.spaces:
            searcher = self.build(search_args)
            proposals = [searcher.propose() for _ in range(self.trials)]
            pending = [proposal for proposal in proposals if proposal is not None]
            keys = {searcher.space.key(proposal.config) for proposal in pending}
            assert len(keys) == len(pending)
            for proposal in reversed(pending):
                values = {"acc": toy_reward(proposal.config)}
                searcher.observe(Observation(proposal.number, values=values))
            more = searcher.propose()
            assert more is None or searcher.space.key(more.config) not in keys

    def test_failed_and_senseless_results_are_survived(self) -> None:
        odd: list[dict[str, Any]] = [
            {"status": "ERROR"},
            {"status": "KILLED", "values": {"acc": 1.0}},
            {"status": "FILTERED"},
            {"values": {"acc": math.nan}},
            {"values": {"acc": math.inf}},
            {"values": {"acc": -math.inf}},
            {"values": {}},
            {"values": {"other": 1.0}},
            {"status": "STOPPED", "values": {"acc": -3.0}},
            {"status": "RUNNING", "values": {"acc": 99.0}},
        ]
        for search_args in self.spaces:
            for only_failures in (False, True):
                searcher = self.build(search_args)
                for n in range(self.trials):
                    proposal = searcher.propose()
                    if proposal is None:
                        break
                    what: dict[str, Any] = odd[n % len(odd)] if only_failures or n % 3 == 0 else {}
                    if not what:
                        what = {"values": {"acc": toy_reward(proposal.config)}}
                    searcher.observe(Observation(proposal.number, **what))
                assert searcher.best is None or math.isfinite(searcher.best.score)

    def test_equal_and_huge_rewards_are_survived(self) -> None:
        rewards: list[Callable[[dict[str, Any]], float]] = [
            lambda config: 0.0,
            lambda config: 1e300 * (1 if toy_reward(config) > -2 else -1),
            lambda config: 1e-300 * toy_reward(config),
        ]
        for reward in rewards:
            self.run(self.build(self.spaces[0]), self.trials, reward)

    def test_minimising_is_maximising_the_negative(self) -> None:
        for search_args in self.spaces:
            up, _ = self.run(self.build(search_args, optimize_mode="maximize"), self.trials)
            down, _ = self.run(self.build(search_args, optimize_mode="minimize"), self.trials, lambda c: -toy_reward(c))
            assert up == down

    def test_the_best_is_known(self) -> None:
        for mode, pick in (("maximize", max), ("minimize", min)):
            searcher = self.build(self.spaces[0], optimize_mode=mode)
            _, observations = self.run(searcher, 12)
            assert searcher.best is not None
            assert searcher.reward(searcher.best) == pick(one.values["acc"] for one in observations)

    def test_the_same_seed_and_results_give_the_same_proposals(self) -> None:
        for search_args in self.spaces:
            first, _ = self.run(self.build(search_args, seed=3), self.trials)
            second, _ = self.run(self.build(search_args, seed=3), self.trials)
            assert first == second

    def test_a_restored_search_goes_on_as_the_recorded_one(self) -> None:
        for search_args in self.spaces:
            original = self.build(search_args, seed=1)
            proposals, observations = self.run(original, self.trials - 5)
            proposals += [one for one in (original.propose(), original.propose()) if one is not None]
            # Through JSON, as a journal keeps them.
            recorded = [
                Proposal(p.number, *json.loads(json.dumps([p.config, p.budget, p.parent, p.notes]))) for p in proposals
            ]
            copy = self.build(search_args, seed=1)
            copy.restore(observations, recorded)
            assert len(copy.pending) == len(original.pending)
            expected, got = original.propose(), copy.propose()
            if expected is None or got is None:
                assert expected is got
                continue
            assert got.number == expected.number
            assert _close(got.config, expected.config), (got.config, expected.config)

    def test_lag_makes_timing_irrelevant(self) -> None:
        for search_args in self.spaces:
            runs = []
            for newest_first in (False, True):
                searcher = self.build(search_args, seed=2, lag=4)
                proposals: list[Proposal] = []
                waiting: list[Proposal] = []
                while len(proposals) < self.trials:
                    if searcher.ready() and len(waiting) < 4:
                        proposal = searcher.propose()
                        if proposal is None:
                            break
                        proposals.append(proposal)
                        waiting.append(proposal)
                        continue
                    done = waiting.pop(-1 if newest_first else 0)
                    searcher.observe(Observation(done.number, values={"acc": toy_reward(done.config)}))
                runs.append(proposals)
            assert runs[0] == runs[1]

    def test_lag_refuses_to_propose_too_early(self) -> None:
        searcher = self.build(self.spaces[0], lag=2)
        searcher.propose()
        searcher.propose()
        assert not searcher.ready()
        with pytest.raises(NotReady):
            searcher.propose()


def _close(a: dict[str, Any], b: dict[str, Any]) -> bool:
    """The same configuration, up to the rounding of a model that saw its data in another order."""
    if list(a) != list(b):
        return False
    for name, value in a.items():
        other = b[name]
        if isinstance(value, float) and isinstance(other, float):
            if not math.isclose(value, other, rel_tol=1e-3, abs_tol=1e-6):
                return False
        elif value != other:
            return False
    return True
