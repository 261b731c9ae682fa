"""Our event files as TensorBoard reads them, and those of PyTorch, tensorboardX and TensorBoard as we do."""

from __future__ import annotations

import math
import struct
import time
import warnings
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from operant.tracking.exchange import tfrecord
from operant.tracking.exchange.tfevents_decode import HistogramEvent, HparamsEvent, ImageEvent, ScalarEvent, TextEvent
from operant.tracking.exchange.tfevents_read import EventFileReader, find_event_files, run_name
from operant.tracking.exchange.tfevents_write import EventFileWriter

with warnings.catch_warnings():
    warnings.simplefilter("ignore")  # deprecations inside TensorBoard and what it imports
    event_accumulator = pytest.importorskip("tensorboard.backend.event_processing.event_accumulator")
    from tensorboard.backend.event_processing import io_wrapper, plugin_event_accumulator
    from tensorboard.compat.proto import event_pb2, tensor_pb2, types_pb2
    from tensorboard.compat.tensorflow_stub.pywrap_tensorflow import masked_crc32c
    from tensorboard.plugins.histogram.summary_v2 import histogram_pb
    from tensorboard.plugins.hparams import plugin_data_pb2
    from tensorboard.plugins.scalar.summary_v2 import scalar_pb
    from tensorboard.util import tensor_util

PNG = b"\x89PNG\r\n\x1a\n\0\0\0\rIHDR\0\0\0\x02\0\0\0\x03\x08\x06\0\0\0" + bytes(range(256)) * 20
STEPS = [0, 1, 127, 128, 2**31 - 1, 2**31 + 5, 2**40, 2**63 - 1, -1, -(2**63)]


def write_points(folder: Path, tag: str, steps: Any, walls: Any, values: Any) -> Path:
    with EventFileWriter(folder) as writer:
        writer.add_points(tag, steps, walls, values)
    return writer.path


def accumulate(folder: Path, *, migrated: bool = False) -> Any:
    """TensorBoard's view of a run: as stored, or after its data-compat layer as its pages get it."""
    module = plugin_event_accumulator if migrated else event_accumulator
    everything = dict.fromkeys(module.DEFAULT_SIZE_GUIDANCE, 0)
    return module.EventAccumulator(str(folder), size_guidance=everything).Reload()


def float32(value: float) -> float:
    with np.errstate(over="ignore"):
        return float(np.float32(value))


def same(a: Any, b: Any) -> bool:
    return bool(np.array_equal(np.asarray(a, dtype=float), np.asarray(b, dtype=float), equal_nan=True))


def frames(*events: Any) -> bytes:
    return b"".join(tfrecord.record(event.SerializeToString()) for event in events)


def read(path: Path) -> list[Any]:
    reader = EventFileReader(path)
    events = reader.poll()
    assert reader.damage is None
    assert reader.skipped == 0
    return events


# --- checksums and varints --------------------------------------------------------------------------------


@pytest.mark.parametrize("size", [0, 1, 8, 63, 511, 512, 513, 2047, 2048, 2049, 5000])
def test_checksum_of_one_message_is_tensorboards(size: int) -> None:
    data = np.random.default_rng(size).integers(0, 256, size, dtype=np.uint8).tobytes()
    assert tfrecord.mask(tfrecord.crc32c(data)) == masked_crc32c(data)


@pytest.mark.parametrize("width", [1, 24, 57, 512])
def test_checksums_of_rows_are_tensorboards(width: int) -> None:
    rows = np.random.default_rng(width).integers(0, 256, (20, width), dtype=np.uint8)
    alone = tfrecord.mask_array(tfrecord.crc32c_of_rows(rows))
    prefixed = tfrecord.mask_array(tfrecord.crc32c_with_prefix(b"loss", rows))
    assert alone.tolist() == [masked_crc32c(row.tobytes()) for row in rows]
    assert prefixed.tolist() == [masked_crc32c(b"loss" + row.tobytes()) for row in rows]


