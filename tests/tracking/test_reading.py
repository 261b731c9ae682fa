"""Charts, the index, compaction."""

from __future__ import annotations

import json
import os
import sqlite3
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from operant import Run, SummaryWriter
from operant.errors import UsageError
from operant.tracking.exchange.compaction import compact_run
from operant.tracking.format.blocks import decode_blocks, decode_records
from operant.tracking.journal.inbox import post_message
from operant.tracking.places import find_root
from operant.tracking.reading.index import Index, RunTable
from operant.tracking.reading.pyramid import Pyramid
from operant.tracking.reading.run import POINT


def series(values: np.ndarray, steps: np.ndarray | None = None) -> np.ndarray:
    points = np.zeros(len(values), POINT)
    points["value"] = values
    points["step"] = np.arange(len(values)) if steps is None else steps
    points["wall"] = points["step"] + 1e9
    return points


@settings(max_examples=60)
@given(st.integers(0, 200_000), st.integers(1, 50), st.integers(0, 2**32), st.data())
def test_a_chart_keeps_every_extreme_and_counts_every_point(
    n: int, buckets: int, seed: int, data: st.DataObject
) -> None:
    rng = np.random.default_rng(seed)
    values = rng.normal(size=n)
    values[rng.random(n) < 0.01] = np.nan
    points = series(values)
    low = data.draw(st.integers(-5, n + 5))
    high = data.draw(st.integers(low, n + 5))
    chart = Pyramid(points).chart(buckets, low, high)
    inside = values[max(low, 0) : high + 1] if high >= 0 else values[:0]
    assert len(chart) <= buckets
    assert chart.count.sum() == len(inside)
    assert chart.odd.sum() == np.isnan(inside).sum()
    if np.isfinite(inside).any():
        assert np.nanmin(chart.least) == np.nanmin(inside)
        assert np.nanmax(chart.greatest) == np.nanmax(inside)
        total = np.nansum(chart.mean * (chart.count - chart.odd))
        np.testing.assert_allclose(total, np.nansum(inside), rtol=1e-9, atol=1e-6)
    assert (np.diff(chart.first_step) > 0).all()


@settings(max_examples=30)
@given(st.lists(st.integers(1, 40_000), min_size=1, max_size=5), st.integers(0, 2**32))
def test_a_growing_series_gives_the_picture_of_a_whole_one(lengths: list[int], seed: int) -> None:
    values = np.random.default_rng(seed).normal(size=sum(lengths))
    whole = series(values)
    end = lengths[0]
    grown = Pyramid(whole[:end])
    for length in lengths[1:]:
        end += length
        assert grown.grows_into(whole[:end])
        grown.extend(whole[:end])
    again, at_once = grown.chart(37), Pyramid(whole).chart(37)
    for name in ("first_step", "last_step", "least", "greatest", "count"):
        np.testing.assert_array_equal(getattr(again, name), getattr(at_once, name))


def test_steps_in_any_order_and_infinities() -> None:
    points = series(np.array([3.0, 1.0, np.inf, 2.0]), np.array([30, 10, 40, 20]))
    chart = Pyramid(points).chart(4)
    assert chart.first_step.tolist() == [10, 20, 30, 40]
    assert chart.mean[:3].tolist() == [1.0, 2.0, 3.0]
    assert np.isnan(chart.mean[3]) and chart.odd.tolist() == [0, 0, 0, 1]
    with pytest.raises(UsageError, match="at least one bucket"):
        Pyramid(points).chart(0)
    assert not Pyramid(points).grows_into(
        series(np.array([3.0, 1.0, np.inf, 2.0, 5.0]), np.array([30, 10, 40, 20, 15]))
    )


def record(name: str, count: int = 10) -> str:
    with SummaryWriter(name, system_metrics=False, tags=[name]) as writer:
        for step in range(count):
            writer.add_scalar("x", float(step), step)
    return writer.run_id


