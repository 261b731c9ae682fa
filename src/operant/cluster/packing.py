"""The working directory of a job as one file: what the program needs, without what it does not."""

from __future__ import annotations

import fnmatch
import os
import zipfile
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path

from operant.errors import UsageError

EXCLUDED = (
    ".git", ".venv", "venv", ".operant", ".operant-job", "__pycache__", "node_modules", "*.pyc",
    ".mypy_cache", ".pytest_cache", ".ruff_cache", ".hypothesis", ".ipynb_checkpoints",
)  # fmt: skip
MOST_BYTES = 100 << 20
"""What Ray's head takes."""


def pack(folder: Path, target: Path, excludes: Sequence[str] = (), extra: Mapping[str, bytes] | None = None) -> None:
    """Write a zip of a folder, the same bytes for the same files.

    :param excludes: further patterns, of names or of paths below the folder.
    :param extra: further files, by path.
    """
    if not folder.is_dir():
        raise UsageError(f"there is no folder {folder} to run in")
    sizes: list[tuple[int, str]] = []
    with zipfile.ZipFile(target, "w", zipfile.ZIP_DEFLATED, compresslevel=1) as archive:
        for path in _files(folder, (*EXCLUDED, *excludes)):
            name = path.relative_to(folder).as_posix()
            data = path.read_bytes()
            sizes.append((len(data), name))
            if sum(size for size, _ in sizes) > 10 * MOST_BYTES:
                break
            _add(archive, name, data, bool(path.stat().st_mode & 0o111))
        for name, data in (extra or {}).items():
            _add(archive, name, data, False)
    if target.stat().st_size > MOST_BYTES:
        largest = ", ".join(f"{name} ({size >> 20} MB)" for size, name in sorted(sizes, reverse=True)[:3])
        raise UsageError(
            f"{folder} is too large to be sent, more than {MOST_BYTES >> 20} MB; the largest are {largest}: leave "
            "them out (--exclude), or put them on a volume"
        )


def _files(folder: Path, excludes: Sequence[str]) -> Iterator[Path]:
    for place, folders, names in os.walk(folder):
        here = Path(place)
        folders[:] = sorted(name for name in folders if not _excluded(here / name, folder, excludes))
        for name in sorted(names):
            path = here / name
            if path.is_file() and not _excluded(path, folder, excludes):
                yield path


def _excluded(path: Path, folder: Path, excludes: Sequence[str]) -> bool:
    inside = path.relative_to(folder).as_posix()
    return any(fnmatch.fnmatch(path.name, one) or fnmatch.fnmatch(inside, one.rstrip("/")) for one in excludes)


def _add(archive: zipfile.ZipFile, name: str, data: bytes, runs: bool) -> None:
    about = zipfile.ZipInfo(name, (1980, 1, 1, 0, 0, 0))
    about.external_attr = (0o755 if runs else 0o644) << 16
    about.compress_type = zipfile.ZIP_DEFLATED
    archive.writestr(about, data)
