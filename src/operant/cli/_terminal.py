"""How commands show things: tables that fit a terminal, plain columns where there is none."""

from __future__ import annotations

import os
import shutil
import sys
import time
from collections.abc import Sequence
from datetime import UTC, datetime

__all__ = ["ago", "clean", "duration", "iso", "print_table", "sparkline"]

_BARS = "▁▂▃▄▅▆▇█"
_COLOURS = {"RUNNING": "36", "FINISHED": "32", "ERROR": "31", "KILLED": "33", "SILENT": "35", "STOPPED": "34"}


def print_table(headings: Sequence[str], rows: Sequence[Sequence[str]], whole: str | None = None) -> None:
    """Columns as wide as needed. On a terminal the widest one is cut so that a row stays on one line, but never the
    column with the heading ``whole``: half an address is none."""
    columns = [_cleaned(column) for column in zip(headings, *rows, strict=True)]  # thousands of rows: whole columns
    widths = [max(map(len, column)) for column in columns]
    colour = sys.stdout.isatty() and "NO_COLOR" not in os.environ
    if sys.stdout.isatty():
        spare = shutil.get_terminal_size().columns - sum(widths) - 2 * (len(widths) - 1)
        if spare < 0:
            cut = [0 if heading == whole else width for heading, width in zip(headings, widths, strict=True)]
            widest = cut.index(max(cut))
            widths[widest] = max(10, widths[widest] + spare)
            columns[widest] = [_cut(cell, widths[widest]) for cell in columns[widest]]
    shape = "  ".join(f"%-{width}s" for width in widths)
    lines = []
    for number, row in enumerate(zip(*columns, strict=True)):
        line = (shape % row).rstrip()
        if colour and number == 0:
            line = f"\x1b[1m{line}\x1b[0m"
        elif colour:
            for word, code in _COLOURS.items():
                line = line.replace(f"  {word}  ", f"  \x1b[{code}m{word}\x1b[0m  ", 1)
        lines.append(line)
    print("\n".join(lines))


def clean(text: str) -> str:
    """Without control characters: a run's name must not be able to steer the terminal."""
    if text.isprintable():
        return text
    return "".join(char if char.isprintable() else "�" for char in text)


def iso(wall: float | None) -> str | None:
    return None if wall is None else datetime.fromtimestamp(wall, UTC).isoformat(timespec="milliseconds")


def ago(wall: float | None) -> str:
    return "" if wall is None else f"{duration(max(0.0, time.time() - wall))} ago"


def duration(seconds: float) -> str:
    for unit, size in (("d", 86400), ("h", 3600), ("min", 60)):
        if seconds >= size:
            return f"{seconds / size:.0f} {unit}" if seconds >= 10 * size else f"{seconds / size:.1f} {unit}"
    return f"{seconds:.0f} s"


def sparkline(values: Sequence[float]) -> str:
    """Values as a row of bars; what is not finite shows as a dot."""
    finite = [value for value in values if abs(value) < float("inf")]
    if not finite:
        return "·" * len(values)
    low, high = min(finite), max(finite)
    scale = (len(_BARS) - 1) / (high - low) if high > low else 0.0
    return "".join(_BARS[round((value - low) * scale)] if abs(value) < float("inf") else "·" for value in values)


def _cleaned(column: Sequence[str]) -> Sequence[str]:
    return column if "".join(column).isprintable() else [clean(cell) for cell in column]


def _cut(cell: str, width: int) -> str:
    return cell if len(cell) <= width else cell[: width - 1] + "…"
