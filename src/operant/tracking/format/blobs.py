"""Files of a run, stored once by content: pictures, videos, diffs, whatever ``add_file`` was given."""

from __future__ import annotations

import hashlib
import re
import secrets
from pathlib import Path
from typing import Any

from operant.tracking.format.disk import sync_data

__all__ = ["BLOB_NAME", "blob_path", "store_bytes", "store_file"]

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
        with _Staged(run_folder) as staged:
            staged.write(data)
            staged.keep_as(target)
    return {"name": name, "size": len(data)}


def store_file(run_folder: Path, source: Path) -> dict[str, Any]:
    """Copy ``source`` into the run; the copy is whole or absent, never half there."""
    digest, size = hashlib.sha256(), 0
    with _Staged(run_folder) as staged, source.open("rb") as stream:
        while chunk := stream.read(_CHUNK):
            digest.update(chunk)
            staged.write(chunk)
            size += len(chunk)
        name = digest.hexdigest() + _clean_suffix(source.suffix)
        staged.keep_as(blob_path(run_folder, name))
    return {"name": name, "size": size}


def _clean_suffix(suffix: str) -> str:
    suffix = suffix.lower()
    return suffix if re.fullmatch(r"\.[a-z0-9]{1,8}", suffix) else ""


class _Staged:
    """A temporary file beside the blobs, renamed when it is whole, removed when it is not."""

    def __init__(self, run_folder: Path) -> None:
        folder = run_folder / "blobs"
        folder.mkdir(parents=True, exist_ok=True)
        self._path = folder / f".{secrets.token_hex(8)}.part"

    def __enter__(self) -> _Staged:
        self._stream = self._path.open("xb")
        return self

    def write(self, data: bytes) -> None:
        self._stream.write(data)

    def keep_as(self, target: Path) -> None:
        self._stream.flush()
        sync_data(self._stream.fileno())
        self._path.rename(target)

    def __exit__(self, *_: object) -> None:
        try:
            self._stream.close()
        finally:
            self._path.unlink(missing_ok=True)
