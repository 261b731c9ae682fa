"""Following a file of blocks while its writer still appends to it."""

from __future__ import annotations

import os
from pathlib import Path

from operant.tracking.format.blocks import (
    BLOCK_HEADER,
    FILE_HEADER_SIZE,
    MAX_PAYLOAD,
    Block,
    parse_file_header,
    scan_blocks,
)

__all__ = ["BlockTail"]

READ_BYTES = 32 << 20
MAX_RETRIED_GAPS = 16
# Behind a stretch of this size without a good block there is no block to wait for: it is damage.
_LONGEST_BLOCK = MAX_PAYLOAD + BLOCK_HEADER.size + 8


class BlockTail:
    """Gives the blocks of a file once each, as they become whole.

    Bytes that fail their checksum at the end of a file mean *not yet* and are read again next time. In
    front of good blocks they are a gap; gaps are tried again too, since a network file system may show
    later pages first.
    """

    def __init__(self, path: Path, offset: int = 0) -> None:
        self.path = path
        self.offset = offset
        self.gaps: list[tuple[int, int]] = []
        self.header_damaged = False

    def poll(self) -> list[Block]:
        """Blocks that became readable since the last call; late ones (from a closed gap) come first."""
        try:
            descriptor = os.open(self.path, os.O_RDONLY | os.O_CLOEXEC)
        except FileNotFoundError:
            return []
        try:
            return self._poll(descriptor)
        finally:
            os.close(descriptor)

    def unread_bytes(self) -> int:
        """How much stands behind the last good block: a torn tail, or one that is being written."""
        try:
            return max(0, self.path.stat().st_size - max(self.offset, FILE_HEADER_SIZE))
        except FileNotFoundError:
            return 0

    def _poll(self, descriptor: int) -> list[Block]:
        size = os.fstat(descriptor).st_size
        if self.offset == 0:
            if size < FILE_HEADER_SIZE:
                return []
            # A damaged header loses nothing: every block is checked by itself.
            self.header_damaged = parse_file_header(os.pread(descriptor, FILE_HEADER_SIZE, 0)) is None
            self.offset = FILE_HEADER_SIZE
        found = self._retry_gaps(descriptor)
        want = READ_BYTES
        while self.offset < size:
            data = _read(descriptor, self.offset, min(want, size - self.offset))
            scan = scan_blocks(memoryview(data), self.offset)
            found += scan.blocks
            self.gaps += scan.gaps
            moved = scan.end > self.offset
            self.offset = scan.end
            if len(data) < want or (not moved and want >= 2 * _LONGEST_BLOCK):
                break
            want = READ_BYTES if moved else want * 2  # a block longer than what was read, or a long gap
        return found

    def _retry_gaps(self, descriptor: int) -> list[Block]:
        late: list[Block] = []
        for start, end in self.gaps[:MAX_RETRIED_GAPS]:
            scan = scan_blocks(memoryview(_read(descriptor, start, end - start)), start)
            if scan.blocks:
                late += scan.blocks
                self.gaps.remove((start, end))
                self.gaps += scan.gaps
                if scan.end < end:
                    self.gaps.append((scan.end, end))
        return late


def _read(descriptor: int, offset: int, count: int) -> bytes:
    data = os.pread(descriptor, count, offset)
    if len(data) == count:
        return data
    pieces = [data]
    while data and sum(map(len, pieces)) < count:
        have = sum(map(len, pieces))
        data = os.pread(descriptor, count - have, offset + have)
        pieces.append(data)
    return b"".join(pieces)
