"""Everything one server shares between its requests, and how far each page has read of it."""

from __future__ import annotations

import re
import secrets
import socket
import threading
from collections import OrderedDict
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from operant.tracking.reading.index import RunTable
from operant.tracking.reading.metrics import Rates
from operant.web.cache import RunCache, SearchCache

_MOST_RESULTS = 128
_CURSOR = re.compile(r"([0-9a-f]{8})((?:\.[sr][0-9]{1,18}){0,2})")
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
        self.rates = Rates()
        """How far each run under way was when it was last measured."""
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


@dataclass
class Cursor:
    """How far a page has read, as a short text that it hands back: `<server>.s<version>.r<arrival>`.

    ``search`` is a version of a search, ``runs`` a place in the order in which points arrived at the server.
    """

    instance: str
    search: int | None = None
    runs: int | None = None

    def __str__(self) -> str:
        search = "" if self.search is None else f".s{self.search}"
        return f"{self.instance}{search}" + ("" if self.runs is None else f".r{self.runs}")

    @classmethod
    def parse(cls, text: str, instance: str) -> Cursor:
        """What the text (or several with commas between them) says; nothing if another server gave it."""
        cursor = cls(instance)
        for part in text.split(","):
            found = _CURSOR.fullmatch(part.strip())
            if found is None or found[1] != instance:
                continue
            for one in found[2].split(".")[1:]:
                if one[0] == "s":
                    cursor.search = int(one[1:])
                else:
                    cursor.runs = int(one[1:])
        return cursor
