"""The commands as a newcomer types them."""

from __future__ import annotations

import csv
import errno
import json
import os
import shlex
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
from tests.machine import patience

from operant import Run, SummaryWriter
from operant.cli import COMMANDS, main

HEAVY = {"torch", "ray", "sklearn", "scipy", "starlette", "uvicorn", "lightning", "mujoco", "pandas", "pyarrow", "PIL",
         "optuna", "gymnasium", "hydra", "kubernetes", "matplotlib", "tensorboard", "psutil", "rich"}  # fmt: skip


def command(*words: str, check: bool = True) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-m", "operant", *words], capture_output=True, text=True, check=check, timeout=patience(60)
    )


def loaded_by(code: str) -> set[str]:
    script = f"import sys\n{code}\nprint('\\n'.join(sys.modules), file=sys.stderr)"
    done = subprocess.run(
        [sys.executable, "-c", script], capture_output=True, text=True, check=True, timeout=patience(60)
    )
    return set(done.stderr.split())


def record(name: str = "cartpole") -> str:
    with SummaryWriter(name, system_metrics=False, tags=["demo"], config={"lr": 0.1, "net": [64, 64]}) as writer:
        for step in range(100):
            writer.add_scalar("return", float(step), step)
            writer.add_scalar("loss", float("nan") if step == 50 else 1 / (step + 1), step)
        writer.add_text("note", "hello *world*", 1)
        writer.add_image("picture", np.full((3, 4, 5), 0.5), 2)
        writer.add_histogram("weights", np.arange(10.0), 3)
    return writer.run_id


@pytest.mark.parametrize("words", [["--help"], ["runs"], ["init"], ["--version"]])
def test_light_commands_load_little(words: list[str]) -> None:
    record()
    main(["runs"])  # the index is warm, as it is on any but the first call
    bare = loaded_by("")
    ours = loaded_by(f"from operant.cli import main\nassert main({words!r}) == 0") - bare
    assert not {name.split(".")[0] for name in ours} & HEAVY
    assert "numpy" not in ours
    assert len(ours) < 160, sorted(ours)


def test_import_operant_is_light() -> None:
    ours = loaded_by("import operant") - loaded_by("")
    assert len(ours) < 40, sorted(ours)
    assert not {name.split(".")[0] for name in loaded_by("from operant import SummaryWriter")} & HEAVY


def test_a_search_on_this_machine_loads_nothing_of_clusters() -> None:
    loaded = loaded_by("from operant.schedulers import NaiveScheduler; import operant.schedulers.planning.plan")
    assert "operant.sites.local" in loaded and not loaded & {"operant.sites.cluster", "http.server", "ssl"}


def test_the_overview_names_every_command() -> None:
    text = command("--help").stdout
    for name in COMMANDS:
        assert f"  {name}" in text
    for name in COMMANDS:
        assert "usage: operant" in command(name, "--help").stdout


def test_a_mistyped_command_is_answered_with_the_nearest() -> None:
    done = command("rusn", check=False)
    assert done.returncode == 2
    assert "did you mean 'runs'" in done.stderr


def test_init_makes_the_folder_and_keeps_it_out_of_git(tmp_path: Path) -> None:
    done = command("init", str(tmp_path / "project"))
    assert done.stdout.startswith("Made: ")
    root = tmp_path / "project" / ".operant"
    assert (root / "runs").is_dir() and (root / "searches").is_dir()
    assert (root / ".gitignore").read_text() == "*\n"
    assert command("init", str(tmp_path / "project")).stdout.startswith("Already there: ")


def test_without_runs_a_newcomer_is_told_how_to_make_one() -> None:
    assert "from operant import SummaryWriter" in command("runs").stdout


def test_runs_as_a_table_and_as_json(capsys: pytest.CaptureFixture[str]) -> None:
    run_id = record()
    lines = command("runs").stdout.splitlines()
    assert lines[0].split() == ["ID", "NAME", "STATUS", "STARTED", "TOOK", "TAGS"]
    assert lines[1].split()[:3] == [run_id, "cartpole", "FINISHED"]
    (row,) = json.loads(command("runs", "--json").stdout)
    assert list(row) == ["id", "name", "status", "started", "ended", "tags", "note"]
    assert row["id"] == run_id and row["tags"] == ["demo"]
    assert row["started"] <= row["ended"]
    assert json.loads(command("runs", "--json", "--tag", "other").stdout) == []
    assert json.loads(command("runs", "list", "--json", "--tag", "other").stdout) == []
    assert json.loads(command("runs", "--json", "list", "--last", "1").stdout) == [row]
    assert len(json.loads(command("runs", "--json", "--status", "finished", "--last", "5").stdout)) == 1


