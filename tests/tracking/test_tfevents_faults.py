"""Event files that grow, tear and rot, and files made to harm their reader."""

from __future__ import annotations

import struct
import warnings
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from operant.tracking.exchange import tfevents_read, tfrecord
from operant.tracking.exchange.tfevents_decode import EventDecoder, HparamsEvent, ScalarEvent
from operant.tracking.exchange.tfevents_read import EventFileReader, find_event_files
from operant.tracking.exchange.tfevents_write import EventFileWriter

with warnings.catch_warnings():
    warnings.simplefilter("ignore")  # deprecations inside TensorBoard and what it imports
    event_pb2 = pytest.importorskip("tensorboard.compat.proto.event_pb2")
    from google.protobuf.message import DecodeError

PNG = b"\x89PNG\r\n\x1a\n\0\0\0\rIHDR\0\0\0\x02\0\0\0\x03\x08\x06\0\0\0" + bytes(range(256)) * 20


def write_points(folder: Path, tag: str, steps: Any, walls: Any, values: Any) -> Path:
    with EventFileWriter(folder) as writer:
        writer.add_points(tag, steps, walls, values)
    return writer.path


def read(path: Path) -> list[Any]:
    reader = EventFileReader(path)
    events = reader.poll()
    assert reader.damage is None
    assert reader.skipped == 0
    return events


def sample_file(folder: Path, points: int = 40) -> bytes:
    with EventFileWriter(folder, wall=1000) as writer:
        writer.add_points("loss", np.arange(points), np.arange(points) / 2, np.arange(points) / 4)
        writer.add_text("note", "text", 1, 2.0)
        writer.add_histogram("weights", [0, 1, 2], [1, 2], 0, 2, 3, 4, 1, 2.0)
        writer.add_image("frame", PNG, 2, 3, 1, 2.0)
        writer.add_hparams({"lr": 0.5, "agent": "dqn"}, ["loss"], 2.0)
    return writer.path.read_bytes()


def test_a_growing_file_is_read_once_at_every_cut(tmp_path: Path) -> None:
    data = sample_file(tmp_path, points=3)
    expected = [e.tag for e in read(find_event_files(tmp_path)[0]) if not isinstance(e, HparamsEvent)]
    growing = tmp_path / "growing"
    reader = EventFileReader(growing)
    assert reader.poll() == []  # not there yet
    seen = []
    with growing.open("wb", buffering=0) as file:
        for start in range(0, len(data), 7):
            file.write(data[start : start + 7])
            seen += [e.tag for e in reader.poll() if not isinstance(e, HparamsEvent)]
            assert reader.damage is None
    assert seen == expected


def test_a_wrong_tail_is_not_yet_and_heals(tmp_path: Path) -> None:
    path = write_points(tmp_path, "x", np.arange(30), np.zeros(30), np.zeros(30))
    data = path.read_bytes()
    path.write_bytes(data[:-6] + bytes([data[-6] ^ 1]) + data[-5:])
    reader = EventFileReader(path)
    assert len(reader.poll()) == 29
    assert reader.damage is None
    path.write_bytes(data)
    assert [event.step for event in reader.poll()] == [29]


@pytest.mark.parametrize("kept", [3, 12, 20], ids=["in the header", "after the header", "in the payload"])
def test_zeros_at_the_end_are_not_yet(tmp_path: Path, kept: int) -> None:
    path = write_points(tmp_path, "x", np.arange(2), np.ones(2), np.ones(2))
    data = path.read_bytes()
    size = (len(data) - len(data[: data.index(b"brain.Event:2") + 17])) // 2
    start = len(data) - size
    path.write_bytes(data[: start + kept] + bytes(5000))
    reader = EventFileReader(path)
    assert [event.step for event in reader.poll()] == [0]
    assert reader.damage is None
    path.write_bytes(data)
    assert [event.step for event in reader.poll()] == [1]


@pytest.mark.parametrize("points", [30, 2000])
@pytest.mark.parametrize("byte", [3, 20, -2], ids=["header", "payload", "crc"])
def test_a_wrong_middle_ends_the_file_with_a_note(tmp_path: Path, points: int, byte: int) -> None:
    path = write_points(tmp_path, "x", np.full(points, 7), np.ones(points), np.ones(points))
    data = bytearray(path.read_bytes())
    size = (len(data) - data.index(b"brain.Event:2") - 17) // points
    at = len(data) - 5 * size  # the fifth last record
    data[at + byte % size] ^= 0x10
    path.write_bytes(data)
    reader = EventFileReader(path)
    assert len(reader.poll()) == points - 5
    assert reader.damage is not None
    assert f"byte {at} " in reader.damage
    assert reader.poll() == []


def test_a_file_that_shrinks_is_damaged(tmp_path: Path) -> None:
    path = write_points(tmp_path, "x", [1, 2], [0, 0], [0, 0])
    reader = EventFileReader(path)
    reader.poll()
    path.write_bytes(path.read_bytes()[:40])
    assert reader.poll() == []
    assert "shrank to 40 bytes" in str(reader.damage)