def test_the_index_lists_runs_and_follows_them() -> None:
    index = Index(find_root())
    assert index.rows() == []
    first = record("a")
    assert [(row.id, row.status, row.tags) for row in index.rows()] == [(first, "FINISHED", ["a"])]
    writer = SummaryWriter("b", system_metrics=False)
    rows = index.rows()
    assert [row.name for row in rows] == ["b", "a"]
    assert rows[0].status == "RUNNING" and rows[0].ended is None
    writer.add_tags("late")
    writer.close()
    assert index.rows()[0].status == "FINISHED"
    assert index.rows()[0].tags == ["late"]


@pytest.mark.parametrize("harm", ["delete", "garbage", "foreign", "read-only", "locked"])
def test_the_index_can_be_lost_damaged_or_shared(harm: str, monkeypatch: pytest.MonkeyPatch) -> None:
    run_id = record("a")
    index = Index(find_root())
    before = index.rows()
    if harm == "delete":
        index.path.unlink()
    elif harm == "garbage":
        index.path.write_bytes(os.urandom(5000))
    elif harm == "foreign":
        index.path.unlink()
        with sqlite3.connect(index.path) as database:
            database.execute("create table runs (something text)")
        database.close()
    elif harm == "read-only":
        monkeypatch.setenv("OPERANT_CACHE_DIR", "/proc/nowhere")
    else:
        other = record("b")
        script = (
            "import fcntl, sys, time\nf = open(sys.argv[1], 'r+')\nfcntl.flock(f, fcntl.LOCK_EX)\n"
            "print('held', flush=True)\ntime.sleep(60)"
        )
        holder = subprocess.Popen(
            [sys.executable, "-c", script, str(index.path.with_suffix(".lock"))], stdout=subprocess.PIPE, text=True
        )
        assert holder.stdout is not None and holder.stdout.readline() == "held\n"
        try:
            assert {row.id for row in Index(find_root()).rows()} == {run_id, other}
        finally:
            holder.kill()
            holder.communicate()
        return
    again = Index(find_root())
    assert again.rows() == before
    assert [row.id for row in again.rows()] == [run_id]


def test_a_removed_run_leaves_the_index() -> None:
    record("a")
    index = Index(find_root())
    (folder,) = (find_root() / "runs").iterdir()
    assert len(index.rows()) == 1
    for path in folder.iterdir():
        path.unlink()
    folder.rmdir()
    assert index.rows() == []


def everything(run: Run) -> dict[str, object]:
    return {
        "scalars": {tag: run.scalars(tag).tolist() for tag in run.scalar_tags},
        "superseded": {tag: run.scalars(tag, superseded=True).tolist() for tag in run.scalar_tags},
        "text": run.text(),
        "media": run.media(),
        "status": run.status,
        "params": run.params,
        "attempt": run.attempt,
        "origin": run.provenance,
    }


def test_compaction_changes_nothing_but_the_size(capsys: pytest.CaptureFixture[str]) -> None:
    writer = SummaryWriter("big", system_metrics=False, config={"lr": 0.1})
    writer._core._segment._limit = 50_000
    for step in range(5000):
        writer.add_scalar("a", step * 0.1, step)
        writer.add_scalar(f"b{step % 3}", float("nan") if step % 7 == 0 else 1.0, step)
        if step == 2500:
            writer.resume_from(2000)
            writer.add_text("t", "x", 3)
    writer.add_image("i", np.zeros((3, 4, 4)))
    writer.close()
    run = Run.open(writer.run_id)
    watcher = Run.open(writer.run_id)
    before = everything(run)
    old, new = compact_run(run.folder)
    assert new < old / 2
    assert json.dumps(everything(Run.open(writer.run_id)), default=str) == json.dumps(before, default=str)
    assert len(list(run.folder.glob("seg-*"))) == 1
    assert watcher.refresh() == {}
    again_old, again_new = compact_run(run.folder)
    assert again_old == new and abs(again_new - new) < 200
    assert json.dumps(everything(Run.open(writer.run_id)), default=str) == json.dumps(before, default=str)


