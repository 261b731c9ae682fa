"""The bytes on disk: a file header, then blocks that each carry their own checksum.

Segments of a run and the journal of a search share this format; ``docs/format.md`` describes it for
readers in other languages. :class:`BlockTail` follows a file while its writer still appends to it. This module
needs only the standard library, so that light commands can read a log without loading numpy.
"""

from __future__ import annotations

import json
import os
import re
import struct
import zlib
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any, NamedTuple

from operant._util.files import open_regular

# The first bytes catch text-mode transfers, as PNG's signature does.
FILE_MAGIC = b"\x89OPR\r\n\x1a\n"
FILE_VERSION = 1
SEGMENT_FILE, JOURNAL_FILE = 1, 2
FILE_HEADER = struct.Struct("<8sHHIQI")  # magic, version, file kind, number, writer id, reserved
FILE_HEADER_SIZE = FILE_HEADER.size + 4  # and the crc of those bytes

BLOCK_MAGIC = b"OPBK"
BLOCK_HEADER = struct.Struct("<4sBBHIIQ")  # magic, kind, flags, reserved, payload length, crc, sequence

# Block kinds.
RECORDS = 1  # JSON objects, one a line; `sequence` numbers the first of them in a journal
POINTS = 2  # points of one series
MIXED = 3  # points of several series, in the order they were added

# Block flags.
DEFLATED = 1  # the payload after its first 8 bytes is zlib over byte-shuffled columns (compacted runs)

ALIGNMENT = 8
_PADDING = [bytes(length) for length in range(ALIGNMENT)]
MAX_PAYLOAD = 1 << 26


class Block(NamedTuple):
    kind: int
    flags: int
    sequence: int
    offset: int
    payload: memoryview


class Scan(NamedTuple):
    """What :func:`scan_blocks` found in a stretch of a file."""

    blocks: list[Block]
    end: int
    """Offset behind the last good block: where the next scan starts."""
    gaps: list[tuple[int, int]]
    """Stretches before ``end`` that hold no good block."""


def encode_file_header(kind: int, number: int, writer_id: int) -> bytes:
    head = FILE_HEADER.pack(FILE_MAGIC, FILE_VERSION, kind, number, writer_id, 0)
    return head + struct.pack("<I", zlib.crc32(head))


def parse_file_header(head: bytes) -> tuple[int, int, int] | None:
    """Return (file kind, number, writer id), or None when the bytes are no intact header."""
    if len(head) < FILE_HEADER_SIZE:
        return None
    magic, version, kind, number, writer_id, _ = FILE_HEADER.unpack_from(head)
    (crc,) = struct.unpack_from("<I", head, FILE_HEADER.size)
    if magic != FILE_MAGIC or version != FILE_VERSION or zlib.crc32(head[: FILE_HEADER.size]) != crc:
        return None
    return kind, number, writer_id


def encode_block(kind: int, sequence: int, payload: bytes, flags: int = 0) -> bytes:
    if len(payload) > MAX_PAYLOAD:
        raise ValueError(f"a block holds at most {MAX_PAYLOAD} bytes, got {len(payload)}")
    length = len(payload)
    crc = zlib.crc32(payload, zlib.crc32(BLOCK_HEADER.pack(BLOCK_MAGIC, kind, flags, 0, length, 0, sequence)))
    head = BLOCK_HEADER.pack(BLOCK_MAGIC, kind, flags, 0, length, crc, sequence)
    return b"%b%b%b" % (head, payload, bytes(-length % ALIGNMENT))


