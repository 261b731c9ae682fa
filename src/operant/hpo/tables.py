"""Tables as plain text, in the style of the status table: `+---+` between rows and `+===+` below the head."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from operant._util.units import printable

__all__ = ["show", "text_table"]


def text_table(head: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    widths = [max(len(row[i]) for row in (head, *rows)) for i in range(len(head))]
    line = "+" + "+".join("-" * (width + 2) for width in widths) + "+"
    double = line.replace("-", "=")
    lines = [line, _row(head, widths), double]
    for row in rows:
        lines += [_row(row, widths), line]
    return "\n".join(lines)


def show(value: Any) -> str:
    """A value as it stands in a cell: one printable line, not too long."""
    if isinstance(value, float):
        return f"{value:.6g}"
    text = printable(str(value))
    return text if len(text) <= 60 else text[:57] + "..."


def _row(cells: Sequence[str], widths: Sequence[int]) -> str:
    return "| " + " | ".join(cell.ljust(width) for cell, width in zip(cells, widths, strict=True)) + " |"
