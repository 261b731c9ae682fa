"""Aim and TensorBoard as further places for what a training of the harness records, each when it is asked for."""

from __future__ import annotations

import math
import time
import warnings
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from operant._util.dotted import plain_flat
from operant.errors import UsageError
from operant.harness.tree import Plan, given
from operant.tracking.exchange.tfevents_write import EventFileWriter
from operant.tracking.exchange.tools import load_tool


class TensorBoardLogger:
    """Event files of one run in a folder of its own below ``logdir``."""

    def __init__(self, logdir: str | Path, run_id: str, settings: Mapping[str, Any]) -> None:
        self._file = EventFileWriter(Path(logdir) / run_id)
        kinds = (bool, int, float)
        plain = {name: value if isinstance(value, kinds) else str(value) for name, value in settings.items()}
        self._file.add_hparams(plain, ["env_runners/episode_return_mean"], time.time())

    def add_scalar(self, tag: str, value: float, step: int) -> None:
        if math.isfinite(value):
            self._file.add_points(tag, [int(step)], [time.time()], [float(value)])

    def add_text(self, tag: str, text: str, step: int) -> None:
        self._file.add_text(tag, text, int(step), time.time())

    def add_histogram(self, tag: str, values: Sequence[float], step: int) -> None:
        rows = np.asarray(values, float)
        counts, edges = np.histogram(rows, bins=min(64, max(1, len(rows))))
        about = (float(rows.min()), float(rows.max()), float(rows.sum()), float((rows**2).sum()))
        self._file.add_histogram(tag, edges, counts, *about, int(step), time.time())

    def flush(self) -> None:
        self._file.flush()

    def close(self) -> None:
        self._file.close()


class AimLogger:
    """A run of Aim's: settings as ``hparams``, numbers over environment steps; what is no number is left out."""

    def __init__(self, settings: Mapping[str, Any], recorded: Mapping[str, Any], name: str, run_id: str) -> None:
        self._aim = load_tool("aim", "aim.repo", "aim")
        options = dict(settings)
        repo = str(options.pop("repo"))
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # of its own libraries
            if "://" not in repo:
                Path(repo).mkdir(parents=True, exist_ok=True)
                self._aim.Repo.from_path(repo, init=True)
            defaults = {"experiment": name, "system_tracking_interval": None, "log_system_params": False}
            self._run = self._aim.Run(repo=repo, **{**defaults, "capture_terminal_logs": False, **options})
        self._run.name = name
        self._run["operant_run"] = run_id
        self._run["hparams"] = {key: value for key, value in recorded.items() if value is not None}

    def add_scalar(self, tag: str, value: float, step: int) -> None:
        if math.isfinite(value):
            self._run.track(float(value), name=tag, step=int(step))

    def add_text(self, tag: str, text: str, step: int) -> None:
        self._run.track(self._aim.Text(text), name=tag, step=int(step))

    def add_histogram(self, tag: str, values: Sequence[float], step: int) -> None:
        self._run.track(self._aim.Distribution(np.asarray(values, float)), name=tag, step=int(step))

    def close(self) -> None:
        self._run.close()
        del self._run  # which holds locks of the repository as long as it is there


def loggers_of(plan: Plan, name: str, run_id: str) -> list[Any]:
    """Who else is told what this training records."""
    settings, found = plain_flat(plan.tree), list[Any]()
    aim, logdir = given(plan, "aim"), given(plan, "tensorboard").get("logdir")
    place = "aim.repo"
    try:
        if aim.get("repo"):
            found.append(AimLogger(aim, settings, name, run_id))
        place = "tensorboard.logdir"
        if logdir:
            found.append(TensorBoardLogger(str(logdir), run_id, settings))
    except OSError as error:
        raise UsageError(f"{place} cannot be written to: {error}") from None
    return found
