"""The receiving end: appends blocks that arrive to the same files their writer has, each byte once."""

from __future__ import annotations

import os
import threading
from pathlib import Path
from typing import Any

from operant._util.files import sync_data, write_all
from operant.errors import OperantError, UsageError
from operant.tracking.format.blobs import BLOB_NAME, BlobWriter
from operant.tracking.format.blocks import FILE_HEADER_SIZE, SEGMENT_FILE, BlockTail, parse_file_header, scan_blocks
from operant.tracking.format.segments import SEGMENT_NAME, segment_files
from operant.tracking.places import run_dir


class OffsetError(OperantError):
    """The sender is ahead of what is stored here, or holds other bytes; ``length`` is where to go on from."""

    def __init__(self, length: int, why: str) -> None:
        self.length = length
        super().__init__(why)


class Receiver:
    """Stores runs below ``root``. What is stored of a segment is a beginning of the sender's file, cut at a block."""

    def __init__(self, root: Path) -> None:
        self.root = root
        self._lengths: dict[Path, int] = {}
        self._locks: dict[Path, threading.Lock] = {}
        self._guard = threading.Lock()

    def state(self, run_id: str) -> dict[str, Any]:
        """How much of each segment is here, and which blobs."""
        folder = run_dir(self.root, run_id)
        blobs = folder / "blobs"
        names = [path.name for path in blobs.iterdir() if BLOB_NAME.fullmatch(path.name)] if blobs.is_dir() else []
        lengths = {}
        for path in segment_files(folder):
            with self._lock_of(path):
                lengths[path.name] = self._length(path)
        return {"segments": lengths, "blobs": sorted(names)}

    def append(self, run_id: str, name: str, offset: int, data: bytes) -> int:
        """Store ``data``, which stands at ``offset`` of the sender's segment; return how much of it is here now.

        Bytes that are here already are compared, not written again: a sender may repeat itself freely.
        """
        path = _segment_path(self.root, run_id, name)
        _check_whole_blocks(name, offset, data)
        with self._lock_of(path):
            length = self._length(path)
            if offset > length:
                raise OffsetError(length, f"{name} is stored up to {length}, not up to {offset}")
            known, fresh = data[: length - offset], data[length - offset :]
            if known and _read_at(path, offset, len(known)) != known:
                raise OffsetError(length, f"{name} is stored with other bytes at offset {offset}")
            if fresh:
                self._write(path, length, fresh)
                length += len(fresh)
                self._lengths[path] = length
            return length

    def blob(self, run_id: str, name: str) -> BlobWriter:
        """Begin to receive a blob; its name is the checksum of its content."""
        if not BLOB_NAME.fullmatch(name):
            raise UsageError(f"{name!r} is not a blob's name")
        return BlobWriter(run_dir(self.root, run_id))

    def _lock_of(self, path: Path) -> threading.Lock:
        with self._guard:
            return self._locks.setdefault(path, threading.Lock())

    def _length(self, path: Path) -> int:
        length = self._lengths.get(path)
        if length is None:
            tail = BlockTail(path)
            tail.poll()
            if tail.gaps or tail.header_damaged:
                raise OperantError(f"{path.name} is damaged on this server; it is left as it is")
            length = tail.offset
            if path.exists() and path.stat().st_size > length:
                os.truncate(path, length)  # torn when this server was killed; the sender still has it
            self._lengths[path] = length
        return length

    @staticmethod
    def _write(path: Path, length: int, fresh: bytes) -> None:
        path.parent.mkdir(parents=True, exist_ok=True)
        descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_APPEND | os.O_NOFOLLOW | os.O_CLOEXEC, 0o666)
        try:
            try:
                write_all(descriptor, fresh)
                sync_data(descriptor)  # the sender deletes its copy on the strength of our answer
            except BaseException:
                os.ftruncate(descriptor, length)
                raise
        finally:
            os.close(descriptor)


def _segment_path(root: Path, run_id: str, name: str) -> Path:
    if not SEGMENT_NAME.fullmatch(name):
        raise UsageError(f"{name!r} is not a segment's name")
    return run_dir(root, run_id) / name


def _check_whole_blocks(name: str, offset: int, data: bytes) -> None:
    body = memoryview(data)
    if offset == 0:
        head = parse_file_header(data[:FILE_HEADER_SIZE])
        if head != (SEGMENT_FILE, int(name[21:-4]), int(name[4:20], 16)):
            raise UsageError(f"{name} does not begin with the header of that segment")
        body = body[FILE_HEADER_SIZE:]
    elif offset < FILE_HEADER_SIZE or offset % 8:
        raise UsageError(f"offset {offset} is not at the start of a block")
    scan = scan_blocks(body)
    if scan.gaps or scan.end != len(body):
        raise UsageError(f"the data for {name} at offset {offset} is not made of whole, undamaged blocks")


def _read_at(path: Path, offset: int, count: int) -> bytes:
    with path.open("rb") as stream:
        stream.seek(offset)
        return stream.read(count)
