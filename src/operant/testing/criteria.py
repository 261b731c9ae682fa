"""What every criterion must do, as tests: subclass one of these and say how to build yours."""

from __future__ import annotations

import copy
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from operant.schedulers import BaseFilterCriterion, BaseStopCriterion, Outcome, Scheduler, make_plan
from operant.schedulers.engine.records import JobRecord
from operant.schedulers.engine.state import SearchState, read_state
from operant.sites import SimulatedClock, SimulatedSite, Simulation
from operant.status import DONE, Status

_PROPOSALS = 200


def _simulated_search(
    folder: Path,
    configs: Sequence[dict[str, Any]],
    stop: BaseStopCriterion | None = None,
    filters: BaseFilterCriterion | None = None,
    **options: Any,
) -> tuple[Outcome, SearchState]:
    """A search of these configurations in simulated time, a second and a reward of its place each, two at a time."""
    args = [{"type": "Nested", "name": "row", "data": [dict(one) for one in configs]}]
    config = {
        "task": {"search_args": args},
        "searcher": {"type": "GridSearcher", "reward_attribute": "acc"},
        "scheduler": {"parallel_size": 2},
    }
    plan = make_plan(config, function=True)
    plan.stop.custom += [stop] if stop is not None else []
    plan.filter = filters
    clock = SimulatedClock()
    site = SimulatedSite(clock, lambda job: Simulation(1.0, {"acc": float(job.job_id)}))
    outcome = Scheduler(plan, folder, site, clock=clock, **options).run()
    return outcome, read_state(folder)[0]


class StopCriterionContract:
    """Subclass, override `build`, and pytest runs all of it.

    The searches run in simulated time: two jobs at once, a second each, with the rewards 0, 1, 2 and so on.
    """

    tries: int | None = None
    """After how many tries it ends such a search of 200 proposals; None where it depends on something else."""

    def build(self) -> BaseStopCriterion:
        raise NotImplementedError("override build() to make your criterion")

    def run(self, folder: Path, **options: Any) -> tuple[Outcome, SearchState]:
        configs = [{"x": place} for place in range(_PROPOSALS)]
        return _simulated_search(folder / "s", configs, stop=self.build(), **options)

    def test_a_search_with_it_ends_in_order(self, tmp_path: Path) -> None:
        outcome, state = self.run(tmp_path)
        assert outcome.status == Status.FINISHED and state.closed is not None
        assert all(job.status in DONE for job in state.jobs.values())
        assert self.tries is None or outcome.tries == self.tries

    def test_it_ends_the_search_at_the_same_place_each_time(self, tmp_path: Path) -> None:
        if self.tries is not None:
            assert self.run(tmp_path / "a")[0].tries == self.run(tmp_path / "b")[0].tries

    def test_a_search_that_it_has_ended_can_be_resumed(self, tmp_path: Path) -> None:
        before, _ = self.run(tmp_path)
        after, state = self.run(tmp_path, resume=True)
        assert after.tries >= before.tries and all(job.status in DONE for job in state.jobs.values())


class FilterCriterionContract:
    """Subclass, override `build`, `kept` and `dropped`, and pytest runs all of it."""

    kept: Sequence[dict[str, Any]] = ()
    """Some configurations that pass."""
    dropped: Sequence[dict[str, Any]] = ()
    """Some that do not."""

    def build(self) -> BaseFilterCriterion:
        raise NotImplementedError("override build() to make your criterion")

    def test_it_drops_what_it_should_and_nothing_else(self) -> None:
        criterion = self.build()
        assert self.kept and self.dropped, "give some configurations in `kept` and `dropped`"
        for configs, expected in ((self.kept, False), (self.dropped, True)):
            for config in configs:
                assert criterion.filter(JobRecord("0", 0, None, config)) is expected, config

    def test_it_answers_the_same_again_and_changes_nothing(self) -> None:
        criterion = self.build()
        for config in (*self.kept, *self.dropped):
            before = copy.deepcopy(config)
            job = JobRecord("0", 0, None, config)
            assert criterion.filter(job) == criterion.filter(job) and config == before

    def test_what_it_drops_costs_no_try(self, tmp_path: Path) -> None:
        outcome, state = _simulated_search(tmp_path / "s", [*self.dropped, *self.kept], filters=self.build())
        assert outcome.tries == len(self.kept) == len(state.jobs)
        assert sum(one.filtered for one in state.proposals.values()) == len(self.dropped)
