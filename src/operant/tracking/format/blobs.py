"""Files of a run, stored once by content: pictures, videos, diffs, whatever ``add_file`` was given."""

from __future__ import annotations

import hashlib
import re
import secrets
from pathlib import Path
from typing import Any

from operant._util.files import replacing, sync_data
from operant.errors import UsageError

BLOB_NAME = re.compile(r"[0-9a-f]{64}(\.[a-z0-9]{1,8})?")
_CHUNK = 1 << 20


def blob_path(run_folder: Path, name: str) -> Path:
    if not BLOB_NAME.fullmatch(name):
        raise ValueError(f"not a blob's name: {name!r}")
    return run_folder / "blobs" / name


def store_bytes(run_folder: Path, data: bytes, suffix: str = "") -> dict[str, Any]:
    """Store ``data`` and return ``{"name", "size"}`` for the record that refers to it."""
    name = hashlib.sha256(data).hexdigest() + _clean_suffix(suffix)
    target = blob_path(run_folder, name)
    if not target.exists():
        target.parent.mkdir(parents=True, exist_ok=True)
        with replacing(target, sync=True) as staged:
            staged.write_bytes(data)
    return {"name": name, "size": len(data)}


def store_file(run_folder: Path, source: Path) -> dict[str, Any]:
    """Copy ``source`` into the run; the copy is whole or absent, never half there."""
    copy = BlobWriter(run_folder)
    try:
        with source.open("rb") as stream:
            while chunk := stream.read(_CHUNK):
                copy.add(chunk)
        name = copy.checksum + _clean_suffix(source.suffix)
        copy.keep_as(name)
    finally:
        copy.close()
    return {"name": name, "size": copy.size}


class BlobWriter:
    """A blob on its way: pieces are added beside the blobs, and it gets its name when it is whole. Close it always."""

    def __init__(self, run_folder: Path) -> None:
        self._folder = run_folder
        self._digest = hashlib.sha256()
        self.size = 0
        (run_folder / "blobs").mkdir(parents=True, exist_ok=True)
        self._staged = run_folder / "blobs" / f".{secrets.token_hex(8)}.part"
        self._stream = self._staged.open("xb")

    @property
    def checksum(self) -> str:
        return self._digest.hexdigest()

    def add(self, piece: bytes) -> None:
        self._digest.update(piece)
        self._stream.write(piece)
        self.size += len(piece)

    def keep_as(self, name: str) -> None:
        """Give it its name, which must begin with its checksum."""
        if self.checksum != name[:64]:
            raise UsageError("the blob's content does not have the checksum that its name says")
        self._stream.flush()
        sync_data(self._stream.fileno())
        self._staged.rename(blob_path(self._folder, name))

    def close(self) -> None:
        self._stream.close()
        self._staged.unlink(missing_ok=True)


def _clean_suffix(suffix: str) -> str:
    suffix = suffix.lower()
    return suffix if re.fullmatch(r"\.[a-z0-9]{1,8}", suffix) else ""
