"""A strict reader of tar archives: regular files and folders only, sizes known before anything is allocated.

Python's own tarfile follows links, restores devices and reads extension headers of any size into memory; its
filters have been bypassed more than once. What is not understood here is refused.
"""

from __future__ import annotations

import zlib
from collections.abc import Iterator
from pathlib import Path
from typing import BinaryIO, NamedTuple

from operant.errors import UsageError

BLOCK = 512
_LARGEST_EXTENSION = 1 << 16
_LONGEST_PATH = 1024
_CHUNK = 1 << 18
_LONGEST_END = 1 << 20  # of zeros behind the last file
_REFUSED = {
    b"1": "a hard link", b"2": "a symbolic link", b"3": "a device", b"4": "a device", b"6": "a named pipe",
    b"7": "a special file", b"S": "a sparse file", b"L": "an old-style long name", b"K": "an old-style long link",
    b"g": "a global header",
}  # fmt: skip
_RESERVED = {"con", "prn", "aux", "nul", *(f"{name}{digit}" for name in ("com", "lpt") for digit in range(1, 10))}


class Member(NamedTuple):
    name: str
    is_folder: bool
    size: int
    chunks: Iterator[bytes]
    """The content; what is not read is passed over."""


class _Inflating:
    """The decompressed bytes of a gzip file, never more of them at once than asked for."""

    def __init__(self, file: BinaryIO) -> None:
        self._file = file
        self._inflater = zlib.decompressobj(31)
        self._left = b""
        self.taken = 0

    def read(self, size: int) -> bytes:
        found = bytearray()
        while len(found) < size:
            data = self._left or self._file.read(_CHUNK)
            if not data:
                break
            try:
                found += self._inflater.decompress(data, size - len(found))
            except zlib.error as error:
                raise UsageError(f"the archive is damaged: {error}") from None
            self._left = self._inflater.unconsumed_tail
            if self._inflater.eof:
                break
        self.taken += len(found)
        return bytes(found)

    def finish(self) -> None:
        """Go to the end, where gzip has a checksum of all that came before."""
        rest = self.read(_LONGEST_END + 1)
        if len(rest) > _LONGEST_END or rest.strip(b"\0") or not self._inflater.eof:
            raise UsageError("the archive is damaged: it does not end where its files do")

    def exactly(self, size: int) -> bytes:
        data = self.read(size)
        if len(data) < size:
            raise UsageError("the archive ends in the middle")
        return data


def read_members(path: Path) -> Iterator[Member]:
    """Each member in turn; the first thing in an archive that does not belong in one raises UsageError."""
    with path.open("rb") as file:
        stream = _Inflating(file)
        renamed: dict[str, str] = {}
        while True:
            header = stream.read(BLOCK)
            if not header.strip(b"\0"):
                stream.finish()
                return
            if len(header) < BLOCK or not _checksum_fits(header):
                raise UsageError("the archive is damaged, or no tar archive")
            kind, size = header[156:157], _number(header[124:136])
            if kind == b"x":
                if size > _LARGEST_EXTENSION:
                    raise UsageError("the archive has an oversized header")
                renamed = _extension(stream.exactly(size))
                stream.exactly(-size % BLOCK)
                continue
            name = renamed.pop("path", None) or _plain_name(header)
            size = int(renamed.pop("size", size))
            renamed = {}
            if kind not in (b"0", b"\0", b"5"):
                raise UsageError(
                    f"{name!r} is {_REFUSED.get(kind, 'of an unknown kind')}; only files and folders are taken"
                )
            is_folder = kind == b"5"
            if size < 0 or (is_folder and size):
                raise UsageError(f"{name!r} has an impossible size")
            chunks = _content(stream, size)
            yield Member(check_member_name(name.rstrip("/") if is_folder else name), is_folder, size, chunks)
            for _ in chunks:
                pass


def check_member_name(name: str) -> str:
    """A name that stays below the folder it is written to, on every system."""
    parts = name.split("/")
    bad = (
        not name
        or len(name.encode("utf-8", "surrogatepass")) > _LONGEST_PATH
        or any(not char.isprintable() for char in name)
        or any(char in name for char in '\\:*?"<>|')
        or any(part in ("", ".", "..") or len(part.encode()) > 255 or part[-1] in ". " for part in parts)
        or any(part.partition(".")[0].lower() in _RESERVED for part in parts)
    )
    if bad:
        raise UsageError(f"the archive holds a file with the name {name[:200]!r}, which is not allowed")
    return name


def _content(stream: _Inflating, size: int) -> Iterator[bytes]:
    left = size
    while left:
        data = stream.exactly(min(left, _CHUNK))
        left -= len(data)
        yield data
    stream.exactly(-size % BLOCK)


def _checksum_fits(header: bytes) -> bool:
    try:
        stored = _number(header[148:156])
    except UsageError:
        return False
    return stored == sum(header[:148]) + 8 * 32 + sum(header[156:])


def _number(field: bytes) -> int:
    text = field.strip(b" \0")
    if not text:
        return 0
    if not text.isdigit() or set(text) & set(b"89"):
        raise UsageError("the archive has a number that is none")
    return int(text, 8)


def _plain_name(header: bytes) -> str:
    name, prefix = header[:100].split(b"\0")[0], b""
    if header[257:262] == b"ustar":
        prefix = header[345:500].split(b"\0")[0]
    return (prefix + b"/" + name if prefix else name).decode("utf-8", "surrogateescape")


def _extension(data: bytes) -> dict[str, str]:
    """A pax header: records of `length key=value`; only what names and sizes need is known."""
    found: dict[str, str] = {}
    while data:
        head, _, _ = data.partition(b" ")
        length = int(head) if head.isdigit() and len(head) < 8 else 0
        record = data[len(head) + 1 : length]
        key, equals, value = record.partition(b"=")
        if length <= len(head) or length > len(data) or not equals or not value.endswith(b"\n"):
            raise UsageError("the archive has a damaged header")
        name = key.decode("utf-8", "replace")
        if name == "path":
            found["path"] = value[:-1].decode("utf-8", "surrogateescape")
        elif name == "size":
            if not value[:-1].isdigit() or len(value) > 20:
                raise UsageError("the archive has a size that is none")
            found["size"] = value[:-1].decode()
        elif name.startswith(("GNU.", "LIBARCHIVE.", "SCHILY.")) or name == "linkpath":
            raise UsageError(f"the archive uses the extension {name!r}, which is not taken")
        data = data[length:]
    return found
