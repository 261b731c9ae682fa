"""One controller at a time: a lock that dies with its holder, and an epoch that fences off whoever held it before."""

from __future__ import annotations

import errno
import fcntl
import json
import os
from pathlib import Path
from typing import Any

from operant._util.files import open_regular, write_file
from operant.errors import OperantError
from operant.tracking.identity import is_alive, process_identity

_NO_LOCKS_HERE = {errno.ENOLCK, errno.ENOSYS, errno.EOPNOTSUPP}
_held_here: set[str] = set()
_LARGEST_LEASE = 1 << 16
_KINDS = {"host": str, "pid": int, "boot": str, "ticks": int, "pid_space": str, "epoch": int, "released": bool}


class LeaseHeldError(OperantError):
    """Another process is the controller."""

    def __init__(self, folder: Path, holder: dict[str, Any]) -> None:
        self.holder = holder
        who = f"process {holder.get('pid', '?')} on host {holder.get('host', '?')}"
        super().__init__(f"{folder.name!r} is already run by {who}: stop that one first, or wait for it")


class Lease:
    """The right to append to a journal, from :meth:`acquire` to :meth:`release` or the end of the process.

    The lock is a POSIX record lock: the kernel drops it when the process dies, and a forked worker does
    not inherit it, so an orphan cannot keep a dead controller's search. Where a file system has no
    locks, the holder's pid, start time and boot id decide; there, a holder on another host is only
    overruled with ``force``.
    """

    def __init__(self, folder: Path, descriptor: int, epoch: int, *, found_released: bool = False) -> None:
        self.folder = folder
        self.epoch = epoch
        self.found_released = found_released
        """Whether the holder before gave it back, and so had written all that it wanted to."""
        self._descriptor = descriptor
        self._path = str(folder / "lease.json")
        self._mark = _mark_of(self._path)

    @classmethod
    def acquire(cls, folder: Path, *, force: bool = False) -> Lease:
        folder.mkdir(parents=True, exist_ok=True)
        key = str(folder.resolve())
        earlier = read_lease(folder)
        if key in _held_here:  # a process's own record locks do not conflict
            raise LeaseHeldError(folder, earlier)
        descriptor = os.open(folder / "lease.lock", os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o666)
        try:
            locked = _lock(descriptor)
            if locked is False:
                raise LeaseHeldError(folder, read_lease(folder))
            earlier = read_lease(folder)
            in_use = not earlier.get("released", True)
            if locked is None and in_use and not force and is_alive(earlier) is not False:
                raise LeaseHeldError(folder, earlier)
            epoch = earlier.get("epoch", 0) + 1
            # Where there are locks they decide, and after a crash of the machine the journal knows the epoch.
            mine = {**process_identity(), "epoch": epoch, "released": False}
            _write_lease(folder, mine, durable=locked is None)
        except BaseException:
            os.close(descriptor)
            raise
        _held_here.add(key)
        return cls(folder, descriptor, epoch, found_released=earlier.get("released", False))

    def is_current(self) -> bool:
        """Whether nobody has taken over since (a stopped process may wake up after its lease was taken)."""
        return _mark_of(self._path) == self._mark  # asked at every commit, so no file is read

    def release(self) -> None:
        if self._descriptor < 0:
            return
        if self.is_current():
            # Nothing is lost with this: whoever finds the lease unreleased sees that its holder is gone.
            _write_lease(self.folder, {**process_identity(), "epoch": self.epoch, "released": True}, durable=False)
        os.close(self._descriptor)
        self._descriptor = -1
        _held_here.discard(str(self.folder.resolve()))


def read_lease(folder: Path) -> dict[str, Any]:
    """Who holds or last held the lease: host, pid, boot, epoch, released; empty when nobody ever did.

    A field that is not of its kind is left out: the file may be damaged.
    """
    try:
        with os.fdopen(open_regular(folder / "lease.json"), "rb") as file:
            found = json.loads(file.read(_LARGEST_LEASE).decode())
    except (OSError, ValueError, RecursionError):
        return {}
    if not isinstance(found, dict):
        return {}
    return {key: value for key, value in found.items() if type(value) is _KINDS.get(key) and _is_small(value)}


def _is_small(value: Any) -> bool:
    return type(value) is not int or 0 <= value < 1 << 62


def _mark_of(path: str) -> tuple[int, int] | None:
    """What changes whenever the lease is written: it is a new file each time."""
    try:
        stat = os.stat(path)  # noqa: PTH116 - a Path takes twice as long, and every commit asks
    except FileNotFoundError:
        return None
    return stat.st_ino, stat.st_mtime_ns


def _lock(descriptor: int) -> bool | None:
    """True: ours; False: someone else's; None: this file system has no locks."""
    try:
        fcntl.lockf(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError as error:
        if error.errno in (errno.EACCES, errno.EAGAIN):
            return False
        if error.errno in _NO_LOCKS_HERE:
            return None
        raise
    return True


def _write_lease(folder: Path, holder: dict[str, Any], *, durable: bool) -> None:
    write_file(folder / "lease.json", json.dumps(holder), sync=durable)
