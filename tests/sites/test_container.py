"""Jobs in real containers."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from tests.machine import patience, wait_until

from operant.errors import ConfigError
from operant.sites import Event, Site, Submission
from operant.sites.cluster_jobs import SiteRefusedError
from operant.sites.container import ContainerSite
from operant.testing import SiteContract

PYTHON = "/usr/bin/python3"
IMAGE = f"localhost/operant-test:{os.getpid()}"  # of this process alone, which removes it again
# An image with nothing in it: programs come from this machine. Debian's podman needs another runtime than its own.
SETTINGS: dict[str, Any] = {
    "engine": "podman",
    "image": IMAGE,
    "python": PYTHON,
    "runtime": "runc",
    "ulimits": ["nofile=1024:1024", "nproc=1000:1000"],
    "network": "host",
    "volumes": [f"{one}:{one}:ro" for one in ("/usr", "/bin", "/lib", "/lib64", "/etc") if Path(one).exists()],
    "poll": 0.5,
}


def containers(*filters: str) -> list[str]:
    asked = ["podman", "ps", "--all", "--format={{.Names}}", *filters]
    return subprocess.run(asked, capture_output=True, text=True, check=True).stdout.split()


@pytest.fixture(scope="module")
def podman(tmp_path_factory: pytest.TempPathFactory) -> Iterator[None]:
    for program in ("podman", "runc"):
        if shutil.which(program) is None:
            pytest.skip(f"needs Debian's package {program}")
    if os.geteuid() != 0 or not Path(PYTHON).exists():
        pytest.skip("needs root and Debian's python3")
    folder = tmp_path_factory.mktemp("image")
    (folder / "empty").mkdir()
    subprocess.run(["tar", "-C", str(folder / "empty"), "-cf", str(folder / "image.tar"), "."], check=True)
    subprocess.run(["podman", "import", "-q", str(folder / "image.tar"), IMAGE], check=True, capture_output=True)
    yield
    subprocess.run(["podman", "rmi", "-f", IMAGE], check=True, capture_output=True)


@pytest.mark.usefixtures("podman")
class TestContainerSite(SiteContract):
    patience = patience(60)

    def build(self, folder: Path) -> Site:
        self.site_built = ContainerSite(folder, **SETTINGS)
        return self.site_built

    def job(self, token: str, folder: Path, kind: str) -> Submission:
        code = {"good": "pass", "bad": "raise SystemExit(3)", "endless": "import time; time.sleep(600)"}[kind]
        return Submission(token, folder.name, 1, [PYTHON, "-I", "-S", "-c", code], folder, folder)

    @pytest.fixture(autouse=True)
    def no_container_is_left(self) -> Iterator[None]:
        yield
        assert not containers(f"--filter=label=operant.search={self.site_built.prefix}")


def end_of(tmp_path: Path, code: str = "pass", **settings: Any) -> Event:
    """How a job in a container of its own ends."""
    site, events = ContainerSite(tmp_path, **{**SETTINGS, **settings}), list[Event]()
    folder = tmp_path / "jobs" / "0"
    folder.mkdir(parents=True)
    site.start(events.append)
    try:
        site.submit([Submission("0/1/secret", "0", 1, [PYTHON, "-I", "-S", "-c", code], folder, folder)])
        wait_until(lambda: any(one.kind in ("ended", "lost") for one in events), "its end", 60)
    finally:
        site.close()
    assert not containers(f"--filter=label=operant.search={site.prefix}")
    return events[-1]


@pytest.mark.usefixtures("podman")
def test_a_container_over_its_memory_is_told_in_words(tmp_path: Path) -> None:
    end = end_of(tmp_path, "x = bytearray(400 << 20)", memory="100MB", network="none")
    assert end.info["reason"] == "memory_limit" and "100 MiB" in end.info["error"]


@pytest.mark.long  # podman itself tries again for some seconds
@pytest.mark.usefixtures("podman")
def test_an_image_that_cannot_be_pulled_is_waited_for_a_while(tmp_path: Path) -> None:
    end = end_of(tmp_path, image="127.0.0.1:9/none:1", pull_wait=0.1)
    assert end.info["reason"] == "refused" and "127.0.0.1:9" in end.info["error"]


@pytest.mark.parametrize(
    ("engine", "uid", "settings", "asked"),
    [
        ("podman", 0, {"gpus": True}, ["--device=nvidia.com/gpu=all"]),
        ("docker", 0, {"gpus": "2", "runtime": "runc"}, ["--runtime=runc", "--gpus=2"]),
        ("podman", 7, {"ulimits": ["nofile=9"], "flags": ["--x"]}, ["--ulimit=nofile=9", "--userns=keep-id", "--x"]),
        ("docker", 7, {}, ["--user=7:7"]),
        ("docker", 7, {"user": "root", "cpus": 0.5}, ["--cpus=0.5"]),
        ("podman", 7, {"user": "8:9", "memory": "1GB"}, [f"--memory={2**30}", "--user=8:9"]),
    ],
)
def test_what_is_asked_of_an_engine(
    engine: str, uid: int, settings: dict[str, Any], asked: list[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("os.getuid", lambda: uid)
    monkeypatch.setattr("os.getgid", lambda: uid)
    site = ContainerSite(tmp_path, image="any:1", engine=engine, volumes=["/data", "/a:/b:ro"], **settings)
    volumes = ["--volume=/data:/data", "--volume=/a:/b:ro", f"--volume={tmp_path}:{tmp_path}"]
    assert site._options(Submission("0/1/x", "0", 1, [], tmp_path, tmp_path)) == [*volumes, *asked]


def test_without_an_engine_nothing_is_submitted(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    with pytest.raises(SiteRefusedError, match="there is none of podman, docker, apptainer"):
        ContainerSite(tmp_path, image="any:1").start(lambda event: None)


class TestApptainer(SiteContract):
    """By a stand-in that drops the options and runs the command; the real one is in no package of Debian's."""

    patience = patience(60)

    @pytest.fixture(autouse=True)
    def stand_in(self, tmp_path_factory: pytest.TempPathFactory, monkeypatch: pytest.MonkeyPatch) -> None:
        folder = tmp_path_factory.mktemp("bin")
        # It takes a moment until it reads the file with the variables.
        read = 'case $1 in --env-file=*) sleep 0.1; cat "${1#*=}" >/dev/null || exit 255;; esac'
        script = f'shift\nwhile [ "${{1#-}}" != "$1" ]; do {read}; shift; done\nshift\nexec "$@"\n'
        (folder / "apptainer").write_text("#!/bin/sh\n" + script)
        (folder / "apptainer").chmod(0o755)
        monkeypatch.setenv("PATH", str(folder), prepend=os.pathsep)

    def build(self, folder: Path) -> Site:
        return ContainerSite(folder, engine="apptainer", image="image.sif", python=sys.executable, poll=0.2)

    def job(self, token: str, folder: Path, kind: str) -> Submission:
        code = {"good": "pass", "bad": "raise SystemExit(3)", "endless": "import time; time.sleep(600)"}[kind]
        return Submission(token, folder.name, 1, [sys.executable, "-I", "-S", "-c", code], folder, folder)

    def test_what_is_asked_of_it(self, tmp_path: Path) -> None:
        settings: dict[str, Any] = {"engine": "apptainer", "image": "image.sif"}
        site = ContainerSite(tmp_path, **settings, volumes=["/a:/b:ro"], memory="1GB", cpus=2, gpus=True, user="root")
        asked = ["--bind=/a:/b:ro", f"--memory={2**30}", "--cpus=2", "--fakeroot", "--nv"]
        assert site._apptainer_options() == asked
        for wrong in ({"runtime": "runc"}, {"ulimits": ["nofile=9"]}, {"user": "8:9"}):
            with pytest.raises(ConfigError, match="apptainer"):
                ContainerSite(tmp_path, **settings, **wrong)
