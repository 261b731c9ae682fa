"""A search on a cluster whose jobs fail, hang and are killed, and whose controller dies in the middle."""

from __future__ import annotations

import json
import shutil
import subprocess
import sys
import time
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from tests.machine import patience

from operant.schedulers.views.overview import describe

_PROGRAM = """
import os, sys, time
number = int(sys.argv[1])
with open(os.environ["OPERANT_RUN_DIR"].split("/.operant/")[0] + "/../seen", "a") as stream:
    stream.write(f"{number}\\n")
if number in (1, 2):
    raise SystemExit(3)
if number == 3 or (number == 4 and os.environ["OPERANT_ATTEMPT"] == "1"):
    time.sleep(600)
with open("result.json", "w") as stream:
    stream.write('{"acc": %d}' % number)
"""

_YAML = """
site: {site}
task:
  template: {python} -I -S job.py {{x}}
  search_args:
  - {{name: x, type: Int, data: [0, {last}]}}
searcher: {{type: GridSearcher, reward_attribute: acc}}
scheduler:
  parallel_size: {parallel}
  grace_period: 1
  stop_criterion: {{time_limits_per_job: {limit}}}
"""


class Search:
    """`search-run` in a folder of its own."""

    def __init__(
        self, folder: Path, count: int, site: str, python: str = sys.executable, limit: float = 3, parallel: int = 16
    ) -> None:
        """``limit`` is what a job may take on a quiet machine, in seconds."""
        self.folder, self.count = folder, count
        (folder / ".operant").mkdir(parents=True, exist_ok=True)
        (folder / "job.py").write_text(_PROGRAM)
        text = _YAML.format(
            python=python, last=count - 1, site=site, limit=f"{patience(limit):.0f}s", parallel=parallel
        )
        (folder / "search.yaml").write_text(text)
        self.seen = folder.parent / "seen"
        self.place = folder / ".operant" / "searches" / "try"

    def start(self, *words: str, env: Mapping[str, str] | None = None) -> subprocess.Popen[bytes]:
        argv = [sys.executable, "-m", "operant", *words]
        with (self.folder.parent / "out").open("ab") as out:
            return subprocess.Popen(argv, cwd=self.folder, stdout=out, stderr=out, env=env)

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


def survive(search: Search, kill_job: Callable[[str], object]) -> None:
    """Of its jobs two fail, one hangs, one is killed by the site; then `kill -9` of the controller, and resume."""
    first = search.start("search", "search.yaml", "--task", "try")
    try:
        search.wait_until("job 4 runs", lambda: search.counts().get(4) and search.job("4").get("site_id"))
        kill_job(str(search.job("4")["site_id"]))
        search.wait_until("that is an error", lambda: search.job("4")["status"] == "ERROR")
        search.wait_until("more have begun", lambda: len(search.counts()) > 0.4 * search.count)
    finally:
        first.kill()
        first.wait()
    left = [one for one in search.jobs().values() if one["status"] in ("RUNNING", "PENDING")]
    assert left and all("no controller" in str(one["reason"]) for one in left)

    search.run("search", "search.yaml", "--task", "try", "--resume")
    jobs = search.jobs()
    assert len(jobs) == search.count, search.printed()
    assert {one for one, job in jobs.items() if job["status"] == "ERROR"} == {"1", "2"}
    assert {one for one, job in jobs.items() if job["status"] == "STOPPED"} == {"3"}
    assert all(job["reward"] == int(one) for one, job in jobs.items() if job["status"] == "FINISHED")
    counts = search.counts()
    assert sorted(counts) == list(range(search.count))
    assert {one for one, count in counts.items() if count > 1} <= {1, 2, 4}  # failed ones are run again by a resume


def same_proposals_here_and_at(site: dict[str, Any], folder: Path, python: str = sys.executable) -> None:
    """The example of docs/sites.md here and at a site: with `lag` both try the same, with the same results."""
    shutil.copytree(Path(__file__).parents[2] / "examples" / "sites", folder)
    (folder / ".operant").mkdir()
    text = (folder / "search.yaml").read_text()
    (folder / "search.yaml").write_text(text.replace("template: python ", f"template: {python} -I -S "))
    found = {}
    for name, where in (("here", {"type": "local"}), ("there", site)):
        argv = [sys.executable, "-m", "operant", "search", "search.yaml", "--task", name, "--site", json.dumps(where)]
        done = subprocess.run(argv, cwd=folder, capture_output=True, text=True, check=False)
        assert done.returncode == 0, done.stderr
        jobs = describe(folder / ".operant" / "searches" / name)["jobs"]
        found[name] = [(one["id"], one["arg_dict"], one["reward"]) for one in jobs]
    assert found["here"] == found["there"] and len(found["here"]) == 8
