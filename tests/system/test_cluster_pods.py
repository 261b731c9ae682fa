"""Ray as real pods without an operator: jobs whose runs come home, a forward that survives the head, nothing left."""

from __future__ import annotations

import json
import os
import shutil
import signal
import subprocess
import sys
import time
import urllib.error
import urllib.request
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import psutil
import pytest
import yaml
from tests.cluster.prometheus import query
from tests.machine import patience, wait_until
from tests.system.kubernetes import Kubernetes, running_kubernetes
from tests.web.serving import Page

from operant.cluster import load_cluster
from operant.cluster.applying import connect, read_token

pytest.importorskip("kubernetes", reason="needs operant[k8s]")
pytest.importorskip("ray", reason="needs operant[ray]")
pytestmark = [pytest.mark.clusters, pytest.mark.long]

_KINDS = "deployments,replicasets,pods,services,secrets,configmaps,networkpolicies"
_SEEN = ("/usr", "/etc", sys.base_prefix, str(Path(__file__).parents[2]))


def _ports(first: int, node: str) -> dict[str, Any]:
    """All pods of this node share its network: every port of each is its own."""
    names = ("node-manager-port", "object-manager-port", "runtime-env-agent-port", "dashboard-agent-grpc-port",
             "dashboard-agent-listen-port", "metrics-export-port")  # fmt: skip
    found: dict[str, Any] = {name: first + number for number, name in enumerate(names)}
    return {**found, "min-worker-port": first + 100, "max-worker-port": first + 199, "node-ip-address": node}


class Cluster:
    def __init__(self, kubernetes: Kubernetes, folder: Path) -> None:
        self.kubernetes, self.folder = kubernetes, folder
        (folder / ".operant").mkdir()
        binaries = Path(sys.executable).parent
        seen = dict.fromkeys(path for path in _SEEN if not any(path.startswith(f"{one}/") for one in _SEEN))
        head = {**_ports(26000, "127.0.0.2"), "port": 26379, "dashboard-port": 28265, "ray-client-server-port": 20001}
        content = {
            "name": "fire", "operator": "none", "image": "operant.test/host:1", "pull_policy": "Never",
            "host_network": True, "kubeconfig": kubernetes.kubeconfig, "ray_command": str(binaries / "ray"),
            "python": sys.executable, "volumes": [{"path": path, "read_only": True} for path in seen],
            "env": {"HOME": "/tmp", "OMP_NUM_THREADS": 1, "PATH": f"{binaries}:/usr/bin:/bin",
                    "RAY_raylet_start_wait_time_s": 180, "RAY_agent_register_timeout_ms": 180000},
            "head": {"cpus": 0.9, "memory": "1500MB", "object_store": "120MB", "ray_start": head},
            "workers": [{"name": "small", "cpus": 0.9, "memory": "1500MB", "object_store": "120MB", "num_cpus": 2,
                         "ray_start": {**_ports(27000, "127.0.0.3"), "address": "127.0.0.2:26379"}}],
        }  # fmt: skip
        (folder / "fire.yaml").write_text(yaml.safe_dump(content))

    def start(self, *words: str) -> subprocess.Popen[str]:
        command = [sys.executable, "-m", "operant", *words]
        return subprocess.Popen(command, cwd=self.folder, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)

    def run(self, *words: str, code: int = 0, within: float = 600) -> str:
        process = self.start(*words)
        out, err = process.communicate(timeout=patience(within))
        assert process.returncode == code, f"{words}: {process.returncode}\n{out}\n{err}"
        return out + err

    def objects(self) -> set[str]:
        found = self.kubernetes.say("get", _KINDS, "-o", "name").split()
        return {one for one in found if "/fire" in one}

    def head(self) -> str:
        return self.kubernetes.say("get", "pods", "--selector=ray.io/node-type=head", "-o", "name").strip()


@pytest.fixture(scope="module")
def kubernetes() -> Iterator[Kubernetes]:
    with running_kubernetes() as cluster:
        yield cluster


@pytest.fixture(scope="module")
def cluster(kubernetes: Kubernetes, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cluster]:
    made = Cluster(kubernetes, tmp_path_factory.mktemp("cluster"))
    assert "fire is ready: 2 pods" in made.run("cluster", "apply", "fire")
    yield made
    said = made.run("cluster", "delete", "fire", "--yes")
    assert "nothing of fire is left" in said and not made.objects()
    wait_until(lambda: not _rays(), "the end of Ray's processes", 60)


def _rays() -> list[str]:
    """Ray's processes of pods here."""
    found = []
    for one in psutil.process_iter(["cmdline"]):
        words = " ".join(one.info["cmdline"] or ())
        if "26379" in words and ("raylet" in words or "gcs_server" in words):
            found.append(words[:100])
    return found


def _dashboard(cluster: Cluster, port: int) -> bool:
    token = read_token(load_cluster(cluster.folder / "fire.yaml"), connect(load_cluster(cluster.folder / "fire.yaml")))
    request = urllib.request.Request(
        f"http://127.0.0.1:{port}/api/version", headers={"Authorization": f"Bearer {token}"}
    )
    try:
        with urllib.request.urlopen(request, timeout=patience(20)) as answer:
            return "ray_version" in json.load(answer)
    except OSError:
        return False


