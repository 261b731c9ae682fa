"""Readable logging on the console: colours on a terminal, plain lines in files and pipes.

All that the standard `logging` has is here too, so that ``from operant import log as logging`` is enough.
"""

from __future__ import annotations

import logging
import os
import sys
from typing import Any, TextIO

__all__ = ["try_init_root"]

_COLOURS = {
    logging.DEBUG: "\x1b[2m",
    logging.INFO: "\x1b[32m",
    logging.WARNING: "\x1b[33m",
    logging.ERROR: "\x1b[31m",
    logging.CRITICAL: "\x1b[1;31m",
}
_PLAIN = "\x1b[0m"


class _ConsoleHandler(logging.StreamHandler[TextIO]):
    """Writes to what stderr is at that moment, so that redirecting it works."""

    def __init__(self) -> None:
        super().__init__(sys.stderr)
        self.setFormatter(_ConsoleFormatter())

    def emit(self, record: logging.LogRecord) -> None:
        self.stream = sys.stderr
        super().emit(record)


class _ConsoleFormatter(logging.Formatter):
    def __init__(self) -> None:
        super().__init__("%(asctime)s %(level)s %(name)s: %(message)s", "%H:%M:%S")

    def format(self, record: logging.LogRecord) -> str:
        level = record.levelname.ljust(7)
        colour = _COLOURS.get(record.levelno, "") if _has_colours() else ""
        record.level = f"{colour}{level}{_PLAIN}" if colour else level
        return super().format(record)


def _has_colours() -> bool:
    return sys.stderr.isatty() and not os.environ.get("NO_COLOR") and os.environ.get("TERM") != "dumb"


def try_init_root(level: int | str | None = None) -> logging.Logger:
    """Show log lines of this `level` and above on the console, unless the program has set up logging by itself.

    Calling it again only changes the level. Returns the root logger.
    """
    root = logging.getLogger()
    if not root.handlers:
        root.addHandler(_ConsoleHandler())
    if level is not None and any(isinstance(one, _ConsoleHandler) for one in root.handlers):
        root.setLevel(level)
    return root


def __getattr__(name: str) -> Any:
    try:
        return getattr(logging, name)
    except AttributeError:
        raise AttributeError(f"neither operant.log nor logging has {name!r}") from None
