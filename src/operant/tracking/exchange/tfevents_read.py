"""Reads TensorBoard event files while they grow, whatever bytes they hold, without TensorBoard."""

from __future__ import annotations

import os
import struct
from collections.abc import Collection, Iterator
from pathlib import Path
from typing import BinaryIO

import numpy as np
from numpy.typing import NDArray

from operant.tracking.exchange.tfevents_decode import (
    Event,
    EventDecoder,
    HistogramEvent,
    HparamsEvent,
    ImageEvent,
    ScalarEvent,
    TextEvent,
)
from operant.tracking.exchange.tfrecord import (
    FOOTER_SIZE,
    HEADER_SIZE,
    LONGEST_ROW,
    WireError,
    crc32c,
    crc32c_of_rows,
    mask,
    mask_array,
    record_header,
)

__all__ = [
    "Event",
    "EventFileReader",
    "HistogramEvent",
    "HparamsEvent",
    "ImageEvent",
    "ScalarEvent",
    "TextEvent",
    "find_event_files",
    "run_name",
]

_CHUNK = 4 << 20
_LARGEST_RECORD = 256 << 20  # a longer one is passed over unread: it could take all memory
_UNWRITTEN_LOOK = 1 << 20
_FEWEST_ROWS = 16  # below, checking each record by itself is faster than setting up numpy's columns
_REMEMBERED_HEADERS = 10_000


class EventFileReader:
    """Follows one event file; it is opened for each poll only, so thousands can be followed.

    Checksums are verified, as TensorBoard does: without them a flipped bit, or a page of zeros that a network
    file system shows for a moment, would become a point. Records of one length are checked together,
    column by column, which takes 7 % of the time of reading plain scalars.

    `damage` says where and why reading ended for good; `skipped` counts records that are whole but no event.
    """

    def __init__(self, path: str | os.PathLike[str]) -> None:
        self.path = Path(path)
        self.damage: str | None = None
        self.skipped = 0
        self._offset = 0
        self._decoder = EventDecoder()
        self._known_headers: dict[bytes, int] = {}

    def poll(self) -> list[Event]:
        """What was appended since the last call; nothing if the file does not exist yet."""
        return [event for batch in self.batches() for event in batch]

    def batches(self) -> Iterator[list[Event]]:
        """The same in parts, for files whose events would not fit into memory at once."""
        if self.damage is not None:
            return
        try:
            file = self.path.open("rb")
        except FileNotFoundError:
            return
        with file:
            size = os.fstat(file.fileno()).st_size
            if size < self._offset:
                self.damage = (
                    f"{self.path} shrank to {size} bytes after {self._offset} had been read; event files only ever grow"
                )
            while self.damage is None and self._offset < size:
                before = self._offset
                events = self._read_chunk(file, size)
                if events:
                    yield events
                if self._offset == before:
                    return

    def _read_chunk(self, file: BinaryIO, size: int) -> list[Event]:
        """Decode the whole records of the next chunk and move past them; no move means: not yet."""
        start = self._offset
        data = _read_at(file, start, min(_CHUNK, size - start))
        length = self._length_at(data, 0)
        if length is not None and len(data) < HEADER_SIZE + length + FOOTER_SIZE <= size - start:
            whole = HEADER_SIZE + length + FOOTER_SIZE
            if length > _LARGEST_RECORD:
                self._offset += whole
                self.skipped += 1
                return []
            data = _read_at(file, start, whole)

        begins, lengths, end = self._split(data)
        good = _count_good(data, begins, lengths)
        events: list[Event] = []
        decode = self._decoder.decode
        for begin, length in zip(begins[:good], lengths[:good], strict=True):
            try:
                decode(data[begin : begin + length], events)
            except WireError:
                self.skipped += 1
        if good < len(begins):
            at = start + begins[good] - HEADER_SIZE
            self._offset = at
            self._judge(file, size, at, at + HEADER_SIZE + lengths[good] + FOOTER_SIZE)
        else:
            self._offset = start + end
            if len(data) - end >= HEADER_SIZE and self._length_at(data, end) is None:
                self._judge(file, size, start + end, start + end + HEADER_SIZE)
        return events

    def _split(self, data: bytes) -> tuple[list[int], list[int], int]:
        """Where the payload of each whole record begins, how long it is, and where the last record ends."""
        begins: list[int] = []
        lengths: list[int] = []
        at = 0
        size = len(data)
        known = self._known_headers
        while True:
            length = known.get(data[at : at + HEADER_SIZE])
            if length is None:
                length = self._length_at(data, at)
            if length is None or at + HEADER_SIZE + length + FOOTER_SIZE > size:
                return begins, lengths, at
            begins.append(at + HEADER_SIZE)
            lengths.append(length)
            at += HEADER_SIZE + length + FOOTER_SIZE

    def _length_at(self, data: bytes, at: int) -> int | None:
        """The length that the header at `at` gives; None if there is no whole and right header."""
        header = data[at : at + HEADER_SIZE]
        if len(header) < HEADER_SIZE:
            return None
        length: int = struct.unpack_from("<Q", header)[0]
        if header != record_header(length):
            return None
        if len(self._known_headers) >= _REMEMBERED_HEADERS:
            self._known_headers.clear()
        self._known_headers[header] = length
        return length

    def _judge(self, file: BinaryIO, size: int, at: int, after: int) -> None:
        """A wrong checksum at the end of a file means that bytes are still under way; elsewhere it is damage.

        Where nothing but zeros follows it is the end, too: a file system may show a file's new length before
        its new bytes.
        """
        following = _read_at(file, after, min(_UNWRITTEN_LOOK, size - after))
        if following.count(0) < len(following):
            self.damage = f"{self.path}: the record at byte {at} has a wrong checksum; reading ended there"


