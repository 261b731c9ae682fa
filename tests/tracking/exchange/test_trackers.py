"""Runs in the stores of W&B, MLflow and Aim, read back with those tools' own means where they are installed."""

from __future__ import annotations

import importlib.util
import json
import math
import struct
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from operant import SummaryWriter
from operant.cli import main
from operant.tracking import Run
from operant.tracking.exchange.to_mlflow import _names

# The libraries of these tools warn about each other; that is theirs to mend.
pytestmark = [pytest.mark.filterwarnings("ignore"), pytest.mark.timeout(300)]
LOSS = {0: 1.0, 5: 0.5, 10: math.nan, 15: 0.125}


@pytest.fixture
def run() -> Run:
    with SummaryWriter(
        "walker", tags=["demo"], config={"lr": 0.1, "layers": [64, 64], "name": "a"}, system_metrics=False
    ) as writer:
        for place, (step, value) in enumerate(LOSS.items()):
            writer.add_scalar("train/loss", value, step, walltime=1_700_000_000.0 + place)
        writer.add_scalar("return (mean)", 7.0, 15, walltime=1_700_000_009.0)
        writer.add_text("note", "hello", 3)
        writer.add_image("view", np.full((4, 6, 3), 200, np.uint8), 5)
        writer.add_histogram("weights", np.arange(10.0), 5)
    return Run.open(writer.run_id)


def same(found: dict[int, float]) -> bool:
    return found.keys() == LOSS.keys() and all(
        found[step] == value or (math.isnan(value) and math.isnan(found[step])) for step, value in LOSS.items()
    )


def test_wandb_offline(run: Run, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    if importlib.util.find_spec("wandb") is None:
        pytest.skip("wandb is not installed")
    assert main(["export", run.id, "--to", "wandb", "--out", str(tmp_path / "w")]) == 0
    said = capsys.readouterr().out
    from wandb.proto import wandb_internal_pb2

    (folder,) = (tmp_path / "w" / "wandb").glob("offline-run-*")
    assert f"wandb sync {folder}" in said
    rows: dict[str, dict[int, Any]] = {}
    config: dict[str, Any] = {}
    name, tags, walls, kinds = "", [], {}, set()
    for data in wandb_records(next(folder.glob("*.wandb")).read_bytes()):
        record = wandb_internal_pb2.Record()
        record.ParseFromString(data)
        if record.HasField("run"):
            name, tags = record.run.display_name or name, list(record.run.tags) or tags
            config |= {one.key: json.loads(one.value_json) for one in record.run.config.update}
        if record.HasField("history"):
            kinds |= {one.value_json for one in record.history.item if "_type" in one.nested_key}
            found = {"/".join(one.nested_key) or one.key: one.value_json for one in record.history.item}
            step = json.loads(found["_step"])
            walls[step] = json.loads(found["_timestamp"]) if "_timestamp" in found else None
            for tag in ("train/loss", "return (mean)"):
                if tag in found:
                    rows.setdefault(tag, {})[step] = float(json.loads(found[tag]))
    assert name == "walker" and tags == ["demo"]
    assert config["lr"] == 0.1 and config["layers"] == [64, 64]
    assert same(rows["train/loss"]) and rows["return (mean)"] == {15: 7.0}
    assert walls[5] == 1_700_000_001.0
    assert {'"histogram"', '"table-file"', '"images/separated"'} <= kinds
    assert list(folder.glob("files/media/images/**/*.png"))


def wandb_records(data: bytes) -> Iterator[bytes]:
    """The records of a .wandb file: LevelDB's log format, in blocks of 32 KiB behind a head of seven bytes."""
    at, whole = 7, b""
    while at + 7 <= len(data):
        room = 32768 - at % 32768
        if room < 7:
            at += room
            continue
        _, length, kind = struct.unpack("<IHB", data[at : at + 7])
        whole += data[at + 7 : at + 7 + length]
        at += 7 + length
        if kind in (1, 4):  # whole, or the last part
            yield whole
            whole = b""


def test_mlflow(run: Run, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    pytest.importorskip("mlflow", reason="mlflow is not installed")
    pytest.importorskip("sqlalchemy", reason="sqlalchemy is not installed")
    from mlflow import MlflowClient

    store = tmp_path / "m.db"
    assert main(["export", run.id, "--to", "mlflow", "--out", str(store)]) == 0
    assert f"mlflow ui --backend-store-uri sqlite:///{store}" in capsys.readouterr().out
    assert main(["export", run.id, "--to", "mlflow", "--out", str(store)]) == 0  # runs are added
    client = MlflowClient(tracking_uri=f"sqlite:///{store}")
    experiment = client.get_experiment_by_name("operant")
    found = client.search_runs([experiment.experiment_id])
    assert len(found) == 2
    one = found[0]
    assert one.info.run_name == "walker" and one.info.status == "FINISHED"
    assert one.data.params == {"lr": "0.1", "layers": "[64, 64]", "name": "a"}
    history = client.get_metric_history(one.info.run_id, "train/loss")
    assert same({point.step: point.value for point in history})
    assert {point.timestamp for point in history if point.step == 5} == {1_700_000_001_000}
    assert [point.value for point in client.get_metric_history(one.info.run_id, "return _mean_")] == [7.0]
    assert one.data.tags["operant.run"] == run.id
    files = store.with_name("m-files") / one.info.run_id / "artifacts"
    assert (files / "text" / "note-3.txt").read_text() == "hello" and list((files / "image" / "view" / "5").iterdir())


def test_aim(run: Run, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    aim = pytest.importorskip("aim", reason="aim is not installed")
    assert main(["export", run.id, "--to", "aim", "--out", str(tmp_path / "a")]) == 0
    assert f"aim up --repo {tmp_path / 'a'}" in capsys.readouterr().out
    repo = aim.Repo(str(tmp_path / "a"))
    (number,) = repo.list_all_runs()
    # Opened for writing: read-only access goes through an index that only Aim's own server makes.
    there = aim.Run(number, repo=repo, system_tracking_interval=None, capture_terminal_logs=False)
    try:
        assert there.name == "walker" and there["operant_run"] == run.id
        assert there["hparams"] == {"lr": 0.1, "layers": [64, 64], "name": "a"}
        series = {one.name: one for one in there.metrics()}
        assert same({step: value for step, (value, *_) in series["train/loss"].data.items()})
        assert "return (mean)" in series
        tracked = {*there.collect_sequence_info("images"), *there.collect_sequence_info("texts")}
        assert tracked == {"images", "texts"}
    finally:
        there.close()


@pytest.mark.parametrize("package", ["wandb", "mlflow", "aim"])
def test_a_missing_tool_is_one_line(
    run: Run, package: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setitem(sys.modules, package, None)
    assert main(["export", run.id, "--to", package]) == 1
    error = capsys.readouterr().err
    assert f"pip install {package}" in error and error.count("\n") == 1


def test_names_for_mlflow_stay_apart_and_inside() -> None:
    assert _names(["a:b", "a;b", "../x", "a:b", "ä"]) == {"a:b": "a_b", "a;b": "a_b_", "../x": "_/x", "ä": "_"}