@given(st.integers(-(2**63), 2**63 - 1))
def test_varints_round_trip(value: int) -> None:
    encoded = tfrecord.varint(value)
    unsigned, end = tfrecord.read_varint(encoded, 0)
    assert (tfrecord.signed(unsigned), end) == (value, len(encoded))


# --- what we write, TensorBoard reads ---------------------------------------------------------------------


def test_tensorboard_reads_our_points(tmp_path: Path) -> None:
    values = [0.0, -1.5, math.nan, math.inf, -math.inf, 1e39, -1e300, 1e-50, math.pi, 3.4e38]
    walls = 1.75e9 + np.arange(len(STEPS)) / 3
    write_points(tmp_path, "train/größe 目标 🎯", STEPS, walls, values)

    events = accumulate(tmp_path).Scalars("train/größe 目标 🎯")
    assert [event.step for event in events] == STEPS
    assert [event.wall_time for event in events] == walls.tolist()
    assert same([event.value for event in events], [float32(v) for v in values])

    migrated = accumulate(tmp_path, migrated=True)
    assert migrated.SummaryMetadata("train/größe 目标 🎯").plugin_data.plugin_name == "scalars"
    tensors = migrated.Tensors("train/größe 目标 🎯")
    assert [event.step for event in tensors] == STEPS
    assert same([tensor_util.make_ndarray(t.tensor_proto) for t in tensors], [float32(v) for v in values])


def test_blocks_and_padded_steps_are_read_alike_by_tensorboard_and_by_us(tmp_path: Path) -> None:
    count = 40_000  # more than two blocks; steps of one to ten bytes share a block
    rng = np.random.default_rng(1)
    steps = rng.integers(0, 2**62, count) >> rng.integers(0, 62, count)
    steps[::1000] *= -1
    walls, values = 1e9 + rng.random(count), rng.normal(size=count)
    path = write_points(tmp_path, "x" * 200, steps, walls, values)

    expected = list(zip(steps.tolist(), walls.tolist(), values.astype(np.float32).astype(float).tolist(), strict=True))
    assert [(e.step, e.wall, e.value) for e in read(path)] == expected
    theirs = accumulate(tmp_path).Scalars("x" * 200)
    assert [(e.step, e.wall_time, e.value) for e in theirs] == expected


def test_protobuf_accepts_each_step_at_each_width() -> None:
    for width in range(1, 11):
        step = 5
        padded = bytes([step | 0x80] + [0x80] * (width - 2) + [0]) if width > 1 else bytes([step])
        assert event_pb2.Event.FromString(b"\x10" + padded).step == step


def test_lone_surrogates_do_not_make_a_file_unreadable(tmp_path: Path) -> None:
    write_points(tmp_path, "bad\ud800tag", [1], [2.0], [3.0])
    assert accumulate(tmp_path).Tags()["scalars"] == ["bad?tag"]


def test_tensorboard_reads_our_text_images_and_histograms(tmp_path: Path) -> None:
    with EventFileWriter(tmp_path) as writer:
        writer.add_text("note", "# größer\n🎯", -7, 10.5)
        writer.add_image("frame", PNG, 2, 3, 2**40, 11.5)
        writer.add_histogram("weights", [-1, 0, 1, 2], [4, 0, 6], -0.9, 1.8, 3.5, 9.25, 3, 12.5)
    accumulator = accumulate(tmp_path)

    (text,) = accumulator.Tensors("note")
    assert (text.step, text.wall_time) == (-7, 10.5)
    assert tensor_util.make_ndarray(text.tensor_proto).tolist() == ["# größer\n🎯".encode()]
    (image,) = accumulator.Images("frame")
    assert (image.wall_time, image.step, image.width, image.height) == (11.5, 2**40, 2, 3)
    assert image.encoded_image_string == PNG
    (histogram,) = accumulator.Histograms("weights")
    assert (histogram.step, histogram.wall_time) == (3, 12.5)
    content = histogram.histogram_value
    assert (content.min, content.max, content.num, content.sum, content.sum_squares) == (
        -0.9,
        1.8,
        10,
        3.5,
        9.25,
    )
    assert (content.bucket_limit, content.bucket) == ([-1, 0, 1, 2], [0, 4, 0, 6])

    migrated = accumulate(tmp_path, migrated=True)
    plugins = {tag: migrated.SummaryMetadata(tag).plugin_data.plugin_name for tag in ("note", "frame", "weights")}
    assert plugins == {"note": "text", "frame": "images", "weights": "histograms"}
    bins = tensor_util.make_ndarray(migrated.Tensors("weights")[0].tensor_proto)
    assert same(bins, np.array([[-0.9, 0, 4], [0, 1, 0], [1, 1.8, 6]], dtype=np.float32))


