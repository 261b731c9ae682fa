"""The scheduler's own bookkeeping: jobs under way, and the proposals they belong to."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from operant.schedulers.planning.rewards import History, JobReader, RewardRule
from operant.searchers import Proposal

__all__ = ["MemoryReader", "ScheduledJob", "Trial", "job_id_of"]


def job_id_of(number: int, seed: int | None, *, check: bool = False) -> str:
    if check:
        return f"check-{number}-s{seed}"
    return str(number) if seed is None else f"{number}-s{seed}"


class ScheduledJob:
    """One job of the search; ``verdict`` is how it shall count once the site says that it has ended."""

    __slots__ = (
        "arg_dict", "attempt", "begun", "budget", "check", "command", "ended", "error", "id", "judged", "keep_work",
        "last_report", "name", "number", "reader", "reason", "retries", "reward", "seed", "started", "status", "token",
        "verdict",
    )  # fmt: skip

    def __init__(self, job_id: str, name: str, number: int, seed: int | None, arg_dict: Mapping[str, Any]) -> None:
        self.id = job_id
        self.name = name
        self.number = number
        self.seed = seed
        self.arg_dict = arg_dict
        self.command: list[str] = []
        self.budget: float | None = None
        self.check = False
        self.status = "PENDING"
        self.attempt = 0
        self.retries = 0
        self.keep_work = False
        self.token = ""
        self.reward: float | None = None
        self.reason: str | None = None
        self.error: str | None = None
        self.started: float | None = None
        self.ended: float | None = None
        self.begun: float | None = None
        self.last_report = 0.0
        self.judged = 0
        self.verdict: tuple[str, str] | None = None
        self.reader: JobReader | MemoryReader | None = None

    def __repr__(self) -> str:
        return f"ScheduledJob({self.id!r}, {self.status})"


class MemoryReader:
    """What a job shows when it has no files: a function of this process, or a simulation."""

    def __init__(self, rule: RewardRule) -> None:
        self.rule = rule
        self.values: Mapping[str, float] = {}
        self._points: dict[str, History] = {}

    def add(self, tag: str, step: int, value: float, wall: float) -> None:
        self._points.setdefault(tag, []).append({"iteration": step, "value": value, "created": round(wall * 1000)})

    def refresh(self, *, ended: bool = False) -> bool:
        return False

    def history(self, tag: str | None = None) -> History:
        return self._points.get(tag or self.rule.attribute, [])

    def latest(self, tag: str) -> float | None:
        history = self.history(tag)
        return float(history[-1]["value"]) if history else self.values.get(tag)

    def result(self) -> tuple[float | None, str | None]:
        reported = [float(point["value"]) for point in self.history()]
        if reported and self.rule.attribute not in self.values:
            return self.rule.reward_of(reported), None
        value = self.values.get(self.rule.attribute)
        return (None, f"it returned no {self.rule.attribute!r}") if value is None else (float(value), None)


class Trial:
    """A proposal whose jobs are not all done."""

    __slots__ = ("failed", "open", "proposal", "raced_out", "rewards", "statuses", "values", "waiting")

    def __init__(self, proposal: Proposal, waiting: list[int | None]) -> None:
        self.proposal = proposal
        self.waiting = waiting
        """Seeds that have not been started, in their order."""
        self.open: set[str] = set()
        self.rewards: dict[int | None, float] = {}
        self.statuses: list[str] = []
        self.values: Mapping[str, float] = {}
        self.failed: str | None = None
        self.raced_out = False

    @property
    def status(self) -> str:
        if self.failed is not None:
            return self.failed
        return "STOPPED" if self.raced_out or "STOPPED" in self.statuses or "PAUSED" in self.statuses else "FINISHED"
