"""A replay buffer on disk: immutable files of rows that checkpoints refer to, so each writes only what is new.

Rows are counted from the first ever stored. Rows ``c * K`` to ``(c + 1) * K`` make chunk c, written once when they are
complete; the rows after the last complete chunk are written with every checkpoint. A file is named after its contents,
so a run that was resumed from an older checkpoint and went another way never meets the files of the first.
"""

from __future__ import annotations

import hashlib
import os
import re
import zipfile
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any, BinaryIO

import numpy as np
import psutil

from operant._util.files import open_regular, replacing
from operant.data.trees import Array
from operant.errors import OperantError

_PER_BUFFER = 64  # chunks; more would make more files, fewer would write more twice
_NAME = re.compile(r"replay-[a-z0-9-]+\.npz")

Saved = dict[str, dict[int, dict[str, Any]]]
"""Folder -> number of chunk -> its entry in the manifests."""


def save(
    folder: Path, saved: Saved, oldest: int, written: int, rows: int, arrays: Callable[[int, int], dict[str, Array]]
) -> dict[str, Any]:
    """Write the rows ``oldest`` to ``written`` as far as they are new; returns the manifest's entries."""
    per_chunk = -(-rows // _PER_BUFFER)
    known = saved.setdefault(str(folder.resolve()), {})
    # The newest row is left for the next time: the step after it may still say that its episode was cut off.
    complete = (written - 1) // per_chunk
    entries = []
    for number in range(oldest // per_chunk, complete):
        entry = known.get(number)
        if entry is None or not (folder / entry["file"]).exists():
            entry = _write_rows(folder, max(oldest, number * per_chunk), (number + 1) * per_chunk, arrays)
            known[number] = entry
        entries.append(entry)
    for number in [number for number in known if number < oldest // per_chunk]:
        del known[number]
    tail = _write_rows(folder, max(oldest, complete * per_chunk), written, arrays)
    return {"per_chunk": per_chunk, "chunks": entries, "tail": tail}


def load(
    folder: Path,
    saved: Saved,
    manifest: dict[str, Any],
    oldest: int,
    put: Callable[[int, int, dict[str, Array], int], None],
) -> None:
    """Hand all rows of a manifest to ``put``, and remember its chunks as saved in this folder."""
    for entry in [*manifest["chunks"], manifest["tail"]]:
        arrays = read(folder, entry["file"])
        try:
            put(entry["first"], entry["end"], arrays, oldest)
        except (KeyError, ValueError, IndexError) as error:
            raise OperantError(
                f"the replay file {folder / entry['file']} does not fit its checkpoint: {error}"
            ) from error
    saved[str(folder.resolve())] = {entry["first"] // manifest["per_chunk"]: entry for entry in manifest["chunks"]}


def _write_rows(folder: Path, first: int, end: int, arrays: Callable[[int, int], dict[str, Array]]) -> dict[str, Any]:
    return {"file": write(folder, f"{first}-{end}", arrays(first, end)), "first": first, "end": end}


def write(folder: Path, label: str, arrays: dict[str, Array]) -> str:
    """Write arrays into a file named after their contents, unless it is there; returns its name."""
    name = f"replay-{label}-{_digest(arrays)}.npz"
    path = folder / name
    if path.exists():
        return name
    folder.mkdir(parents=True, exist_ok=True)
    with replacing(path, sync=True) as staged, staged.open("wb") as file:
        np.savez(file, allow_pickle=False, **arrays)
    return name


def _digest(arrays: dict[str, Array]) -> str:
    digest = hashlib.blake2b(digest_size=12)
    for name, array in arrays.items():
        digest.update(f"{name} {array.dtype.str} {array.shape}\n".encode())
        digest.update(np.ascontiguousarray(array).data)
    return digest.hexdigest()


def read(folder: Path, name: str) -> dict[str, Array]:
    """The arrays of one file. Zip checksums find a damaged one; nothing in it is ever executed."""
    if not _NAME.fullmatch(name):
        raise OperantError(f"the checkpoint names the replay file {name!r}, which is no name of such a file")
    path = folder / name
    try:
        with os.fdopen(open_regular(path), "rb") as file:
            return read_arrays(file)
    except FileNotFoundError:
        raise OperantError(f"the replay file {path} is missing; its checkpoint cannot be loaded") from None
    except (OperantError, OSError) as error:
        raise OperantError(f"the replay file {path} is damaged: {error}") from error


def read_arrays(file: BinaryIO, *, packed: bool = False) -> dict[str, Array]:
    """The arrays of an npz file, which are no larger than the file: those of checkpoints are not packed, so one that is
    is no file of ours and may be made to fill a memory.

    :param packed: take a packed one too, if what it unpacks to fits into memory.
    """
    try:
        with zipfile.ZipFile(file) as archive:
            parts = archive.infolist()
            if not packed and any(one.compress_type != zipfile.ZIP_STORED for one in parts):
                raise OperantError("it is packed, which no checkpoint of Operant's is")
            size, free = sum(one.file_size for one in parts), psutil.virtual_memory().available
            if size > free:
                raise OperantError(f"its arrays take {size:,} bytes, and {free:,} of memory are free")
        file.seek(0)
        with np.load(file, allow_pickle=False) as arrays:
            return dict(arrays)
    except OperantError:
        raise
    except Exception as error:  # numpy's parser of headers fails in many ways
        raise OperantError(f"cannot be read: {type(error).__name__}: {error!s:.200}") from None


def check_chunks(folder: Path, manifest: Any) -> None:
    """Refuse a manifest of which a file is missing, or does not hold what it is named after."""
    for name in _files(manifest):
        if _digest(read(folder, name)) != name.removesuffix(".npz").rpartition("-")[2]:
            raise OperantError(f"the replay file {folder / name} is damaged: it does not hold what it is named after")


def prune_chunks(folder: Path, manifests: Iterable[dict[str, Any]]) -> int:
    """Delete the replay files that none of these manifests needs; returns how many."""
    needed = {name for manifest in manifests for name in _files(manifest)}
    gone = 0
    for path in folder.glob("replay-*.npz"):
        if path.name not in needed:
            path.unlink()
            gone += 1
    return gone


def _files(value: Any) -> Iterable[str]:
    """Every file name anywhere in a manifest."""
    if isinstance(value, str):
        if _NAME.fullmatch(value):
            yield value
    elif isinstance(value, dict):
        for part in value.values():
            yield from _files(part)
    elif isinstance(value, list):
        for part in value:
            yield from _files(part)
