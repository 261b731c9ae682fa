"""`deploy/Dockerfile`, built where no registry of images is at hand: its base is a Debian made by debootstrap."""

from __future__ import annotations

import json
import os
import platform
import re
import shutil
import subprocess
import urllib.request
from collections.abc import Iterator
from pathlib import Path

import pytest
from tests.cluster.prometheus import free_port
from tests.machine import patience, wait_until
from tests.sites.test_container import SETTINGS, containers

pytestmark = [pytest.mark.clusters, pytest.mark.long]

REPOSITORY = Path(__file__).parents[2]
BASE, BUILT = "localhost/operant-debian:1", "localhost/operant-built:1"
_ODD = ["--runtime", "runc", *(f"--ulimit={one}" for one in SETTINGS["ulimits"])]


def _pip(folder: Path) -> list[str]:
    """Where pip here gets packages from, for the pip in the image: its settings, and the folders that they name."""
    said = subprocess.run(
        ["/usr/bin/python3", "-m", "pip", "config", "list"], capture_output=True, text=True, check=True
    )
    found = dict(re.findall(r"^(?:global|:env:)\.([\w-]+)='(.*)'$", said.stdout, re.MULTILINE))
    (folder / "pip.conf").write_text("[global]\n" + "".join(f"{key} = {value}\n" for key, value in found.items()))
    places = {path for value in found.values() for path in re.findall(r"(?:file://)?(/[\w/.-]+)", value)}
    seen = sorted({str(Path(one)) for one in places if Path(one).exists()})
    return [
        f"--volume={folder}/pip.conf:/tmp/pip.conf:ro",
        "--env=PIP_CONFIG_FILE=/tmp/pip.conf",
        *(f"--volume={one}:{one}:ro" for one in seen),
    ]


def _run(*words: str) -> str:
    done = subprocess.run(words, capture_output=True, text=True, check=False)
    assert done.returncode == 0, f"{words}: {(done.stdout + done.stderr)[-3000:]}"
    return done.stdout


@pytest.fixture(scope="module")
def base(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    for program in ("podman", "runc", "debootstrap"):
        if shutil.which(program) is None:
            pytest.skip(f"needs Debian's package {program}")
    if os.geteuid() != 0:
        pytest.skip("debootstrap runs as root")
    folder = tmp_path_factory.mktemp("debian")
    release = platform.freedesktop_os_release()["VERSION_CODENAME"]
    _run("debootstrap", "--variant=minbase", "--include=python3-venv", release, str(folder))
    _run("tar", "-C", str(folder), "-cf", f"{folder}.tar", ".")
    shutil.rmtree(folder)
    _run("podman", "import", "-q", f"{folder}.tar", BASE)
    Path(f"{folder}.tar").unlink()
    yield BASE
    _run("podman", "rmi", "-f", BASE)


@pytest.fixture(scope="module")
def image(base: str, tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    words = ["--network=host", *_pip(tmp_path_factory.mktemp("pip")), f"--build-arg=BASE={base}", "--pull=never"]
    dockerfile = str(REPOSITORY / "deploy" / "Dockerfile")
    _run("podman", "build", *_ODD, *words, "--layers=false", "-q", "-t", BUILT, "-f", dockerfile, str(REPOSITORY))
    yield BUILT
    _run("podman", "rmi", "-f", BUILT)
    assert "operant-served" not in containers()


def test_it_serves_as_nobody_with_a_root_that_cannot_be_written(image: str, tmp_path: Path) -> None:
    assert json.loads(_run("podman", "inspect", image))[0]["Config"]["User"] == "10001:10001"
    (tmp_path / "data").mkdir()
    (tmp_path / "data").chmod(0o777)
    port = free_port()
    words = ["podman", "run", "--rm", "--name=operant-served", *_ODD, "--network=host", "--read-only"]
    words += ["--tmpfs=/tmp", "--cap-drop=all", f"--volume={tmp_path}/data:/data", image]
    server = subprocess.Popen([*words, "operant", "serve", "--port", str(port)], stdout=subprocess.PIPE, text=True)

    def healthy() -> bool:
        assert server.poll() is None
        try:
            with urllib.request.urlopen(f"http://127.0.0.1:{port}/health", timeout=5) as answer:
                return bool(answer.status == 200)
        except OSError:
            return False

    try:
        wait_until(healthy, "the server", 60)
        (token,) = (tmp_path / "data").rglob("server-token")
        assert token.stat().st_uid == 10001
    finally:
        subprocess.run(["podman", "kill", "operant-served"], check=False, capture_output=True)
        server.communicate(timeout=patience(30))
