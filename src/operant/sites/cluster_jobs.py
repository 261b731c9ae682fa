"""What is known of jobs that run elsewhere: the site's word, and on disk batches, claims and exit files."""

from __future__ import annotations

import json
import signal
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from operant._util.files import write_file
from operant.errors import OperantError
from operant.sites import wrapper
from operant.sites.base import Limits, Submission, parse_token
from operant.sites.local import read_exit, spec_of

TIMES_MISSED = 3
CANCELLED_WAIT = 5.0
_SKEW_SECONDS = 30.0
_WRAPPER_BYTES = 64 << 20


class SiteAwayError(OperantError):
    """The site cannot answer now, or is full; what was asked of it is asked again."""


class SiteRefusedError(OperantError):
    """The site will never take this."""


@dataclass(frozen=True, slots=True)
class SiteJob:
    """A site's word on one job."""

    batch: str
    index: int
    id: str
    """What the site's own commands call it."""
    state: str
    """``waiting``, ``running``, ``ending`` or ``ended``."""
    node: str = ""
    words: str = ""
    """State and reason, for people."""
    reason: str | None = None
    """Of an end that was not the program's own: ``time_limit``, ``preempted``, ``node_failed``, ``memory_limit`` …"""


@dataclass(slots=True)
class Batch:
    """Jobs that are launched by one call."""

    name: str
    jobs: list[Submission]
    list_file: Path
    """One line for each job: the path of its spec."""
    restart: int = 0
    """Added to the site's own count of restarts."""


@dataclass(slots=True)
class Attempt:
    """What its site knows of an attempt that is not over."""

    token: str
    folder: Path
    number: int
    submission: Submission | None
    batch: str = ""
    index: int = 0
    launched: bool = False
    id: str = ""
    started: bool = False
    cancelled: str | None = None
    held: Mapping[str, Any] | None = None
    """How it ended by a signal that nobody here sent: the site has to say whether that was the end."""
    word: SiteJob | None = None
    missed: int = 0
    gone_since: float | None = None
    restarts: int = 0
    told: tuple[str, str, str] = ("", "", "")

    def place(self, node: str = "") -> tuple[str, str, str]:
        """What the site calls it, its node, and why it waits."""
        word = self.word
        where = (word.node if word is not None else "") or node or self.told[1]
        return self.id, where, word.words if word is not None and word.state == "waiting" else ""

    def gone(self, kind: str, explain: Callable[[SiteJob], str]) -> tuple[str, str | None] | None:
        """The words and the reason with which the site says that it is over, if it does."""
        word = self.word
        if self.missed >= TIMES_MISSED:
            seen = "" if word is None else f"; it was last seen as {word.id}, {word.words or word.state}"
            return f"it has vanished from the queue of {kind}{seen}", None
        if word is not None and word.state == "ended":
            return f"{kind} says of {word.id}: {word.words}{explain(word)}", word.reason
        if word is not None:
            self.gone_since = None
            if word.state == "waiting":  # the site starts it again by itself
                self.held = None
        return None

    def waited(self, now: float, seconds: float) -> bool:
        """Whether its exit file has been waited for long enough."""
        if self.gone_since is None:
            self.gone_since = now
        return now - self.gone_since >= (seconds if self.cancelled is None else min(seconds, CANCELLED_WAIT))


@dataclass(slots=True)
class Todo:
    """What waits for the thread that talks to the site."""

    jobs: list[Attempt] = field(default_factory=list)
    batches: list[list[Attempt]] = field(default_factory=list)
    """Written down, not yet launched; the first may have been tried."""
    ends: list[Attempt] = field(default_factory=list)
    strays: set[str] = field(default_factory=set)


def write_batch(place: Path, batch: Batch, extras: Mapping[str, Any]) -> None:
    """Write down what is about to be launched; whoever resumes finds each token's place in it."""
    paths = []
    for job in batch.jobs:
        path = job.folder / f"spec-{job.attempt}.json"
        path.touch(0o600)  # environments hold secrets
        spec = {**spec_of(job), **extras, "notices": str(place / "notices")}
        spec["env"] = {**extras.get("env", {}), **job.env}
        path.write_text(json.dumps(spec), encoding="utf-8")
        paths.append(str(path))
    write_file(batch.list_file, "".join(f"{path}\n" for path in paths))
    tokens = [job.token for job in batch.jobs]
    write_file(place / f"{batch.name}.json", json.dumps({"tokens": tokens, "restart": batch.restart}), sync=True)


