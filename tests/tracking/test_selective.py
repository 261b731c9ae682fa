"""Reading only a part of a run, and all runs at once."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from operant import Run, SummaryWriter
from operant.tracking.exchange.compaction import compact_run
from operant.tracking.format.blocks import Block
from operant.tracking.journal import post_message
from operant.tracking.places import find_root
from operant.tracking.reading.index import Index, RunTable
from operant.tracking.reading.run import last_points, split_points


def record(name: str = "r", steps: int = 300) -> Path:
    with SummaryWriter(name, tags=["first"], system_metrics=False) as writer:
        for step in range(steps):
            for tag in ("a", "b", "c"):
                writer.add_scalar(tag, step + ord(tag), step)
            if step % 50 == 0:
                writer.flush()
        writer.add_array("bulk", np.arange(1000.0), np.arange(1000))
    return find_root() / "runs" / writer.run_id


@pytest.mark.parametrize("compacted", [False, True])
def test_a_part_of_a_run_is_the_same_as_in_the_whole(compacted: bool) -> None:
    folder = record()
    if compacted:
        compact_run(folder)
    whole, part = Run(folder), Run(folder, only=["b"])
    assert part.scalar_tags == whole.scalar_tags == ["a", "b", "bulk", "c"]
    assert np.array_equal(part.scalars("b"), whole.scalars("b")) and part.held_bytes < whole.held_bytes / 3
    part.want(["c", "bulk", "nothing"])
    for tag in ("b", "c", "bulk"):
        assert np.array_equal(part.scalars(tag), whole.scalars(tag))
    held = part.held_bytes
    part.want(["c"])
    assert part.held_bytes == held


def test_a_part_of_a_growing_run_grows() -> None:
    with SummaryWriter("live", system_metrics=False) as writer:
        writer.add_scalar("a", 1.0, 0)
        writer.flush()
        run = Run.open(writer.run_id)
        part = Run(run.folder, only=["b"])
        writer.add_scalar("a", 2.0, 1)
        writer.add_scalar("b", 3.0, 1)
        writer.flush()
        assert list(part.refresh()) == ["b"]
        part.want(["a"])
        assert part.scalars("a")["value"].tolist() == [1.0, 2.0]


@given(st.lists(st.tuples(st.integers(0, 20), st.floats(allow_nan=False)), min_size=1, max_size=60))
def test_last_points_are_the_last_of_each_series(rows: list[tuple[int, float]]) -> None:
    import struct

    n = len(rows)
    columns = (range(n), map(float, range(n)), (value for _, value in rows), (number for number, _ in rows))
    payload = struct.pack(f"<II{n}q{n}d{n}d{n}I", 0, n, *(x for column in columns for x in column))
    block = Block(3, 0, 0, 0, memoryview(payload))
    whole = {number: (len(points), points[-1].item()) for number, points in split_points(block)}
    assert {number: (count, last) for number, count, last in last_points(block)} == whole
    for only in ([3], range(15)):
        wanted = {number: points.tolist() for number, points in split_points(block) if number in only}
        assert {number: points.tolist() for number, points in split_points(block, only)} == wanted


def test_the_table_follows_every_run() -> None:
    table = RunTable(find_root())
    assert not table.refresh() and table.rows() == []
    first = record()
    assert table.refresh() and not table.refresh()
    (row,) = table.rows()
    assert (row.status, row.last["a"], row.tags) == ("FINISHED", 299 + 97, ["first"])
    writer = SummaryWriter("second", system_metrics=False)
    writer.add_scalar("a", 1.0, 0)
    writer.flush()
    assert table.refresh() and [row.status for row in table.rows()] == ["RUNNING", "FINISHED"]
    assert [one.id for one in table.under_way()] == [writer.run_id]
    writer.add_hparams({"lr": 0.5}, {})
    writer.add_scalar("a", 2.0, 1)
    writer.close()
    assert table.refresh() and table.rows()[0].last["a"] == 2.0 and table.rows()[0].params == {"lr": 0.5}
    post_message(first, {"type": "note", "text": "well"})
    post_message(first, {"type": "tags", "add": ["good", "good"], "remove": ["first"]})
    assert table.refresh() and (table.rows()[1].note, table.rows()[1].tags) == ("well", ["good"])
    table.save()
    assert RunTable(find_root()).rows() == []
    again = RunTable(find_root())
    again.refresh(0.0)  # no time to read: all of it comes from the index
    assert again.unread == 0 and again.rows() == table.rows() == Index(find_root()).rows()
    for path in first.iterdir():
        if path.is_file():
            path.unlink()
    for path in (first / "inbox").iterdir():
        path.unlink()
    (first / "inbox").rmdir()
    first.rmdir()
    assert again.refresh() and len(again.rows()) == 1


def test_what_was_not_read_yet_has_a_name_only() -> None:
    folder = record()
    table = RunTable(find_root())
    table.refresh(-1.0)
    assert table.unread == 1 and (table.rows()[0].id, table.rows()[0].status) == (folder.name, "UNREAD")
    assert table.refresh() and table.unread == 0 and table.rows()[0].status == "FINISHED"


def test_what_is_no_message_is_passed_over() -> None:
    folder = record()
    post_message(folder, {"type": "note", "text": 3})
    post_message(folder, {"type": "tags", "add": ["ok", 5], "remove": "first"})
    (folder / "inbox" / "0-odd.json").write_text("{")
    run = Run(folder)
    assert (run.note, run.tags) == ("", ["first", "ok"])
    assert (folder / "inbox" / "0-odd.json").exists()  # who only looks on moves nothing