def scan_blocks(data: memoryview, base: int = 0) -> Scan:
    """Find every good block of ``data``, which stands at offset ``base`` (a multiple of 8) of its file.

    A stretch without a good block in front of a good one is a gap. Whatever follows the last good block
    is left for the next scan: in a growing file it means *not yet*.
    """
    blocks: list[Block] = []
    gaps: list[tuple[int, int]] = []
    at = end = 0
    size = len(data)
    # The journal of a search of programs is three small blocks a job: this loop is a third of the time to read it.
    unpack, pack, header = BLOCK_HEADER.unpack_from, BLOCK_HEADER.pack, BLOCK_HEADER.size
    crc32, new = zlib.crc32, tuple.__new__
    while size - at >= header:
        magic, kind, flags, reserved, length, crc, sequence = unpack(data, at)
        start = at + header
        stop = start + length
        after = stop + -length % ALIGNMENT
        # The padding belongs to the block: a file that ends inside it is not yet whole.
        if magic == BLOCK_MAGIC and length <= MAX_PAYLOAD and after <= size:
            payload = data[start:stop]
            head = pack(magic, kind, flags, reserved, length, 0, sequence)
            if crc32(payload, crc32(head)) == crc and data[stop:after] == _PADDING[after - stop]:
                if at > end:
                    gaps.append((base + end, base + at))
                blocks.append(new(Block, (kind, flags, sequence, base + at, payload)))  # half of what Block() takes
                at = end = after
                continue
        at = _next_magic(data, at + ALIGNMENT)
        if at < 0:
            break
    return Scan(blocks, base + min(end, size), gaps)


def _next_magic(data: memoryview, at: int) -> int:
    """Offset of the next aligned block magic at or after ``at``, or -1."""
    raw = data.obj
    if not isinstance(raw, bytes) or len(raw) != len(data):
        raw = bytes(data)
    while True:
        at = raw.find(BLOCK_MAGIC, at)
        if at < 0 or at % ALIGNMENT == 0:
            return at
        at += 1


_encoder = json.JSONEncoder(ensure_ascii=True, separators=(",", ":"), check_circular=False)
# What `encode` makes anew at every call; a search of small trials spends much of its time here.
_make = getattr(json.encoder, "c_make_encoder", None)
_pieces = _make and _make(
    None, _encoder.default, json.encoder.encode_basestring_ascii, None, ":", ",", False, False, True
)


def encode_json(value: Any) -> str:
    text = _encoder.encode(value) if _pieces is None else "".join(_pieces(value, 0))
    return valid_text(text) if "\\ud" in text else text


# An escaped backslash, a pair that stands for one character, and half of a pair.
_SURROGATES = re.compile(r"(\\\\|\\u[dD][89abAB]..\\u[dD][c-fC-F]..)|\\u[dD][89a-fA-F]..")


def valid_text(json_text: str) -> str:
    """JSON without halves of characters (lone surrogates, as in arguments that are no UTF-8): each becomes U+FFFD.

    Nothing that stores or sends UTF-8 takes them, so one in a name would make every list of runs unreadable.
    """
    if "\\" not in json_text or ("\\ud" not in json_text and "\\uD" not in json_text):  # one character is soon found
        return json_text
    return _SURROGATES.sub(lambda found: found[1] or "\\ufffd", json_text)


def encode_records(records: Iterable[dict[str, Any]]) -> bytes:
    """JSON objects, one a line. NaN and infinities are written as Python's json does."""
    return "\n".join(map(encode_json, records)).encode("ascii")


def decode_records(payload: memoryview | bytes) -> list[dict[str, Any]]:
    """The records of a block; none from a payload that no writer of ours makes, whatever its checksum says."""
    try:
        text = str(payload, "ascii")
        # One call of the parser for the whole block: twice as fast as one for each line.
        found = json.loads("[" + valid_text(text).replace("\n", ",") + "]")
    except (ValueError, RecursionError):
        return []
    return [record for record in found if isinstance(record, dict)]


def decode_blocks(payloads: Sequence[memoryview | bytes]) -> list[list[dict[str, Any]]]:
    """The records of each of these blocks, as :func:`decode_records` gives them.

    Blocks of a journal are mostly a line or two: one call of the parser for many takes a third less time.
    """
    found: list[list[dict[str, Any]]] = []
    try:
        texts = [str(payload, "ascii") for payload in payloads]
        found = json.loads("[[" + valid_text("],[".join(texts)).replace("\n", ",") + "]]")
    except (ValueError, RecursionError):
        pass
    if len(found) == len(payloads) and all(map(_is_lines, found)):
        return found
    return [decode_records(payload) for payload in payloads]  # one of them is no block of ours


def _is_lines(value: Any) -> bool:
    return type(value) is list and all([type(one) is dict for one in value])


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
            descriptor = open_regular(self.path)
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
