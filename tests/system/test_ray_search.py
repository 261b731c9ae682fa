"""The site ray on a real Ray head with its token authentication on, started and ended here."""

from __future__ import annotations

import contextlib
import importlib.util
import secrets
import shutil
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path

import psutil
import pytest
import yaml
from tests.machine import patience

from operant.schedulers.views.overview import describe
from operant.sites import Site, Submission
from operant.sites.ray import RaySite
from operant.testing import SiteContract

pytestmark = [
    pytest.mark.clusters,
    pytest.mark.long,
    # Not imported here: Ray reads how it authenticates when it is first loaded.
    pytest.mark.skipif(importlib.util.find_spec("ray") is None, reason="needs operant[ray]"),
]

_PROGRAMS = {"good": "pass", "bad": "raise SystemExit(3)", "endless": "import time; time.sleep(600)"}
_PROGRAM = """
import sys, time
number = int(sys.argv[1])
with open(sys.argv[2], "a") as stream:
    stream.write(f"{number}\\n")
if number == 2:
    raise SystemExit(3)
time.sleep(1)
with open("result.json", "w") as stream:
    stream.write('{"acc": %d}' % number)
"""


@pytest.fixture(scope="module")
def head() -> Iterator[str]:
    """The address of a head's dashboard."""
    place = Path(tempfile.mkdtemp(prefix="operant-ray-", dir="/tmp"))
    (place / "token").write_text(secrets.token_hex(32))
    (place / "token").chmod(0o600)
    sockets = [socket.create_server(("127.0.0.1", 0)) for _ in range(3)]
    port, dashboard, client = (one.getsockname()[1] for one in sockets)
    for one in sockets:
        one.close()
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("RAY_AUTH_MODE", "token")
        patch.setenv("RAY_AUTH_TOKEN_PATH", str(place / "token"))
        patch.setenv("RAY_USAGE_STATS_ENABLED", "0")
        argv = [
            str(Path(sys.executable).parent / "ray"), "start", "--head", "--block", "--node-ip-address=127.0.0.2",
            f"--port={port}", f"--dashboard-port={dashboard}", f"--ray-client-server-port={client}", "--num-cpus=4",
            "--dashboard-host=127.0.0.1", "--object-store-memory=100000000", "--disable-usage-stats",
            f"--temp-dir={place}/r",
        ]  # fmt: skip
        with (place / "log").open("wb") as log:
            process = subprocess.Popen(argv, stdout=log, stderr=log, start_new_session=True)
        address = f"http://127.0.0.1:{dashboard}"
        try:
            deadline = time.monotonic() + patience(120)
            while True:
                try:
                    RaySite(Path("none"), address=address).look()
                    break
                except Exception:
                    assert process.poll() is None and time.monotonic() < deadline, (place / "log").read_text()
                    time.sleep(0.5)
            yield address
        finally:
            # Some of Ray's processes have sessions of their own, and some outlive a SIGTERM.
            all_of_it = [*psutil.Process(process.pid).children(recursive=True), process]
            for one in all_of_it:
                with contextlib.suppress(psutil.NoSuchProcess):
                    one.kill()
            process.wait()
            shutil.rmtree(place, ignore_errors=True)


class TestRayJobs(SiteContract):
    patience = patience(180)

    @pytest.fixture(autouse=True)
    def cluster(self, head: str) -> None:
        self.address = head

    def build(self, folder: Path) -> Site:
        return RaySite(folder, address=self.address, python=sys.executable, poll=0.5, exit_wait=5, cpus=0.5)

    def job(self, token: str, folder: Path, kind: str) -> Submission:
        return Submission(token, folder.name, 1, [sys.executable, "-I", "-S", "-c", _PROGRAMS[kind]], folder, folder)


def test_every_job_is_accounted_for_once_though_the_controller_is_killed(head: str, tmp_path: Path) -> None:
    project, seen = tmp_path / "project", tmp_path / "seen"
    (project / ".operant").mkdir(parents=True)
    (project / "job.py").write_text(_PROGRAM)
    plan = {
        "site": {"type": "ray", "address": head, "python": sys.executable, "poll": 0.5, "exit_wait": 5, "cpus": 0.5},
        "task": {
            "template": f"{sys.executable} -I -S job.py {{x}} {seen}",
            "search_args": [{"name": "x", "type": "Int", "data": [0, 7]}],
        },
        "searcher": {"type": "GridSearcher", "reward_attribute": "acc"},
        "scheduler": {"parallel_size": 3},
    }
    (project / "search.yaml").write_text(yaml.safe_dump(plan))
    argv = [sys.executable, "-m", "operant", "search", "search.yaml", "--task", "try"]
    first = subprocess.Popen(argv, cwd=project, stdout=subprocess.DEVNULL)
    deadline = time.monotonic() + patience(180)
    while not seen.exists() or len(seen.read_text().split()) < 3:
        assert time.monotonic() < deadline
        time.sleep(0.1)
    first.kill()
    first.wait()
    assert subprocess.run([*argv, "--resume"], cwd=project, check=False).returncode == 0
    jobs = {one["id"]: one for one in describe(project / ".operant" / "searches" / "try")["jobs"]}
    assert {one for one, found in jobs.items() if found["status"] == "ERROR"} == {"2"}
    assert all(found["reward"] == int(one) for one, found in jobs.items() if found["status"] == "FINISHED")
    begun = seen.read_text().split()
    assert sorted(set(begun)) == [str(one) for one in range(8)]
    assert all(begun.count(one) == 1 for one in set(begun) - {"2"})  # a failed one is run again by a resume
    assert not [one for one in RaySite(project / ".operant/searches/try", address=head).look() if one.state != "ended"]
