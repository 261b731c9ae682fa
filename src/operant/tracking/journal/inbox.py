"""How others speak to a controller: a small file renamed into its inbox. Only the controller writes the journal."""

from __future__ import annotations

import json
import os
import re
import time
from pathlib import Path
from typing import Any, NamedTuple

from operant._util.files import write_file
from operant.tracking.format.blocks import encode_json, valid_text

MAX_BYTES = 1 << 20
_NAME = re.compile(r"[0-9]{20}-[0-9a-f]{8}\.json")  # the time in nanoseconds, by which messages sort


class Message(NamedTuple):
    path: Path
    content: dict[str, Any]

    def done(self) -> None:
        """Remove the message, once what it asks for is in the journal."""
        self.path.unlink(missing_ok=True)


def post_message(folder: Path, content: dict[str, Any]) -> Path:
    """Leave a message (``{"type": "stop", …}``) for the controller of the search in ``folder``."""
    return put_message(folder, f"{time.time_ns():020d}-{os.urandom(4).hex()}.json", content)


def is_message_name(name: str) -> bool:
    return _NAME.fullmatch(name) is not None


def put_message(folder: Path, name: str, content: dict[str, Any]) -> Path:
    """Leave a message under a name that it has already; it is on disk when this returns."""
    inbox = folder / "inbox"
    write_file(inbox / name, encode_json(content), sync=True)
    return inbox / name


def collect_messages(folder: Path, *, set_aside: bool = True) -> list[Message]:
    """The messages that wait, oldest first. What is no message is moved aside, so that it is looked at once only;
    who only looks on passes over it."""
    inbox = folder / "inbox"
    try:
        names = sorted(path.name for path in inbox.iterdir() if path.suffix == ".json" and path.name[0] != ".")
    except (FileNotFoundError, NotADirectoryError):
        return []
    found = []
    for name in names:
        path = inbox / name
        try:
            if path.is_symlink() or not path.is_file() or path.stat().st_size > MAX_BYTES:
                raise ValueError("not a plain small file")
            content = json.loads(valid_text(path.read_text(encoding="utf-8")))
            if not isinstance(content, dict) or not isinstance(content.get("type"), str):
                raise ValueError("not an object with a type")
            if not isinstance(content.get("jobs") or [], list):
                raise ValueError("jobs are a list")
        except FileNotFoundError:
            continue
        except (ValueError, OSError, RecursionError):
            if set_aside:
                path.replace(inbox / f".refused-{name}")
            continue
        found.append(Message(path, content))
    return found