def test_one_run_in_full() -> None:
    run_id = record()
    text = command("runs", "show", "cartpole").stdout
    assert f"run       {run_id}" in text
    assert "lr = 0.1" in text
    assert "return" in text and "▁" in text
    shown = json.loads(command("runs", "show", "last", "--scalar", "--json").stdout)
    assert shown["scalars"]["return"][99] == {
        "iteration": 99,
        "value": 99.0,
        "created": shown["scalars"]["return"][99]["created"],
    }
    assert shown["params"] == {"lr": 0.1, "net": [64, 64]}


def test_a_hostile_name_cannot_steer_the_terminal() -> None:
    with SummaryWriter("evil\x1b]0;owned\x07\x1b[2J", system_metrics=False, tags=["\x1b[31m"]):
        pass
    for words in (["runs"], ["runs", "show", "last"]):
        assert "\x1b" not in command(*words).stdout


def test_errors_are_one_line() -> None:
    for words in (["runs", "show", "../x"], ["runs", "show", "missing"], ["export", "missing", "--to", "csv"]):
        done = command(*words, check=False)
        assert done.returncode == 1
        assert done.stderr.startswith("operant: ") and done.stderr.count("\n") == 1
    record()
    done = command("export", "last", "--to", "cvs", check=False)
    assert "did you mean 'csv'" in done.stderr


def test_export_to_csv_and_jsonl() -> None:
    run_id = record()
    command("export", run_id, "--to", "csv")
    with Path(f"{run_id}.csv").open(newline="") as stream:
        rows = list(csv.DictReader(stream))
    assert len(rows) == 200
    assert [row["value"] for row in rows if row["tag"] == "return"][:3] == ["0.0", "1.0", "2.0"]
    command("export", "last", "--to", "jsonl", "--out", "deep/folder/out.jsonl")
    lines = [json.loads(line) for line in Path("deep/folder/out.jsonl").read_text().splitlines()]
    assert len(lines) == 200
    assert lines[50] == {"tag": "loss", "step": 50, "wall": lines[50]["wall"], "value": None}
    done = command("export", "last", "--to", "csv", check=False)
    assert "exists already" in done.stderr


def test_export_to_parquet() -> None:
    parquet = pytest.importorskip("pyarrow.parquet")
    run_id = record()
    command("export", run_id, "--to", "parquet")
    table = parquet.read_table(f"{run_id}.parquet").to_pydict()
    assert table["tag"] == ["loss"] * 100 + ["return"] * 100
    assert table["value"][100:] == [float(step) for step in range(100)]


def test_tensorboard_reads_the_export_and_it_comes_back() -> None:
    pytest.importorskip("tensorboard")
    from tensorboard.backend.event_processing.event_accumulator import EventAccumulator

    run_id = record()
    command("export", run_id, "--to", "tensorboard", "--out", "board")
    reader = EventAccumulator("board", size_guidance={"scalars": 0, "images": 0})
    reader.Reload()
    assert [event.value for event in reader.Scalars("return")] == [float(step) for step in range(100)]
    assert np.isnan(reader.Scalars("loss")[50].value)
    assert reader.Images("picture")[0].width == 5
    assert reader.Histograms("weights")[0].histogram_value.num == 10
    assert "note/text_summary" in reader.Tags()["tensors"] or "note" in reader.Tags()["tensors"]

    assert "(200 points)" in command("import-tensorboard", "board").stdout
    again = Run.open("board")
    original = Run.open(run_id)
    for tag in original.scalar_tags:
        np.testing.assert_array_equal(again.scalars(tag)["step"], original.scalars(tag)["step"])
        np.testing.assert_array_equal(again.scalars(tag)["wall"], original.scalars(tag)["wall"])
        np.testing.assert_allclose(again.scalars(tag)["value"], original.scalars(tag)["value"], rtol=1e-6)
    assert again.text("note")[0].text == "hello *world*"
    assert again.media("picture")[0].path.read_bytes() == original.media("picture")[0].path.read_bytes()
    assert again.histograms("weights")[0]["counts"] == original.histograms("weights")[0]["counts"]
    assert again.params["lr"] == 0.1