def test_a_harness_training_runs_there_and_its_run_is_on_the_page_here(cluster: Cluster) -> None:
    words = ["harness", "-cn", "ppo", "cli.mode=train", "cluster=fire", "stop_conditions.timesteps_total=6000"]
    said = cluster.run(*words)
    assert "mean return" in said
    (run,) = (cluster.folder / ".operant" / "runs").iterdir()
    assert list((run / "checkpoints").iterdir()), "checkpoints come home too"
    with Page(cluster.folder / ".operant") as page, urllib.request.urlopen(f"{page.address}/api/runs") as answer:
        (row,) = json.load(answer)["rows"]
        assert row["id"] == run.name and row["status"] == "FINISHED"
    assert "SUCCEEDED" in cluster.run("cluster", "jobs", "-c", "fire")


def test_an_exit_code_is_passed_on(cluster: Cluster) -> None:
    assert "no such luck" in cluster.run("cluster", "submit", "-c", "fire", "--", "echo no such luck; exit 7", code=7)


def test_without_the_token_nobody_gets_in(cluster: Cluster) -> None:
    forward = cluster.start("cluster", "forward", "fire", "--only", "--service", "fire-head-svc:28265")
    try:
        address = _address(forward, "fire-head-svc:28265")
        with pytest.raises(urllib.error.HTTPError, match="401"):
            urllib.request.urlopen(f"{address}/api/jobs/", timeout=patience(20))
    finally:
        forward.send_signal(signal.SIGINT)
        forward.communicate(timeout=patience(20))
    assert forward.returncode == 0


@pytest.mark.skipif(shutil.which("prometheus") is None, reason="needs Debian's package prometheus")
def test_prometheus_in_the_pod_of_the_head(cluster: Cluster) -> None:
    said = cluster.run("monitor", "start", "--cluster", "fire", "--port", "29090", "--interval", "1s")
    assert "Prometheus runs at http://127.0.0.1:29090" in said
    service = f"{cluster.head().removeprefix('pod/')}:29090"
    forward = cluster.start("cluster", "forward", "fire", "--only", "--service", service)
    try:
        port = int(_address(forward, service).rpartition(":")[2])
        wait_until(lambda: query(port, 'up{job="ray"} == 1'), "Ray's metrics", 60)
    finally:
        forward.send_signal(signal.SIGINT)
        forward.communicate(timeout=patience(20))
    assert "Prometheus is ended" in cluster.run("monitor", "stop", "--cluster", "fire")


def _address(forward: subprocess.Popen[str], title: str) -> str:
    assert forward.stdout is not None
    for line in forward.stdout:
        if line.startswith(title):
            return next(word for word in line.split() if word.startswith("http://"))
    raise AssertionError(forward.stderr.read() if forward.stderr else "")


def test_an_api_server_that_is_away_for_20_seconds_costs_a_job_nothing(cluster: Cluster) -> None:
    loop = "for i in 1 2 3 4 5 6 7 8 9 10 11 12; do echo step $i; sleep 3; done"
    process = cluster.start("cluster", "submit", "-c", "fire", "--no-fetch", "--", loop)
    with process:  # which closes its pipes
        assert process.stdout is not None
        lines = [process.stdout.readline()]
        server = int((cluster.kubernetes.place / "apiserver.pid").read_text())
        os.kill(server, signal.SIGSTOP)
        time.sleep(20)
        os.kill(server, signal.SIGCONT)
        lines += process.stdout.readlines()  # not `communicate`, which does not see what was read ahead
    assert process.returncode == 0
    assert [line for line in lines if line.startswith("step")] == [f"step {number}\n" for number in range(1, 13)]


def test_the_forward_survives_the_head_and_a_job_on_it_is_told_as_lost(cluster: Cluster) -> None:
    forward = cluster.start("cluster", "forward", "fire")
    job = cluster.start("cluster", "submit", "-c", "fire", "--no-fetch", "--", "echo begun; sleep 900")
    try:
        port = int(_address(forward, "Ray dashboard").rpartition(":")[2])
        assert _dashboard(cluster, port)
        assert job.stdout is not None and job.stderr is not None
        while "begun" not in (line := job.stdout.readline()):
            assert line, job.stderr.read()
        before = cluster.head()
        cluster.kubernetes.say("delete", before, "--wait=false")
        wait_until(lambda: cluster.head() not in ("", before) and "\n" not in cluster.head(), "another head", 120)
        wait_until(lambda: _dashboard(cluster, port), "the dashboard by the same address", 300)
        assert job.wait(patience(400)) == 1
        said = job.stderr.read()
        assert "it has been restarted, and its jobs ended with it" in said, said
        assert "fire is ready: 2 pods" in cluster.run("cluster", "apply", "fire")
    finally:
        for process in (forward, job):
            if process.poll() is None:
                process.send_signal(signal.SIGINT)
            process.communicate(timeout=patience(30))
