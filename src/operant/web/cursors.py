"""How far a page has read, as a short text that it hands back: `<server>.s<version>.r<arrival>`."""

from __future__ import annotations

import re
from dataclasses import dataclass

__all__ = ["Cursor"]

_TEXT = re.compile(r"([0-9a-f]{8})((?:\.[sr][0-9]{1,18}){0,2})")


@dataclass
class Cursor:
    """``search`` is a version of a search, ``runs`` a place in the order in which points arrived at the server."""

    instance: str
    search: int | None = None
    runs: int | None = None

    def __str__(self) -> str:
        search = "" if self.search is None else f".s{self.search}"
        return f"{self.instance}{search}" + ("" if self.runs is None else f".r{self.runs}")

    @classmethod
    def parse(cls, text: str, instance: str) -> Cursor:
        """What the text (or several with commas between them) says; nothing if another server gave it."""
        cursor = cls(instance)
        for part in text.split(","):
            found = _TEXT.fullmatch(part.strip())
            if found is None or found[1] != instance:
                continue
            for one in found[2].split(".")[1:]:
                if one[0] == "s":
                    cursor.search = int(one[1:])
                else:
                    cursor.runs = int(one[1:])
        return cursor
