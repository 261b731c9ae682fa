"""What may happen to a writer: kill -9, a full disk, forks, damaged bytes. Nothing flushed is lost, nothing wrong."""

from __future__ import annotations

import logging
import multiprocessing
import os
import random
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest

from operant import Run, SummaryWriter
from operant.tracking.format.segments import segment_files

WRITER = """
import sys
from operant import SummaryWriter
writer = SummaryWriter("victim", system_metrics=False)
print(writer.run_id, flush=True)
step = 0
while True:
    for _ in range(int(sys.argv[1])):
        writer.add_scalar("a", step * 0.5, step)
        writer.add_scalar("b", -step, step)
        step += 1
    writer.flush()
    print(step, flush=True)
"""


def kill_at_random(seed: int) -> None:
    """Every point that the writer said was flushed is read back, in order, after kill -9 at a random moment."""
    rng = random.Random(seed)
    batch = rng.choice([1, 7, 300, 5000])
    command = [sys.executable, "-c", WRITER, str(batch)]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        run_id = process.stdout.readline().strip()
        for _ in range(rng.randrange(3)):
            process.stdout.readline()
        time.sleep(rng.random() * 0.05)
        process.send_signal(signal.SIGKILL)
        said = [int(line) for line in process.stdout if line.strip().isdigit() and line.endswith("\n")]
    flushed = said[-1] if said else 0
    run = Run.open(run_id)
    a, b = run.scalars("a") if "a" in run.scalar_tags else [], run.scalars("b") if "b" in run.scalar_tags else []
    assert len(a) >= flushed and len(b) >= flushed
    steps = np.arange(len(a))
    if len(a):
        np.testing.assert_array_equal(a["step"], steps)
        np.testing.assert_array_equal(a["value"], steps * 0.5)
        np.testing.assert_array_equal(b["value"], -np.arange(len(b)))
    assert run.status == "KILLED"


@pytest.mark.parametrize("seed", range(6))
def test_kill_9_loses_nothing_flushed(seed: int) -> None:
    kill_at_random(seed)


@pytest.mark.long
def test_kill_9_at_200_moments() -> None:
    for seed in range(1000, 1200):
        kill_at_random(seed)


@pytest.fixture
def small_disk(tmp_path: Path) -> Iterator[Path]:
    point = tmp_path / "disk"
    point.mkdir()
    done = subprocess.run(
        ["mount", "-t", "tmpfs", "-o", "size=1m", "tmpfs", str(point)], capture_output=True, check=False
    )
    if done.returncode:
        pytest.skip("a small tmpfs cannot be mounted here: it needs root and CAP_SYS_ADMIN")
    yield point
    subprocess.run(["umount", "-l", str(point)], check=True)


def test_a_full_disk_warns_once_and_recording_goes_on_when_there_is_room(
    small_disk: Path, caplog: pytest.LogCaptureFixture
) -> None:
    filler = small_disk / "filler"
    filler.write_bytes(bytes(700 << 10))
    with SummaryWriter("full", root=small_disk / ".operant", system_metrics=False) as writer:
        for step in range(60_000):  # 1.4 MB of points
            writer.add_scalar("x", float(step), step)
            if step % 5000 == 0:
                writer.flush()
                writer.add_text("note", "z" * 100, step)
        refusals = [record for record in caplog.records if "cannot be written" in record.message]
        assert len(refusals) == 1
        assert "No space left" in refusals[0].message
        filler.unlink()
        filler.touch()
        (small_disk / "more").touch()
        subprocess.run(["mount", "-o", "remount,size=8m", str(small_disk)], check=True)
    run = Run.open(writer.run_id, small_disk / ".operant")
    assert run.scalars("x")["step"].tolist() == list(range(60_000))
    assert run.damage == []
    assert run.status == "FINISHED"


def test_a_disk_that_stays_full_never_stops_the_program(small_disk: Path, caplog: pytest.LogCaptureFixture) -> None:
    (small_disk / "filler").write_bytes(bytes(960 << 10))
    with SummaryWriter("full", root=small_disk / ".operant", system_metrics=False) as writer:
        writer._core._segment._memory_limit = 200_000
        for step in range(50_000):
            writer.add_scalar("x", float(step), step)
        writer.add_image("picture", np.random.default_rng(0).random((3, 100, 100)))
    assert len([record for record in caplog.records if "cannot be written" in record.message]) == 1
    assert any("ends incomplete" in record.message for record in caplog.records)
    run = Run.open(writer.run_id, small_disk / ".operant")
    steps = run.scalars("x")["step"] if run.scalar_tags else np.array([])
    assert (np.diff(steps) > 0).all()  # some are given up, none is out of order or doubled


