"""Notes and tags across the network. Each is a small file that is named by its time, so both ends may say what they
like: the server has the files of both, and who reads them takes them in the order of their times."""

from __future__ import annotations

import json
import logging
from pathlib import Path

from operant.errors import OperantError, UsageError
from operant.tracking.format.blocks import encode_json, valid_text
from operant.tracking.format.segments import segment_files
from operant.tracking.journal.inbox import collect_messages, is_message_name, put_message
from operant.tracking.reading.summary import check_annotation
from operant.tracking.remote.client import Client, RefusedError

__all__ = ["send_messages", "store_message"]

log = logging.getLogger("operant.tracking")


def store_message(folder: Path, name: str, data: bytes) -> None:
    """Put a message that arrived beside those of the run in ``folder``; one that is there already is left as it is."""
    if not is_message_name(name):
        raise UsageError(f"{name!r} is not a message's name")
    try:
        content = json.loads(valid_text(data.decode()))
    except (ValueError, RecursionError):
        raise UsageError("a message is a JSON object") from None
    said = check_annotation(content)
    if not segment_files(folder):
        raise OperantError("there is no such run here")
    if not (folder / "inbox" / name).exists():
        put_message(folder, name, said)  # durable: the sender deletes its copy on the strength of our answer


def send_messages(client: Client, run_id: str, folder: Path) -> bool:
    """Send what was said here of a run that the server has; return whether nothing waits any more.

    A message is removed only when the server has it. One that the server will never take is put aside, with a warning.
    """
    waiting = collect_messages(folder)
    if not waiting:
        return True
    if not client.state(run_id)["segments"]:
        return False  # its program has sent nothing of it yet
    for message in waiting:
        try:
            client.send_message(run_id, message.path.name, encode_json(message.content).encode())
        except RefusedError as error:
            aside = message.path.with_name(f".refused-{message.path.name}")
            log.warning("what was said of run %s is not sent: %s; it stays in %s", run_id, error, aside)
            message.path.replace(aside)
        else:
            message.done()
    return True
