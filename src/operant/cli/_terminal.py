"""How commands show things: tables that fit a terminal, plain columns where there is none."""

from __future__ import annotations

import os
import shutil
import sys
import textwrap
from collections.abc import Sequence
from datetime import UTC, datetime

from operant._util.units import printable
from operant.status import Status

_BARS = "▁▂▃▄▅▆▇█"
_COLOURS: dict[str, str] = {
    Status.RUNNING: "36",
    Status.FINISHED: "32",
    Status.ERROR: "31",
    Status.KILLED: "33",
    Status.SILENT: "35",
    Status.STOPPED: "34",
}
_LEAST_CUT, _LEAST_TOLD, _LEAST_FOLDED = 4, 30, 20


def print_table(
    headings: Sequence[str],
    rows: Sequence[Sequence[str]],
    whole: str | None = None,
    *,
    spare: str | None = None,
    fold: bool = False,
) -> bool:
    """Columns as wide as needed; on a terminal they are made to fit it. Returns whether ``spare`` was left out.

    Where there is no room, the column ``spare`` falls away; then the widest one is cut so that a row stays on one
    line, but never ``whole``: half an address is none. With ``fold`` the last column goes on below itself instead.
    """
    columns = [_cleaned(column) for column in zip(headings, *rows, strict=True)]  # thousands of rows: whole columns
    left_out, room = False, terminal_columns()
    if room is not None:
        if spare is not None and _least_width(columns, whole) > room:
            columns = [column for column in columns if column[0] != spare]
            left_out = True
        columns = _fitted(columns, room, whole, fold)
    # Only the last column may have several lines, and then nothing stands to its right.
    widths = [*(max(map(len, column)) for column in columns[:-1]), 0]
    colour = room is not None and "NO_COLOR" not in os.environ
    shape = "  ".join(f"%-{width}s" for width in widths)
    below = "\n" + " " * (sum(widths[:-1]) + 2 * (len(widths) - 1))
    lines = []
    for number, row in enumerate(zip(*columns, strict=True)):
        line = (shape % row).rstrip()
        if colour and number == 0:
            line = f"\x1b[1m{line}\x1b[0m"
        elif colour:
            for word, code in _COLOURS.items():
                line = line.replace(f"  {word}  ", f"  \x1b[{code}m{word}\x1b[0m  ", 1)
        lines.append(line.replace("\n", below))
    print("\n".join(lines))
    return left_out


def terminal_columns() -> int | None:
    """How wide the terminal is; None where there is none."""
    return shutil.get_terminal_size().columns if sys.stdout.isatty() else None


def folded(text: str, indent: int, room: int | None = None) -> str:
    """Text that goes on below itself, ``indent`` columns to the right, where the terminal ends."""
    room = room or shutil.get_terminal_size().columns
    return "\n".join(textwrap.wrap(text, max(_LEAST_FOLDED, room - indent), break_on_hyphens=False) or [""])


def _least_width(columns: list[Sequence[str]], whole: str | None) -> int:
    """How wide a row is at least, if of its widest column no more is cut than one can do without."""
    widths = {column[0]: max(map(len, column)) for column in columns}
    cut = max((name for name in widths if name != whole), key=lambda name: widths[name])
    return sum(widths.values()) - max(0, widths[cut] - _LEAST_TOLD) + 2 * (len(columns) - 1)


def _fitted(columns: list[Sequence[str]], room: int, whole: str | None, fold: bool) -> list[Sequence[str]]:
    widths = [max(map(len, column)) for column in columns]
    over = sum(widths) + 2 * (len(widths) - 1) - room
    if over <= 0:
        return columns
    if fold:
        return [*columns[:-1], [folded(cell, room - widths[-1] + over, room) for cell in columns[-1]]]
    cut = [0 if column[0] == whole else width for column, width in zip(columns, widths, strict=True)]
    widest = len(cut) - 1 - cut[::-1].index(max(cut))  # of several the last: what stands first tells most
    narrow = max(_LEAST_CUT, widths[widest] - over)
    return [
        [_cut(cell, narrow) for cell in column] if place == widest else column for place, column in enumerate(columns)
    ]


def iso(wall: float | None) -> str | None:
    return None if wall is None else datetime.fromtimestamp(wall, UTC).isoformat(timespec="milliseconds")


def sparkline(values: Sequence[float]) -> str:
    """Values as a row of bars; what is not finite shows as a dot."""
    finite = [value for value in values if abs(value) < float("inf")]
    if not finite:
        return "·" * len(values)
    low, high = min(finite), max(finite)
    scale = (len(_BARS) - 1) / (high - low) if high > low else 0.0
    return "".join(_BARS[round((value - low) * scale)] if abs(value) < float("inf") else "·" for value in values)


def _cleaned(column: Sequence[str]) -> Sequence[str]:
    return column if "".join(column).isprintable() else [printable(cell) for cell in column]


def _cut(cell: str, width: int) -> str:
    return cell if len(cell) <= width else cell[: width - 1] + "…"
