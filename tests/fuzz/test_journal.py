"""Journals of searches: each view of one, and all that is drawn from it."""

from __future__ import annotations

import json
import random
from pathlib import Path
from typing import Any

import pytest
from tests.fuzz.driver import Fuzz, confused_records, few_or_many

from operant.schedulers.analysis import chart_data
from operant.schedulers.views.follow import SearchFollower
from operant.schedulers.views.journal_text import last_lines
from operant.schedulers.views.overview import describe
from operant.schedulers.views.recorded import recorded_rule
from operant.tracking.format.blocks import (
    FILE_HEADER_SIZE,
    decode_records,
    encode_block,
    encode_records,
    scan_blocks,
)

JOURNALS = Path(__file__).parents[1] / "schedulers" / "journals"


@pytest.fixture(scope="module")
def sound() -> list[bytes]:
    names = ("grid", "function", "seeds_racing", "messages", "hpo_inline")
    return [(JOURNALS / f"{name}.log").read_bytes() for name in names]


def read(folder: Path, data: bytes) -> dict[str, Any]:
    (folder / "journal.log").write_bytes(data)
    (folder / "lease.json").write_text('{"epoch": 1, "released": true}')
    seen = describe(folder)
    search = SearchFollower(folder)
    summary = search.summary()
    assert (summary["damage"], summary["status"]) == (seen["damage"], seen["status"])
    assert (summary["best"] or {}).get("number") == (seen["best"] or {}).get("number")
    drawn = [chart_data.job_columns(search), chart_data.spark_of(search), chart_data.slices(search)]
    json.dumps([seen, summary, drawn, search.usual_seconds, search.best_so_far]).encode()
    assert all(job["id"].replace("-", "").isalnum() for job in seen["jobs"])
    assert last_lines(folder, 9) or not seen["jobs"]
    recorded_rule(search.state.opened)
    return {**seen, "task": "tried"}


def tells(seen: dict[str, Any]) -> bool:
    # Without its last blocks it is the journal of a controller that died without a word, and that is said.
    return seen["damage"] is not None or seen["status"] == "ERROR"


def forge(rng: random.Random, data: bytes) -> bytes:
    made = data[:FILE_HEADER_SIZE]
    blocks = scan_blocks(memoryview(data)[FILE_HEADER_SIZE:].toreadonly()).blocks
    chosen = {rng.randrange(len(blocks)), rng.randrange(len(blocks))}
    for number, block in enumerate(blocks):
        payload = bytes(block.payload)
        if number in chosen:
            payload = encode_records(confused_records(rng, decode_records(payload)))
        made += encode_block(block.kind, block.sequence, payload, block.flags)
    return made


@few_or_many(120)
def test_journals(sound: list[bytes], tmp_path: Path, tries: int, first: int) -> None:
    Fuzz("journal", read, sound, tells, forge).run(tmp_path, tries, first)