def test_tensorboard_reads_our_hparams(tmp_path: Path) -> None:
    hparams = {"lr": 1e-3, "batch": 64, "agent": "dqn ü", "double": True, "noisy": False}
    with EventFileWriter(tmp_path) as writer:
        writer.add_hparams(hparams, ["eval/return", "eval/length"], 5.0)
    content = accumulate(tmp_path, migrated=True).PluginTagToContent("hparams")
    parsed = {tag: plugin_data_pb2.HParamsPluginData.FromString(data) for tag, data in content.items()}

    experiment = parsed["_hparams_/experiment"].experiment
    assert [(info.name, info.type) for info in experiment.hparam_infos] == [
        ("lr", 3),
        ("batch", 3),
        ("agent", 1),
        ("double", 2),
        ("noisy", 2),
    ]
    assert [info.name.tag for info in experiment.metric_infos] == ["eval/return", "eval/length"]
    started = parsed["_hparams_/session_start_info"].session_start_info.hparams
    held = {name: getattr(value, value.WhichOneof("kind")) for name, value in started.items()}
    assert held == hparams
    assert type(held["double"]) is bool
    assert parsed["_hparams_/session_end_info"].session_end_info.status == 1


def test_first_record_is_the_file_version(tmp_path: Path) -> None:
    with EventFileWriter(tmp_path, wall=1234.5) as writer:
        pass
    data = writer.path.read_bytes()
    event = event_pb2.Event.FromString(data[12:-4])
    assert (event.file_version, event.wall_time) == ("brain.Event:2", 1234.5)
    assert writer.path.name.startswith("events.out.tfevents.0000001234.")


def test_a_taken_name_is_never_overwritten(tmp_path: Path) -> None:
    paths = []
    for value in range(3):
        with EventFileWriter(tmp_path, wall=1000) as writer:
            writer.add_points("x", [value], [0.0], [value])
        paths.append(writer.path)
    assert find_event_files(tmp_path) == paths
    assert [read(path)[0].step for path in paths] == [0, 1, 2]


def test_wrong_arguments_are_told_in_sentences(tmp_path: Path) -> None:
    with EventFileWriter(tmp_path) as writer:
        writer.flush()
        before = writer.path.stat().st_size
        with pytest.raises(ValueError, match="2 steps, 1 walls and 2 values"):
            writer.add_points("x", [1, 2], [0.0], [1.0, 2.0])
        with pytest.raises(ValueError, match="steps are float64; they must be int64"):
            writer.add_points("x", [1.5], [0.0], [1.0])
        with pytest.raises(ValueError, match="values has 2 dimensions"):
            writer.add_points("x", [1], [0.0], [[1.0]])
        with pytest.raises(ValueError, match="3 bins have 4 edges"):
            writer.add_histogram("x", [1, 2, 3], [1, 1, 1], 0, 1, 1, 1, 0, 0.0)
        with pytest.raises(TypeError, match="setting 'layers' is a list"):
            writer.add_hparams({"layers": [1]}, [], 0.0)  # type: ignore[dict-item]
        writer.add_points("x", [], [], [])
        writer.flush()
        assert writer.path.stat().st_size == before
    with pytest.raises(ValueError, match="wall is nan"):
        EventFileWriter(tmp_path, wall=math.nan)


