"""What people said of a run after it was recorded: a note, tags added and removed.

They lie as small messages in the run's ``inbox``, since nobody but a run's own processes writes its segments.
The messages stay there; whoever reads the run reads them too, oldest first.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

from operant.errors import UsageError
from operant.tracking.journal.inbox import collect_messages

__all__ = ["LONGEST_NOTE", "LONGEST_TAG", "MOST_TAGS", "Annotations", "check_annotation"]

LONGEST_NOTE = 64 << 10
LONGEST_TAG = 200
MOST_TAGS = 100
"""In one message."""


def check_annotation(content: Any) -> dict[str, Any]:
    """A message that says something of a run, with what belongs to it and nothing else; or what is wrong with it."""
    if not isinstance(content, dict) or content.get("type") not in ("note", "tags"):
        raise UsageError('of a run one can say {"type": "note", "text": …} or {"type": "tags", "add": …, "remove": …}')
    if content["type"] == "note":
        text = content.get("text")
        if not isinstance(text, str) or len(text) > LONGEST_NOTE:
            raise UsageError(f"a note is a text of at most {LONGEST_NOTE} characters")
        return {"type": "note", "text": text}
    edit: dict[str, Any] = {"type": "tags"}
    for which in ("add", "remove"):
        tags = content.get(which, [])
        if not isinstance(tags, list) or len(tags) > MOST_TAGS:
            raise UsageError(f"{which!r} is a list of at most {MOST_TAGS} tags")
        if not all(isinstance(tag, str) and 0 < len(tag) <= LONGEST_TAG for tag in tags):
            raise UsageError(f"a tag is a text of 1 to {LONGEST_TAG} characters")
        edit[which] = tags
    if not edit["add"] and not edit["remove"]:
        raise UsageError("give tags to add or to remove")
    return edit


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
