"""Segments of a run: every view of it, and what the list of runs keeps of it."""

from __future__ import annotations

import json
import random
import shutil
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from tests.fuzz.driver import Fuzz, confused_records, few_or_many

from operant.tracking import Run, SummaryWriter
from operant.tracking.exchange.compaction import compact_run
from operant.tracking.exchange.export import export_run
from operant.tracking.format.blocks import (
    DEFLATED,
    FILE_HEADER_SIZE,
    RECORDS,
    decode_records,
    encode_block,
    encode_records,
    scan_blocks,
)
from operant.tracking.format.segments import segment_files
from operant.tracking.reading.index import row_of
from operant.tracking.reading.summary import RunSummary, summarize

NAME = "seg-00112233445566ff-0000.seg"


def record(root: Path) -> Path:
    with SummaryWriter("sound", root=root, tags=["a"], system_metrics=False) as writer:
        for step in range(40):
            writer.add_scalar("loss", 1 / (step + 1), step)
            writer.add_scalar("return", step, step)
        writer.add_hparams({"lr": 0.1, "layers": [1, 2]})
        writer.add_text("note", "a text", 1)
        writer.add_image("picture", np.zeros((3, 2, 2), np.uint8), 1)
        writer.add_histogram("weights", [1.0, 2.0, 3.0], 1)
    return Run.open(writer.run_id, root).folder


@pytest.fixture(scope="module")
def sound(tmp_path_factory: pytest.TempPathFactory) -> list[bytes]:
    folder = record(tmp_path_factory.mktemp("segments") / ".operant")
    plain = segment_files(folder)[0].read_bytes()
    compact_run(folder)
    return [plain, segment_files(folder)[0].read_bytes()]


def remove(path: Path) -> None:
    if path.is_dir():
        shutil.rmtree(path)
    else:
        path.unlink(missing_ok=True)


def read(folder: Path, data: bytes) -> dict[str, Any]:
    (folder / NAME).write_bytes(data)
    run = Run(folder, "tried")
    summary = summarize(folder, "tried")
    row = row_of(summary)
    again = RunSummary.from_json(folder, json.loads(json.dumps(summary.to_json())))
    again.update()
    assert again.status == summary.status and again.series.keys() == summary.series.keys()
    seen = {
        "status": run.status,
        "name": run.name,
        "params": run.params,
        "tags": run.tags,
        "scalars": {tag: (run.scalars(tag).tolist(), run.history(tag), run.latest(tag)) for tag in run.scalar_tags},
        "text": run.text(),
        "media": run.media(),
        "histograms": run.histograms(),
        "command": run.provenance.get("command"),
        "row": [row.name, row.status, row.params, row.tags, row.last, row.started, row.ended, summary.error],
    }
    texts = [run.name, run.note, *run.tags, *run.scalar_tags, *(one.text for one in run.text()), summary.error or ""]
    assert all(type(one) is str for one in texts), texts
    assert all(type(one) is str for one in summary.command) and type(run.params) is dict
    json.dumps(seen, default=str).encode()  # what the page is sent
    for tag in run.scalar_tags:
        run.chart(tag, 10)
    for kind, to in (("jsonl", "out.jsonl"), ("tensorboard", "events")):
        remove(folder / to)
        export_run(run, kind, folder / to)
    assert run.files == {} and run.attempt >= 1 and repr(run)
    return {**seen, "damage": run.damage}


def tells(seen: dict[str, Any]) -> bool:
    return bool(seen["damage"]) or seen["status"] != "FINISHED"


def forge(rng: random.Random, data: bytes) -> bytes:
    made = data[:FILE_HEADER_SIZE]
    blocks = scan_blocks(memoryview(data)[FILE_HEADER_SIZE:].toreadonly()).blocks
    chosen = rng.randrange(len(blocks))
    for number, block in enumerate(blocks):
        payload, flags = bytes(block.payload), block.flags
        if number == chosen and block.kind == RECORDS:
            payload = encode_records(confused_records(rng, decode_records(payload)))
        elif number == chosen:  # points: counts and numbers that are not those of the bytes
            at = rng.randrange(len(payload))
            payload = payload[:at] + rng.randbytes(rng.choice((1, 4, 8))) + payload[at + rng.randrange(9) :]
            flags ^= DEFLATED * rng.randrange(2)
        made += encode_block(block.kind, block.sequence, payload, flags)
    return made


@few_or_many(250)
def test_segments(sound: list[bytes], tmp_path: Path, tries: int, first: int) -> None:
    Fuzz("segment", read, sound, tells, forge).run(tmp_path, tries, first)