# --- what we write, we read -------------------------------------------------------------------------------


def test_everything_round_trips(tmp_path: Path) -> None:
    edges, counts = [-1.0, 0.0, 1.0, 2.0], [0.0, 4.0, 0.0]
    with EventFileWriter(tmp_path) as writer:
        writer.add_text("note", "größer\n", -7, 10.5)
        writer.add_image("frame", PNG, 2, 3, 4, 11.5)
        writer.add_histogram("weights", edges, counts, 0.1, 0.9, 2.0, 1.5, 3, 12.5)
        writer.add_hparams({"lr": 1e-3, "agent": "dqn", "double": True}, ["loss"], 5.0)
        writer.add_points("", [-1], [1.5], [0.25])
    text, image, histogram, hparams, scalar = read(writer.path)
    assert text == TextEvent("note", -7, 10.5, "größer\n")
    assert image == ImageEvent("frame", 4, 11.5, PNG, 2, 3)
    assert histogram[:3] == ("weights", 3, 12.5)
    assert same(histogram.edges, edges)
    assert same(histogram.counts, counts)
    assert hparams == HparamsEvent({"lr": 1e-3, "agent": "dqn", "double": True})
    assert hparams.hparams["double"] is True
    assert scalar == ScalarEvent("", -1, 1.5, 0.25)


