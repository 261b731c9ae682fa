"""Jobs on a real Slurm of two nodes, started and ended here; each way in which something can go wrong."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from tests.machine import patience
from tests.system.slurm import Slurm, running_slurm

from operant.errors import ConfigError
from operant.schedulers.job import AutolinkJob, SlurmJob
from operant.sites import Event, Limits, LocalSite, Site, Submission
from operant.sites import wrapper as wrapper_module
from operant.sites.channel import channel_token
from operant.sites.cluster_jobs import Batch, exit_of, write_batch
from operant.sites.slurm import SlurmSite
from operant.testing import SiteContract

PYTHON = [sys.executable, "-I", "-S", "-c"]
# Its first start waits for ever; every start is counted, and the second goes on where the first had got.
RESTARTED = """
import os, signal, sys, time
def save(*_):
    open("saved", "w").close()
    sys.exit(143)
signal.signal(signal.SIGTERM, save)
signal.signal(signal.SIGUSR1, lambda *_: open("warned", "w").close())
restart = int(os.environ["OPERANT_RESTART"])
print("start", restart, flush=True)
open("began-%d" % restart, "w").close()
while restart == 0:
    time.sleep(0.05)
assert os.path.exists("saved")
"""


@pytest.fixture(scope="module")
def slurm() -> Iterator[Slurm]:
    with running_slurm() as cluster:
        yield cluster


def submission(folder: Path, code: str, name: str = "0", **limits: float) -> Submission:
    place = folder / "jobs" / name
    place.mkdir(parents=True, exist_ok=True)
    return Submission(f"{name}/1/secret", name, 1, [*PYTHON, code], place, place, limits=Limits(**limits))  # type: ignore[arg-type]


@pytest.mark.usefixtures("slurm")
class TestSlurmSite(SiteContract):
    patience = patience(60)

    def build(self, folder: Path) -> Site:
        return SlurmSite(folder, poll=0.5, exit_wait=2.0)

    def job(self, token: str, folder: Path, kind: str) -> Submission:
        code = {"good": "pass", "bad": "raise SystemExit(3)", "endless": "import time; time.sleep(600)"}[kind]
        return Submission(token, folder.name, 1, [*PYTHON, code], folder, folder)


class Watched:
    """A site and what it has said."""

    def __init__(self, folder: Path, **settings: object) -> None:
        self.folder = folder
        self.events: list[Event] = []
        self.site = SlurmSite(folder, **{"poll": 0.3, "exit_wait": 1.0, **settings})  # type: ignore[arg-type]
        self.site.start(self.events.append)

    def wait(self, what: str, done: Callable[[], object]) -> None:
        deadline = time.monotonic() + patience(60)
        while not done():
            assert time.monotonic() < deadline, f"never: {what}; there were {self.events}"
            time.sleep(0.02)

    def end(self, token: str = "0/1/secret") -> Event:
        def ends() -> list[Event]:
            return [one for one in self.events if one.token == token and one.kind in ("ended", "lost")]

        self.wait(f"the end of {token}", ends)
        return ends()[0]

    def place(self) -> dict[str, str]:
        self.wait("its place", lambda: any(one.kind == "placed" and one.info["id"] for one in self.events))
        return dict(next(one.info for one in self.events if one.kind == "placed" and one.info["id"]))

    def begun(self, name: str) -> None:
        self.wait(name, (self.folder / "jobs" / "0" / name).exists)


def placed(watched: Watched) -> list[Event]:
    return [one for one in watched.events if one.kind == "placed"]


@pytest.fixture
def watched(slurm: Slurm, tmp_path: Path) -> Iterator[Watched]:
    found = Watched(tmp_path)
    yield found
    found.site.close()


def test_a_requeued_element_of_an_array_stays_the_same_attempt(slurm: Slurm, watched: Watched) -> None:
    watched.site.submit([submission(watched.folder, RESTARTED)])
    watched.begun("began-0")
    slurm.say("scontrol", "requeue", watched.place()["id"])
    end = watched.end()
    assert end.info["code"] == 0 and end.info["attempt"] == 1
    assert (watched.folder / "jobs" / "0" / "stdout").read_text() == "start 0\nstart 1\n"


def test_a_job_on_a_node_that_fails_is_started_again(slurm: Slurm, watched: Watched) -> None:
    watched.site.submit([submission(watched.folder, RESTARTED)])
    watched.begun("began-0")
    watched.wait("its node", lambda: any(one.info["node"] in ("n1", "n2") for one in placed(watched)))
    node = next(one.info["node"] for one in placed(watched) if one.info["node"] in ("n1", "n2"))
    slurm.say(
        "scontrol", "update", f"nodename={node}", "state=down", "reason=test"
    )  # slurmd reports, and it is up again
    end = watched.end()
    assert end.info["code"] == 0 and end.info["attempt"] == 1
    slurm.wait_for_nodes()


def test_a_preempted_job_is_started_again(slurm: Slurm, tmp_path: Path) -> None:
    watched = Watched(tmp_path, flags=["--exclusive", "--nodes=2"])
    watched.site.submit([submission(tmp_path, RESTARTED)])
    watched.begun("began-0")
    slurm.say("srun", "-p", "urgent", "--exclusive", "-N2", "true")
    assert watched.end().info["code"] == 0
    watched.site.close()


def test_the_warning_before_the_time_limit_reaches_the_program_which_is_requeued(slurm: Slurm, tmp_path: Path) -> None:
    watched = Watched(tmp_path, time="30m", warn=0.2, restarts=1)
    watched.site.submit([submission(tmp_path, RESTARTED)])
    watched.begun("began-0")
    slurm.say("scancel", "--batch", "--signal=USR1", watched.place()["id"])  # as Slurm itself does by --signal=B:USR1@…
    end = watched.end()
    assert end.info["code"] == 0, watched.events
    assert (tmp_path / "jobs" / "0" / "warned").exists()
    watched.site.close()


def test_nodes_that_do_not_see_the_folder_are_served_by_http(slurm: Slurm, tmp_path: Path) -> None:
    watched = Watched(tmp_path, channel="http", address="127.0.0.1")
    jobs = [submission(tmp_path, f"print({name})\nopen('result.json', 'w').write('{{}}')", name) for name in "012"]
    watched.site.submit(jobs)
    for job in jobs:
        assert watched.end(job.token).info["results"] == ["result.json"]
        assert (job.folder / "stdout").read_text() == f"{job.job_id}\n"
    listed = slurm.say("scontrol", "show", "job", watched.place()["id"])
    key = (tmp_path / "site" / "channel.key").read_bytes()
    assert not any(channel_token(key, job.token) in listed for job in jobs)  # tokens are not to be seen by others
    watched.site.close()


def test_a_node_without_the_interpreter_is_told_in_words(slurm: Slurm, tmp_path: Path) -> None:
    watched = Watched(tmp_path, python="/no/such/python")
    watched.site.submit([submission(tmp_path, "pass")])
    error = watched.end().info["error"]
    assert "it never began" in error and "/no/such/python" in error and "FAILED" in error
    watched.site.close()


def test_what_slurm_will_never_take_is_told_before_anything_is_submitted(slurm: Slurm, tmp_path: Path) -> None:
    for setting, said in (({"partition": "nowhere"}, "nvalid partition"), ({"flags": ["--nonsense"]}, "nonsense")):
        with pytest.raises(ConfigError, match=f"Slurm refuses such jobs.*{said}"):
            Watched(tmp_path, **setting)


def test_what_a_template_asks_for_and_slurm_never_takes_is_an_error_at_once(slurm: Slurm, watched: Watched) -> None:
    job = submission(watched.folder, "pass")
    job.argv = ["srun", "-p", "nowhere", "true"]
    watched.site.submit([job])
    end = watched.end()
    assert end.info["reason"] == "refused" and "Invalid partition" in end.info["error"]


def test_gpus_by_gres(slurm: Slurm, tmp_path: Path) -> None:
    watched = Watched(tmp_path, gres="gpu:1", nodelist="n1")
    code = "print(os.environ['CUDA_VISIBLE_DEVICES'], flush=True)\nwhile not os.path.exists('go'): time.sleep(0.05)"
    jobs = [submission(tmp_path, f"import os, time\n{code}", name) for name in "01"]
    watched.site.submit(jobs)
    printed = [job.folder / "stdout" for job in jobs]
    watched.wait("both print", lambda: all(one.exists() and one.read_text().strip() for one in printed))
    assert {one.read_text().strip() for one in printed} == {"0", "1"}  # at the same time, and not the same one
    for job in jobs:
        (job.folder / "go").touch()
        watched.end(job.token)
    watched.site.close()


def test_a_cluster_that_is_away_is_asked_again(slurm: Slurm, watched: Watched) -> None:
    slurm.end("slurmctld")
    try:
        watched.site.submit([submission(watched.folder, "pass")])
        watched.wait("it says so", lambda: any(one.kind == "note" for one in watched.events))
    finally:
        slurm.start("slurmctld")
    assert watched.end().info["code"] == 0
    slurm.wait_for_nodes()


class TestAControllerThatDied:
    """What the next one finds, by the moment at which the first was killed."""

    def next_one(self, tmp_path: Path) -> SlurmSite:
        (tmp_path / "site" / "notices").mkdir(parents=True, exist_ok=True)
        return SlurmSite(tmp_path, poll=0.3)

    def test_before_it_wrote_down_what_it_would_launch(self, slurm: Slurm, tmp_path: Path) -> None:
        job = submission(tmp_path, "pass")
        assert self.next_one(tmp_path).find([job.token])[job.token].state == "unknown"

    def test_between_writing_that_down_and_sbatch_which_comes_late(self, slurm: Slurm, tmp_path: Path) -> None:
        job = submission(tmp_path, "open('ran', 'w')")
        first, second = self.next_one(tmp_path), self.next_one(tmp_path)
        (tmp_path / "site" / "wrapper.py").write_bytes(Path(wrapper_module.__file__).read_bytes())
        batch = Batch("b", [job], tmp_path / "site" / "b.list")
        write_batch(first.place, batch, {})
        assert second.find([job.token])[job.token].state == "unknown"
        (late,) = first.launch(batch)  # an `sbatch` that its controller had begun before it died
        deadline = time.monotonic() + patience(20)
        while f"{late}|COMPLETED" not in slurm.say("squeue", "-h", "-r", "-t", "all", "-o", "%i|%T"):
            assert time.monotonic() < deadline
            time.sleep(0.05)
        assert not (job.work / "ran").exists()

    def test_after_the_submission(self, slurm: Slurm, tmp_path: Path) -> None:
        first = Watched(tmp_path)
        first.site.submit([submission(tmp_path, "import time; time.sleep(1)")])
        first.place()
        first.site.close()
        second = Watched(tmp_path)
        assert second.site.find(["0/1/secret"])["0/1/secret"].state == "running"
        assert second.end().info["code"] == 0
        second.site.close()


def test_a_job_whose_disk_is_full_waits_for_room_to_say_how_it_ended(tmp_path: Path) -> None:
    small = tmp_path / "small"
    small.mkdir()
    if subprocess.run(["mount", "-t", "tmpfs", "-o", "size=1m", "tmpfs", str(small)], capture_output=True).returncode:
        pytest.skip("mounting a small disk needs root")
    try:
        job = submission(small, "import os\nos.write(1, b'x' * (4 << 20))\nraise SystemExit(3)")
        (small / "site" / "notices").mkdir(parents=True)
        write_batch(small / "site", Batch("b", [job], tmp_path / "b.list"), {})
        argv = [sys.executable, wrapper_module.__file__, "run", str(tmp_path / "b.list"), "0"]
        process = subprocess.Popen(argv)
        time.sleep(0.7)
        assert process.poll() is None and exit_of(job.folder, job.token) is None
        (job.folder / "stdout").unlink()
        assert process.wait(patience(20)) == 3
        found = exit_of(job.folder, job.token)
        assert found is not None and found["code"] == 3
    finally:
        subprocess.run(["umount", "-l", str(small)], check=True)


def test_times_of_a_node_whose_clock_is_an_hour_off_are_put_right(tmp_path: Path) -> None:
    now = time.time()
    record = {"token": "0/1/secret", "code": 0, "started": now + 3590, "ended": now + 3600}
    (tmp_path / "exit-1.json").write_text(json.dumps(record))
    found = exit_of(tmp_path, "0/1/secret")
    assert (
        found is not None and abs(found["ended"] - now) < 5 and found["ended"] - found["started"] == pytest.approx(10)
    )


def test_a_job_without_a_search(slurm: Slurm, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.chdir(tmp_path)
    job = SlurmJob(f"srun -p debug -n 2 {sys.executable} -I -S -c 'print(1)'", "good", {"x": 1}, None, [])
    job.start(poll=0.3)
    assert job.status in ("PENDING", "RUNNING") and job.wait() == "FINISHED"
    assert (job.folder / "stdout").read_text() == "1\n1\n"  # both tasks of its step
    slow = SlurmJob("srun -p debug sleep 600.25", "slow")
    slow.start(poll=0.3, exit_wait=1)
    deadline = time.monotonic() + patience(30)
    while "sleep" not in slurm.say("squeue", "--steps", "-h", "-o", "%j") and time.monotonic() < deadline:
        time.sleep(0.05)
    slow.kill()
    assert slow.wait() == "KILLED" and slurm.is_empty()
    assert not subprocess.run(["pgrep", "-fx", "sleep 600.25"], capture_output=True).stdout


def test_srun_from_this_machine_is_cancelled_with_its_steps(slurm: Slurm, tmp_path: Path) -> None:
    site, events = LocalSite(tmp_path), list[Event]()
    site.start(events.append)
    job = submission(tmp_path, "")
    job.argv = ["srun", "-p", "debug", "sleep", "600.75"]
    site.submit([job])
    deadline = time.monotonic() + patience(30)
    while "sleep" not in slurm.say("squeue", "--steps", "-h", "-o", "%j") and time.monotonic() < deadline:
        time.sleep(0.05)
    site.close()  # which gives no time
    assert slurm.is_empty() and events[-1].kind == "ended"


def test_a_service_that_cannot_be_reached_says_so() -> None:
    with pytest.raises(Exception, match="closed service"):
        AutolinkJob("true", "x").start()


def test_a_job_that_is_killed_with_its_wrapper_is_an_error_with_what_is_known(slurm: Slurm, watched: Watched) -> None:
    watched.site.submit([submission(watched.folder, "import time; time.sleep(600)")])
    claim = watched.folder / "jobs" / "0" / "claim-1"
    watched.wait("its claim", claim.exists)
    os.kill(json.loads(claim.read_text())["pid"], signal.SIGKILL)
    end = watched.end()
    assert end.kind == "lost" and "FAILED on n" in end.info["error"]
