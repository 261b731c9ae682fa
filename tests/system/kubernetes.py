"""A real Kubernetes of one node on loopback for tests: its API server, controllers, scheduler, kubelet and containerd.

`tests/system/k8s/build.sh FOLDER` builds its binaries from Debian's source once (some minutes); they stay in FOLDER,
`$OPERANT_KUBERNETES` or `~/.cache/operant-kubernetes`, outside of the work tree.
"""

from __future__ import annotations

import fcntl
import json
import os
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
from tests.machine import patience

BINARIES = Path(os.environ.get("OPERANT_KUBERNETES", Path.home() / ".cache" / "operant-kubernetes"))
SCRIPTS = Path(__file__).parent / "k8s"
_PACKAGES = {
    "etcd": "etcd-server", "containerd": "containerd", "runc": "runc", "gcc": "gcc",
    "openssl": "openssl", "bc": "bc",
}  # fmt: skip


class Kubernetes:
    """The cluster, by its own command."""

    def __init__(self, place: Path) -> None:
        self.place = place
        self.kubeconfig = str(place / "pki" / "kubeconfig")

    def say(self, *argv: str) -> str:
        command = [str(BINARIES / "bin" / "kubectl"), "--kubeconfig", self.kubeconfig, *argv]
        done = subprocess.run(command, capture_output=True, text=True, check=False)
        assert done.returncode == 0, f"{argv}: {done.stderr}"
        return done.stdout

    def apply(self, manifest: object) -> None:
        path = self.place / f"apply-{os.urandom(4).hex()}.json"
        path.write_text(json.dumps(manifest))
        self.say("apply", "--validate=false", "-f", str(path))

    def site(self, folder: Path) -> dict[str, Any]:
        """The settings of a site whose pods have the programs of this machine."""
        read_only = [{"path": path, "read_only": True} for path in ("/usr", "/etc")]
        return {
            "image": "operant.test/host:1", "pull_policy": "Never", "host_network": True, "python": "/usr/bin/python3",
            "volumes": [str(folder), *read_only], "kubeconfig": self.kubeconfig, "exit_wait": 5,
        }  # fmt: skip


@contextmanager
def running_kubernetes(*, api_only: bool = False) -> Iterator[Kubernetes]:
    """A cluster of one node, or with ``api_only`` of none; all of it is gone afterwards."""
    for program, package in _PACKAGES.items():
        if shutil.which(program) is None:
            pytest.skip(f"needs Debian's package {package}")
    if not (BINARIES / "bin" / "kubelet").exists():
        pytest.skip(f"needs the binaries that {SCRIPTS / 'build.sh'} {BINARIES} makes")
    if os.geteuid() != 0:
        pytest.skip("a kubelet runs as root")
    lock = os.open("/tmp/operant-kubernetes.lock", os.O_CREAT | os.O_RDWR)
    fcntl.flock(lock, fcntl.LOCK_EX)  # its ports are always the same
    place = Path(tempfile.mkdtemp(prefix="operant-kubernetes-", dir="/tmp"))
    words = [str(BINARIES / "bin"), str(place)]
    env = {**os.environ, "PYTHON": sys.executable, "API_ONLY": "1" if api_only else ""}
    try:
        with (place / "up.log").open("wb") as log:
            subprocess.run(
                ["bash", str(SCRIPTS / "up.sh"), *words, str(BINARIES / "src")],
                stdout=log, stderr=log, check=True, timeout=patience(120), env=env,
            )  # fmt: skip
        yield Kubernetes(place)
    finally:
        subprocess.run(["bash", str(SCRIPTS / "down.sh"), *words], check=False, capture_output=True)
        shutil.rmtree(place, ignore_errors=True)
        os.close(lock)
