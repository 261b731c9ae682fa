"""Whole searches in simulated time, for tests."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

from operant.schedulers.engine.scheduler import Outcome, Scheduler
from operant.schedulers.engine.state import SearchState, read_state
from operant.schedulers.planning.plan import SearchPlan, make_plan
from operant.sites import SimulatedClock, SimulatedSite, Simulation, Submission
from operant.tracking.journal import post_message

GRID = [{"type": "Categorical", "name": "x", "data": list(range(100))}]


def config(
    scheduler: dict[str, Any] | None = None, searcher: dict[str, Any] | None = None, **more: Any
) -> dict[str, Any]:
    return {
        "task": {"search_args": more.pop("search_args", GRID)},
        "searcher": {"type": "GridSearcher", "reward_attribute": "acc", **(searcher or {})},
        "scheduler": {"parallel_size": 2, **(scheduler or {})},
        **more,
    }


class World:
    """One simulated machine with one search on it; ``run`` may be called again to resume."""

    def __init__(self, folder: Path, cfg: dict[str, Any], behaviour: Callable[[Submission], Simulation]) -> None:
        self.folder = folder / "s"
        self.cfg = cfg
        self.clock = SimulatedClock()
        self.site = SimulatedSite(self.clock, behaviour)
        self.plan: SearchPlan | None = None
        self.scheduler: Scheduler | None = None

    def prepare(self, **options: Any) -> Scheduler:
        self.plan = make_plan(self.cfg, function=True)
        self.scheduler = Scheduler(self.plan, self.folder, self.site, clock=self.clock, **options)
        return self.scheduler

    def run(self, **options: Any) -> Outcome:
        return self.prepare(**options).run()

    def at(self, seconds: float, action: Callable[[], object]) -> None:
        """Do something while the search runs."""

        def act() -> list[object]:
            action()
            return []

        self.clock.plan(seconds, act)

    def tell(self, seconds: float, message: dict[str, Any]) -> None:
        self.at(seconds, lambda: post_message(self.folder, message))

    @property
    def state(self) -> SearchState:
        return read_state(self.folder)[0]

    @property
    def statuses(self) -> dict[str, str]:
        return {job.id: job.status for job in self.state.jobs.values()}


def by_x(seconds: float = 1.0, **more: Any) -> Callable[[Submission], Simulation]:
    """Each job takes ``seconds`` and has its setting x as reward."""
    return lambda job: Simulation(seconds, {"acc": float(job.config["x"])}, **more)