def test_records_longer_than_a_chunk(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(tfevents_read, "_CHUNK", 64)
    sample_file(tmp_path)
    chunked = read(find_event_files(tmp_path)[0])
    monkeypatch.undo()
    assert repr(chunked) == repr(read(find_event_files(tmp_path)[0]))


def test_huge_lengths_are_never_allocated(tmp_path: Path) -> None:
    path = write_points(tmp_path, "x", [1], [0], [0])
    with path.open("ab") as file:
        file.write(tfrecord.record_header(2**63) + b"abc")
    reader = EventFileReader(path)
    assert len(reader.poll()) == 1
    assert reader.damage is None
    sparse = tmp_path / "sparse"
    with sparse.open("wb") as file:  # a terabyte that exists, as a hole
        file.write(tfrecord.record_header(2**40))
        file.truncate(2**40 + 16)
        file.seek(0, 2)
        file.write(path.read_bytes())
    reader = EventFileReader(sparse)
    assert len(reader.poll()) == 1
    assert reader.skipped == 1


HOSTILE = settings(max_examples=150, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])


@pytest.fixture(scope="module")
def sample(tmp_path_factory: pytest.TempPathFactory) -> bytes:
    return sample_file(tmp_path_factory.mktemp("sample"))


@HOSTILE
@given(st.binary(max_size=400))
def test_random_bytes(tmp_path: Path, data: bytes) -> None:
    (tmp_path / "x").write_bytes(data)
    assert EventFileReader(tmp_path / "x").poll() == []


@HOSTILE
@given(st.data())
def test_flipped_and_truncated_files_yield_only_what_was_written(
    tmp_path: Path, sample: bytes, data: st.DataObject
) -> None:
    (tmp_path / "whole").write_bytes(sample)
    expected = [repr(event) for event in read(tmp_path / "whole")]
    changed = bytearray(sample)
    for _ in range(data.draw(st.integers(0, 3))):
        changed[data.draw(st.integers(0, len(changed) - 1))] ^= 1 << data.draw(st.integers(0, 7))
    del changed[data.draw(st.integers(0, len(changed))) :]
    (tmp_path / "x").write_bytes(changed)
    events = [repr(event) for event in EventFileReader(tmp_path / "x").poll()]
    assert events == expected[: len(events)]


@HOSTILE
@given(st.data())
def test_hostile_events_behind_right_checksums(tmp_path: Path, sample: bytes, data: st.DataObject) -> None:
    payloads = []
    at = 0
    while at < len(sample):
        (length,) = struct.unpack_from("<Q", sample, at)
        payloads.append(sample[at + 12 : at + 12 + length][:200])
        at += length + 16
    event = bytearray(data.draw(st.sampled_from(payloads)))
    for _ in range(data.draw(st.integers(1, 4))):
        event[data.draw(st.integers(0, len(event) - 1))] = data.draw(st.integers(0, 255))
    records = [bytes(event), data.draw(st.binary(max_size=60)), payloads[1]]
    (tmp_path / "x").write_bytes(b"".join(map(tfrecord.record, records)))
    reader = EventFileReader(tmp_path / "x")
    assert reader.poll()[-1] == ScalarEvent("loss", 0, 0.0, 0.0)
    assert reader.damage is None


@HOSTILE
@given(st.data())
def test_the_short_way_for_scalars_agrees_with_protobuf(data: st.DataObject) -> None:
    event = event_pb2.Event()
    event.summary.value.add(
        tag=data.draw(st.text(min_size=1, max_size=20)), simple_value=data.draw(st.floats(width=32))
    )
    summary = event.SerializeToString()
    wall = b"\x09" + struct.pack("<d", data.draw(st.floats()))
    step = b"\x10" + tfrecord.varint(data.draw(st.integers(-9, 2**40)))
    # As others write it, without a step of 0, and as we write it.
    orders = [wall + step + summary, wall + summary, summary + step + wall]
    changed = bytearray(data.draw(st.sampled_from(orders)))
    changes = data.draw(st.integers(0, 2))
    for _ in range(changes):
        changed[data.draw(st.integers(0, len(changed) - 1))] = data.draw(st.integers(0, 255))
    try:
        scalar = EventDecoder()._plain_scalar(bytes(changed))
    except tfrecord.WireError:
        with pytest.raises(DecodeError):
            event_pb2.Event.FromString(bytes(changed))
        return
    if scalar is None:
        assert changes, "a plain scalar took the long way"
        return
    try:
        parsed = event_pb2.Event.FromString(bytes(changed))
    except DecodeError as error:
        assert "�" in scalar.tag, error  # protobuf refuses text that is not UTF-8; we replace it
        return
    (value,) = parsed.summary.value
    assert scalar[:2] == (value.tag, parsed.step)
    np.testing.assert_array_equal(scalar[2:], (parsed.wall_time, value.simple_value))