@settings(max_examples=60, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(
    tag=st.text(max_size=200),
    points=st.lists(
        st.tuples(
            st.integers(-(2**63), 2**63 - 1),
            st.floats(allow_nan=False),
            st.floats(width=32),
        ),
        max_size=40,
    ),
)
def test_any_points_round_trip(tmp_path: Path, tag: str, points: list[tuple[int, float, float]]) -> None:
    steps, walls, values = ([point[i] for point in points] for i in range(3))
    events = read(write_points(tmp_path, tag, steps, walls, values))
    assert [(e.tag, e.step, e.wall) for e in events] == [(tag, s, w) for s, w, _ in points]
    assert same([e.value for e in events], values)


# --- what others write, we read ---------------------------------------------------------------------------


def write_as_others_do(writer: Any) -> None:
    for i, step in enumerate(STEPS):
        writer.add_scalar("loss/größe", [0.5, math.nan, math.inf][i % 3], step, walltime=100.25 + i)
    writer.add_text("note", "größer", 3, walltime=5.0)
    writer.add_image("frame", np.zeros((3, 4, 5), dtype=np.uint8), 4, walltime=6.0)
    values = np.array([-2.0, -1.0, 0.5, 0.5, 3.0])
    writer.add_histogram("weights", values, 5, bins="auto", walltime=7.0)
    writer.add_histogram("wide", values, 6, walltime=8.0)
    writer.close()


def check_what_others_wrote(folder: Path) -> None:
    (path,) = find_event_files(folder)
    events = read(path)
    by_kind = {kind: [e for e in events if type(e) is kind] for kind in (ScalarEvent, TextEvent, ImageEvent)}
    scalars = by_kind[ScalarEvent]
    assert [(e.tag, e.step, e.wall) for e in scalars] == [
        ("loss/größe", step, 100.25 + i) for i, step in enumerate(STEPS)
    ]
    assert same([e.value for e in scalars], [[0.5, math.nan, math.inf][i % 3] for i in range(len(STEPS))])
    assert by_kind[TextEvent] == [TextEvent("note/text_summary", 3, 5.0, "größer")]
    (image,) = by_kind[ImageEvent]
    assert image[:3] == ("frame", 4, 6.0)
    assert (image.width, image.height, image.encoded[:4]) == (5, 4, b"\x89PNG")
    histograms = [e for e in events if type(e) is HistogramEvent]
    assert [e[:3] for e in histograms] == [("weights", 5, 7.0), ("wide", 6, 8.0)]
    for histogram in histograms:
        assert histogram.counts.sum() == 5
        assert len(histogram.edges) == len(histogram.counts) + 1
        assert (np.diff(histogram.edges) > 0).all()
        assert histogram.edges[0] <= -2.0
        assert histogram.edges[-1] >= 3.0
        assert np.abs(histogram.edges).max() < 1e3


def test_we_read_what_pytorch_writes(tmp_path: Path) -> None:
    pytest.importorskip("torch")
    pytest.importorskip("PIL")
    from torch.utils.tensorboard import SummaryWriter

    write_as_others_do(SummaryWriter(tmp_path))
    check_what_others_wrote(tmp_path)


def test_we_read_what_tensorboardx_writes(tmp_path: Path) -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # its imports use deprecated names
        tensorboardx = pytest.importorskip("tensorboardX")
    pytest.importorskip("PIL")
    write_as_others_do(tensorboardx.SummaryWriter(str(tmp_path)))
    check_what_others_wrote(tmp_path)


def test_we_read_pytorchs_hparams_and_new_style_scalars(tmp_path: Path) -> None:
    pytest.importorskip("torch")
    from torch.utils.tensorboard import SummaryWriter

    with SummaryWriter(tmp_path / "a") as writer:
        writer.add_scalar("single", 0.1, 7, walltime=1.5, new_style=True)
        writer.add_scalar("double", 0.1, 8, walltime=2.5, new_style=True, double_precision=True)
        writer.add_hparams({"lr": 0.1, "batch": 64, "agent": "dqn", "double": True}, {"score": 1.0}, run_name="hp")
    main, hparams_file = find_event_files(tmp_path)
    assert read(main) == [ScalarEvent("single", 7, 1.5, float32(0.1)), ScalarEvent("double", 8, 2.5, 0.1)]
    assert run_name(tmp_path, hparams_file) == "a/hp"
    hparams, score = read(hparams_file)
    assert hparams == HparamsEvent({"lr": 0.1, "batch": 64, "agent": "dqn", "double": True})
    assert score[0] == "score"
    assert score.value == 1.0


NUMBER_TENSORS = [
    tensor_pb2.TensorProto(dtype=types_pb2.DT_FLOAT, float_val=[-2.5]),
    tensor_pb2.TensorProto(dtype=types_pb2.DT_DOUBLE, double_val=[-2.5]),
    tensor_pb2.TensorProto(dtype=types_pb2.DT_HALF, half_val=[int(np.float16(-2.5).view(np.uint16))]),
    tensor_pb2.TensorProto(dtype=types_pb2.DT_FLOAT, tensor_content=struct.pack("<f", -2.5)),
    tensor_pb2.TensorProto(dtype=types_pb2.DT_DOUBLE, tensor_content=struct.pack("<d", -2.5)),
    tensor_pb2.TensorProto(dtype=types_pb2.DT_HALF, tensor_content=struct.pack("<e", -2.5)),
    tensor_pb2.TensorProto(dtype=types_pb2.DT_INT32, int_val=[-3]),
    tensor_pb2.TensorProto(dtype=types_pb2.DT_INT64, int64_val=[-(2**40)]),
    tensor_pb2.TensorProto(dtype=types_pb2.DT_INT32, tensor_content=struct.pack("<i", -3)),
    tensor_pb2.TensorProto(dtype=types_pb2.DT_INT64, tensor_content=struct.pack("<q", -(2**40))),
]


@pytest.mark.parametrize("tensor", NUMBER_TENSORS, ids=lambda t: f"{t.dtype}-{t.ListFields()[1][0].name}")
@pytest.mark.parametrize("plugin", ["scalars", ""])
def test_scalars_in_tensors(tmp_path: Path, tensor: Any, plugin: str) -> None:
    event = event_pb2.Event(wall_time=1.5, step=-4)
    value = event.summary.value.add(tag="loss", tensor=tensor)
    value.metadata.plugin_data.plugin_name = plugin
    path = tmp_path / "x.tfevents"
    path.write_bytes(frames(event))
    assert read(path) == [ScalarEvent("loss", -4, 1.5, float(tensor_util.make_ndarray(tensor).item()))]


def test_new_style_summaries_and_plugins_named_only_once(tmp_path: Path) -> None:
    first, second, many = (event_pb2.Event(wall_time=float(i), step=i) for i in range(3))
    for event, text in ((first, b"one"), (second, b"two")):
        event.summary.value.add(tag="note", tensor=tensor_pb2.TensorProto(dtype=types_pb2.DT_STRING, string_val=[text]))
    first.summary.value[0].metadata.plugin_data.plugin_name = "text"
    many.summary.value.extend(scalar_pb("loss", 0.5).value)
    many.summary.value.extend(histogram_pb("weights", [1.0, 2.0, 2.0, 5.0], buckets=4).value)
    many.summary.value.extend(histogram_pb("nothing", [], buckets=0).value)
    for tag, images in (("one", [b"a"]), ("two", [b"a", b"b"])):
        value = many.summary.value.add(
            tag=tag,
            tensor=tensor_pb2.TensorProto(dtype=types_pb2.DT_STRING, string_val=[b"5", b"4", *images]),
        )
        value.metadata.plugin_data.plugin_name = "images"
    many.summary.value.add(tag="classic", simple_value=2.0)
    path = tmp_path / "x.tfevents"
    path.write_bytes(frames(first, second, many))

    one, two, loss, weights, nothing, *images, classic = read(path)
    assert [one.text, two.text] == ["one", "two"]
    assert loss == ScalarEvent("loss", 2, 2.0, 0.5)
    assert same(weights.edges, [1, 2, 3, 4, 5])
    assert same(weights.counts, [1, 2, 0, 1])
    assert len(nothing.edges) == len(nothing.counts) == 0
    assert images == [ImageEvent(t, 2, 2.0, b, 5, 4) for t, b in (("one", b"a"), ("two/0", b"a"), ("two/1", b"b"))]
    assert classic == ScalarEvent("classic", 2, 2.0, 2.0)


# --- finding files ----------------------------------------------------------------------------------------


def test_event_files_and_run_names_are_tensorboards(tmp_path: Path) -> None:
    for folder in ("", "b", "a/deep", "a b"):
        for second in (20, 3):
            with EventFileWriter(tmp_path / folder, wall=second):
                pass
    (tmp_path / "b" / "notes.txt").write_text("no event file")
    (tmp_path / "empty").mkdir()
    (tmp_path / "empty" / "x.tfevents.profile-empty").touch()
    found = find_event_files(tmp_path)
    assert [run_name(tmp_path, path) for path in found[::2]] == [".", "a/deep", "a b", "b"]
    assert [int(path.name.split(".")[3]) for path in found] == [3, 20] * 4
    theirs = {Path(folder) for folder in io_wrapper.GetLogdirSubdirectories(str(tmp_path))}
    assert {path.parent for path in found} == theirs - {tmp_path / "empty"}
    (tmp_path / "b" / "loop").symlink_to(tmp_path, target_is_directory=True)
    assert find_event_files(tmp_path) == found
    assert find_event_files(tmp_path / "missing") == []


# --- speed ------------------------------------------------------------------------------------------------


@pytest.mark.long
def test_many_times_faster_than_tensorboard(tmp_path: Path) -> None:
    count = 50_000
    columns = np.arange(count), 1.7e9 + np.arange(count), np.random.default_rng(0).normal(size=count)
    started = time.process_time()
    path = write_points(tmp_path, "train/loss", *columns)
    wrote = time.process_time() - started
    started = time.process_time()
    ours = read(path)
    took = time.process_time() - started
    started = time.process_time()
    theirs = accumulate(tmp_path).Scalars("train/loss")
    reference = time.process_time() - started
    assert len(ours) == len(theirs) == count
    assert took * 3 < reference
    assert wrote * 10 < reference
