"""What a run is, without its points: name, status, attempts, settings, the last value of each series.

A summary can be stored as JSON and gone on with later, so a list of thousands of runs reads only what
was appended since. It needs numpy only where new points came.

What people said of a run after it was recorded (a note, tags added and removed) lies as small messages in its
``inbox``, since nobody but a run's own processes writes its segments. The messages stay there; whoever reads the run
reads them too, oldest first.
"""

from __future__ import annotations

import json
import os
import time
from collections.abc import Sequence
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import Any

from operant._util.files import open_regular
from operant.errors import UsageError
from operant.status import Status
from operant.tracking.format.blocks import Block
from operant.tracking.format.segments import RunLog, Segment
from operant.tracking.identity import is_alive
from operant.tracking.journal.inbox import collect_messages

LONGEST_NOTE = 64 << 10
LONGEST_TAG = 200
MOST_TAGS = 100
"""In one message."""
SILENT_SECONDS = 150.0  # five missed signs of life
_LARGEST_EXIT = 1 << 20


class Annotations:
    """The messages in one inbox, folded; read again only when the folder has changed."""

    def __init__(self) -> None:
        self.note = ""
        self._edits: list[tuple[list[str], list[str]]] = []
        self._mark: int | None = None

    def update(self, folder: Path, before: Sequence[dict[str, Any]] | None = None) -> bool:
        """Look whether messages came; return whether any may have. ``before`` are older ones that lie elsewhere
        (those of a search are in its journal) and have changed, or None."""
        try:
            mark = (folder / "inbox").stat().st_mtime_ns
        except OSError:
            mark = None
        if mark == self._mark and before is None:
            return False
        self._mark = mark
        self.note, self._edits = "", []
        waiting = collect_messages(folder, set_aside=False) if mark is not None else []
        for content in (*(before or ()), *(message.content for message in waiting)):
            self.fold(content)
        return True

    def fold(self, content: dict[str, Any]) -> None:
        """Take in one message; what is none of these is passed over."""
        if content["type"] == "note" and isinstance(content.get("text"), str):
            self.note = content["text"]
        elif content["type"] == "tags":
            self._edits.append((_texts(content.get("add")), _texts(content.get("remove"))))

    def apply(self, tags: list[str]) -> list[str]:
        """The tags that a program gave, with the changes."""
        if not self._edits:
            return tags
        changed = list(tags)
        for add, remove in self._edits:
            changed += [tag for tag in dict.fromkeys(add) if tag not in changed]
            changed = [tag for tag in changed if tag not in remove]
        return changed


def _texts(value: Any) -> list[str]:
    return [one for one in value if isinstance(one, str)] if isinstance(value, list) else []


@dataclass
class SeriesSummary:
    count: int = 0
    last_step: int = 0
    last_wall: float = float("-inf")
    last_value: float = 0.0


