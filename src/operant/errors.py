"""Errors that are meant for people: one sentence that says what is wrong, where, and what would be right."""

from __future__ import annotations

import difflib
from collections.abc import Iterable

__all__ = ["MissingExtraError", "OperantError", "UsageError", "nearest"]


class OperantError(Exception):
    """Anything Operant says to its user in one sentence; commands print it without a traceback."""


class UsageError(OperantError, ValueError):
    """An argument, key or file that cannot be used as it was given."""


class MissingExtraError(OperantError, ImportError):
    """A feature whose optional packages are not installed."""

    def __init__(self, feature: str, extra: str) -> None:
        super().__init__(f"{feature} needs an extra that is not installed: pip install 'operant[{extra}]'")


def nearest(word: str, known: Iterable[str]) -> str:
    """Return ``" (did you mean 'x'?)"`` for the known word closest to ``word``, or an empty string."""
    close = difflib.get_close_matches(word, list(known), n=1, cutoff=0.5)
    return f" (did you mean {close[0]!r}?)" if close else ""
