"""An append-only log of numbered records, written by whoever holds the lease and followed by anyone."""

from __future__ import annotations

import os
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

from operant._util.files import open_regular, sync_data, write_all
from operant.errors import OperantError
from operant.tracking.format.blocks import (
    ALIGNMENT,
    BLOCK_HEADER,
    BLOCK_MAGIC,
    FILE_HEADER_SIZE,
    JOURNAL_FILE,
    MAX_PAYLOAD,
    RECORDS,
    Block,
    BlockTail,
    decode_blocks,
    encode_block,
    encode_file_header,
    encode_json,
)
from operant.tracking.identity import is_alive
from operant.tracking.journal.damage import Damage, is_sound
from operant.tracking.journal.lease import Lease, read_lease
from operant.tracking.journal.trial_lines import expand, records_in

JOURNAL_NAME = "journal.log"
GROUP_SECONDS = 0.05
CHECK_SECONDS = 0.01
"""How long a controller that writes line after line trusts that it holds the lease. Should it be replaced meanwhile,
what it writes has an epoch that readers pass over."""
MAX_BATCH = 4096
BLOCKS_AT_ONCE = 64
_SECTOR = 512
_LONGEST_REST = MAX_PAYLOAD + 1024


class Entry(NamedTuple):
    sequence: int
    epoch: int
    record: dict[str, Any]
    """The record as it was appended: its ``type`` and fields."""


class JournalReader:
    """Gives each entry of a journal once, as it is appended; needs no lease and disturbs nobody.

    Entries of a controller that had lost its lease (an epoch lower than one seen before) are passed over. So is what
    is missing or makes no sense, which :attr:`damage` counts.
    """

    def __init__(self, folder: Path) -> None:
        self.path = folder / JOURNAL_NAME
        self.epoch = 0
        self.next_sequence = 0
        self.damage = Damage()
        self._tail = BlockTail(self.path)
        self._end = FILE_HEADER_SIZE  # of the block that was read last, its padding included

    def poll(self) -> Iterator[Entry]:
        for sequence, epoch, line in self.poll_lines():
            yield from _entries(sequence, epoch, line)

    def poll_lines(self) -> Iterator[tuple[int, int, dict[str, Any]]]:
        """The same (sequence, epoch, record), but a line that stands for several records comes as it was written, with
        the number of the first.

        Who goes through a hundred thousand trials saves making half a million records.
        """
        try:
            blocks = [block for block in self._tail.poll() if block.kind == RECORDS]
            self.damage.problem = None
        except OSError as error:
            self.damage.problem = error.strerror or type(error).__name__
            return
        for first in range(0, len(blocks), BLOCKS_AT_ONCE):
            some = blocks[first : first + BLOCKS_AT_ONCE]
            for block, lines in zip(some, decode_blocks([block.payload for block in some]), strict=True):
                sequence = block.sequence
                if block.offset > self._end and sequence <= self.next_sequence:
                    self.damage.add(self._end, 1)  # bytes that are no block, though no number is missing
                for line in lines:
                    if not is_sound(line):
                        self._skip(block, sequence, 1)
                        sequence += 1
                        continue
                    epoch = line.get("epoch", 0)
                    kind = line["type"]
                    count = 2 if kind == "begun" else records_in(line) if kind == "done" else 1
                    if epoch >= self.epoch and sequence >= self.next_sequence:
                        if sequence > self.next_sequence:
                            self.damage.add(self._end, sequence - self.next_sequence)
                        self.epoch, self.next_sequence = epoch, sequence + count
                        if count == 1:
                            line.pop("epoch", None)
                        yield sequence, epoch, line
                    sequence += count
                if not lines:
                    self._skip(block, sequence, bytes(block.payload).count(b"\n") + 1)
                end = block.offset + BLOCK_HEADER.size + len(block.payload)
                self._end = end + -end % ALIGNMENT

    def _skip(self, block: Block, sequence: int, records: int) -> None:
        """Pass over what a good checksum does not make sensible."""
        if sequence >= self.next_sequence:
            self.damage.add(block.offset, records + sequence - self.next_sequence)
            self.next_sequence = sequence + records

    def look_at_end(self, *, growing: bool, released: bool) -> None:
        """Say whether what follows the last good block is damage; nobody who writes there now leaves it unfinished.

        :param released: its last controller gave the lease back, and so had finished what it wrote. One that was
            killed may have left a block that is cut short, and was never acted on.
        """
        damage, rest = self.damage, b"" if growing else self._rest()
        damage.tail = self.offset if rest and (released or not _is_torn(rest)) else None
        damage.empty = not growing and not damage.total and self.next_sequence == 0 and self._has_run(released)

    def _rest(self) -> bytes:
        try:
            with os.fdopen(open_regular(self.path), "rb") as file:
                start = max(self.offset, FILE_HEADER_SIZE)
                left = os.fstat(file.fileno()).st_size - start
                file.seek(start)
                return file.read(min(left, _LONGEST_REST)) if left > 0 else b""  # memory is taken for all that is asked
        except OSError:
            return b""

    def _has_run(self, released: bool) -> bool:
        return self.path.exists() and (released or (self.path.parent / "jobs").is_dir())

    @property
    def offset(self) -> int:
        """Where the entries read so far end."""
        return self._tail.offset


