"""Segments, the append-only files of a run, each written by one process: `SegmentWriter` appends to one, `RunLog` reads
all of them once and in step with their writers."""

from __future__ import annotations

import os
import re
import secrets
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, NamedTuple

from operant._util.files import sync_data, write_all
from operant.tracking.format.blocks import (
    MIXED,
    POINTS,
    RECORDS,
    SEGMENT_FILE,
    Block,
    BlockTail,
    decode_records,
    encode_block,
    encode_file_header,
    encode_records,
)
from operant.tracking.places import on_network_filesystem

SEGMENT_LIMIT = 128 << 20
SEGMENT_NAME = re.compile(r"seg-([0-9a-f]{16})-([0-9]{4,8})\.seg")
LOCAL_SYNC_SECONDS = 5.0

_NONE = type(None)
_NUMBER = (int, float)
_PLACE = {"tag": (str,), "step": (int,), "wall": _NUMBER}
_KINDS: dict[str, dict[str, tuple[type, ...]]] = {
    "start": {"name": (str,), "role": (str,), "attempt": (int,), "process": (dict,), "wall": _NUMBER},
    "series": {"ids": (list,)},
    "attempt": {"attempt": (int,), "resumed_from": (int, _NONE)},
    "hparams": {"params": (dict,)},
    "lost": {"points": (int,)},
    "end": {"status": (str,), "wall": _NUMBER},
    "text": {**_PLACE, "text": (str,)},
    "media": {**_PLACE, "media": (str,)},
    "histogram": {
        **_PLACE, "edges": (list,), "counts": (list,), "min": _NUMBER, "max": _NUMBER, "sum": _NUMBER,
        "sum_squares": _NUMBER,
    },
    "pr_curve": {**_PLACE, "precision": (list,), "recall": (list,)},
    "file": {"name": (str,)},
}  # fmt: skip
"""What the fields of a record hold that readers need. Other records, and other fields, may hold anything."""
_TEXTS = ("tags", "command", "add", "remove", "metrics")  # lists of texts, where there are any
_NUMBERS = ("edges", "counts", "thresholds", "precision", "recall", "true_positives", "false_positives")
_OTHERS: dict[str, tuple[type, ...]] = {
    "error": (str, _NONE), "git": (dict, _NONE), "blob": (dict,), "positives": _NUMBER, "negatives": _NUMBER,
}  # fmt: skip
_LATEST = 253_402_300_800  # the year 10000: what can be said as a date
_LARGEST = 1 << 62  # whole numbers that numpy holds


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


@dataclass
class Segment:
    """What the writer of one segment said of itself, as far as it has been read."""

    name: str
    role: str = ""
    attempt: int = 1
    process: dict[str, Any] = field(default_factory=dict)
    names: dict[int, str] = field(default_factory=dict)
    started: float = 0.0
    end: dict[str, Any] | None = None
    continued: bool = False
    mtime: float = 0.0

    @property
    def sealed(self) -> bool:
        """Whether its writer has let go of it: what is unreadable at its end will not become readable."""
        return self.continued or self.end is not None

    def _take(self, record: dict[str, Any]) -> None:
        match record.get("type"):
            case "start":
                self.role, self.attempt = record["role"], record["attempt"]
                self.process, self.started = record["process"], float(record["wall"])
            case "series":
                self.names.update(record["ids"])
            case "attempt":
                self.attempt = record["attempt"]
            case "continued":
                self.continued = True
            case "end":
                self.end = record