def test_given_up_points_are_counted(small_disk: Path, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.CRITICAL)
    filler = small_disk / "filler"
    filler.write_bytes(bytes(960 << 10))
    with SummaryWriter("full", root=small_disk / ".operant", system_metrics=False) as writer:
        writer._core._segment._memory_limit = 400_000
        for step in range(60_000):
            writer.add_scalar("x", float(step), step)
        writer.flush()
        filler.unlink()
        writer.flush()
        writer.add_scalar("x", 0.0, 60_000)
    run = Run.open(writer.run_id, small_disk / ".operant")
    assert run.summary.lost_points > 0
    assert run.summary.lost_points + len(run.scalars("x")) == 60_001
    assert any("given up while the disk was full" in sentence for sentence in run.damage)


def test_a_folder_that_cannot_be_made_does_not_stop_the_program(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    (tmp_path / "file").touch()
    with SummaryWriter("x", root=tmp_path / "file" / ".operant", system_metrics=False) as writer:
        writer.add_scalar("x", 1.0, 0)
    assert any("cannot be written" in record.message for record in caplog.records)


def record_in_child(writer: SummaryWriter, tag: str, count: int) -> None:
    for step in range(count):
        writer.add_scalar(tag, float(step), step)


@pytest.mark.filterwarnings("ignore:This process .* is multi-threaded:DeprecationWarning")
def test_a_forked_child_has_its_own_segment_and_nothing_is_doubled() -> None:
    writer = SummaryWriter("forks", system_metrics=False)
    record_in_child(writer, "parent", 100)
    context = multiprocessing.get_context("fork")
    children = [context.Process(target=record_in_child, args=(writer, f"child{n}", 1000)) for n in range(3)]
    for child in children:
        child.start()
        writer.add_scalar("parent", 100.0 + len(children), 100)
    for child in children:
        child.join()
        assert child.exitcode == 0
    writer.close()
    run = Run.open(writer.run_id)
    assert len(segment_files(run.folder)) == 4
    assert run.scalars("parent")["step"].tolist() == [*range(100), 100, 100, 100]
    for n in range(3):
        assert run.scalars(f"child{n}")["step"].tolist() == list(range(1000))
    assert run.status == "FINISHED"
    assert run.damage == []


@pytest.mark.filterwarnings("ignore:This process .* is multi-threaded:DeprecationWarning")
def test_a_child_that_dies_does_not_end_the_run() -> None:
    writer = SummaryWriter("forks", system_metrics=False)
    pid = os.fork()
    if pid == 0:
        writer.add_scalar("child", 1.0, 0)
        writer.flush()
        os.kill(os.getpid(), signal.SIGKILL)
    os.waitpid(pid, 0)
    assert Run.open(writer.run_id).status == "RUNNING"
    writer.close()
    run = Run.open(writer.run_id)
    assert run.status == "FINISHED"
    assert run.latest("child") is not None


def test_two_processes_in_one_run() -> None:
    script = (
        "import sys\nfrom operant import SummaryWriter\n"
        "with SummaryWriter(run=sys.argv[1], system_metrics=False) as w:\n"
        "    for i in range(5000): w.add_scalar('shared', float(sys.argv[2]), i)\n"
    )
    with SummaryWriter("two", system_metrics=False) as writer:
        others = [subprocess.Popen([sys.executable, "-c", script, writer.run_id, str(n)]) for n in (1, 2)]
        record_in_child(writer, "own", 5000)
        assert [other.wait(60) for other in others] == [0, 0]
    run = Run.open(writer.run_id)
    shared = run.scalars("shared")
    for n in (1, 2):
        assert shared["step"][shared["value"] == n].tolist() == list(range(5000))
    assert (np.diff(shared["wall"]) >= 0).all()
    assert len(run.scalars("own")) == 5000


def test_reading_while_another_process_writes() -> None:
    command = [sys.executable, "-c", WRITER, "200"]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        run = Run.open(process.stdout.readline().strip())
        seen: list[np.ndarray] = [run.scalars("a")] if "a" in run.scalar_tags else []
        while sum(map(len, seen)) < 40_000:
            fresh = run.refresh()
            if "a" in fresh:
                seen.append(fresh["a"])
            assert run.damage == []
        process.kill()
        process.stdout.read()
    points = np.concatenate(seen)
    np.testing.assert_array_equal(points["step"], np.arange(len(points)))
    np.testing.assert_array_equal(run.scalars("a")[: len(points)], points)


def small_run() -> tuple[Path, dict[str, list[tuple[int, float]]]]:
    with SummaryWriter("bytes", system_metrics=False, config={"lr": 0.1}) as writer:
        for step in range(4):
            writer.add_scalar("a", step * 1.5, step)
            writer.add_scalar("b", -step * 1.5, step)
            writer.flush()
        writer.add_array("a", [7.0, 8.0], [4, 5])
        writer.resume_from(3)
        writer.add_scalar("a", 9.0, 4)
        writer.add_text("t", "text", 0)
    run = Run.open(writer.run_id)
    truth = {tag: [(p["step"], p["value"]) for p in run.scalars(tag, superseded=True)] for tag in run.scalar_tags}
    return segment_files(run.folder)[0], truth


def check_flips(path: Path, truth: dict[str, list[tuple[int, float]]], positions: range, masks: list[int]) -> None:
    original = path.read_bytes()
    for at in positions:
        for mask in masks:
            damaged = bytearray(original)
            damaged[at] ^= mask
            path.write_bytes(bytes(damaged))
            run = Run(path.parent)
            for tag in run.scalar_tags:
                got = [(p["step"], p["value"]) for p in run.scalars(tag, superseded=True)]
                rest = iter(truth[tag])
                assert all(point in rest for point in got), f"byte {at}: points changed or moved"
            assert run.damage, f"byte {at}: the damage was not told"
    path.write_bytes(original)


def test_flipped_bytes_are_noticed_and_never_give_a_wrong_value() -> None:
    path, truth = small_run()
    check_flips(path, truth, range(0, path.stat().st_size, 7), [0x01])


@pytest.mark.long
def test_every_byte_flipped_in_turn() -> None:
    path, truth = small_run()
    check_flips(path, truth, range(path.stat().st_size), [0x01, 0x80, 0xFF])


def test_cut_anywhere_it_reads_up_to_the_last_whole_block() -> None:
    path, truth = small_run()
    original = path.read_bytes()
    before = -1
    for size in range(0, len(original), 5):
        path.write_bytes(original[:size])
        run = Run(path.parent)
        got = sum(len(run.scalars(tag, superseded=True)) for tag in run.scalar_tags)
        assert before <= got <= sum(map(len, truth.values()))
        before = got


def test_a_torn_tail_that_becomes_whole_is_read_on() -> None:
    path, truth = small_run()
    original = path.read_bytes()
    path.write_bytes(original[: len(original) // 2])
    run = Run(path.parent)
    for size in range(len(original) // 2, len(original) + 1, 13):
        path.write_bytes(original[:size])
        run.refresh()
    path.write_bytes(original)
    run.refresh()
    for tag, points in truth.items():
        assert [(p["step"], p["value"]) for p in run.scalars(tag, superseded=True)] == points


def test_late_pages_of_a_network_file_system_are_read_when_they_come() -> None:
    """A hole of zeros before good blocks is a gap; once it is filled, its points take their place."""
    path, truth = small_run()
    original = path.read_bytes()
    middle = len(original) // 2 // 8 * 8
    path.write_bytes(original[: middle - 64] + bytes(128) + original[middle + 64 :])
    run = Run(path.parent)
    assert run.damage
    path.write_bytes(original)
    run.refresh()
    assert run.damage == []
    for tag, points in truth.items():
        assert [(p["step"], p["value"]) for p in run.scalars(tag, superseded=True)] == points


def test_records_of_a_hostile_writer_do_no_harm(capsys: pytest.CaptureFixture[str]) -> None:
    """Right checksums, wrong content: what is not ours is passed over and told, everything else is read."""
    from operant.cli import main
    from operant.tracking.format.blocks import POINTS, RECORDS, encode_block

    path, truth = small_run()
    hostile = [
        b"not json", b"[" * 100_000, b"3", b'"text"', b'{"type": 3}', b'{"type": "start"}', b'{"type": "text"}',
        b'{"type": "series", "ids": 3}',
        b'{"type": "series", "ids": [[1]]}', b'{"type": "attempt", "attempt": "x", "resumed_from": null}',
        b'{"type": "media", "tag": "a", "step": 0, "wall": 0, "media": "image", "blob": {"name": "../../etc/passwd"}}',
        b'{"type": "file", "name": "x", "blob": {"name": "/etc/passwd"}}', b'{"type": "file", "blob": 3}',
        b'{"type": "hparams", "params": 5}', b'{"type": "lost", "points": "many"}', b'{"type": "tags", "add": 7}',
    ]  # fmt: skip
    with path.open("ab") as stream:
        for number, payload in enumerate(hostile, 1000):
            stream.write(encode_block(RECORDS, number, payload))
        stream.write(encode_block(POINTS, 2000, b"\x00\x00\x00\x00\xff\xff\xff\xff"))
        stream.write(encode_block(99, 2001, b"a kind of tomorrow"))
    run = Run(path.parent)
    for tag, points in truth.items():
        assert [(p["step"], p["value"]) for p in run.scalars(tag, superseded=True)] == points
    assert (run.media(), run.files) == ([], {})
    assert len(run.text()) == 1
    assert any("no writer of Operant" in sentence for sentence in run.damage)
    assert main(["runs"]) == 0
    assert main(["runs", "show", "last"]) == 0