def _is_torn(rest: bytes) -> bool:
    """Whether these bytes look like a block that its writer, or its machine, did not live to finish."""
    if len(rest) < BLOCK_HEADER.size or not any(rest[-_SECTOR:]):
        return True
    magic, _, _, _, length, _, _ = BLOCK_HEADER.unpack_from(rest)
    whole = BLOCK_HEADER.size + length + -length % ALIGNMENT
    return bool(magic == BLOCK_MAGIC and len(rest) < whole)


def _entries(sequence: int, epoch: int, line: dict[str, Any]) -> Iterator[Entry]:
    for place, record in enumerate(expand(line)):
        yield Entry(sequence + place, epoch, record)


class Journal:
    """The writing side. Records wait in memory until :meth:`commit`, which survives ``kill -9``;
    within 50 ms they are also on the disk itself, at once with ``commit(durable=True)``.

    >>> with Journal.open(folder) as journal:
    ...     for entry in journal.replay(): ...
    ...     journal.append("proposed", number=0, config={"lr": 0.1})
    ...     journal.commit()
    """

    def __init__(self, folder: Path, lease: Lease) -> None:
        self.folder = folder
        self.lease = lease
        self.epoch = lease.epoch
        self._lock = threading.Lock()
        self._pending: list[str] = []
        """Lines that wait."""
        self._counts: list[int] = []
        """How many records each of them stands for."""
        self._written = 0.0
        self._checked = 0.0
        self._recorded = JournalReader(folder)
        self._lines = list(self._recorded.poll_lines())
        self._recorded.look_at_end(growing=False, released=lease.found_released)
        self._damaged_tail = self._recorded.damage.tail is not None
        self.epoch = max(self.epoch, self._recorded.epoch + 1)
        self._sequence = self._recorded.next_sequence
        self._descriptor = self._open()
        self._dirty_since: float | None = None
        self._wake = threading.Condition(self._lock)
        self._syncer: threading.Thread | None = None
        self._closed = False

    @classmethod
    def open(cls, folder: Path, *, force: bool = False) -> Journal:
        """Take the lease of the search in ``folder`` and go on behind the last whole record."""
        lease = Lease.acquire(folder, force=force)
        try:
            return cls(folder, lease)
        except BaseException:
            lease.release()
            raise

    @property
    def next_sequence(self) -> int:
        return self._sequence

    @property
    def damage(self) -> Damage:
        """What of the journal could not be read when it was opened."""
        return self._recorded.damage

    def replay(self) -> Iterator[Entry]:
        """The entries that were there when the journal was opened, once."""
        lines, self._lines = self._lines, []
        for sequence, epoch, line in lines:
            yield from _entries(sequence, epoch, line)

    def replay_lines(self) -> Iterator[dict[str, Any]]:
        """The same as lines, see :meth:`JournalReader.poll_lines`."""
        lines, self._lines = self._lines, []
        for _, _, line in lines:
            yield line

    def append(self, kind: str, /, **fields: Any) -> int:
        """Add a record and return its sequence number; :meth:`commit` writes it."""
        line = encode_json({"type": kind, "epoch": self.epoch, **fields})
        with self._lock:
            self._pending.append(line)
            self._counts.append(1)
            self._sequence += 1
            return self._sequence - 1

    def append_line(self, line: str, records: int) -> None:
        """Add a line that stands for several records; :mod:`operant.tracking.journal.trial_lines` makes them."""
        with self._lock:
            self._pending.append(line)
            self._counts.append(records)
            self._sequence += records

    def commit_line(self, line: str, records: int) -> None:
        """:meth:`append_line` and :meth:`commit` in one: what a search of small trials does for each of them."""
        with self._lock:
            self._pending.append(line)
            self._counts.append(records)
            self._sequence += records
            self._commit(time.monotonic() - self._checked > CHECK_SECONDS)

    def seconds_unseen(self) -> float:
        """How long nothing was written: whatever waits may have waited that long."""
        return time.monotonic() - self._written

    def commit(self, *, durable: bool = False) -> None:
        """Write the records that wait. On a full disk they wait on, nothing is half written, and OSError is raised."""
        with self._lock:
            self._commit()
            if durable and self._dirty_since is not None:
                sync_data(self._descriptor)
                self._dirty_since = None

    def close(self) -> None:
        """Write and sync what waits and give the lease back."""
        if self._closed:
            return
        try:
            self.commit(durable=True)
        finally:
            with self._lock:
                self._closed = True
                self._wake.notify_all()
                os.close(self._descriptor)
            self.lease.release()

    def __enter__(self) -> Journal:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def _open(self) -> int:
        path = self.folder / JOURNAL_NAME
        descriptor = os.open(path, os.O_RDWR | os.O_CREAT | os.O_APPEND | os.O_CLOEXEC, 0o666)
        try:
            good = self._recorded.offset
            if good == 0:
                os.ftruncate(descriptor, 0)
                head = encode_file_header(JOURNAL_FILE, 0, 0)
                os.write(descriptor, head)
                self._end = len(head)
            else:
                if not self._damaged_tail:
                    os.ftruncate(descriptor, good)  # a torn tail: its record was never acted on
                self._end = good
        except BaseException:
            os.close(descriptor)
            raise
        return descriptor

    def _commit(self, check_lease: bool = True) -> None:
        while self._pending:
            lines = self._pending if len(self._pending) <= MAX_BATCH else self._pending[:MAX_BATCH]
            first = self._sequence - sum(self._counts)
            self._write(encode_block(RECORDS, first, "\n".join(lines).encode("ascii")), check_lease)
            del self._pending[:MAX_BATCH], self._counts[:MAX_BATCH]

    def _write(self, data: bytes, check_lease: bool) -> None:
        if self._closed:
            raise OperantError(f"the journal of {self.folder.name!r} is closed")
        self._written = now = time.monotonic()
        if check_lease:
            self._checked = now
            if not self.lease.is_current():
                raise OperantError(f"another controller has taken over {self.folder.name!r}; this one stops")
        if self._damaged_tail:  # kept until somebody goes on without it
            self._damaged_tail = False
            os.ftruncate(self._descriptor, self._end)
        try:
            write_all(self._descriptor, data)
        except BaseException:
            os.ftruncate(self._descriptor, self._end)
            raise
        self._end += len(data)
        if self._dirty_since is None:
            self._dirty_since = now
            self._start_syncer()

    def _start_syncer(self) -> None:
        if self._syncer is None:
            self._syncer = threading.Thread(target=self._sync_regularly, name="operant-journal-sync", daemon=True)
            self._syncer.start()
        self._wake.notify_all()

    def _sync_regularly(self) -> None:
        while True:
            with self._lock:
                while self._dirty_since is None and not self._closed:
                    self._wake.wait()
                if self._closed:
                    return
                due = self._dirty_since + GROUP_SECONDS if self._dirty_since is not None else 0.0
                wait = due - time.monotonic()
                if wait > 0:
                    self._wake.wait(wait)
                    continue
                descriptor = os.dup(self._descriptor)
                self._dirty_since = None
            try:
                sync_data(descriptor)  # outside the lock: appending goes on while the disk works
            finally:
                os.close(descriptor)


def controller_is_alive(folder: Path) -> bool:
    """Whether somebody holds the lease of a search, as far as can be seen from here."""
    holder = read_lease(folder)
    if not holder or holder.get("released", True) or not (folder / JOURNAL_NAME).exists():
        return False
    return is_alive(holder) is not False