@dataclass
class RunSummary:
    id: str
    log: RunLog
    name: str = ""
    tags: list[str] = field(default_factory=list)
    params: dict[str, Any] = field(default_factory=dict)
    started: float | None = None
    command: list[str] = field(default_factory=list)
    resumes: dict[int, int | None] = field(default_factory=dict)
    """For each attempt after the first: the step it went on from (None: from the start)."""
    series: dict[str, SeriesSummary] = field(default_factory=dict)
    lost_points: int = 0

    @cached_property
    def annotations(self) -> Annotations:
        return Annotations()

    @property
    def labels(self) -> list[str]:
        """The tags, as the program gave them and people changed them since."""
        return self.annotations.apply(self.tags)

    @property
    def note(self) -> str:
        return self.annotations.note

    @property
    def attempt(self) -> int:
        return max([1, *self.resumes, *(one.attempt for one in self.log.segments.values())])

    @property
    def main(self) -> Segment | None:
        """The segment whose end is the run's end: the last file of the latest attempt's main process."""
        segments = self.log.segments.values()
        mains = [one for one in segments if one.role == "main"] or list(segments)
        return max(mains, key=lambda one: (one.attempt, one.started, one.name), default=None)

    @property
    def status(self) -> str:
        """RUNNING, FINISHED, STOPPED, ERROR, KILLED, or SILENT: elsewhere, without a sign of life for minutes."""
        main = self.main
        if main is None:
            return Status.RUNNING
        if main.end is not None:
            status: str = main.end["status"]
            return Status.STOPPED if status == Status.KILLED and self._was_stopped(main.attempt) else status
        alive = is_alive(main.process)
        if alive is None:
            return Status.SILENT if time.time() - main.mtime > SILENT_SECONDS else Status.RUNNING
        return Status.RUNNING if alive else Status.STOPPED if self._was_stopped(main.attempt) else Status.KILLED

    def _was_stopped(self, attempt: int) -> bool:
        """Whether it is a job's run, and its wrapper says that an assessor or a limit ended the job."""
        if self.log.folder.name != "run":
            return False
        try:
            with os.fdopen(open_regular(self.log.folder.parent / f"exit-{attempt}.json"), "rb") as stream:
                found = json.loads(stream.read(_LARGEST_EXIT))
        except (OSError, ValueError, RecursionError):
            return False
        return isinstance(found, dict) and found.get("reason") in ("assessor", "time_limits_per_job", "time_limit")

    @property
    def ended(self) -> float | None:
        """When it ended by its own word, or was last heard of if it was killed."""
        main = self.main
        if main is None:
            return None
        if main.end is not None:
            return float(main.end["wall"])
        over = self.status in (Status.KILLED, Status.STOPPED)
        return max(one.mtime for one in self.log.segments.values()) if over else None

    @property
    def error(self) -> str | None:
        main = self.main
        return main.end.get("error") if main is not None and main.end is not None else None

    def update(self) -> bool:
        """Fold in what was appended since; return whether anything was."""
        changed = self.annotations.update(self.log.folder)
        for segment, item in self.log.poll():
            changed = True
            if isinstance(item, Block):
                self._fold_points(segment, item)
            else:
                self.fold_record(item)
        return changed

    def fold_record(self, record: dict[str, Any]) -> None:
        """Take in one record that the log gave."""
        match record.get("type"):
            case "start":
                if record["role"] == "main" and not self.command:
                    self.name = record["name"]
                    self.command = record.get("command", [])
                self.name = self.name or record["name"]
                wall = float(record["wall"])
                self.started = wall if self.started is None else min(self.started, wall)
                self._add_tags(record.get("tags", []))
            case "attempt":
                self.resumes[record["attempt"]] = record["resumed_from"]
            case "hparams":
                self.params.update(record["params"])
            case "tags":
                self._add_tags(record.get("add", []))
                removed = set(record.get("remove", ()))
                self.tags = [tag for tag in self.tags if tag not in removed]
            case "lost":
                self.lost_points += record["points"]

    def _add_tags(self, tags: list[str]) -> None:
        self.tags = list(dict.fromkeys([*self.tags, *tags]))

    def _fold_points(self, segment: Segment, block: Block) -> None:
        from operant.tracking.reading.run import last_points  # and numpy with it

        for number, count, (step, wall, value) in last_points(block):
            tag = segment.names.get(number)
            if tag is None:
                continue
            series = self.series.setdefault(tag, SeriesSummary())
            series.count += count
            if wall >= series.last_wall:
                series.last_step, series.last_wall, series.last_value = step, wall, value

    def to_json(self) -> dict[str, Any]:
        return {
            **{name: getattr(self, name) for name in ("id", "name", "tags", "params", "started", "command")},
            "lost_points": self.lost_points,
            "resumes": sorted(self.resumes.items()),
            "series": {tag: list(vars(one).values()) for tag, one in self.series.items()},
            "log": self.log.to_json(),
        }

    @classmethod
    def from_json(cls, folder: Path, state: dict[str, Any]) -> RunSummary:
        state = {
            **state,
            "log": RunLog.from_json(folder, state["log"]),
            "resumes": dict(map(tuple, state["resumes"])),
            "series": {tag: SeriesSummary(*numbers) for tag, numbers in state["series"].items()},
        }
        return cls(**state)


def summarize(folder: Path, run_id: str) -> RunSummary:
    """The summary of the run in ``folder``, read from its segments."""
    summary = RunSummary(run_id, RunLog(folder))
    summary.update()
    return summary


def check_annotation(content: Any) -> dict[str, Any]:
    """A message that says something of a run, with what belongs to it and nothing else; or what is wrong with it."""
    if not isinstance(content, dict) or content.get("type") not in ("note", "tags"):
        raise UsageError('of a run one can say {"type": "note", "text": …} or {"type": "tags", "add": …, "remove": …}')
    if content["type"] == "note":
        text = content.get("text")
        if not isinstance(text, str) or len(text) > LONGEST_NOTE:
            raise UsageError(f"a note is a text of at most {LONGEST_NOTE} characters")
        return {"type": "note", "text": text}
    edit: dict[str, Any] = {"type": "tags"}
    for which in ("add", "remove"):
        tags = content.get(which, [])
        if not isinstance(tags, list) or len(tags) > MOST_TAGS:
            raise UsageError(f"{which!r} is a list of at most {MOST_TAGS} tags")
        if not all(isinstance(tag, str) and 0 < len(tag) <= LONGEST_TAG for tag in tags):
            raise UsageError(f"a tag is a text of 1 to {LONGEST_TAG} characters")
        edit[which] = tags
    if not edit["add"] and not edit["remove"]:
        raise UsageError("give tags to add or to remove")
    return edit
