"""A run in an MLflow store: a SQLite file that `mlflow ui --backend-store-uri` opens."""

from __future__ import annotations

import contextlib
import json
import logging
import re
import warnings
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from operant.tracking.exchange.tools import load_tool
from operant.tracking.reading.run import Run

_BATCH = 1000  # the most points that MLflow takes in one call
_PARAMS = 100
_LONGEST_PARAM = 6000
_EXPERIMENT = "operant"
_FEATURE = "the export to MLflow"
_STATUS = {"FINISHED": "FINISHED", "RUNNING": "RUNNING", "SILENT": "RUNNING", "KILLED": "KILLED", "STOPPED": "KILLED"}


def write_mlflow(run: Run, file: Path) -> Path:
    """Add ``run`` to the store in ``file``, which is made when it is not there; files go to a folder beside it."""
    mlflow = load_tool("mlflow", _FEATURE, "mlflow")
    load_tool("sqlalchemy", _FEATURE, "mlflow")  # the slim package comes without it
    file.parent.mkdir(parents=True, exist_ok=True)
    with _quiet():
        _write(run, file.absolute(), mlflow)
    return file


def _write(run: Run, file: Path, mlflow: Any) -> None:
    from sqlalchemy.engine import URL

    metric, param = mlflow.entities.Metric, mlflow.entities.Param
    client = mlflow.MlflowClient(tracking_uri=URL.create("sqlite", database=str(file)).render_as_string())
    found = client.get_experiment_by_name(_EXPERIMENT)
    files = file.with_name(f"{file.stem}-files").as_uri()
    experiment = found.experiment_id if found is not None else client.create_experiment(_EXPERIMENT, files)
    started = run.summary.started or 0.0
    there = client.create_run(
        experiment,
        start_time=round(started * 1000),
        run_name=run.name or run.id,
        tags={"operant.run": run.id, **({"operant.tags": " ".join(run.tags)} if run.tags else {})},
    ).info.run_id
    names = _names([*run.params, *run.scalar_tags])
    params = [param(names[key], _param(value)) for key, value in run.params.items()]
    for start in range(0, len(params), _PARAMS):
        client.log_batch(there, params=params[start : start + _PARAMS])
    for tag in run.scalar_tags:
        points = run.scalars(tag).tolist()
        for start in range(0, len(points), _BATCH):
            part = points[start : start + _BATCH]
            client.log_batch(
                there, metrics=[metric(names[tag], value, round(wall * 1000), step) for step, wall, value in part]
            )
    for text in run.text():
        client.log_text(there, text.text, f"text/{_safe(text.tag)}-{text.step}.txt")
    for media in run.media():
        if media.path.is_file():
            client.log_artifact(there, str(media.path), f"{media.kind}/{_safe(media.tag)}/{media.step}")
    status = _STATUS.get(run.status, "FAILED")
    if status != "RUNNING":
        client.set_terminated(there, status, round((run.summary.ended or started) * 1000))


def _names(wanted: list[str]) -> dict[str, str]:
    """Names that MLflow allows, each used once."""
    found: dict[str, str] = {}
    for name in wanted:
        plain = _safe(name)
        while plain in found.values() and name not in found:
            plain += "_"
        found.setdefault(name, plain)
    return found


def _safe(name: str) -> str:
    """MLflow takes letters, digits and ``_-. /``, and no name that leads out of its folder."""
    plain = re.sub(r"[^\w\-. /]", "_", name, flags=re.ASCII)
    parts = ["_" if part.strip(".") == "" else part for part in plain.split("/")]
    return "/".join(parts)[:250]


def _param(value: Any) -> str:
    text = value if isinstance(value, str) else json.dumps(value)
    return text[:_LONGEST_PARAM]


@contextlib.contextmanager
def _quiet() -> Iterator[None]:
    """MLflow tells of every table that it makes, and its libraries of each other's age."""
    loggers = [logging.getLogger(name) for name in ("mlflow", "alembic")]
    levels = [one.level for one in loggers]
    for one in loggers:
        one.setLevel(logging.WARNING)
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            yield
    finally:
        for one, level in zip(loggers, levels, strict=True):
            one.setLevel(level)