def test_compaction_that_was_interrupted_before_it_cleaned_up() -> None:
    run_id = record("a", 1000)
    run = Run.open(run_id)
    before = everything(run)
    (source,) = run.folder.glob("seg-*")
    content = source.read_bytes()
    compact_run(run.folder)
    source.write_bytes(content)  # as if the program was killed before it removed the old file
    assert json.dumps(everything(Run.open(run_id))) == json.dumps(before)
    assert Index(find_root()).rows()[0].status == "FINISHED"
    compact_run(run.folder)
    assert json.dumps(everything(Run.open(run_id))) == json.dumps(before)
    assert len(list(run.folder.glob("seg-*"))) == 1


def test_running_and_damaged_runs_are_not_compacted() -> None:
    writer = SummaryWriter("live", system_metrics=False)
    with pytest.raises(UsageError, match="is running"):
        compact_run(writer.run_dir)
    writer.add_scalar("x", 1.0, 0)
    writer.flush()
    writer.add_scalar("x", 2.0, 1)
    writer.close()
    (path,) = Path(writer.run_dir).glob("seg-*")
    data = bytearray(path.read_bytes())
    data[data.index(b"OPBK", data.index(b"OPBK") + 4) + 30] ^= 1
    path.write_bytes(bytes(data))
    with pytest.raises(UsageError, match="damaged"):
        compact_run(writer.run_dir)
    assert path.read_bytes() == bytes(data)


def test_halves_of_characters_make_no_list_unreadable(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Arguments that are no UTF-8 reach a program as lone surrogates, which neither SQLite nor a terminal takes."""
    monkeypatch.chdir(tmp_path)
    with SummaryWriter("caf\udce9", config={"k\ud800": "v\udfff"}) as writer:
        writer.add_scalar("tag\ud800", 1.0, 1)
        writer.add_text("log", "half \ud83c, whole \U0001f3af, a backslash \\ud800", 1)
        writer.add_tags("x\ud800")
    post_message(writer.run_dir, {"type": "note", "text": "caf\udce9"})
    (writer.run_dir.parent / os.fsdecode(b"caf\xe9")).mkdir()  # not ours
    run = Run.open("last")
    assert run.name == "caf\ufffd" and run.params == {"k\ufffd": "v\ufffd"} and run.scalar_tags == ["tag\ufffd"]
    assert run.text("log")[0].text == "half \ufffd, whole \U0001f3af, a backslash \\ud800"
    table = RunTable(writer.run_dir.parents[1])
    table.refresh()
    (row,) = table.rows()
    assert (row.name, row.tags) == ("caf\ufffd", ["x\ufffd"])


def test_halves_of_characters_that_an_older_version_let_in_are_mended_when_read() -> None:
    line = b'{"type":"text","text":"\\ud800 \\uD83C\\uDFAF \\\\ud800"}'
    (record,) = decode_records(line)
    assert record["text"] == "\ufffd \U0001f3af \\ud800" and decode_blocks([line, line]) == [[record], [record]]


@pytest.mark.parametrize("kind", ["pipe", "folder", "device"])
def test_what_is_no_file_is_no_segment(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, kind: str) -> None:
    monkeypatch.chdir(tmp_path)
    with SummaryWriter("sound") as writer:
        writer.add_scalar("x", 1.0, 1)
    other = writer.run_dir / "seg-0123456789abcdef-0000.seg"
    if kind == "pipe":
        os.mkfifo(other)
    elif kind == "folder":
        other.mkdir()
    else:
        other.symlink_to("/dev/zero")
    run = Run.open("last")
    assert run.latest("x").value == 1.0
    assert [one for one in run.damage if one.startswith(f"{other.name} cannot be read (")]
    (row,) = Index(find_root()).rows()
    assert row.last == {"x": 1.0}
