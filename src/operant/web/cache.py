"""What the server holds in memory: searches and runs that somebody looks at, the least used put away again."""

from __future__ import annotations

import os
import threading
from collections import OrderedDict, deque
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any, NamedTuple

from operant.schedulers.views.live import LiveSearch
from operant.schedulers.views.overview import list_searches
from operant.tracking import Run
from operant.tracking.journal.journal import JOURNAL_NAME
from operant.tracking.places import check_run_id, run_dir
from operant.tracking.reading.run import Points
from operant.web.answers import NotFound

MOST_BYTES = 768 << 20
MOST_RUNS = 2000
MOST_SEARCHES = 64
MOST_RECENT_POINTS = 200_000
_FIRST_RECORD = 512


def run_folder(root: Path, run_id: str) -> Path:
    """The folder of a run; one that a link leads to is none, wherever the link leads."""
    folder = run_dir(root, check_run_id(run_id))
    below = [folder, *(part for part in folder.parents if part.is_relative_to(root) and part != root)]
    if not folder.is_dir() or any(part.is_symlink() for part in below):
        raise NotFound(f"there is no run {run_id!r}")
    return folder


class Fresh(NamedTuple):
    """Points that arrived, with their place in the order of arrival."""

    cursor: int
    tag: str
    points: Points


class Arrivals:
    """Numbers what arrives, over all runs of a server."""

    def __init__(self) -> None:
        self.now = 0
        self._lock = threading.Lock()

    def next(self) -> int:
        with self._lock:
            self.now += 1
            return self.now


class OpenRun:
    """A run with the points of those tags that were asked for. Use it inside ``with run.lock``."""

    def __init__(self, run_id: str, folder: Path, cursors: Arrivals, tags: Iterable[str] = ()) -> None:
        self.id = run_id
        self.folder = folder
        self.lock = threading.RLock()
        self.readers = 0
        """Streams that follow it: it is not put away while there are any."""
        self.born = cursors.now
        """What arrived before was never seen here."""
        self.forgot = 0
        """Up to where points that arrived are no longer at hand."""
        self.arrived = 0
        self.status = ""
        self.recent: deque[Fresh] = deque()
        self._cursors = cursors
        self._recent_points = 0
        self.run = Run(folder, run_id, only=tags)

    def refresh(self, tags: Iterable[str] = ()) -> None:
        """Read what was appended, and the points of ``tags`` if they were passed over so far."""
        try:
            self._note(self.run.refresh())
            self.run.want(tags)
        except FileNotFoundError:  # compacted since: the same run in other files
            self.born = self._cursors.next()
            self.recent.clear()
            self._recent_points = 0
            self.run = Run(self.folder, self.id, only=tags)

    def since(self, cursor: int) -> list[Fresh]:
        return [one for one in self.recent if one.cursor > cursor]

    @property
    def held_bytes(self) -> int:
        return self.run.held_bytes

    def _note(self, fresh: dict[str, Points]) -> None:
        if not fresh:
            return
        cursor = self.arrived = self._cursors.next()
        for tag, points in fresh.items():
            self.recent.append(Fresh(cursor, tag, points[-MOST_RECENT_POINTS:]))
            self._recent_points += len(self.recent[-1].points)
        while self._recent_points > MOST_RECENT_POINTS and len(self.recent) > len(fresh):
            gone = self.recent.popleft()
            self._recent_points -= len(gone.points)
            self.forgot = gone.cursor


class RunCache:
    """Open runs, those not asked for longest are closed when they hold too much memory together."""

    def __init__(self, root: Path) -> None:
        self.root = root
        self._lock = threading.Lock()
        self._runs: OrderedDict[str, OpenRun] = OrderedDict()
        self._arrivals = Arrivals()

    @property
    def cursor(self) -> int:
        """The place in the order of arrival that was reached."""
        return self._arrivals.now

    def open(self, run_id: str, tags: Iterable[str] = ()) -> OpenRun:
        """The run; if it is opened for this, with the points of ``tags``, which then takes one reading and not two."""
        folder = run_folder(self.root, run_id)
        with self._lock:
            found = self._runs.get(run_id)
            if found is not None:
                self._runs.move_to_end(run_id)
                return found
        made = OpenRun(run_id, folder, self._arrivals, tags)
        with self._lock:
            found = self._runs.setdefault(run_id, made)
            self._runs.move_to_end(run_id)
        return found

    def tidy(self) -> None:
        """Close what was not asked for longest until the rest fits."""
        with self._lock:
            held = sum(one.held_bytes for one in self._runs.values())
            for run_id, one in list(self._runs.items()):
                if held <= MOST_BYTES and len(self._runs) <= MOST_RUNS:
                    return
                if one.readers == 0:
                    held -= one.held_bytes
                    del self._runs[run_id]

    def __len__(self) -> int:
        return len(self._runs)


class SearchCache:
    """Searches by name, each read once and then followed."""

    def __init__(self, root: Path) -> None:
        self.root = root
        self._lock = threading.Lock()
        self._searches: OrderedDict[str, tuple[tuple[int, bytes], LiveSearch, threading.RLock]] = OrderedDict()

    def names(self) -> list[str]:
        return [folder.name for folder in list_searches(self.root)]

    def open(self, name: str) -> tuple[LiveSearch, threading.RLock]:
        """The search, up to date, and the lock to hold while looking at it."""
        known = {folder.name: folder for folder in list_searches(self.root)}
        folder = known.get(name)
        if folder is None or folder.is_symlink():
            with self._lock:
                self._searches.pop(name, None)
            raise NotFound(f"there is no search {name[:80]!r}")
        # A search of the same name may have taken its place, even the inode; but it was not begun at the same time.
        with (folder / JOURNAL_NAME).open("rb") as journal:
            made = (os.fstat(journal.fileno()).st_ino, journal.read(_FIRST_RECORD))
        with self._lock:
            found = self._searches.get(name)
            if found is None or found[0] != made:
                found = self._searches[name] = (made, LiveSearch(folder), threading.RLock())
            self._searches.move_to_end(name)
            while len(self._searches) > MOST_SEARCHES:
                self._searches.popitem(last=False)
        _, search, lock = found
        with lock:
            search.refresh()
        return search, lock

    def settings_of(self, name: str, job_id: str) -> Mapping[str, Any]:
        """The settings of one job, as of the last look at its search; empty if it is not known."""
        with self._lock:
            found = self._searches.get(name)
        if found is None:
            try:
                self.open(name)
            except NotFound:
                return {}
            found = self._searches.get(name)
            if found is None:
                return {}
        state = found[1].state
        job = state.jobs.get(job_id)
        return {} if job is None else state.proposals[job.number].settings
