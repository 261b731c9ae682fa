"""Whole searches on a real Slurm."""

from __future__ import annotations

import json
import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from tests.machine import patience, wait_until
from tests.system.cluster_search import Search, same_proposals_here_and_at, survive
from tests.system.slurm import Slurm, running_slurm

from operant.schedulers.views.overview import describe
from operant.tracking import Run


@pytest.fixture(scope="module")
def slurm() -> Iterator[Slurm]:
    with running_slurm() as cluster:
        yield cluster


@pytest.fixture
def search(tmp_path: Path) -> Search:
    folder = tmp_path / "project"
    folder.mkdir()
    return Search(folder, 50, "{type: slurm, poll: 0.5, exit_wait: 2, array_size: 16}")


def test_every_job_is_accounted_for_once_though_the_controller_is_killed(slurm: Slurm, search: Search) -> None:
    survive(search, lambda job: slurm.say("scancel", job))
    assert slurm.is_empty()


def test_a_detached_search_is_ended_by_stop_and_taken_over_by_resume(slurm: Slurm, search: Search) -> None:
    first = search.start("search", "search.yaml", "--task", "try")
    search.wait_until("it runs", lambda: search.counts())
    assert search.run("stop", "--task", "try", "--detach") == 0
    assert first.wait(patience(30)) == 0
    search.wait_until("jobs go on", lambda: search.counts().get(3))
    assert any(search.job("3")["reason"] == text for text in ("running, no controller", "waiting, no controller"))
    assert search.run("stop", "--task", "try") == 0
    assert slurm.is_empty()
    assert search.job("3")["status"] == "KILLED"
    assert search.run("rm", "--task", "try") == 0
    assert not search.place.exists()


def test_the_example_makes_the_same_proposals_here_and_there(slurm: Slurm, tmp_path: Path) -> None:
    same_proposals_here_and_at({"type": "slurm", "poll": 0.5}, tmp_path / "project")


@pytest.mark.parametrize("site", ["local", "slurm"])
def test_a_template_that_begins_with_srun_works_as_it_stands(slurm: Slurm, tmp_path: Path, site: str) -> None:
    folder = tmp_path / "project"
    shutil.copytree(Path(__file__).parents[2] / "examples" / "search", folder)
    (folder / ".operant").mkdir()
    text = (folder / "search_config.yaml").read_text()
    text = text.replace("python mnist.py", "srun -p debug -n1 --gres slot:1 python mnist.py").replace(
        "tries: 12", "tries: 1"
    )
    (folder / "search_config.yaml").write_text(text)
    argv = [sys.executable, "-m", "operant", "search", "search_config.yaml", "--task", "try", "--site", site]
    done = subprocess.run(argv, cwd=folder, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    (job,) = describe(folder / ".operant" / "searches" / "try")["jobs"]
    assert job["status"] == "FINISHED" and job["reward"] > 0.1 and slurm.is_empty()


@pytest.mark.long
def test_a_training_that_is_warned_is_requeued_and_goes_on_exactly(slurm: Slurm, tmp_path: Path) -> None:
    (tmp_path / ".operant").mkdir()
    argv = [sys.executable, "-m", "operant", "train", "cartpole-ppo", "total_steps=40960", "seed=5"]
    site = "{type: slurm, poll: 0.5, time: 30m, warn: 1, restarts: 1}"
    there = subprocess.Popen([*argv, "--site", site], cwd=tmp_path)
    try:
        kept = ".operant/searches/*/jobs/0/run/checkpoints/*"
        wait_until(lambda: list(tmp_path.glob(kept)), "a checkpoint", 60)
        folder = next(tmp_path.glob(kept)).parents[2]
        name = slurm.say("squeue", "-h", "-r", "-o", "%i").strip()
        slurm.say("scancel", "--batch", "--signal=USR1", name)  # as Slurm itself does by --signal=B:USR1@…
        assert there.wait(patience(120)) == 0
    finally:
        there.kill()
        there.wait()
    assert json.loads((folder / "claim-1").read_text())["restart"] == 1
    assert subprocess.run([*argv, "--quiet"], cwd=tmp_path, check=False).returncode == 0
    (here,) = (tmp_path / ".operant" / "runs").iterdir()
    found = [Run(one).scalars("evaluation/return") for one in (folder / "run", here)]
    for key in ("step", "value"):
        assert list(found[0][key]) == list(found[1][key])
