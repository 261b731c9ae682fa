"""Whole searches on a real Slurm: jobs that fail, hang and are killed, and a controller that dies in the middle."""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from tests.machine import patience
from tests.system.slurm import Slurm, running_slurm

from operant.schedulers.views.overview import describe

_PROGRAM = """
import os, sys, time
number = int(sys.argv[1])
with open(os.environ["SEEN"], "a") as stream:
    stream.write(f"{number}\\n")
if number in (7, 8):
    raise SystemExit(3)
if number == 11 or (number == 12 and os.environ["OPERANT_ATTEMPT"] == "1"):
    time.sleep(600)
with open("result.json", "w") as stream:
    stream.write('{"acc": %d}' % number)
"""

_YAML = """
site: {{type: slurm, poll: 0.5, exit_wait: 2, array_size: 16}}
task:
  template: {python} -I -S job.py {{x}}
  search_args:
  - {{name: x, type: Int, data: [0, {last}]}}
searcher: {{type: GridSearcher, reward_attribute: acc}}
scheduler:
  parallel_size: 16
  grace_period: 1
  stop_criterion: {{time_limits_per_job: 3s}}
"""


@pytest.fixture(scope="module")
def slurm() -> Iterator[Slurm]:
    with running_slurm() as cluster:
        yield cluster


class Search:
    """`search-run` in a folder of its own."""

    def __init__(self, folder: Path, jobs: int) -> None:
        self.folder = folder
        (folder / ".operant").mkdir(exist_ok=True)
        (folder / "job.py").write_text(_PROGRAM)
        (folder / "search.yaml").write_text(_YAML.format(python=sys.executable, last=jobs - 1))
        self.seen = folder.parent / "seen"
        self.place = folder / ".operant" / "searches" / "try"

    def start(self, *words: str) -> subprocess.Popen[bytes]:
        argv = [sys.executable, "-m", "operant", *words]
        env = {**os.environ, "SEEN": str(self.seen)}
        with (self.folder.parent / "out").open("ab") as out:
            return subprocess.Popen(argv, cwd=self.folder, env=env, stdout=out, stderr=out)

    def run(self, *words: str) -> int:
        return self.start(*words).wait(patience(120))

    def jobs(self) -> dict[str, dict[str, object]]:
        return {job["id"]: job for job in describe(self.place)["jobs"]}

    def job(self, name: str) -> dict[str, object]:
        return self.jobs().get(name, {})

    def printed(self) -> str:
        return (self.folder.parent / "out").read_text()

    def counts(self) -> dict[int, int]:
        lines = self.seen.read_text().split() if self.seen.exists() else []
        return {int(one): lines.count(one) for one in set(lines)}

    def wait_until(self, what: str, done: Callable[[], object]) -> None:
        deadline = time.monotonic() + patience(60)
        while not self.place.exists() or not done():
            assert time.monotonic() < deadline, f"never: {what}\n{self.printed()}"
            time.sleep(0.05)


@pytest.fixture
def search(tmp_path: Path) -> Search:
    folder = tmp_path / "project"
    folder.mkdir()
    return Search(folder, 50)


def test_every_job_is_accounted_for_once_though_the_controller_is_killed(slurm: Slurm, search: Search) -> None:
    first = search.start("search", "search.yaml", "--task", "try")
    search.wait_until("job 12 runs", lambda: search.counts().get(12) and search.job("12").get("site_id"))
    slurm.say("scancel", str(search.job("12")["site_id"]))  # the site, or somebody there, ends a job
    search.wait_until("that is an error", lambda: search.job("12")["status"] == "ERROR")
    assert "CANCELLED" in str(search.job("12")["error"])
    search.wait_until("more have begun", lambda: len(search.counts()) > 20)
    first.send_signal(signal.SIGKILL)
    first.wait()
    left = [one for one in search.jobs().values() if one["status"] in ("RUNNING", "PENDING")]
    assert left and all(str(one["reason"]).endswith("no controller") for one in left)

    search.run("search", "search.yaml", "--task", "try", "--resume")
    jobs = search.jobs()
    assert len(jobs) == 50, search.printed()
    assert {one for one, job in jobs.items() if job["status"] == "ERROR"} == {"7", "8"}
    assert {one for one, job in jobs.items() if job["status"] == "STOPPED"} == {"11"}
    assert all(job["reward"] == int(one) for one, job in jobs.items() if job["status"] == "FINISHED")
    counts = search.counts()
    assert sorted(counts) == list(range(50))
    assert {one for one, count in counts.items() if count > 1} <= {7, 8, 12}  # failed ones are run again by a resume
    assert not slurm.queue()


def test_a_detached_search_is_ended_by_stop_and_taken_over_by_resume(slurm: Slurm, search: Search) -> None:
    first = search.start("search", "search.yaml", "--task", "try")
    search.wait_until("it runs", lambda: search.counts())
    assert search.run("stop", "--task", "try", "--detach") == 0
    assert first.wait(patience(30)) == 0
    search.wait_until("jobs go on", lambda: search.counts().get(11))
    assert any(search.job("11")["reason"] == text for text in ("running, no controller", "waiting, no controller"))
    assert search.run("stop", "--task", "try") == 0
    assert not slurm.queue()
    assert search.job("11")["status"] == "KILLED"
    assert search.run("rm", "--task", "try") == 0
    assert not search.place.exists()


def test_the_example_makes_the_same_proposals_here_and_there(slurm: Slurm, tmp_path: Path) -> None:
    folder = tmp_path / "project"
    shutil.copytree(Path(__file__).parents[2] / "examples" / "sites", folder)
    (folder / ".operant").mkdir()
    found = []
    for name, words in (("here", ["--site", "local"]), ("there", [])):
        argv = [sys.executable, "-m", "operant", "search", "search.yaml", "--task", name, *words]
        done = subprocess.run(argv, cwd=folder, capture_output=True, text=True, check=False)
        assert done.returncode == 0, done.stderr
        jobs = describe(folder / ".operant" / "searches" / name)["jobs"]
        found.append([(one["id"], one["arg_dict"], one["reward"]) for one in jobs])
    assert found[0] == found[1] and len(found[0]) == 8
