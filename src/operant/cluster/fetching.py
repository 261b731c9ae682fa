"""What a job records on a cluster comes home: its files are fetched as they grow, into the `.operant` folder here."""

from __future__ import annotations

import contextlib
import errno
import http.client
import json
import os
import re
import shutil
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any
from urllib.parse import urlencode

from operant._util.files import replacing, write_file

_PART = re.compile(r"[A-Za-z0-9_=+@,()\[\]-][\w .=+@,()\[\]-]{0,199}")
_ROOMS = ("runs", "searches")
_GROWING = (".seg", ".log", ".jsonl", "stdout", "stderr")
_MOST_FILES = 200_000
_MOST_LISTED = 64 << 20  # bytes
_CHUNK = 1 << 20
_SECONDS = 1.0
_DISK = (errno.ENOSPC, errno.EDQUOT, errno.EROFS, errno.EACCES)


class Fetcher:
    """Fetches from `home.py` until told to end, or until all of a program that has ended is here.

    What comes from a pod is data: it goes below `runs/` and `searches/`, and never over what was there before. What the
    disk has no room for is told once and asked for again; other files are fetched meanwhile.

    :param connect: gives host and port of the job's small server, or of where it may be: it is told how often fetching
        has failed, and may name another.
    :param known: a file that remembers which folders came from this job, so that fetching can be gone on with.
    """

    def __init__(
        self,
        root: Path,
        known: Path,
        token: str,
        connect: Callable[[int], tuple[str, int]],
        said: Callable[[str], None],
    ) -> None:
        self._root, self._known, self._token, self._connect, self._said = root, known, token, connect, said
        self._owned = set(_read(known).get("owned") or ())
        self._have: dict[str, tuple[int, int]] = {}
        self._failed = 0
        self._ends = threading.Event()
        self.complete = threading.Event()
        self._refused: set[str] = set()
        self.unwritten = ""
        """Why something of the job could not be written here when that was last tried."""
        self._thread = threading.Thread(target=self._run, name="operant-fetch", daemon=True)

    def start(self) -> None:
        self._thread.start()

    def close(self) -> None:
        self._ends.set()
        self._thread.join(10)

    def _run(self) -> None:
        while not self._ends.is_set():
            try:
                if self.fetch():
                    self.complete.set()
                    return
            except (OSError, http.client.HTTPException, ValueError, TypeError, LookupError, RecursionError):
                # Its pod is not up yet, or gone; the forward is being made anew; or what it says is nonsense.
                self._failed += 1
            self._ends.wait(5 * _SECONDS if self.unwritten else _SECONDS)

    def fetch(self) -> bool:
        """Get what is new; whether the program has ended and all of it is here."""
        connection = http.client.HTTPConnection(*self._connect(self._failed), timeout=10)
        with contextlib.closing(connection):
            listed = json.loads(self._ask(connection, "GET", "/list").read(_MOST_LISTED))
            unwritten = ""
            for path, size, changed in listed["files"][:_MOST_FILES]:
                if self._have.get(path) == (size, changed):
                    continue
                try:
                    if self._take(str(path)):
                        self._get(connection, path, int(size))
                        self._have[path] = (size, changed)
                except OSError as error:
                    if error.errno not in _DISK:
                        raise
                    unwritten = unwritten or f"{os.strerror(error.errno)} ({path})"
                    connection.close()  # what is left of an answer; the next question opens it again
            if unwritten and not self.unwritten:
                self._said(f"what the job records cannot be written to {self._root}: {unwritten}; it is tried again")
            self.unwritten = unwritten
            if listed["code"] is None or unwritten:
                return False
            self._ask(connection, "POST", "/done").read()
            return True

    def _take(self, path: str) -> bool:
        """Whether a file of the job's has a place here."""
        parts = path.split("/")
        if len(parts) < 3 or parts[0] not in _ROOMS or not all(_PART.fullmatch(part) for part in parts):
            return False
        top = "/".join(parts[:2])
        if top in self._owned:
            return True
        if (self._root / top).exists() or (self._root / top).is_symlink():
            if top not in self._refused:
                self._refused.add(top)
                self._said(f"{top} of the job is not fetched: there is one of that name here")
            return False
        write_file(self._known, json.dumps({**_read(self._known), "owned": sorted({*self._owned, top})}))
        self._owned.add(top)
        return True

    def _get(self, connection: http.client.HTTPConnection, path: str, size: int) -> None:
        target = self._root / path
        target.parent.mkdir(parents=True, exist_ok=True)
        here = target.lstat().st_size if target.exists() and path.endswith(_GROWING) else 0
        if here and here == size:
            return
        here = here if here < size else 0  # it is another one, and shorter
        _need_room(target.parent, size - here)
        answer = self._ask(connection, "GET", f"/file?{urlencode({'path': path, 'offset': here})}")
        _need_room(target.parent, answer.length or 0)  # it has grown since it was listed
        if here:
            descriptor = os.open(target, os.O_WRONLY | os.O_APPEND | os.O_NOFOLLOW | os.O_CLOEXEC)
            with os.fdopen(descriptor, "ab") as stream:
                _copy(answer, stream)
            return
        with replacing(target) as staged, staged.open("wb") as stream:
            _copy(answer, stream)

    def _ask(self, connection: http.client.HTTPConnection, method: str, path: str) -> http.client.HTTPResponse:
        connection.request(method, path, headers={"Authorization": f"Bearer {self._token}"})
        answer = connection.getresponse()
        if answer.status != 200 or answer.length is None:  # without a length it might never end
            raise OSError(f"the job answers {answer.status}")
        return answer


def _need_room(folder: Path, size: int) -> None:
    if size > shutil.disk_usage(folder).free:  # trying would take the last room from others
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC), str(folder))


def _copy(answer: http.client.HTTPResponse, stream: Any) -> None:
    while data := answer.read(_CHUNK):
        stream.write(data)
    if answer.length:
        raise OSError("the answer was cut off")


def _read(path: Path) -> dict[str, Any]:
    try:
        found = json.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError):
        return {}
    return found if isinstance(found, dict) else {}
