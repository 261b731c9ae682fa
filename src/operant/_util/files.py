"""Files that are there whole or not at all."""

from __future__ import annotations

import errno
import os
import secrets
import stat
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

# macOS has no fdatasync; there fsync does the same work and some more.
sync_data = getattr(os, "fdatasync", os.fsync)


def write_all(descriptor: int, data: bytes) -> None:
    """Write all of ``data``, in as many calls as the system likes."""
    done = os.write(descriptor, data)
    while done < len(data):
        done += os.write(descriptor, memoryview(data)[done:])


def open_regular(path: Path) -> int:
    """A descriptor to read a file by. A pipe or a device in its place is an OSError: nobody waits for one, or reads it
    without end."""
    descriptor = os.open(path, os.O_RDONLY | os.O_CLOEXEC | os.O_NONBLOCK)
    if not stat.S_ISREG(os.fstat(descriptor).st_mode):
        os.close(descriptor)
        raise OSError(errno.EINVAL, "it is no regular file", str(path))
    return descriptor


def read_regular(path: Path) -> bytes:
    """All of a file, as `open_regular` opens one."""
    with os.fdopen(open_regular(path), "rb") as stream:
        return stream.read()


@contextmanager
def replacing(target: Path, *, sync: bool = False) -> Iterator[Path]:
    """A path beside ``target`` to write a file or a folder to, which takes its name when the block ends well.

    If the block fails, nothing is left of it and ``target`` is as it was. With ``sync`` a file's content is on disk
    before it has its name, and so survives a power failure too.
    """
    staged = target.with_name(f".{target.name[:200]}.{secrets.token_hex(6)}")
    try:
        yield staged
        if sync:
            with staged.open("rb") as stream:
                os.fsync(stream.fileno())
        staged.replace(target)
    except BaseException:
        if staged.is_dir():
            import shutil  # brings bz2 and lzma, which no recording program needs

            shutil.rmtree(staged, ignore_errors=True)
        else:
            staged.unlink(missing_ok=True)
        raise


def write_file(target: Path, content: str | bytes | memoryview, *, sync: bool = False) -> None:
    """Write a whole file in place of the one that is there, if any; its folder is made where it is missing."""
    target.parent.mkdir(parents=True, exist_ok=True)
    with replacing(target, sync=sync) as staged:
        staged.write_bytes(content.encode() if isinstance(content, str) else content)


def sync_folder(folder: Path) -> None:
    """Names that were given in a folder survive a power failure."""
    handle = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)
