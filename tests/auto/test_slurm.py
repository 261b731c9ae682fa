"""Beside Slurm, and inside a task of it, a launch is what it is anywhere else."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import pytest
from lightning.pytorch import Callback
from lightning.pytorch.utilities import rank_zero_only

from operant.auto import launch
from operant.tracking import Run

# The third of four tasks, as `srun -n 4` sets it; Lightning refuses this shape where it is left to guess.
TASK = {"SLURM_JOB_ID": "77", "SLURM_NTASKS": "4", "SLURM_PROCID": "2", "SLURM_LOCALID": "2", "SLURM_NODEID": "0"}


@pytest.fixture
def plain(make_config, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> tuple[dict[str, Any], Any]:
    """A config, and what a launch of it gives on a machine without Slurm; after that there is an `srun`."""
    for name in [name for name in os.environ if name.startswith("SLURM_")]:
        monkeypatch.delenv(name)
    config = make_config(max_episodes=4)
    result = launch(config)
    program = tmp_path / "bin" / "srun"
    program.parent.mkdir()
    program.write_text('#!/bin/sh\nexec "$@"\n', encoding="utf-8")
    program.chmod(0o755)
    monkeypatch.setenv("PATH", f"{program.parent}:{os.environ['PATH']}")
    return config, result


def test_where_slurm_is_installed(plain) -> None:
    config, result = plain
    other = launch(config)  # in these tests a warning is an error
    assert (other.rewards, other.steps) == (result.rewards, result.steps)


def test_inside_a_task_of_slurm(plain, monkeypatch) -> None:
    class Logs(Callback):
        def on_train_end(self, trainer, pl_module):
            trainer.logger.log_metrics({"mine": 1.0}, step=1)

    config, result = plain
    for name, value in TASK.items():
        monkeypatch.setenv(name, value)
    monkeypatch.setattr(rank_zero_only, "rank", 2)  # what SLURM_PROCID=2 makes of it when Lightning is imported
    other = launch(config, callbacks=[Logs()])
    assert (other.rewards, other.steps) == (result.rewards, result.steps)
    assert other.last_checkpoint is not None and other.last_checkpoint.is_file()
    run = Run.open(other.run_id)
    assert set(run.scalar_tags) == {*Run.open(result.run_id).scalar_tags, "mine"}
    assert run.scalars("mine")["value"].tolist() == [1.0], "what callbacks log is kept"
