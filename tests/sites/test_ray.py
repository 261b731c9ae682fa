"""The site ray against a stand-in of Ray's Jobs API whose jobs are processes of this machine."""

from __future__ import annotations

import os
import shlex
import shutil
import subprocess
import sys
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from tests.machine import patience, wait_until

from operant.errors import ConfigError
from operant.sites import Event, Site, Submission
from operant.sites.channel import channel_token
from operant.sites.cluster_jobs import SiteRefusedError
from operant.sites.ray import RaySite
from operant.testing import SiteContract

PROGRAMS = {"good": "pass", "bad": "raise SystemExit(3)", "endless": "import time; time.sleep(600)"}


class StandIn:
    """What the site calls of `ray.job_submission.JobSubmissionClient`."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.jobs: dict[str, SimpleNamespace] = {}
        self.fails: Exception | None = None

    def submit_job(self, *, entrypoint: str, submission_id: str, **options: Any) -> str:
        if self.fails is not None:
            raise self.fails
        if submission_id in self.jobs:
            raise RuntimeError(f"Request failed with status code 500: Job {submission_id} already exists.")
        env = {**os.environ, **options["runtime_env"]["env_vars"]}
        place = None
        if "working_dir" in options["runtime_env"]:  # it is uploaded, and is not there any more afterwards
            place = shutil.copytree(options["runtime_env"]["working_dir"], self.folder / submission_id)
        process = subprocess.Popen(shlex.split(entrypoint), env=env, cwd=place)
        about = {"submission_id": submission_id, "metadata": options["metadata"], "message": "", "options": options}
        driver = SimpleNamespace(node_ip_address="10.0.0.7")
        self.jobs[submission_id] = SimpleNamespace(process=process, driver_info=driver, status="RUNNING", **about)
        return submission_id

    def list_jobs(self) -> list[SimpleNamespace]:
        for one in list(self.jobs.values()):
            code = one.process.poll()
            if code is not None:
                one.status = "FAILED" if code else "SUCCEEDED"
        return list(self.jobs.values())

    def stop_job(self, name: str) -> bool:
        if name not in self.jobs:
            raise RuntimeError("Request failed with status code 404: no such job.")
        self.jobs[name].process.terminate()
        return True

    def delete_job(self, name: str) -> bool:
        if name not in self.jobs:
            raise RuntimeError("Request failed with status code 404: no such job.")
        self.jobs.pop(name).process.wait()
        return True

    def get_job_logs(self, name: str) -> str:
        return "a log\nits last line"


class TestRaySite(SiteContract):
    patience = patience(60)

    def build(self, folder: Path) -> Site:
        site = RaySite(folder, python=sys.executable, poll=0.1, exit_wait=1.0)
        self.stand_in = StandIn(folder / "uploaded")
        site.connect = lambda: self.stand_in  # type: ignore[method-assign]
        return site

    def job(self, token: str, folder: Path, kind: str) -> Submission:
        return Submission(token, folder.name, 1, [sys.executable, "-I", "-S", "-c", PROGRAMS[kind]], folder, folder)

    def test_the_head_forgets_jobs_that_are_over(self, site: Site, tmp_path: Path) -> None:
        self.end_of(self.submit(site, tmp_path, "good"))
        token = self.submit(site, tmp_path, "endless", "1")
        self.wait(lambda: [one.process.poll() for one in self.stand_in.jobs.values()] == [None], "forgetting")
        site.cancel([token], "not wanted", 0.1)
        self.end_of(token)

    def test_a_head_that_is_away_is_asked_again(self, site: Site, tmp_path: Path) -> None:
        self.stand_in.fails = RuntimeError("Request failed with status code 500: No available agent to submit job.")
        token = self.submit(site, tmp_path, "good")
        self.wait(lambda: [one for one in self.events if "asked again" in one.info.get("text", "")], "a note")
        self.stand_in.fails = None
        assert self.end_of(token).info["code"] == 0

    def test_what_ray_will_never_take_is_an_error_of_the_job(self, site: Site, tmp_path: Path) -> None:
        self.stand_in.fails = RuntimeError("Request failed with status code 401: Unauthorized: no token.")
        end = self.end_of(self.submit(site, tmp_path, "good"))
        assert end.info["reason"] == "refused" and "no token" in end.info["error"]


def test_the_token_of_the_channel_is_uploaded_and_not_shown(tmp_path: Path) -> None:
    site = RaySite(tmp_path, python=sys.executable, poll=0.5, channel="http", channel_address="127.0.0.1")
    events, stand_in = list[Event](), StandIn(tmp_path)
    site.connect = lambda: stand_in  # type: ignore[method-assign]
    folder = tmp_path / "jobs" / "0"
    (folder / "work").mkdir(parents=True)
    site.start(events.append)
    site.submit([Submission("0/1/secret", "0", 1, ["sh", "-c", "echo ready"], folder, folder / "work")])
    wait_until(lambda: any(one.kind == "ended" for one in events), "its end")
    (job,) = stand_in.jobs.values()
    site.close()
    job.process.wait(patience(20))
    assert (folder / "stdout").read_text() == "ready\n"
    shown = str([job.process.args, job.options["runtime_env"]["env_vars"], job.metadata])
    key = (tmp_path / "site" / "channel.key").read_bytes()
    assert channel_token(key, "0/1/secret") not in shown and "secret" not in shown


def test_a_search_without_a_head_is_told_so_before_anything_is_submitted(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("RAY_API_SERVER_ADDRESS", raising=False)
    with pytest.raises(SiteRefusedError, match="which Ray"):
        RaySite(tmp_path).start(lambda event: None)
    site, stand_in = RaySite(tmp_path), StandIn(tmp_path)

    def refuse() -> None:
        raise RuntimeError("Request failed with status code 401: Unauthorized: no token.")

    stand_in.list_jobs = refuse  # type: ignore[assignment, method-assign]
    site.connect = lambda: stand_in  # type: ignore[method-assign]
    with pytest.raises(SiteRefusedError, match="no token"):
        site.start(lambda event: None)


def test_what_is_asked_of_ray(tmp_path: Path) -> None:
    site = RaySite(tmp_path, cpus=2, gpus=0.5, memory="1GB", resources={"fast": 1})
    assert site.asked == {
        "entrypoint_num_cpus": 2, "entrypoint_num_gpus": 0.5, "entrypoint_memory": 2**30,
        "entrypoint_resources": {"fast": 1},
    }  # fmt: skip
    with pytest.raises(ConfigError, match="mapping"):
        RaySite(tmp_path, runtime_env=["pip"])  # type: ignore[arg-type]
    with pytest.raises(ConfigError, match="working_dir"):
        RaySite(tmp_path, channel="http", runtime_env={"working_dir": "."})


def test_a_dead_node_is_told_as_one(tmp_path: Path) -> None:
    site = RaySite(tmp_path)
    about = {"metadata": {"operant-batch": "b"}, "submission_id": "s", "driver_info": None}
    died = SimpleNamespace(**about, status="FAILED", message="The actor died because its node has died.")
    assert site._word(died).reason == "node_failed"
    failed = SimpleNamespace(**about, status="FAILED", message="Job entrypoint command failed with exit code 1")
    assert site._word(failed).reason is None
