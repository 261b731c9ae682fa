"""Writing a segment: an append-only file that belongs to one process."""

from __future__ import annotations

import os
import re
import secrets
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

from operant._util.files import sync_data, write_all
from operant.tracking.format.blocks import (
    RECORDS,
    SEGMENT_FILE,
    encode_block,
    encode_file_header,
    encode_records,
)
from operant.tracking.places import on_network_filesystem

SEGMENT_LIMIT = 128 << 20
SEGMENT_NAME = re.compile(r"seg-([0-9a-f]{16})-([0-9]{4,8})\.seg")
LOCAL_SYNC_SECONDS = 5.0


class _Pending(NamedTuple):
    kind: int
    payload: bytes
    points: int


def new_writer_id() -> int:
    return secrets.randbits(64)


def segment_files(folder: Path) -> list[Path]:
    """The segments in a run's folder: by writer, each writer's in the order they were written."""
    try:
        names = [path.name for path in folder.iterdir() if SEGMENT_NAME.fullmatch(path.name)]
    except (FileNotFoundError, NotADirectoryError):
        return []
    return [folder / name for name in sorted(names)]


class SegmentWriter:
    """Appends blocks to this process's own segment and rotates it when it has grown to ``limit`` bytes.

    ``opening`` gives the records that stand at the head of every file, so that each can be read alone.
    Blocks wait in memory until :meth:`commit`; when the disk refuses them they wait for the next try,
    up to ``memory_limit`` bytes, beyond which the oldest points are given up and counted in ``lost_points``.
    """

    def __init__(
        self,
        folder: Path,
        opening: Callable[[], list[dict[str, Any]]],
        *,
        limit: int = SEGMENT_LIMIT,
        memory_limit: int = 64 << 20,
        sync_seconds: float | None = None,
    ) -> None:
        self.folder = folder
        self.lost_points = 0
        self.writer_id = new_writer_id()
        self._opening = opening
        self._limit = limit
        self._memory_limit = memory_limit
        self._sync_seconds = sync_seconds
        self._number = -1
        self._file = -1
        self._offset = 0
        self._sequence = 0
        self._pending: list[_Pending] = []
        self._pending_bytes = 0
        self._synced_at = 0.0
        self._unsynced = False

    @property
    def path(self) -> Path:
        return self.folder / f"seg-{self.writer_id:016x}-{max(self._number, 0):04d}.seg"

    def add(self, kind: int, payload: bytes, points: int = 0) -> None:
        self._pending.append(_Pending(kind, payload, points))
        self._pending_bytes += len(payload)
        if self._pending_bytes > self._memory_limit:
            self._give_up_oldest()

    def add_records(self, records: list[dict[str, Any]]) -> None:
        self.add(RECORDS, encode_records(records))

    def begin(self) -> None:
        """Make the file, with its opening records, if there is none yet."""
        if self._file < 0:
            self._open_next()

    def commit(self) -> bool:
        """Write what waits; return whether there was anything. On an error nothing is half written, all waits on."""
        if not self._pending:
            return False
        self.begin()
        if self._offset > self._limit:
            self._append([_Pending(RECORDS, encode_records([{"type": "continued"}]), 0)])
            self._seal()
            self._open_next()
        self._append_pending()
        if time.monotonic() - self._synced_at >= self._sync_interval():
            self.sync()
        return True

    def sync(self) -> None:
        if self._file >= 0 and self._unsynced:
            sync_data(self._file)
            self._unsynced = False
            self._synced_at = time.monotonic()

    def close(self) -> None:
        if self._file >= 0:
            self._seal()

    def forget(self) -> None:
        """In a forked child: leave the parent's file and its waiting blocks alone, begin a file of one's own."""
        if self._file >= 0:
            os.close(self._file)
        self.writer_id = new_writer_id()
        self._number, self._file, self._offset, self._sequence = -1, -1, 0, 0
        self._pending, self._pending_bytes, self._unsynced = [], 0, False

    def _open_next(self) -> None:
        self.folder.mkdir(parents=True, exist_ok=True)
        if self._sync_seconds is None:
            named = os.environ.get("OPERANT_FSYNC_SECONDS")
            default = 0.0 if on_network_filesystem(self.folder) else LOCAL_SYNC_SECONDS
            self._sync_seconds = float(named) if named else default
        number = self._number + 1
        path = self.folder / f"seg-{self.writer_id:016x}-{number:04d}.seg"
        descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_APPEND | os.O_CLOEXEC, 0o666)
        head = encode_file_header(SEGMENT_FILE, number, self.writer_id)
        head += encode_block(RECORDS, 0, encode_records(self._opening()))
        try:
            write_all(descriptor, head)
        except BaseException:
            # A header alone says nothing: the next try begins the same file again.
            os.close(descriptor)
            path.unlink()
            raise
        self._number, self._file, self._offset, self._sequence = number, descriptor, len(head), 1
        self._unsynced = True

    def _append_pending(self) -> None:
        before = self._offset
        pending, self._pending = self._pending, []
        try:
            self._append(pending)
        except BaseException:
            if self._offset == before:
                self._pending = pending + self._pending
            raise
        self._pending_bytes = sum(len(one.payload) for one in self._pending)

    def _append(self, pending: list[_Pending]) -> None:
        data = b"".join(encode_block(one.kind, self._sequence + i, one.payload) for i, one in enumerate(pending))
        try:
            write_all(self._file, data)
        except BaseException:
            # Also for a KeyboardInterrupt between two writes: what is not counted in `_offset` must not stay.
            os.ftruncate(self._file, self._offset)
            raise
        self._offset += len(data)
        self._sequence += len(pending)
        self._unsynced = True

    def _seal(self) -> None:
        try:
            self.sync()
        finally:
            os.close(self._file)
            self._file = -1

    def _sync_interval(self) -> float:
        return LOCAL_SYNC_SECONDS if self._sync_seconds is None else self._sync_seconds

    def _give_up_oldest(self) -> None:
        kept: list[_Pending] = []
        for one in self._pending:
            if one.points and self._pending_bytes > self._memory_limit // 2:
                self.lost_points += one.points
                self._pending_bytes -= len(one.payload)
            else:
                kept.append(one)
        self._pending = kept
