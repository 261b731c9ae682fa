"""What goes between a scheduler and the place where its jobs run."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, NamedTuple, Protocol

from operant.registry import Registry

__all__ = ["SITES", "Event", "Found", "Limits", "Site", "Submission", "make_token", "parse_token"]

SITES = Registry("site", "operant.sites")
SITES.declare("local", "operant.sites.local:LocalSite")
SITES.declare("slurm", "operant.sites.slurm:SlurmSite")


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
    """A place where jobs run. It pushes events; nobody has to ask it anything in between."""

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
