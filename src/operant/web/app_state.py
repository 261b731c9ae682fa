"""Everything one server shares between its requests."""

from __future__ import annotations

import secrets
import socket
import threading
from collections import OrderedDict
from collections.abc import Callable
from pathlib import Path
from typing import Any

from operant.tracking.reading.table import RunTable
from operant.web.cache import RunCache, SearchCache

__all__ = ["AppState"]

_MOST_RESULTS = 128
LOOK_SECONDS = 0.25
"""How long a request waits for runs that were never read; the rest are read behind it."""


class AppState:
    def __init__(self, root: Path) -> None:
        self.root = root
        self.project = root.resolve().parent.name
        self.host = socket.gethostname()
        self.instance = secrets.token_hex(4)
        """Tells this server's cursors from those of the one before it."""
        self.runs = RunCache(root)
        self.searches = SearchCache(root)
        self.table = RunTable(root)
        self.list_version = 0
        """Goes up whenever the lists of searches and runs are different."""
        self.search_versions: list[tuple[str, int]] = []
        self.rates: dict[str, tuple[float, int]] = {}
        """When each run under way was last measured, and the step it had reached."""
        self._results: OrderedDict[Any, Any] = OrderedDict()
        self._lock = threading.Lock()
        self._closing = threading.Event()

    def remembered(self, key: Any, make: Callable[[], Any]) -> Any:
        """What ``make`` gave for this key the last time; the key says what it depends on."""
        with self._lock:
            if key in self._results:
                self._results.move_to_end(key)
                return self._results[key]
        found = make()
        with self._lock:
            self._results[key] = found
            while len(self._results) > _MOST_RESULTS:
                self._results.popitem(last=False)
        return found

    def forget_rates(self, kept: set[str]) -> None:
        for run_id in self.rates.keys() - kept:
            del self.rates[run_id]

    def start(self) -> None:
        """Begin to read the runs, so that the list is there when somebody asks for it."""
        threading.Thread(target=self._read_all, name="operant-index", daemon=True).start()

    def close(self) -> None:
        self._closing.set()
        self.table.save()

    def _read_all(self) -> None:
        self.table.refresh(LOOK_SECONDS)
        while self.table.unread and not self._closing.is_set():
            self.table.refresh(LOOK_SECONDS)
