"""TensorBoard's event files, read and imported."""

from __future__ import annotations

import random
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from tests.fuzz.driver import Fuzz, few_or_many

from operant.tracking import Run
from operant.tracking.exchange.import_tensorboard import import_tensorboard
from operant.tracking.exchange.tfevents_read import EventFileReader
from operant.tracking.exchange.tfevents_write import EventFileWriter
from operant.tracking.exchange.tfrecord import FOOTER_SIZE, HEADER_SIZE, record

PNG = b"\x89PNG\r\n\x1a\n\0\0\0\rIHDR\0\0\0\x02\0\0\0\x03\x08\x06\0\0\0" + bytes(range(256))


@pytest.fixture(scope="module")
def sound(tmp_path_factory: pytest.TempPathFactory) -> list[bytes]:
    with EventFileWriter(tmp_path_factory.mktemp("events"), wall=1000) as writer:
        writer.add_points("loss", np.arange(40), np.arange(40) / 2, np.arange(40) / 4)
        writer.add_text("note", "text", 1, 2.0)
        writer.add_histogram("weights", [0, 1, 2], [1, 2], 0, 2, 3, 4, 1, 2.0)
        writer.add_image("frame", PNG, 2, 3, 1, 2.0)
        writer.add_hparams({"lr": 0.5, "agent": "dqn"}, ["loss"], 2.0)
    return [writer.path.read_bytes()]


def read(folder: Path, data: bytes) -> dict[str, Any]:
    path = folder / "logs" / "events.out.tfevents.1"
    path.parent.mkdir(exist_ok=True)
    path.write_bytes(data)
    reader = EventFileReader(path)
    events = [repr(event) for batch in reader.batches() for event in batch]
    return {"events": events, "told": reader.damage is not None or reader.skipped > 0}


def read_and_import(folder: Path, data: bytes) -> dict[str, Any]:
    seen = read(folder, data)
    root = folder / ".operant"
    for _, run_id, _, notes in import_tensorboard(folder / "logs", root):
        run = Run.open(run_id, root)
        assert not run.damage and run.status == "FINISHED"
        assert not seen["told"] or notes
    shutil.rmtree(root)
    return seen


def forge(rng: random.Random, data: bytes) -> bytes:
    """Other payloads, with checksums that fit."""
    made, at, payloads = b"", 0, []
    while at < len(data):
        length = int.from_bytes(data[at : at + 8], "little")
        payloads.append(data[at + HEADER_SIZE : at + HEADER_SIZE + length])
        at += HEADER_SIZE + length + FOOTER_SIZE
    chosen = rng.choice((-1, -2, -3, -4, 1, 2)) % len(payloads)
    for number, payload in enumerate(payloads):
        if number == chosen:
            for _ in range(rng.choice((1, 2, 5))):
                place = rng.randrange(len(payload) or 1)
                given = rng.choice((rng.randbytes(1), b"\xff" * 9, rng.randbytes(8), b""))
                payload = payload[:place] + given + payload[place + rng.choice((0, 1, 1, 8)) :]
        made += record(payload)
    return made


def tells_of(sound: list[bytes], folder: Path) -> Callable[[Any], bool]:
    """Records have no numbers: whole ones that are gone, or there twice, cannot be told from a shorter or longer file.

    And what is wrong at the end of a file may be one that grows. But no event says anything else than it did.
    """
    known = {event for one in sound for event in read(folder, one)["events"]}
    return lambda seen: seen["told"] or known.issuperset(seen["events"])


@few_or_many(500)
def test_event_files(sound: list[bytes], tmp_path: Path, tries: int, first: int) -> None:
    Fuzz("events", read, sound, tells_of(sound, tmp_path), forge).run(tmp_path, tries, first)


@few_or_many(60)
def test_imports_of_event_files(sound: list[bytes], tmp_path: Path, tries: int, first: int) -> None:
    Fuzz("events", read_and_import, sound, tells_of(sound, tmp_path), forge).run(tmp_path, tries, first)
