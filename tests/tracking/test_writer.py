"""What a user of TensorBoard, PAVI or W&B writes, and what comes back."""

from __future__ import annotations

import io
import math
import subprocess
import sys
import threading
from pathlib import Path

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from tests.machine import patience

from operant import Run, SummaryWriter, get_latest_scalar
from operant.errors import UsageError

torch = pytest.importorskip("torch")


def quiet(name: str = "t", **options: object) -> SummaryWriter:
    return SummaryWriter(name, system_metrics=False, **options)  # type: ignore[arg-type]


def reopened(writer: SummaryWriter) -> Run:
    writer.close()
    return Run.open(writer.run_id)


@pytest.mark.parametrize(
    "value",
    [0.25, np.float32(0.25), np.float64(0.25), np.array([[0.25]]), torch.tensor(0.25), torch.tensor([[0.25]]),
     torch.tensor(0.25, requires_grad=True), torch.tensor(0.25, dtype=torch.bfloat16)],
)  # fmt: skip
def test_every_kind_of_number_is_one(value: object) -> None:
    with quiet() as writer:
        writer.add_scalar("x", value, np.int64(7))
    assert Run.open(writer.run_id).latest("x")[::2] == (7, 0.25)  # type: ignore[index]


def test_tensorboards_calls_by_position_and_by_name() -> None:
    writer = SummaryWriter(log_dir="runs/exp1", comment="_a", flush_secs=5, max_queue=3)
    writer.add_scalar("a", 1, 2, 100.5)
    writer.add_scalar(tag="a", scalar_value=2.0, global_step=3, walltime=101.5)
    writer.add_scalar("a", 3.0, global_step=4)
    writer.add_scalars("group", {"x": 1.0, "y": 2.0}, 5)
    writer.add_scalars(main_tag="group", tag_scalar_dict={"x": 3.0}, global_step=6, walltime=7.0)
    writer.add_scalars({"x": 1, "y": 2}, 8)
    writer.add_scalars({"x": 2}, step=9)
    run = reopened(writer)
    assert run.name == "runs/exp1_a"
    assert run.id.startswith("exp1_a-")
    assert run.scalars("a")["step"].tolist() == [2, 3, 4]
    assert run.scalars("a")["wall"][:2].tolist() == [100.5, 101.5]
    assert run.scalars("group/x")["value"].tolist() == [1.0, 3.0]
    assert run.scalars("x")["step"].tolist() == [8, 9]


def test_pavis_call() -> None:
    writer = SummaryWriter("ResNet18")
    for n_iter in range(3):
        writer.add_scalar("acc", torch.rand(1), n_iter)
    writer.flush()
    history = Run.open("resnet18").history("acc")
    assert get_latest_scalar() == get_latest_scalar("resnet18", "acc") == history
    assert get_latest_scalar(tag="loss") == []
    writer.close()
    assert [row["iteration"] for row in history] == [0, 1, 2]
    assert all(isinstance(row["created"], int) and row["created"] > 1.7e12 for row in history)


odd_floats = st.floats(allow_nan=True, allow_infinity=True)


