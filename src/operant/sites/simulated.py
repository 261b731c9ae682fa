"""A machine that exists only in simulated time: whole searches in milliseconds, each second of them as planned."""

from __future__ import annotations

import heapq
import itertools
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from typing import Any

from operant.sites.base import Event, Found, Submission


class SimulatedClock:
    """Time passes only while someone waits, and then at once."""

    def __init__(self, start: float = 1000.0) -> None:
        self._now = start
        self._order = itertools.count()
        self._planned: list[tuple[float, int, Any]] = []

    def now(self) -> float:
        return self._now

    def wall(self) -> float:
        return 1_700_000_000.0 + self._now

    def put(self, item: Any) -> None:
        self.plan(0.0, item)

    def plan(self, delay: float, item: Any) -> None:
        """Let ``item`` arrive in the mailbox after ``delay`` seconds."""
        heapq.heappush(self._planned, (self._now + delay, next(self._order), item))

    def has_mail(self) -> bool:
        return bool(self._planned) and self._planned[0][0] <= self._now

    def wait(self, timeout: float | None) -> list[Any]:
        if timeout is None and not self._planned:
            raise RuntimeError("the scheduler waits without limit, but nothing will ever happen")
        until = self._now + timeout if timeout is not None else self._planned[0][0]
        if self._planned and self._planned[0][0] <= until:
            self._now = max(self._now, self._planned[0][0])
        else:
            self._now = max(self._now, until)
        items: list[Any] = []
        while self._planned and self._planned[0][0] <= self._now:
            item = heapq.heappop(self._planned)[2]
            items += item() if callable(item) else [item]
        return items


@dataclass
class Simulation:
    """What one simulated attempt does."""

    seconds: float = 1.0
    values: dict[str, float] = field(default_factory=dict)
    code: int = 0
    reports: Sequence[tuple[float, str, int, float]] = ()
    """(seconds after its start, tag, step, value)"""
    ignores_cancel_for: float = 0.0
    never_ends: bool = False
    error: str | None = None


class SimulatedSite:
    """Runs what ``behaviour(submission)`` says. ``submitted`` lists all attempts, ``peak`` how many ran at once."""

    outlives_controller = False
    takes_configs = True

    def __init__(self, clock: SimulatedClock, behaviour: Callable[[Submission], Simulation]) -> None:
        self.clock = clock
        self.behaviour = behaviour
        self.submitted: list[Submission] = []
        self.cancelled: list[tuple[str, str]] = []
        self.running: dict[str, tuple[Submission, Simulation, float]] = {}
        self.peak = 0
        self.records: dict[str, dict[str, Any]] = {}
        self._emit: Callable[[Event], None] = lambda event: None

    def start(self, emit: Callable[[Event], None]) -> None:
        self._emit = emit

    def submit(self, jobs: Sequence[Submission]) -> list[str]:
        for job in jobs:
            plan = self.behaviour(job)
            self.submitted.append(job)
            self.running[job.token] = (job, plan, self.clock.wall())
            self.peak = max(self.peak, len(self.running))
            self.clock.plan(0.0, lambda job=job: self._if_running(job.token, "started", {"wall": self.clock.wall()}))
            for after, tag, step, value in plan.reports:
                info = {"tag": tag, "step": step, "value": value}
                self.clock.plan(after, lambda job=job, info=info: self._if_running(job.token, "report", info))
            if not plan.never_ends:
                self.clock.plan(plan.seconds, lambda job=job: self._end(job.token, None))
        return [job.token for job in jobs]

    def cancel(self, tokens: Iterable[str], reason: str = "cancelled", grace: float | None = None) -> None:
        for token in tokens:
            if token in self.running:
                self.cancelled.append((token, reason))
                delay = min(self.running[token][1].ignores_cancel_for, 5.0 if grace is None else grace)
                self.clock.plan(delay, lambda token=token: self._end(token, reason))

    def find(self, tokens: Sequence[str]) -> dict[str, Found]:
        found = {}
        for token in tokens:
            record = self.records.get(token)
            found[token] = Found("unknown", {}) if record is None else Found("ended", record)
        return found

    def close(self) -> None:
        self.running.clear()

    def _if_running(self, token: str, kind: str, info: dict[str, Any]) -> list[Event]:
        return [Event(kind, token, info)] if token in self.running else []

    def _end(self, token: str, reason: str | None) -> list[Event]:
        if token not in self.running:
            return []
        _, plan, began = self.running.pop(token)
        record: dict[str, Any] = {
            "code": plan.code if reason is None else None,
            "signal": None if reason is None else 15,
            "reason": reason,
            "error": plan.error,
            "started": began,
            "ended": self.clock.wall(),
        }
        if reason is None and plan.code == 0:
            record["values"] = dict(plan.values)
        self.records[token] = record
        return [Event("ended", token, record)]
