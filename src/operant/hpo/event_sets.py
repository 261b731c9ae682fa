"""Who wants to hear what a search does: callbacks, and the lines and tables that it logs by itself."""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping, Sequence
from typing import Any, NamedTuple

from operant.hpo.history import History, show

logger = logging.getLogger("operant.hpo")


class Task(NamedTuple):
    """A trial, as event sets see it."""

    task_id: int
    config: Any


class TrialResult(NamedTuple):
    """A good end of a trial."""

    retval: Any
    metrics: Mapping[str, Any]
    target: float | None


class RunnerEventSet:
    """Override what you want to hear of. All methods are called in the thread that runs the search."""

    def init(self, searcher: str, settings: Mapping[str, Any], func: Callable[..., Any]) -> None: ...

    def init_ok(self, target_name: str, params: Sequence[str], concerns: Sequence[tuple[str, Any]]) -> None: ...

    def run_start(self) -> None: ...

    def run_complete(self, is_cond_meet: bool) -> None: ...

    def step(self, task: Task) -> None:
        """A trial begins."""

    def step_ok(self, task: Task, result: TrialResult) -> None: ...

    def step_fail(self, task: Task, error: str) -> None: ...

    def step_skip(self, task: Task, error: str) -> None: ...

    def step_final(self, task: Task, ranklist: History) -> None:
        """After each of the three above."""

    def try_(self, task: Task, try_id: int, max_try: int) -> None:
        """One attempt at a trial begins."""

    def try_complete(self, task: Task, metrics: Mapping[str, Any]) -> None: ...

    def try_ok(self, task: Task, retval: Any) -> None: ...

    def try_fail(self, task: Task, error: str) -> None: ...

    def try_skip(self, task: Task, error: str) -> None: ...


class LoggingEventSet(RunnerEventSet):
    """A line for each trial, and the table of the best at the end."""

    def __init__(self, rank: int, history: Callable[[], History], steps: int | None) -> None:
        self.rank = rank
        self._history = history
        self._of = "" if steps is None else f" of {steps}"

    def step_ok(self, task: Task, result: TrialResult) -> None:
        logger.info(
            "trial %d%s: %s %s (%.3g s) with %s",
            task.task_id,
            self._of,
            self._history().name,
            "none" if result.target is None else show(result.target),
            result.metrics.get("time", 0.0),
            task.config,
        )

    def step_fail(self, task: Task, error: str) -> None:
        logger.warning("trial %d%s failed: %s", task.task_id, self._of, error)

    def step_skip(self, task: Task, error: str) -> None:
        logger.info("trial %d%s was skipped: %s", task.task_id, self._of, error)

    def try_fail(self, task: Task, error: str) -> None:
        logger.debug("an attempt at trial %d failed: %s", task.task_id, error)

    def run_complete(self, is_cond_meet: bool) -> None:
        history = self._history()
        if is_cond_meet:
            logger.info("stop_when holds: no more trials")
        if not history.ranking(1):
            logger.warning("none of %d trials gave a result", len(history))
            return
        logger.info("the best of %d trials:\n%s", len(history), history.table(self.rank))
