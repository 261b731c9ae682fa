"""What goes between a scheduler and the place where its jobs run, and the time both live in."""

from __future__ import annotations

import queue
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, NamedTuple, Protocol

from operant.errors import ConfigError
from operant.registry import Registry

SITES = Registry("site", "operant.sites")
SITES.declare("local", "operant.sites.local:LocalSite")
SITES.declare("slurm", "operant.sites.slurm:SlurmSite")
SITES.declare("container", "operant.sites.container:ContainerSite")
SITES.declare("kubernetes", "operant.sites.kubernetes:KubernetesSite")
SITES.declare("ray", "operant.sites.ray:RaySite")


def site_settings(given: Any) -> dict[str, Any]:
    """A site as a mapping with its ``type``: from that, from its name, or from nothing, which means this machine."""
    if given is None:
        return {"type": "local"}
    if isinstance(given, str):
        return {"type": given}
    if not isinstance(given, Mapping):
        raise ConfigError(f"a site is a name, or a mapping with a `type`, not {given!r}")
    return {str(key): value for key, value in given.items()}


@dataclass(frozen=True, slots=True)
class Limits:
    """What one job may use."""

    seconds: float | None = None
    memory_bytes: int | None = None
    output_bytes: int = 16 << 20
    """Of each of stdout and stderr: the first and the last half of this are kept."""
    grace_seconds: float = 5.0
    """Between asking a job to end and ending it."""


@dataclass(slots=True)
class Submission:
    """One attempt of one job, as a site gets it."""

    token: str
    job_id: str
    attempt: int
    argv: list[str]
    folder: Path
    """The job's folder: claim, exit file, stdout and stderr, and its run."""
    work: Path
    """Where the program runs."""
    env: Mapping[str, str] = field(default_factory=dict)
    limits: Limits = Limits()
    config: Mapping[str, Any] = field(default_factory=dict)
    """The job's settings, for sites that run a function instead of a program."""


class Event(NamedTuple):
    """What a site says of an attempt: ``started``, ``report``, ``ended``, or ``lost`` (nobody knows how it ended).

    A ``report`` tells ``tag``, ``step`` and ``value``, and may have a ``handled`` that is set once it was looked at.
    An end tells what is known of ``code``, ``reason``, ``error``, ``signal``, ``started`` and ``ended``; that of a call
    also its ``values`` by name, what it ``returned``, and the ``verdict`` (status, reason) that it gave on itself.
    """

    kind: str
    token: str
    info: Mapping[str, Any]


class Found(NamedTuple):
    """What a site knows of an attempt that an earlier controller may have submitted."""

    state: str
    """``ended`` (there is a record), ``running`` (events will come), or ``unknown`` (never started, or lost)."""
    record: Mapping[str, Any]


class Site(Protocol):
    """A place where jobs run. It pushes events; nobody has to ask it anything in between.

    The controller's thread makes all calls: `start`, then `find` when a search is gone on with, `submit` and `cancel`
    as it goes, `close` in the end, also after an error.
    """

    outlives_controller: bool
    """Whether jobs go on when their controller dies."""

    def start(self, emit: Callable[[Event], None]) -> None:
        """Make ready; ``emit`` may be called from any thread."""

    def submit(self, jobs: Sequence[Submission]) -> list[Any]:
        """Start these attempts and return a handle for each; what becomes of them comes as events."""

    def cancel(self, tokens: Iterable[str], reason: str = "cancelled", grace: float | None = None) -> None:
        """End these attempts; their ``ended`` event still comes."""

    def find(self, tokens: Sequence[str]) -> dict[str, Found]:
        """What became of attempts that an earlier controller submitted, or meant to."""

    def close(self) -> None:
        """End what still runs and let go."""


def make_token(job_id: str, attempt: int, secret: str) -> str:
    return f"{job_id}/{attempt}/{secret}"


def parse_token(token: str) -> tuple[str, int]:
    """The job and the attempt that a token stands for."""
    job_id, attempt, _ = token.split("/")
    return job_id, int(attempt)


class Clock(Protocol):
    """Time and the mailbox in one, because waiting is what both are about."""

    def now(self) -> float:
        """Seconds that never go back; limits are measured on it."""

    def wall(self) -> float:
        """Seconds since 1970, for people."""

    def put(self, item: Any) -> None:
        """Add to the mailbox; from any thread."""

    def has_mail(self) -> bool:
        """Whether there is anything in the mailbox."""

    def wait(self, timeout: float | None) -> list[Any]:
        """All that is in the mailbox, as soon as there is anything; nothing after ``timeout`` seconds."""


class SystemClock:
    """The time of this machine."""

    now = staticmethod(time.monotonic)
    wall = staticmethod(time.time)

    def __init__(self) -> None:
        self._items: queue.SimpleQueue[Any] = queue.SimpleQueue()
        self.put = self._items.put

    def has_mail(self) -> bool:
        return not self._items.empty()

    def wait(self, timeout: float | None) -> list[Any]:
        items: list[Any] = []
        try:
            if timeout is not None and timeout <= 0:
                items.append(self._items.get_nowait())
            else:
                items.append(self._items.get(timeout=timeout))
            while True:
                items.append(self._items.get_nowait())
        except queue.Empty:
            return items
