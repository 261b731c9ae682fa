"""Whole searches on a real Slurm."""

from __future__ import annotations

import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from tests.machine import patience
from tests.system.cluster_search import Search, same_proposals_here_and_at, survive
from tests.system.slurm import Slurm, running_slurm

from operant.schedulers.views.overview import describe


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
