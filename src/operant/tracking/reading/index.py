"""A list of all runs without reading them all: summaries kept in SQLite, in the local cache.

The index is derived. Writers never open it, one process at a time updates it, and deleting it loses
nothing: the next look at the runs makes it again.
"""

from __future__ import annotations

import fcntl
import json
import os
import sqlite3
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from operant.tracking.format.segments import segment_files
from operant.tracking.places import cache_dir, iter_run_dirs, root_key
from operant.tracking.reading.log import RunLog
from operant.tracking.reading.summary import RunSummary

__all__ = ["Index", "RunRow"]

_VERSION = 1
_SCHEMA = """
create table if not exists runs (
    id text primary key, stamp text, name text, status text, started real, ended real, tags text, state text
) without rowid
"""


@dataclass(frozen=True)
class RunRow:
    id: str
    name: str
    status: str
    started: float | None
    ended: float | None
    tags: list[str]


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
                stamp = _stamp(folder)
                row = known.get(run_id)
                if row is None or row[0] != stamp or row[1] is None:
                    summary = self._summarize(database, run_id, folder, known=row is not None)
                    changed.append((run_id, stamp, summary))
                    rows.append(_row_of(summary))
                else:
                    rows.append(RunRow(run_id, *row[2:]))
            if writable and database is not None:
                _write(database, changed, gone=known.keys() - folders.keys())
        return sorted(rows, key=lambda row: (row.started or 0.0, row.id), reverse=True)

    @staticmethod
    def _summarize(database: sqlite3.Connection | None, run_id: str, folder: Path, known: bool) -> RunSummary:
        """Go on from the stored summary, or read the run from its start."""
        summary = RunSummary(run_id, RunLog(folder))
        if known and database is not None:
            (state,) = database.execute("select state from runs where id = ?", (run_id,)).fetchone()
            try:
                summary = RunSummary.from_json(folder, json.loads(state))
            except (KeyError, TypeError, ValueError):
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
            except sqlite3.DatabaseError:
                if not writable:
                    return None
                self.path.unlink(missing_ok=True)  # damaged: begin anew
        return None


def _stamp(folder: Path) -> str:
    """Changes whenever something was appended."""
    parts = []
    for path in segment_files(folder):
        try:
            stat = path.stat()
        except FileNotFoundError:
            continue
        parts.append(f"{path.name}:{stat.st_size}:{stat.st_mtime_ns}")
    return "|".join(parts)


def _row_of(summary: RunSummary) -> RunRow:
    return RunRow(summary.id, summary.name, summary.status, summary.started, summary.ended, summary.tags)


def _read(database: sqlite3.Connection | None) -> dict[str, tuple[Any, ...]]:
    """(stamp, final status or None, name, status, started, ended, tags) of every run in the index."""
    if database is None:
        return {}
    found: dict[str, tuple[Any, ...]] = {}
    try:
        for run_id, stamp, name, status, started, ended, tags in database.execute(
            "select id, stamp, name, status, started, ended, tags from runs"
        ):
            found[run_id] = (stamp, status, name, status, started, ended, json.loads(tags))
    except (sqlite3.DatabaseError, ValueError):
        return {}
    return found


def _write(database: sqlite3.Connection, changed: list[tuple[str, str, RunSummary]], gone: set[str]) -> None:
    rows = []
    for run_id, stamp, one in changed:
        # How a run ended is final; whether a process still lives must be asked again each time.
        said = one.main.end if one.main is not None else None
        status = one.status if said is not None else None
        state = json.dumps(one.to_json())
        rows.append((run_id, stamp, one.name, status, one.started, one.ended, json.dumps(one.tags), state))
    try:
        with database:
            database.executemany("insert or replace into runs values (?, ?, ?, ?, ?, ?, ?, ?)", rows)
            database.executemany("delete from runs where id = ?", [(run_id,) for run_id in gone])
    except sqlite3.DatabaseError:
        pass  # a full cache disk: the list was still right
