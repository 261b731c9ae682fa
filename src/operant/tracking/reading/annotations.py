"""What people said of a run after it was recorded: a note, tags added and removed.

They lie as small messages in the run's ``inbox``, since nobody but a run's own processes writes its segments.
The messages stay there; whoever reads the run reads them too, oldest first.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

from operant.tracking.journal.inbox import collect_messages

__all__ = ["Annotations"]


class Annotations:
    """The messages in one inbox, folded; read again only when the folder has changed."""

    def __init__(self) -> None:
        self.note = ""
        self._edits: list[tuple[list[str], list[str]]] = []
        self._mark: int | None = None

    def update(self, folder: Path, before: Sequence[dict[str, Any]] | None = None) -> bool:
        """Look whether messages came; return whether any may have. ``before`` are older ones that lie elsewhere
        (those of a search are in its journal) and have changed, or None."""
        try:
            mark = (folder / "inbox").stat().st_mtime_ns
        except OSError:
            mark = None
        if mark == self._mark and before is None:
            return False
        self._mark = mark
        self.note, self._edits = "", []
        waiting = collect_messages(folder, set_aside=False) if mark is not None else []
        for content in (*(before or ()), *(message.content for message in waiting)):
            self.fold(content)
        return True

    def fold(self, content: dict[str, Any]) -> None:
        """Take in one message; what is none of these is passed over."""
        if content["type"] == "note" and isinstance(content.get("text"), str):
            self.note = content["text"]
        elif content["type"] == "tags":
            self._edits.append((_texts(content.get("add")), _texts(content.get("remove"))))

    def apply(self, tags: list[str]) -> list[str]:
        """The tags that a program gave, with the changes."""
        if not self._edits:
            return tags
        changed = list(tags)
        for add, remove in self._edits:
            changed += [tag for tag in dict.fromkeys(add) if tag not in changed]
            changed = [tag for tag in changed if tag not in remove]
        return changed


def _texts(value: Any) -> list[str]:
    return [one for one in value if isinstance(one, str)] if isinstance(value, list) else []
