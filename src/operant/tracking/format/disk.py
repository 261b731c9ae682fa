"""Two things every writer of files needs."""

from __future__ import annotations

import os

__all__ = ["sync_data", "write_all"]

# macOS has no fdatasync; there fsync does the same work and some more.
sync_data = getattr(os, "fdatasync", os.fsync)


def write_all(descriptor: int, data: bytes) -> None:
    """Write all of ``data``, in as many calls as the system likes."""
    done = os.write(descriptor, data)
    while done < len(data):
        done += os.write(descriptor, memoryview(data)[done:])