@settings(max_examples=15, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(
    st.lists(
        st.tuples(st.text(min_size=1, max_size=8), odd_floats, st.integers(-(2**63), 2**63 - 1)),
        min_size=1,
        max_size=40,
    )
)
def test_points_are_stored_as_given(points: list[tuple[str, float, int]]) -> None:
    with quiet() as writer:
        for tag, value, step in points:
            writer.add_scalar(tag, value, step)
    run = Run.open(writer.run_id)
    for name in {tag for tag, _, _ in points}:
        got = run.scalars(name)
        assert got["step"].tolist() == [step for tag, _, step in points if tag == name]
        np.testing.assert_array_equal(got["value"], [value for tag, value, _ in points if tag == name])


def test_ten_thousand_tags() -> None:
    with quiet() as writer:
        for step in range(3):
            for number in range(10_000):
                writer.add_scalar(f"größe/{number}", float(number), step)
    run = Run.open(writer.run_id)
    assert len(run.scalar_tags) == 10_000
    assert run.scalars("größe/9999")["value"].tolist() == [9999.0] * 3


def test_without_a_step_calls_are_counted_for_each_tag() -> None:
    with quiet() as writer:
        for _ in range(3):
            writer.add_scalar("a", 1.0)
        writer.add_scalar("b", 1.0)
        writer.add_array("a", [5.0, 6.0])
        writer.add_scalar("a", 1.0)
    run = Run.open(writer.run_id)
    assert run.scalars("a")["step"].tolist() == [0, 1, 2, 3, 4, 5]
    assert run.scalars("b")["step"].tolist() == [0]


def test_arrays_in_bulk_keep_their_place_among_single_points() -> None:
    with quiet() as writer:
        writer.add_scalar("x", 1.0, 0)
        writer.add_array("x", torch.arange(3.0), np.array([1, 2, 3], np.int32))
        writer.add_scalar("x", 9.0, 4)
    assert Run.open(writer.run_id).scalars("x")["value"].tolist() == [1.0, 0.0, 1.0, 2.0, 9.0]


@pytest.mark.parametrize(
    ("call", "words"),
    [
        (lambda w: w.add_scalar(3, 1.0, 0), "tag must be a string, got int: 3"),
        (lambda w: w.add_scalar(["a"], 1.0, 0), "tag must be a string, got list"),
        (lambda w: w.add_scalar("", 1.0, 0), "tag must not be empty"),
        (lambda w: w.add_scalar("a", "high", 0), "value must be a number, got str: 'high'"),
        (lambda w: w.add_scalar("a", None, 0), "value must be one number, got NoneType"),
        (lambda w: w.add_scalar("a", 1j, 0), "value must be one number, got complex"),
        (lambda w: w.add_scalar("a", np.zeros(3), 0), r"value must be one number, got ndarray of shape \(3,\)"),
        (lambda w: w.add_scalar("a", torch.zeros(2, 2), 0), r"got Tensor of shape \(2, 2\)"),
        (lambda w: w.add_scalar("a"), "needs a value"),
        (lambda w: w.add_scalar("a", 1.0, "x"), "step must be a whole number or None, got str"),
        (lambda w: w.add_scalar("a", 1.0, 1.5), "step must be a whole number"),
        (lambda w: w.add_scalar("a", 1.0, 2**63), "step must fit into 64 bits"),
        (lambda w: w.add_scalar("a", 1.0, 0, "now"), "walltime must be a number"),
        (lambda w: w.add_scalars({"a": "b"}, 0), "value of 'a' must be a number"),
        (lambda w: w.add_scalars([1], 0), "tag must be a string"),
        (lambda w: w.add_scalars("a", 0), "add_scalars takes a dict"),
        (lambda w: w.add_array("a", [[1.0]]), "one-dimensional"),
        (lambda w: w.add_array("a", [1.0], [1, 2]), "all must be of one length"),
        (lambda w: w.add_array("a", [1.0], [0.5]), "must be whole numbers"),
        (lambda w: w.add_array("a", ["x"]), "must be numbers"),
        (lambda w: w.add_text("a", 3), "text of 'a' must be a string"),
        (lambda w: w.add_image("a", np.zeros((2, 2, 2, 2))), "does not fit dataformats"),
        (lambda w: w.add_image("a", b"no picture"), "PNG, JPEG, GIF or WebP"),
        (lambda w: w.add_video("a", np.zeros((2, 2))), "a video has shape"),
        (lambda w: w.add_file("nowhere.bin"), "there is no file 'nowhere.bin'"),
        (lambda w: w.add_hparams([1]), "hparam_dict must be a dict"),
    ],
)
def test_bad_input_is_one_clear_sentence_and_loses_nothing(call: object, words: str) -> None:
    with quiet() as writer:
        writer.add_scalar("good", 1.0, 0)
        with pytest.raises(UsageError, match=words):
            call(writer)  # type: ignore[operator]
        writer.add_scalar("good", 2.0, 1)
    assert Run.open(writer.run_id).scalars("good")["value"].tolist() == [1.0, 2.0]
    assert Run.open(writer.run_id).scalar_tags == ["good"]


@pytest.mark.parametrize("run_id", ["../x", "a/../b", "a/b/c", "", ".", "/etc", "a\x00b", "*", 3, "a;b", "%2e%2e"])
def test_a_run_id_that_is_none(run_id: object) -> None:
    with pytest.raises(UsageError, match="run id"):
        Run.open(run_id)  # type: ignore[arg-type]
    with pytest.raises(UsageError, match="run id"):
        SummaryWriter(run=run_id)  # type: ignore[arg-type]


def test_unknown_run_and_unknown_tag_are_told() -> None:
    with pytest.raises(UsageError, match="there is no run 'nothing'"):
        Run.open("nothing")
    with quiet() as writer:
        writer.add_scalar("return", 1.0, 0)
    with pytest.raises(UsageError, match="did you mean 'return'"):
        Run.open(writer.run_id).scalars("retrun")


def test_a_closed_writer_says_so() -> None:
    writer = quiet()
    writer.add_scalar("x", 1.0, 0)
    writer.close()
    writer.close()
    with pytest.raises(UsageError, match="is closed"):
        writer.add_scalar("x", 1.0, 1)
    with pytest.raises(UsageError, match="is closed"):
        writer.add_text("x", "y")


def test_text_media_histograms_settings_and_files(tmp_path: Path) -> None:
    from PIL import Image

    kept = tmp_path / "model.bin"
    kept.write_bytes(b"weights")
    with quiet(config={"lr": np.float32(0.5), "layers": (64, 64), "path": tmp_path}, tags=["a"]) as writer:
        writer.add_text("note", "héllo", 3)
        writer.add_image("float", np.full((3, 4, 5), 0.5), 1)
        writer.add_image("bytes", np.zeros((4, 5, 3), np.uint8), 1, dataformats="HWC")
        writer.add_images("grid", torch.rand(5, 1, 4, 4))
        writer.add_video("film", torch.rand(1, 6, 3, 8, 8), 2, fps=10)
        writer.add_video("frames", [np.zeros((8, 8, 3), np.uint8), np.full((8, 8, 3), 255, np.uint8)], 2)
        writer.add_audio("sound", torch.zeros(1, 100), sample_rate=8000)
        writer.add_histogram("h", np.array([1.0, 2.0, np.nan, 3.0]), 4, bins=3)
        writer.add_file(kept)
        writer.add_file(kept, name="again")
        writer.add_hparams({"gamma": 0.99}, {"hparam/return": 5})
        writer.add_graph(torch.nn.Linear(1, 1))
        writer.add_embedding(np.zeros((2, 3)), ["a", "b"])
        writer.add_pr_curve("pr", [0, 1, 1], [0.1, 0.8, 0.6], 0, num_thresholds=3)
        writer.add_custom_scalars({"x": {"y": ["Multiline", ["a"]]}})
        writer.add_tags("b")
    run = Run.open(writer.run_id)
    assert run.text("note")[0].text == "héllo"
    assert {one.tag: one.kind for one in run.media()} == {
        "float": "image", "bytes": "image", "grid": "image", "film": "video", "frames": "video", "sound": "audio",
    }  # fmt: skip
    pictures = {one.tag: Image.open(io.BytesIO(one.path.read_bytes())) for one in run.media() if one.kind != "audio"}
    assert pictures["float"].size == (5, 4)
    assert pictures["float"].getpixel((0, 0)) == (128, 128, 128)
    assert pictures["grid"].size == (12, 8)
    assert pictures["film"].n_frames == 6  # type: ignore[attr-defined]
    assert run.histograms("h")[0]["counts"] == [1, 1, 1]
    assert run.params == {"lr": 0.5, "layers": [64, 64], "path": str(tmp_path), "gamma": 0.99}
    assert run.latest("hparam/return").value == 5  # type: ignore[union-attr]
    assert run.files["model.bin"].read_bytes() == b"weights"
    assert run.files["again"] == run.files["model.bin"]
    assert run.tags == ["a", "b"]
    assert "Linear" in run.text("graph")[0].text
    assert run.records("pr_curve")[0]["recall"] == [1.0, 1.0, 0.0]


def test_a_run_records_where_it_came_from(tmp_path: Path) -> None:
    work = Path.cwd()
    for command in (["init", "-q"], ["add", "."], ["-c", "user.name=x", "-c", "user.email=x@y", "commit", "-qm", "x"]):
        (work / "code.py").write_text("a = 1\n")
        subprocess.run(["git", *command], cwd=work, check=True)
    (work / "code.py").write_text("a = 2\n")
    writer = quiet("w")
    run = reopened(writer)
    origin = run.provenance
    assert origin["git"]["dirty"]
    assert len(origin["git"]["commit"]) == 40
    assert b"+a = 2" in (run.folder / "blobs" / origin["git"]["diff"]["name"]).read_bytes()
    assert origin["packages"]["numpy"] == np.__version__
    assert origin["process"]["pid"]
    assert origin["command"]
    assert run.status == "FINISHED"
    assert run.summary.ended is not None and run.summary.ended >= (run.summary.started or math.inf)


def test_packages_are_looked_up_again_when_one_was_installed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.syspath_prepend(tmp_path)
    assert "newcomer" not in reopened(quiet()).provenance["packages"]
    (tmp_path / "newcomer-1.5.dist-info").mkdir()
    (tmp_path / "newcomer-1.5.dist-info" / "METADATA").write_text("Name: newcomer\nVersion: 1.5\n")
    assert reopened(quiet()).provenance["packages"]["newcomer"] == "1.5"


def test_an_exception_ends_the_run_as_error() -> None:
    with pytest.raises(ZeroDivisionError), quiet() as writer:
        writer.add_scalar("x", 1.0, 0)
        1 / 0  # noqa: B018
    run = Run.open(writer.run_id)
    assert (run.status, run.summary.error) == ("ERROR", "ZeroDivisionError: division by zero")


def run_script(text: str) -> subprocess.CompletedProcess[str]:
    head = "import sys, os, time, signal\nfrom operant import SummaryWriter\nw = SummaryWriter('t')\n"
    return subprocess.run([sys.executable, "-c", head + text], capture_output=True, text=True, timeout=patience(60))


@pytest.mark.parametrize(
    ("text", "status", "steps"),
    [
        ("w.add_scalar('x', 1.0, 0)", "FINISHED", [0]),
        ("w.add_scalar('x', 1.0, 0)\nraise RuntimeError('boom')", "ERROR", [0]),
        ("w.add_scalar('x', 1.0, 0)\nsys.exit(0)", "FINISHED", [0]),
        ("w.add_scalar('x', 1.0, 0)\nos.kill(os.getpid(), signal.SIGTERM)\ntime.sleep(30)", "KILLED", [0]),
        ("w.add_scalar('x', 1.0, 0)\nw.flush()\nos.kill(os.getpid(), signal.SIGKILL)", "KILLED", [0]),
        ("w.add_scalar('x', 1.0, 0)\ndel w", "FINISHED", [0]),
    ],
)
def test_how_a_program_ends_is_recorded(text: str, status: str, steps: list[int]) -> None:
    run_script(text)
    run = Run.open("last")
    assert run.status == status
    assert run.scalars("x")["step"].tolist() == steps
    assert run.damage == []


def test_sigterm_in_the_middle_of_recording_loses_nothing_recorded() -> None:
    """The handler comes between any two instructions of the writer, also within a flush."""
    text = (
        "import threading\n"
        "threading.Timer(0.3, lambda: os.kill(os.getpid(), signal.SIGTERM)).start()\n"
        "i = 0\n"
        "while True:\n"
        "    w.add_scalar('x', float(i), i)\n"
        "    i += 1\n"
    )
    for _ in range(3):
        assert run_script(text).returncode == -15
        run = Run.open("last")
        assert run.status == "KILLED"
        steps = run.scalars("x")["step"]
        assert len(steps) > 1000
        assert (steps == np.arange(len(steps))).all()


def test_a_programs_own_sigterm_handler_is_left_alone() -> None:
    text = "import signal\nsignal.signal(signal.SIGTERM, lambda *_: None)\n"
    head = "from operant import SummaryWriter\nw = SummaryWriter('t')\nprint(signal.getsignal(signal.SIGTERM).__name__)"
    done = subprocess.run([sys.executable, "-c", text + head], capture_output=True, text=True, timeout=patience(60))
    assert done.stdout.strip() == "<lambda>"


def test_points_reach_the_disk_within_a_second_without_a_flush() -> None:
    import time

    writer = quiet()
    writer.add_scalar("x", 1.0, 0)
    until = time.monotonic() + patience(20)
    run = None
    while time.monotonic() < until and (run is None or run.latest("x") is None):
        time.sleep(0.02)
        if writer.run_dir.is_dir():
            run = Run.open(writer.run_id)
    assert run is not None and run.latest("x") is not None
    writer.close()


def test_threads_share_a_writer() -> None:
    with quiet() as writer:

        def work(number: int) -> None:
            for step in range(5000):
                writer.add_scalar(f"t{number % 2}", float(number), step)

        threads = [threading.Thread(target=work, args=(n,)) for n in range(4)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
    run = Run.open(writer.run_id)
    for tag, numbers in (("t0", {0.0, 2.0}), ("t1", {1.0, 3.0})):
        points = run.scalars(tag)
        assert len(points) == 10_000
        for number in numbers:
            assert points["step"][points["value"] == number].tolist() == list(range(5000))


def test_a_full_segment_is_followed_by_another(monkeypatch: pytest.MonkeyPatch) -> None:
    writer = quiet()
    writer._core._segment._limit = 20_000
    for step in range(3000):
        writer.add_scalar("x", float(step), step)
        writer.add_scalar(f"tag{step % 7}", 1.0, step)
        if step % 100 == 0:
            writer.flush()
    run = reopened(writer)
    assert len(list(run.folder.glob("seg-*.seg"))) > 2
    assert run.scalars("x")["step"].tolist() == list(range(3000))
    assert run.status == "FINISHED"


def test_nvidia_smi_is_asked_when_there_is_one(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    from operant.tracking.recording.system import SystemSampler

    program = tmp_path / "nvidia-smi"
    program.write_text("#!/bin/sh\necho '37, 1024, 4096'\necho '2, 0, 4096'\n")
    program.chmod(0o755)
    monkeypatch.setenv("PATH", str(tmp_path), prepend=":")
    found = SystemSampler().sample()
    assert found["system/gpu0_percent"] == 37.0
    assert found["system/gpu0_memory_gib"] == 1.0
    assert found["system/gpu1_memory_percent"] == 0.0
    assert 0 <= found["system/cpu_percent"] <= 100
    assert found["system/process_memory_gib"] > 0


def test_system_metrics_are_recorded(monkeypatch: pytest.MonkeyPatch) -> None:
    writer = SummaryWriter("t")
    writer._core._sample()
    writer._core._sample()
    assert "system/cpu_percent" in reopened(writer).scalar_tags