def _read_at(file: BinaryIO, offset: int, size: int) -> bytes:
    file.seek(offset)
    return file.read(max(size, 0))


def _count_good(data: bytes, begins: list[int], lengths: list[int]) -> int:
    """How many records, from the first on, have the checksum that follows them."""
    if not begins:
        return 0
    good = len(begins)
    all_begins = np.array(begins, dtype=np.int64)
    all_lengths = np.array(lengths, dtype=np.int64)
    order = np.argsort(all_lengths, kind="stable")
    distinct, firsts = np.unique(all_lengths[order], return_index=True)
    for length, members in zip(distinct.tolist(), np.split(order, firsts[1:]), strict=True):
        if len(members) < _FEWEST_ROWS or length > LONGEST_ROW:
            wrong = [m for m in members.tolist() if not _is_good(data, begins[m], length)]
        else:
            wrong = members[_wrong_rows(data, all_begins[members], length)].tolist()
        if wrong:
            good = min(good, wrong[0])
    return good


def _is_good(data: bytes, begin: int, length: int) -> bool:
    stored: int = struct.unpack_from("<I", data, begin + length)[0]
    return mask(crc32c(data[begin : begin + length])) == stored


def _wrong_rows(data: bytes, begins: NDArray[np.int64], length: int) -> NDArray[np.bool_]:
    buffer = np.frombuffer(data, dtype=np.uint8)
    rows = np.lib.stride_tricks.sliding_window_view(buffer, length + FOOTER_SIZE)[begins]
    stored = np.ascontiguousarray(rows[:, length:]).view("<u4")[:, 0]
    wrong: NDArray[np.bool_] = mask_array(crc32c_of_rows(rows[:, :length])) != stored
    return wrong


def find_event_files(folder: str | os.PathLike[str], *, without: Collection[str] = ()) -> list[Path]:
    """Every event file below `folder`, those of one run next to each other and in the order they were begun.

    As in TensorBoard, each folder that holds event files is a run (`run_name`), and links are followed; but a
    folder to which several links lead is listed once, so a link to a folder above is no endless loop. Paths in
    `without`, relative to `folder`, are passed over.
    """
    found: list[Path] = []
    seen: set[tuple[int, int]] = set()
    passed_over = {Path(folder, name) for name in without}
    for parent, subfolders, names in os.walk(folder, followlinks=True):
        try:
            status = Path(parent).stat()
        except FileNotFoundError:  # removed while we walked
            continue
        identity = (status.st_dev, status.st_ino)
        if identity in seen:
            subfolders.clear()
            continue
        seen.add(identity)
        if passed_over:
            subfolders[:] = [name for name in subfolders if Path(parent, name) not in passed_over]
            names = [name for name in names if Path(parent, name) not in passed_over]
        subfolders.sort()
        found += [Path(parent, name) for name in names if _is_event_file(name)]
    return sorted(found, key=lambda path: (path.parent, path.name))


def run_name(folder: str | os.PathLike[str], event_file: str | os.PathLike[str]) -> str:
    """What TensorBoard, started on `folder`, calls the run of `event_file`; `.` for the folder itself."""
    return Path(event_file).parent.relative_to(folder).as_posix()


def _is_event_file(name: str) -> bool:
    # The profiler leaves an empty file with this suffix to mark its folder as a run; it never holds an event.
    return "tfevents" in name and not name.endswith(".profile-empty")
