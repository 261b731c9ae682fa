"""Imports of what a user has written beside the experiment."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

__all__ = ["modules_from_here"]


@contextmanager
def modules_from_here() -> Iterator[None]:
    """Let imports inside the block find modules in the current folder, where the installed commands do not look."""
    here = str(Path.cwd())
    added = here not in sys.path
    if added:
        sys.path.insert(0, here)
    try:
        yield
    finally:
        if added:
            sys.path.remove(here)