def read_batches(place: Path) -> dict[str, tuple[str, int, int]]:
    """(batch, index, restart) by token, as earlier controllers wrote them down."""
    found: dict[str, tuple[str, int, int]] = {}
    for path in place.glob("*.json"):
        batch = wrapper.read_json(str(path))
        restart = int(batch.get("restart", 0))
        for index, token in enumerate(batch.get("tokens", ())):
            if restart >= found.get(token, ("", 0, -1))[2]:
                found[token] = (path.stem, index, restart)
    return found


def submission_of(folder: Path, token: str) -> Submission | None:
    """What an earlier controller submitted."""
    job_id, number = parse_token(token)
    spec = wrapper.read_json(str(folder / f"spec-{number}.json"))
    if spec.get("token") != token:
        return None
    limits = Limits(spec["time_limit"], spec["memory_limit"], spec["output_limit"], spec["grace"])
    return Submission(token, job_id, number, spec["argv"], folder, Path(spec["cwd"]), spec["env"], limits)


def claim_never(folder: Path, token: str) -> bool:
    """Take an attempt that nobody has begun, so that nobody can; False where somebody has."""
    _, number = parse_token(token)
    never = f"{token}/never"
    if not folder.is_dir() or wrapper.claim(str(folder), number, never):
        return True
    return bool(wrapper.read_json(str(folder / f"claim-{number}")).get("token") == never)


def node_of(claimed: Mapping[str, Any]) -> str:
    """The machine of whoever claimed an attempt, as its site calls it where that is known."""
    return str(claimed.get("node") or claimed.get("host") or "")


def by_site(record: Mapping[str, Any]) -> bool:
    """Whether an end may not be the last word: by SIGTERM, which a site sends to all processes of a job that it
    preempts or whose time is over, to the program sometimes a moment before its wrapper."""
    reason = record.get("reason")
    if reason is not None:
        return reason in ("terminated", "requeued")
    return record.get("signal") == signal.SIGTERM or record.get("code") == 128 + signal.SIGTERM


def with_reason(record: Mapping[str, Any], cancelled: str | None) -> Mapping[str, Any]:
    """With the reason that was given here, where a signal of the site's came before the wrapper could read it."""
    return {**record, "reason": cancelled} if cancelled is not None and by_site(record) else record


def memory_for(job: Submission, setting: int | None) -> int | None:
    """Bytes that a site gives a job; without a setting its limit and a little more, so that it is ended by us."""
    limit = job.limits.memory_bytes
    return setting if setting is not None or limit is None else limit + _WRAPPER_BYTES


def with_memory(record: Mapping[str, Any], limit: int | None) -> Mapping[str, Any]:
    """With that reason, where a program was killed as it had about all the memory that its site lets it have."""
    peak = record.get("peak_bytes") or 0
    if limit is None or record.get("signal") != signal.SIGKILL or record.get("reason") or peak < 0.9 * limit:
        return record
    words = f"the kernel killed it when its memory, {peak >> 20} MiB, reached the {limit >> 20} MiB of its site"
    return {**record, "reason": "memory_limit", "error": words}


def exit_of(folder: Path, token: str) -> dict[str, Any] | None:
    """What the wrapper left. Times of a node whose clock is wrong are moved to when the file appeared."""
    _, number = parse_token(token)
    record = read_exit(folder, number)
    if record is None or record.get("token") != token:
        return None
    try:
        skew = (folder / f"exit-{number}.json").stat().st_mtime - float(record["ended"])
        if abs(skew) >= _SKEW_SECONDS:
            record = {**record, "started": record["started"] + skew, "ended": record["ended"] + skew}
    except (OSError, KeyError, TypeError, ValueError):
        pass
    return record
