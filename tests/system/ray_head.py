"""A real Ray head on loopback for tests, with its token authentication on."""

from __future__ import annotations

import contextlib
import json
import os
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import NamedTuple

import psutil
import pytest
from tests.machine import patience

from operant.errors import OperantError
from operant.sites.ray import RaySite

_AGENT_PORTS = ("dashboard-agent-grpc-port", "runtime-env-agent-port", "metrics-export-port")


class Head(NamedTuple):
    dashboard: str
    """Where jobs are submitted."""
    address: str
    """Where drivers connect."""
    folder: Path
    """Where it keeps its files."""
    process: subprocess.Popen[bytes]


@contextmanager
def running_head(*, num_cpus: int, resources: dict[str, float]) -> Iterator[Head]:
    """A head with the token of this test session (tests/conftest.py); all of it is gone afterwards."""
    place = Path(tempfile.mkdtemp(prefix="operant-ray-", dir="/tmp"))
    sockets = [socket.create_server(("127.0.0.1", 0)) for _ in range(7)]
    port, dashboard, client, agent, *known = (one.getsockname()[1] for one in sockets)
    for one in sockets:
        one.close()
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("RAY_USAGE_STATS_ENABLED", "0")
        patch.setenv("RAY_raylet_start_wait_time_s", "180")  # Ray's own 30 s are short where there is much to do
        patch.setenv("RAY_agent_register_timeout_ms", "180000")
        patch.setenv("RAY_worker_niceness", "0")  # by default 15: beside other work nothing would come of them
        argv = [
            str(Path(sys.executable).parent / "ray"), "start", "--head", "--block", "--node-ip-address=127.0.0.2",
            f"--port={port}", f"--dashboard-port={dashboard}", f"--ray-client-server-port={client}",
            f"--dashboard-agent-listen-port={agent}",  # which is the same for every head otherwise, and takes the jobs
            # Where a port of its agents is not known beforehand, a raylet waits for it for 15 s and not longer.
            *(f"--{name}={number}" for name, number in zip(_AGENT_PORTS, known, strict=True)),
            f"--num-cpus={num_cpus}", f"--resources={json.dumps(resources)}", "--dashboard-host=127.0.0.1",
            "--object-store-memory=100000000", "--disable-usage-stats", f"--temp-dir={place}/r",
        ]  # fmt: skip
        addresses = f"http://127.0.0.1:{dashboard}", f"127.0.0.2:{port}"
        process = _start(argv, place, addresses[0])
        try:
            yield Head(*addresses, place / "r", process)
        finally:
            _end(process)
            shutil.rmtree(place, ignore_errors=True)


class Node(NamedTuple):
    """A further node of a head."""

    process: subprocess.Popen[bytes]

    def lose(self) -> list[psutil.Process]:
        """Kill its raylet alone; the others of its processes, which have to end by themselves."""
        others = psutil.Process(self.process.pid).children(recursive=True)
        raylet = next(one for one in others if Path(one.exe()).name == "raylet")
        os.kill(raylet.pid, signal.SIGKILL)
        return [one for one in others if one != raylet]


@contextmanager
def further_node(head: Head, ip: str, *, num_cpus: int) -> Iterator[Node]:
    """Another raylet on loopback, whose token is that of the head; this process is a driver."""
    argv = [
        str(Path(sys.executable).parent / "ray"), "start", "--block", f"--address={head.address}",
        f"--node-ip-address={ip}", f"--num-cpus={num_cpus}", "--object-store-memory=100000000",
        "--disable-usage-stats",
    ]  # fmt: skip
    process = subprocess.Popen(argv, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, start_new_session=True)
    try:
        deadline = time.monotonic() + patience(120)
        while not is_alive(ip):
            assert process.poll() is None and time.monotonic() < deadline, f"{ip} never came"
            time.sleep(0.2)
        yield Node(process)
    finally:
        _end(process)


def is_alive(ip: str) -> bool:
    """Whether Ray counts a node as alive."""
    import ray

    return any(one["Alive"] and one["NodeManagerAddress"] == ip for one in ray.nodes())


def _start(argv: list[str], place: Path, dashboard: str) -> subprocess.Popen[bytes]:
    """The head, once it takes jobs: on a busy machine a part of Ray's may give up before the others have come up."""
    for _ in range(3):
        with (place / "log").open("ab") as log:
            process = subprocess.Popen(argv, stdout=log, stderr=log, start_new_session=True)
        deadline = time.monotonic() + patience(120)
        while process.poll() is None and time.monotonic() < deadline:
            if _takes_jobs(dashboard):
                return process
            time.sleep(0.2)
        _end(process)
    raise AssertionError((place / "log").read_text())


def _end(process: subprocess.Popen[bytes]) -> None:
    """Some of Ray's processes have sessions of their own, and some outlive a SIGTERM."""
    with contextlib.suppress(psutil.NoSuchProcess):
        for one in [*psutil.Process(process.pid).children(recursive=True), process]:
            with contextlib.suppress(psutil.NoSuchProcess):
                one.kill()
    process.wait()


def _takes_jobs(dashboard: str) -> bool:
    """A node that is alive may still lack the agent that starts jobs."""
    try:
        site = RaySite(Path("none"), address=dashboard)
        if "ALIVE" not in site._call("_do_request", "GET", "/nodes?view=summary").text:
            return False
        site._call("submit_job", entrypoint="true", entrypoint_num_cpus=0)
    except OperantError:
        return False
    return True
