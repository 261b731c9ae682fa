"""A list of all runs without reading them all: summaries kept in SQLite, in the local cache.

The index is derived. Writers never open it, one process at a time updates it, and deleting it loses
nothing: the next look at the runs makes it again. :class:`RunTable` keeps the list in memory, for whoever looks at it
again and again.
"""

from __future__ import annotations

import fcntl
import json
import os
import sqlite3
import threading
import time
import zlib
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from operant.status import Status
from operant.tracking.format.segments import SEGMENT_NAME, RunLog
from operant.tracking.places import cache_dir, iter_run_dirs, root_key
from operant.tracking.reading.summary import RunSummary, summarize

_VERSION = 3
_STORE_SECONDS = 5.0
_STORE_ROWS = 200
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
            except (sqlite3.DatabaseError, TypeError, ValueError, MemoryError):
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
    except (sqlite3.DatabaseError, ValueError, MemoryError):  # the last: a length that is none
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


@dataclass
class _Entry:
    stamp: str
    row: RunRow
    summary: RunSummary | None = None
    """Kept while the run goes on, so that only what was appended is read."""


class RunTable:
    """Rows of every run below ``root``. :meth:`refresh` looks what has changed; :meth:`rows` never waits for it."""

    def __init__(self, root: Path) -> None:
        self.root = root
        self.unread = 0
        """How many runs were seen but not read yet."""
        self._index = Index(root)
        self._entries: dict[str, _Entry] | None = None
        self._stored: dict[str, tuple[str, RunRow | None]] = {}
        self._unsaved: dict[str, tuple[str, RunSummary]] = {}
        self._gone: set[str] = set()
        self._saved_at = 0.0
        self._refreshing = threading.Lock()
        self._shown: list[RunRow] = []

    def rows(self) -> list[RunRow]:
        """Every run as of the last look, the newest first."""
        return self._shown

    def refresh(self, seconds: float | None = None) -> bool:
        """Look at every run; return whether any row is different.

        After ``seconds`` no more runs are read that were never read before: their rows have only a name until
        the next look, and ``unread`` says how many there are.
        """
        with self._refreshing:
            return self._refresh(seconds)

    def _refresh(self, seconds: float | None) -> bool:
        deadline = None if seconds is None else time.monotonic() + seconds
        if self._entries is None:
            self._stored = self._index.load()
            self._entries = {}
        entries, changed = self._entries, False
        folders = dict(iter_run_dirs(self.root))
        rows, unread = [], 0
        for run_id, folder in folders.items():
            entry = entries.get(run_id)
            if entry is None:
                late = deadline is not None and time.monotonic() > deadline
                entry = self._first_look(run_id, folder, late)
                if entry is None:
                    unread += 1
                    rows.append(RunRow(run_id, run_id, "UNREAD", None, None, []))
                    continue
                entries[run_id] = entry
                changed = True
            else:
                changed |= self._look_again(run_id, folder, entry)
            rows.append(entry.row)
        for run_id in entries.keys() - folders.keys():
            del entries[run_id]
            self._gone.add(run_id)
            changed = True
        changed |= unread != self.unread
        if changed:
            self._shown = sorted(rows, key=lambda row: (row.started or 0.0, row.id), reverse=True)
        self.unread = unread
        self._save(final=unread == 0)
        return changed

    def under_way(self) -> list[RunSummary]:
        """The summaries of runs that have not said that they ended."""
        return [one.summary for one in list((self._entries or {}).values()) if one.summary is not None]

    def save(self) -> None:
        """Write what was read to the index."""
        with self._refreshing:
            self._saved_at = 0.0
            self._save(final=True)

    def _first_look(self, run_id: str, folder: Path, late: bool) -> _Entry | None:
        mark = stamp(folder)
        stored = self._stored.pop(run_id, None)
        if stored is not None and stored[0] == mark and stored[1] is not None:
            return _Entry(mark, stored[1])
        if late:
            if stored is not None:
                self._stored[run_id] = stored
            return None
        summary = summarize(folder, run_id) if stored is None else self._index.summary(run_id, folder)
        self._unsaved[run_id] = (mark, summary)
        return _Entry(mark, row_of(summary), None if has_ended(summary) else summary)

    def _look_again(self, run_id: str, folder: Path, entry: _Entry) -> bool:
        mark = stamp(folder)
        if mark == entry.stamp:
            if entry.summary is None:
                return False
            status = entry.summary.status
            if status == entry.row.status:
                return False
            entry.row = replace(entry.row, status=status, ended=entry.summary.ended)
            return True
        summary = entry.summary or self._index.summary(run_id, folder)
        summary.update()
        before = entry.row
        entry.stamp, entry.row = mark, row_of(summary)
        entry.summary = None if has_ended(summary) else summary
        self._unsaved[run_id] = (mark, summary)
        return entry.row != before

    def _save(self, *, final: bool) -> None:
        if not self._unsaved and not self._gone:
            return
        due = time.monotonic() - self._saved_at >= _STORE_SECONDS and (final or len(self._unsaved) >= _STORE_ROWS)
        if not due:
            return
        self._saved_at = time.monotonic()
        self._index.store([(run_id, *found) for run_id, found in self._unsaved.items()], self._gone)
        self._unsaved.clear()
        self._gone.clear()
