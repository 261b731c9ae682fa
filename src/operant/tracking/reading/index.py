"""A list of all runs without reading them all: summaries kept in SQLite, in the local cache.

The index is derived. Writers never open it, one process at a time updates it, and deleting it loses
nothing: the next look at the runs makes it again.
"""

from __future__ import annotations

import fcntl
import json
import os
import sqlite3
import zlib
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from operant.status import Status
from operant.tracking.format.segments import SEGMENT_NAME
from operant.tracking.places import cache_dir, iter_run_dirs, root_key
from operant.tracking.reading.run_log import RunLog
from operant.tracking.reading.summary import RunSummary

__all__ = ["Index", "RunRow"]

_VERSION = 3
_SCHEMA = """
create table if not exists runs (
    id text primary key, stamp text, name text, status text, started real, ended real, tags text, note text,
    params text, last text, sum integer, state text
)
"""


@dataclass(frozen=True)
class RunRow:
    id: str
    name: str
    status: str
    started: float | None
    ended: float | None
    tags: list[str]
    note: str = ""
    params: dict[str, Any] = field(default_factory=dict)
    last: dict[str, float] = field(default_factory=dict)
    """The last value of each scalar."""


class Index:
    """The runs below one ``.operant`` folder."""

    def __init__(self, root: Path) -> None:
        self.root = root
        self.path = cache_dir() / "index" / f"{root_key(root)}-{_VERSION}.sqlite"

    def rows(self) -> list[RunRow]:
        """Every run as it stands now, the newest first."""
        folders = dict(iter_run_dirs(self.root))
        with self._opened() as (database, writable):
            known = _read(database)
            rows, changed = [], []
            for run_id, folder in folders.items():
                mark = stamp(folder)
                row = known.get(run_id)
                if row is None or row[0] != mark or row[1] is None:
                    summary = self._summarize(database, run_id, folder, known=row is not None)
                    changed.append((run_id, mark, summary))
                    rows.append(row_of(summary))
                else:
                    rows.append(row[1])
            if writable and database is not None:
                _write(database, changed, gone=known.keys() - folders.keys())
        return sorted(rows, key=lambda row: (row.started or 0.0, row.id), reverse=True)

    def load(self) -> dict[str, tuple[str, RunRow | None]]:
        """What is stored of each run: its stamp then, and its row if it had ended."""
        with self._opened() as (database, _):
            return _read(database)

    def summary(self, run_id: str, folder: Path) -> RunSummary:
        """The summary of one run, gone on with from where it was stored."""
        with self._opened() as (database, _):
            return self._summarize(database, run_id, folder, known=True)

    def store(self, changed: list[tuple[str, str, RunSummary]], gone: set[str]) -> None:
        """Keep (id, stamp, summary) of runs that changed; nothing happens while another process does."""
        with self._opened() as (database, writable):
            if writable and database is not None:
                _write(database, changed, gone)

    @staticmethod
    def _summarize(database: sqlite3.Connection | None, run_id: str, folder: Path, known: bool) -> RunSummary:
        """Go on from the stored summary, or read the run from its start."""
        summary = RunSummary(run_id, RunLog(folder))
        if known and database is not None:
            try:
                found = database.execute("select state from runs where id = ?", (run_id,)).fetchone()
                if found is not None and _checksum(found[0][8:]) == int(found[0][:8], 16):
                    summary = RunSummary.from_json(folder, json.loads(found[0][8:]))
            except (sqlite3.DatabaseError, TypeError, ValueError):
                pass
        summary.update()
        return summary

    @contextmanager
    def _opened(self) -> Iterator[tuple[sqlite3.Connection | None, bool]]:
        """The database and whether this process may write to it; (None, False) when there is no usable one."""
        try:
            self.path.parent.mkdir(parents=True, exist_ok=True)
            lock = os.open(self.path.with_suffix(".lock"), os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
        except OSError:  # no cache folder: every run is read as it is
            yield None, False
            return
        database: sqlite3.Connection | None = None
        try:
            try:
                fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
                writable = True
            except OSError:
                writable = False
            database = self._connect(writable)
            yield database, writable and database is not None
        finally:
            if database is not None:
                database.close()
            os.close(lock)

    def _connect(self, writable: bool) -> sqlite3.Connection | None:
        for _ in range(2):
            try:
                if not writable:
                    database = sqlite3.connect(f"file:{self.path}?mode=ro", uri=True, timeout=2)
                    database.execute("select count(*) from runs")
                    return database
                database = sqlite3.connect(self.path, timeout=2)
                database.execute("pragma synchronous = off")  # a lost index is made again
                database.execute(_SCHEMA)
                return database
            except (sqlite3.DatabaseError, UnicodeDecodeError):  # which may be in the message of the first
                if not writable:
                    return None
                self.path.unlink(missing_ok=True)  # damaged: begin anew
        return None


def _checksum(text: str) -> int:
    """SQLite's pages have none: without it a flipped bit would be another value in the list of runs."""
    return zlib.crc32(text.encode("utf-8", "surrogatepass"))


def stamp(folder: Path) -> str:
    """Changes whenever something was appended, or somebody left a note."""
    parts = []
    try:
        with os.scandir(folder) as entries:
            for entry in entries:
                if SEGMENT_NAME.fullmatch(entry.name) or entry.name == "inbox":
                    stat = entry.stat()
                    parts.append(f"{entry.name}:{stat.st_size}:{stat.st_mtime_ns}")
    except (FileNotFoundError, NotADirectoryError):
        return ""
    return "|".join(sorted(parts))


def row_of(summary: RunSummary) -> RunRow:
    last = {tag: one.last_value for tag, one in summary.series.items()}
    return RunRow(
        summary.id,
        summary.name,
        summary.status,
        summary.started,
        summary.ended,
        summary.labels,
        summary.note,
        summary.params,
        last,
    )


def has_ended(summary: RunSummary) -> bool:
    """How a run ended is final; whether a process still lives must be asked again each time."""
    main = summary.main
    if main is None or main.end is None:
        return False
    # A job that was told to end has its run's end before the wrapper's word on why.
    killed_job = main.end["status"] == Status.KILLED and summary.log.folder.name == "run"
    return not killed_job or (summary.log.folder.parent / f"exit-{main.attempt}.json").exists()


def _read(database: sqlite3.Connection | None) -> dict[str, tuple[str, RunRow | None]]:
    """Stamp of every run in the index, and the row of those that have ended."""
    if database is None:
        return {}
    found: dict[str, tuple[str, RunRow | None]] = {}
    columns = "id, stamp, name, status, started, ended, tags, note, params, last, sum"
    try:
        for *row, checksum in database.execute(f"select {columns} from runs"):
            if _checksum(repr(row)) != checksum:
                continue  # damaged: the run is read again
            run_id, mark, name, status, started, ended, tags, note, params, last = row
            texts = (json.loads(tags), note, json.loads(params), json.loads(last))
            found[run_id] = (mark, None if status is None else RunRow(run_id, name, status, started, ended, *texts))
    except (sqlite3.DatabaseError, ValueError):
        return {}
    return found


def _write(database: sqlite3.Connection, changed: list[tuple[str, str, RunSummary]], gone: set[str]) -> None:
    rows = []
    for run_id, mark, one in changed:
        row = row_of(one)
        status = row.status if has_ended(one) else None
        texts = (json.dumps(row.tags), row.note, json.dumps(row.params), json.dumps(row.last))
        values = [run_id, mark, row.name, status, row.started, row.ended, *texts]
        state = json.dumps(one.to_json())
        rows.append((*values, _checksum(repr(values)), f"{_checksum(state):08x}{state}"))
    try:
        with database:
            database.executemany(f"insert or replace into runs values ({', '.join('?' * 12)})", rows)
            database.executemany("delete from runs where id = ?", [(run_id,) for run_id in gone])
    except sqlite3.DatabaseError:
        pass  # a full cache disk: the list was still right
