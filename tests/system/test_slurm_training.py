"""A training over two nodes of a real Slurm, one of which is lost."""

from __future__ import annotations

import contextlib
import json
import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import psutil
import pytest
from tests.machine import free_port, patience, wait_until
from tests.system.slurm import Slurm, running_slurm
from tests.training.test_remote import IMPALA, config

from operant.tracking import Run

pytestmark = pytest.mark.long


@pytest.fixture
def slurm() -> Iterator[Slurm]:
    with running_slurm() as cluster:
        yield cluster


def of_task(rank: int) -> list[psutil.Process]:
    """The processes of one task of the step."""
    found = []
    for process in psutil.process_iter():
        with contextlib.suppress(psutil.Error):
            if "OPERANT_TEST_STEP" in process.environ() and process.environ().get("SLURM_PROCID") == str(rank):
                found.append(process)
    return found


def test_a_training_goes_on_through_the_loss_of_a_node(slurm: Slurm, tmp_path: Path) -> None:
    (tmp_path / ".operant").mkdir()
    (tmp_path / "config.json").write_text(json.dumps(config(IMPALA, 200_000, num_nodes=2)))
    nodes = f"127.0.0.1:{free_port()},127.0.0.1:{free_port()}"  # both names are this machine's
    env = {**os.environ, "OPERANT_SECRET": "s", "OPERANT_NODES": nodes, "OPERANT_TEST_STEP": "1"}
    words = ["srun", "--nodes=2", "--ntasks=2", "--no-kill", "--kill-on-bad-exit=0", sys.executable, "-m", "operant"]
    with (tmp_path / "out").open("w") as out:
        step = subprocess.Popen([*words, "train", "config.json"], cwd=tmp_path, env=env, stdout=out, stderr=out)
        try:
            points = ".operant/runs/*/checkpoints/step-*"
            wait_until(lambda: list(tmp_path.glob(points)), "a checkpoint", 120)
            there = of_task(1)
            assert len(there) >= 2, (tmp_path / "out").read_text()  # the one that joined, and its worker
            slurm.end("n2", signal.SIGKILL)
            for process in there:
                with contextlib.suppress(psutil.Error):
                    process.kill()
            run = next(tmp_path.glob(points)).parents[1]
            wait_until(lambda: Run(run).status == "FINISHED", "the end of the training", patience(120))
        finally:
            step.kill()
            step.wait()
    said = (tmp_path / "out").read_text()
    assert "has joined" in said and "is lost, with 1 workers" in said
    assert Run(run).latest("workers/restarts").value >= 1.0
    assert Run(run).latest("evaluation/return").value >= 18.0


def test_a_job_of_a_site_has_several_nodes(slurm: Slurm, tmp_path: Path) -> None:
    """`num_nodes` with `--site slurm`: one job, which all its nodes take part in."""
    (tmp_path / ".operant").mkdir()
    (tmp_path / "config.json").write_text(json.dumps(config(IMPALA, 20_000, num_nodes=2)))
    nodes = f"127.0.0.1:{free_port()},127.0.0.1:{free_port()}"  # both names are this machine's
    env = {**os.environ, "OPERANT_NODES": nodes, "OPERANT_TEST_STEP": "1"}
    env.pop("OPERANT_SECRET", None)
    words = [sys.executable, "-m", "operant", "train", "config.json", "--site", "{type: slurm, poll: 0.5}", "--json"]
    done = subprocess.run(words, cwd=tmp_path, env=env, capture_output=True, text=True, timeout=patience(120))
    assert done.returncode == 0, done.stderr
    found = json.loads(done.stdout)
    assert [one["status"] for one in found["seeds"]] == ["FINISHED"]
    place = tmp_path / ".operant" / "searches" / found["search"] / "jobs" / "0"
    assert any("has joined" in one.text for one in Run(place / "run").text())
    assert Run(place / "run").latest("workers/1/steps_per_second").value > 0.0
    assert slurm.is_empty() and not of_task(0) and not of_task(1)
