"""Jobs in real containers."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from tests.machine import patience

from operant.sites import Site, Submission
from operant.sites.container import ContainerSite
from operant.testing import SiteContract

PYTHON = "/usr/bin/python3"
IMAGE = "localhost/operant-test:1"
# An image with nothing in it: programs come from this machine. Debian's podman needs another runtime than its own.
SETTINGS = {
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


class TestApptainer(SiteContract):
    """By a stand-in that drops the options and runs the command; the real one is in no package of Debian's."""

    patience = patience(60)

    @pytest.fixture(autouse=True)
    def stand_in(self, tmp_path_factory: pytest.TempPathFactory, monkeypatch: pytest.MonkeyPatch) -> None:
        folder = tmp_path_factory.mktemp("bin")
        script = 'shift\nwhile [ "${1#-}" != "$1" ]; do shift; done\nshift\nexec "$@"\n'
        (folder / "apptainer").write_text("#!/bin/sh\n" + script)
        (folder / "apptainer").chmod(0o755)
        monkeypatch.setenv("PATH", str(folder), prepend=os.pathsep)

    def build(self, folder: Path) -> Site:
        return ContainerSite(folder, engine="apptainer", image="image.sif", python=sys.executable, poll=0.2)

    def job(self, token: str, folder: Path, kind: str) -> Submission:
        code = {"good": "pass", "bad": "raise SystemExit(3)", "endless": "import time; time.sleep(600)"}[kind]
        return Submission(token, folder.name, 1, [sys.executable, "-I", "-S", "-c", code], folder, folder)
