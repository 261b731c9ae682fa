"""`deploy/Dockerfile`, built where no registry of images is at hand: its base is this machine's own Debian, mounted."""

from __future__ import annotations

import json
import re
import subprocess
import urllib.request
from collections.abc import Iterator
from pathlib import Path

import pytest
from tests.cluster.prometheus import free_port
from tests.machine import patience, wait_until
from tests.sites.test_container import IMAGE, SETTINGS, podman

__all__ = ["podman"]
pytestmark = [pytest.mark.clusters, pytest.mark.long, pytest.mark.usefixtures("podman")]

REPOSITORY = Path(__file__).parents[2]
BUILT = "localhost/operant-built:1"
_ODD = ["--runtime", "runc", *(f"--ulimit={one}" for one in SETTINGS["ulimits"])]


def _mounts() -> list[str]:
    return [f"--volume={one}" for one in SETTINGS["volumes"]]


def _pip(folder: Path) -> list[str]:
    """Where pip here gets packages from, for the pip in the image: its settings, and the folders that they name."""
    said = subprocess.run(
        ["/usr/bin/python3", "-m", "pip", "config", "list"], capture_output=True, text=True, check=True
    )
    found = dict(re.findall(r"^(?:global|:env:)\.([\w-]+)='(.*)'$", said.stdout, re.MULTILINE))
    (folder / "pip.conf").write_text("[global]\n" + "".join(f"{key} = {value}\n" for key, value in found.items()))
    places = {path for value in found.values() for path in re.findall(r"(?:file://)?(/[\w/.-]+)", value)}
    seen = sorted({str(Path(one)) for one in places if Path(one).is_dir()})
    return [
        f"--volume={folder}/pip.conf:/tmp/pip.conf:ro",
        "--env=PIP_CONFIG_FILE=/tmp/pip.conf",
        *(f"--volume={one}:{one}:ro" for one in seen),
    ]


@pytest.fixture(scope="module")
def image(podman: None, tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    folder = tmp_path_factory.mktemp("pip")
    words = ["podman", "build", *_ODD, "--network=host", *_mounts(), *_pip(folder), f"--build-arg=BASE={IMAGE}"]
    words += ["--pull=never", "-q", "-t", BUILT, "-f", str(REPOSITORY / "deploy" / "Dockerfile"), str(REPOSITORY)]
    done = subprocess.run(words, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr[-3000:]
    yield BUILT
    subprocess.run(["podman", "rmi", "-f", BUILT], check=False, capture_output=True)


def test_it_serves_as_nobody_with_a_root_that_cannot_be_written(image: str, tmp_path: Path) -> None:
    about = json.loads(subprocess.run(["podman", "inspect", image], capture_output=True, check=True).stdout)[0][
        "Config"
    ]
    assert about["User"] == "10001:10001"
    (tmp_path / "data").mkdir()
    (tmp_path / "data").chmod(0o777)
    port = free_port()
    words = ["podman", "run", "--rm", "--name=operant-served", *_ODD, "--network=host", *_mounts(), "--read-only"]
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