def test_films_sound_and_curves_reach_tensorboard_and_what_does_not_is_told() -> None:
    pytest.importorskip("tensorboard")
    from tensorboard.backend.event_processing.event_accumulator import EventAccumulator
    from tensorboard.util import tensor_util

    Path("film.mp4").write_bytes(b"no real film")
    with SummaryWriter("media") as writer:
        writer.add_video("film", np.zeros((3, 6, 4, 3), np.uint8), 1)
        writer.add_video("other film", "film.mp4", 1)
        writer.add_audio("sound", np.zeros((2, 800)), 2, sample_rate=8000)
        writer.add_pr_curve("curve", [0, 1, 1], [0.1, 0.8, 0.6], 3, num_thresholds=3)
        writer.add_file("film.mp4")
    done = command("export", "last", "--to", "tensorboard", "--out", "board")
    assert "Left out: .mp4 media, which TensorBoard does not show" in done.stdout
    assert "Left out: 1 file(s) of `add_file`" in done.stdout
    reader = EventAccumulator("board", size_guidance={"images": 0, "audio": 0, "tensors": 0})
    reader.Reload()
    (film,) = reader.Images("film")
    assert (film.step, film.width, film.height) == (1, 4, 6) and film.encoded_image_string.startswith(b"GIF8")
    (sound,) = reader.Audio("sound")
    assert (sound.sample_rate, sound.length_frames, sound.content_type) == (8000.0, 800, "audio/wav")
    assert reader.SummaryMetadata("curve").plugin_data.plugin_name == "pr_curves"
    rows = tensor_util.make_ndarray(reader.Tensors("curve")[0].tensor_proto)
    # Thresholds 0, 1/2, 1: true and false positives, true and false negatives, precision, recall.
    expected = [[2, 2, 0], [1, 0, 0], [0, 1, 1], [0, 0, 2], [2 / 3, 1, 1], [1, 1, 0]]
    np.testing.assert_allclose(rows, expected, rtol=1e-6)


def test_torch_logs_are_imported_run_by_run() -> None:
    board = pytest.importorskip("torch.utils.tensorboard")
    for name in ("a", "b/c"):
        with board.SummaryWriter(f"logs/{name}") as writer:
            for step in range(5):
                writer.add_scalar("x", step, step)
            writer.add_text("t", "text")
    out = command("import-tensorboard", "logs").stdout
    assert out.count("(5 points)") == 2
    assert Run.open("c-").text("t")[0].text == "text"
    assert "no TensorBoard event files" in command("import-tensorboard", ".operant", check=False).stderr


def test_compact_all_and_one() -> None:
    record("a")
    live = SummaryWriter("live", system_metrics=False)
    out = command("compact").stdout
    assert out.count("->") == 1
    assert command("compact", live.run_id, check=False).returncode == 1
    live.close()
    assert "->" in command("compact", live.run_id).stdout


def test_a_reader_that_hangs_up_is_no_error() -> None:
    for number in range(3):
        record(f"r{number}")
    done = subprocess.run(
        f"{sys.executable} -m operant runs | head -1", shell=True, capture_output=True, text=True, env=os.environ
    )
    assert done.stderr == ""


@pytest.mark.parametrize("words", [["--help"], ["train", "--help"], ["runs"], ["--version"]])
def test_nobody_reads_what_is_printed(words: list[str]) -> None:
    record()
    reading, writing = os.pipe()
    os.close(reading)
    done = subprocess.run(
        [sys.executable, "-m", "operant", *words],
        stdout=writing,
        stderr=subprocess.PIPE,
        text=True,
        timeout=patience(120),
    )
    os.close(writing)
    assert (done.returncode, done.stderr) == (0, "")


@pytest.mark.parametrize(
    ("failure", "sentence"),
    [
        (OSError(errno.ENOSPC, "", "/data/x"), "a file cannot be written or read: No space left on device (/data/x)"),
        (OSError(errno.EROFS, ""), "a file cannot be written or read: Read-only file system"),
        (ModuleNotFoundError("", name="torch.nn"), "`operant runs` needs an extra that is not installed"),
        (MemoryError("Unable to allocate 21 PiB"), "there is not as much memory as was asked for: Unable to allocate"),
        (
            RuntimeError("[x] can't allocate memory: you tried"),
            "there is not as much memory as was asked for: you tried",
        ),
    ],
)
def test_what_is_wrong_with_the_machine_is_one_sentence(
    failure: Exception, sentence: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def fail(args: object) -> int:
        raise failure

    monkeypatch.setattr("operant.cli.runs.run", fail)
    assert main(["runs"]) == 1
    assert capsys.readouterr().err.startswith(f"operant: {sentence}")


def test_a_fault_of_ours_keeps_its_traceback(monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(args: object) -> int:
        raise ModuleNotFoundError("", name="operant.nothing")

    monkeypatch.setattr("operant.cli.runs.run", fail)
    with pytest.raises(ModuleNotFoundError):
        main(["runs"])


def test_nowhere_to_print_to_is_a_sentence() -> None:
    with Path("/dev/full").open("w") as full:
        done = subprocess.run(
            [sys.executable, "-m", "operant", "--help"], stdout=full, stderr=subprocess.PIPE, text=True
        )
    assert done.returncode == 1 and "No space left" in done.stderr and done.stderr.count("\n") == 1
    closed = subprocess.run("exec >&-; exec " + shlex.join([sys.executable, "-m", "operant", "--version"]), shell=True)
    assert closed.returncode == 0
