"""Lines for a terminal of a given width: everything that comes from jobs is made harmless here."""

from __future__ import annotations

import os
import re
from collections.abc import Mapping, Sequence
from pathlib import Path

from rich.text import Text

from operant._util.units import printable
from operant.cli._terminal import sparkline
from operant.status import Status

_STYLES: dict[str, str] = {
    Status.RUNNING: "cyan",
    Status.PAUSED: "yellow",
    Status.SILENT: "magenta",
    Status.FINISHED: "green",
    Status.STOPPED: "blue",
    Status.KILLED: "yellow",
    Status.ERROR: "red",
}
# Colours and cursor moves that a program prints, and the titles and links that some terminals take.
_ESCAPES = re.compile(r"\x1b\[[0-?]*[ -/]*[@-~]|\x1b[\]PX^_].*?(?:\x07|\x1b\\|$)|\x1b[@-Z\\-_]")
_TAIL_BYTES = 16384


def status_style(status: str) -> str:
    return _STYLES.get(status, "")


def line(text: str = "", style: str = "") -> Text:
    """One line that is cut where the terminal ends, without anything a terminal would obey."""
    return Text(printable(text), style=style, no_wrap=True, overflow="ellipsis")


def rule(title: str, width: int) -> Text:
    head = f"── {printable(title)} "
    return line(head + "─" * max(0, width - len(head)), "dim")


def cells(texts: Sequence[str], widths: Sequence[int], style: str = "") -> Text:
    """Columns; one that is too long is cut, never pushed into the next. A negative width aligns to the right."""
    shown = []
    for text, width in zip(texts, widths, strict=True):
        text, room = printable(text), abs(width)
        text = text if len(text) <= room else text[: room - 1] + "…"
        shown.append(text.rjust(room) if width < 0 else text.ljust(room))
    return line(" ".join(shown).rstrip(), style)


def counts_lines(counts: Mapping[str, int]) -> list[Text]:
    """The status table: a heading, and the number of jobs below it."""
    widths = [-max(8, len(name)) for name in counts]
    numbers = cells([str(count) for count in counts.values()], widths, "bold")
    if counts.get("abnormal"):
        numbers.stylize("red", len(numbers) - len(str(counts["abnormal"])))
    return [cells(list(counts), widths, "dim"), numbers]


def shrink(values: Sequence[float], width: int) -> str:
    """A curve in at most ``width`` characters; the last value is always its last."""
    if len(values) > width > 0:
        values = [values[(place + 1) * len(values) // width - 1] for place in range(width)]
    return sparkline(values)


def bar(part: float, width: int) -> str:
    full = round(min(max(part, 0.0), 1.0) * width)
    return "█" * full + "░" * (width - full)


def log_lines(path: Path, count: int) -> list[str]:
    """The last lines of a file, as a terminal would have left them: no escapes, progress bars at their last state."""
    if count <= 0:
        return []
    try:
        with path.open("rb") as stream:
            size = stream.seek(0, os.SEEK_END)
            stream.seek(max(0, size - _TAIL_BYTES))
            data = stream.read(_TAIL_BYTES)
    except OSError:
        return []
    lines = data.decode("utf-8", "replace").split("\n")
    if size > _TAIL_BYTES and len(lines) > 1:
        del lines[0]  # its beginning was not read
    shown = [_ESCAPES.sub("", one.rstrip("\r").rpartition("\r")[2]).expandtabs(4) for one in lines]
    return [one for one in shown if one.strip()][-count:]