class RunLog:
    """Reads what was appended to a run since the last :meth:`poll`.

    A compacted file holds several former segments, each announced by a ``segment`` record. A former
    segment that was already read from its own file is passed over.
    """

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.segments: dict[str, Segment] = {}
        self.odd_records = 0
        self.unreadable: dict[str, str] = {}
        """Why a file could not be read when it was looked at last."""
        self._tails: dict[str, BlockTail] = {}
        self._inside: dict[str, str | None] = {}
        """For each file the segment its next block belongs to; None while passing over one."""
        self.reading = ""
        """The file that the item which :meth:`poll` gave last came from."""

    def poll(self) -> Iterator[tuple[Segment, dict[str, Any] | Block]]:
        """Each new record, and each new block of points, with the segment it belongs to."""
        for path in segment_files(self.folder):
            tail = self._tails.get(path.name)
            if tail is None:
                tail = self._tails[path.name] = BlockTail(path)
            try:
                mtime = path.stat().st_mtime
            except FileNotFoundError:
                continue
            if path.name not in self._inside:
                self._inside[path.name] = path.name if path.name not in self.segments else None
            self.reading = path.name
            self.unreadable.pop(path.name, None)
            try:
                blocks = tail.poll()
            except OSError as error:  # a pipe, a folder, a disk that does not answer
                self.unreadable[path.name] = str(error.strerror)
                continue
            for block in blocks:
                yield from self._items(path.name, block)
            inside = self._inside[path.name]
            if inside is not None and inside in self.segments:
                self.segments[inside].mtime = mtime

    def damage(self, *, growing: bool) -> list[str]:
        """One sentence for every place where bytes could not be read. In a growing run a torn tail is no damage yet."""
        found = [f"{self.odd_records} records have fields that no writer of Operant makes"] if self.odd_records else []
        found += [f"{name} cannot be read ({why})" for name, why in self.unreadable.items()]
        for name, tail in self._tails.items():
            if name in self.unreadable:
                continue
            if tail.header_damaged:
                found.append(f"{name}: the file header is damaged (its blocks were read all the same)")
            found += [f"{name}: {end - start} damaged bytes at offset {start} were skipped" for start, end in tail.gaps]
            left = 0 if growing else tail.unread_bytes()
            if left:
                found.append(f"{name}: {left} torn bytes after offset {tail.offset} were cut off")
        return found

    def _items(self, file: str, block: Block) -> Iterator[tuple[Segment, dict[str, Any] | Block]]:
        if block.kind == RECORDS:
            for record in decode_records(block.payload):
                if record.get("type") == "segment":
                    name = str(record.get("name"))
                    self._inside[file] = None if name in self.segments else name
                    continue
                segment = self._segment(file)
                if segment is None:
                    continue
                if not _is_sound(record):
                    self.odd_records += 1  # right checksum, wrong fields: not written by us
                    continue
                segment._take(record)
                yield segment, record
        elif block.kind in (POINTS, MIXED):
            segment = self._segment(file)
            if segment is not None:
                yield segment, block

    def _segment(self, file: str) -> Segment | None:
        name = self._inside[file]
        if name is None:
            return None
        segment = self.segments.get(name)
        if segment is None:
            segment = self.segments[name] = Segment(name)
        return segment

    def to_json(self) -> dict[str, Any]:
        return {
            "files": {
                name: [tail.offset, tail.gaps, tail.header_damaged, self._inside.get(name)]
                for name, tail in self._tails.items()
            },
            "segments": [{**vars(one), "names": sorted(one.names.items())} for one in self.segments.values()],
        }

    @classmethod
    def from_json(cls, folder: Path, state: dict[str, Any]) -> RunLog:
        log = cls(folder)
        for name, (offset, gaps, damaged, inside) in state["files"].items():
            tail = log._tails[name] = BlockTail(folder / name, offset)
            tail.gaps = [(start, end) for start, end in gaps]
            tail.header_damaged = damaged
            log._inside[name] = inside
        for one in state["segments"]:
            segment = Segment(**{**one, "names": dict(map(tuple, one["names"]))})
            log.segments[segment.name] = segment
        return log


def _is_sound(record: dict[str, Any]) -> bool:
    """Whether a record's fields are of their kinds, so that nobody who folds it has to be on his guard."""
    kind = record.get("type")
    if type(kind) is not str:
        return False
    for key, kinds in _KINDS.get(kind, {}).items():
        value = record.get(key, ...)  # what is missing is of no kind
        if type(value) not in kinds or not (type(value) is not int or _is_number(value)):
            return False
    if "wall" in record and not (is_time(record["wall"]) and (kind != "start" or record["wall"] >= 0)):
        return False
    if kind == "series" and not all(map(_is_series, record["ids"])):
        return False
    if any(type(record[key]) not in kinds for key, kinds in _OTHERS.items() if key in record):
        return False
    if not all(type(one) is str for key in _TEXTS if key in record for one in _list(record[key])):
        return False
    if not all(_is_number(one) for key in _NUMBERS if key in record for one in _list(record[key])):
        return False
    # Bins have one edge more than counts; curves have as many points in each of their columns.
    lengths = {len(record[key]) - (key == "edges") for key in _NUMBERS if key in record}
    return len(lengths) <= 1


def is_time(wall: Any) -> bool:
    """Whether it can be said as a date."""
    return type(wall) in _NUMBER and -_LATEST < wall < _LATEST


def _is_series(value: Any) -> bool:
    if type(value) is not list or len(value) != 2:
        return False
    number, tag = value
    return type(number) is int and 0 <= number < 1 << 32 and type(tag) is str


def _is_number(value: Any) -> bool:
    return type(value) is float or (type(value) is int and -_LARGEST < value < _LARGEST)


def _list(value: Any) -> list[Any]:
    return value if type(value) is list else [None]  # which is no text and no number
