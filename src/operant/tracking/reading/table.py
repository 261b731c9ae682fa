"""All runs of a folder, kept up to date in memory: for whoever looks at the list again and again."""

from __future__ import annotations

import threading
import time
from dataclasses import dataclass, replace
from pathlib import Path

from operant.tracking.places import iter_run_dirs
from operant.tracking.reading.index import Index, RunRow, has_ended, row_of, stamp
from operant.tracking.reading.summary import RunSummary, summarize

__all__ = ["RunTable"]

_STORE_SECONDS = 5.0
_STORE_ROWS = 200


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
