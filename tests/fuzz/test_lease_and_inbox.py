"""The two small files beside a journal: who runs the search, and what others ask of him."""

from __future__ import annotations

import json
import random
from pathlib import Path
from typing import Any

from tests.fuzz.driver import Fuzz, confused, few_or_many

from operant.tracking.identity import process_identity
from operant.tracking.journal import collect_messages, controller_is_alive
from operant.tracking.journal.lease import Lease, read_lease
from operant.tracking.reading.summary import Annotations

MESSAGES = [
    {"type": "note", "text": "a note"},
    {"type": "tags", "add": ["a", "b"], "remove": ["c"]},
    {"type": "stop", "jobs": ["1", "2"]},
    {"type": "limits", "max_tries": 3, "time_limits": 60.0},
]


def forge(rng: random.Random, data: bytes) -> bytes:
    return json.dumps(confused(rng, json.loads(data))).encode()


def read_and_take_lease(folder: Path, data: bytes) -> dict[str, Any]:
    (folder / "journal.log").touch()
    (folder / "lease.json").write_bytes(data)
    controller_is_alive(folder)
    found = read_lease(folder)
    lease = Lease.acquire(folder)  # nobody holds the lock: whatever the file says, the search can be gone on with
    try:
        assert lease.is_current() and lease.epoch >= 1 and read_lease(folder)["released"] is False
    finally:
        lease.release()
    return found


@few_or_many(700)
def test_leases(tmp_path: Path, tries: int, first: int) -> None:
    sound = [
        json.dumps({**process_identity(), "epoch": 3, "released": released}).encode() for released in (True, False)
    ]
    Fuzz("lease", read_and_take_lease, sound, None, forge).run(tmp_path, tries, first)


def read_inbox(folder: Path, data: bytes) -> Any:
    inbox = folder / "inbox"
    inbox.mkdir(exist_ok=True)
    for path in inbox.iterdir():
        path.unlink()
    (inbox / "00000000000000000001-00000000.json").write_bytes(data)
    notes = Annotations()
    notes.update(folder)
    (notes.note + "".join(notes.apply(["c"]))).encode()
    messages = collect_messages(folder)
    for message in messages:
        message.done()
    left = [path.name for path in inbox.iterdir()]  # what is no message was put aside, and is not looked at again
    assert all(name.startswith(".refused-") for name in left) and not collect_messages(folder)
    return [message.content for message in messages]


@few_or_many(700)
def test_messages(tmp_path: Path, tries: int, first: int) -> None:
    Fuzz("inbox", read_inbox, [json.dumps(one).encode() for one in MESSAGES], None, forge).run(tmp_path, tries, first)
