"""Strangers at both servers' doors, writers behind one of them and a browser at the other: nobody is kept waiting."""

from __future__ import annotations

import contextlib
import os
import socket
import subprocess
import sys
import threading
import time
import urllib.request
from pathlib import Path
from typing import Any

import pytest
from tests.machine import patience
from tests.tracking.serving import Server
from tests.web.browser import run_ui

from operant.tracking import Run

SECONDS = 60.0
CLIENTS = 300
WRITERS = 4
WRITER = """
import sys, time
from operant import SummaryWriter

writer, step, end = SummaryWriter(sys.argv[1], system_metrics=False), 0, time.monotonic() + float(sys.argv[2])
while time.monotonic() < end:
    for _ in range(20):
        writer.add_scalar("count", float(step), step)
        step += 1
    time.sleep(0.02)
writer.close()
print(step, writer.run_id)
"""


class HalfOpen:
    """Clients that send half a request and wait; whoever is turned away comes again."""

    def __init__(self, ports: list[int]) -> None:
        self._ports = ports
        self._over = threading.Event()
        self._thread = threading.Thread(target=self._stand)
        self.turned_away = 0

    def __enter__(self) -> HalfOpen:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._over.set()
        self._thread.join()

    def _stand(self) -> None:
        standing: dict[int, list[socket.socket]] = {port: [] for port in self._ports}
        try:
            while not self._over.is_set():
                for port, sockets in standing.items():
                    gone = [one for one in sockets if _is_closed(one)]
                    self.turned_away += len(gone)
                    for one in gone:
                        one.close()
                        sockets.remove(one)
                    with contextlib.suppress(OSError):
                        while len(sockets) < CLIENTS:
                            sockets.append(socket.create_connection(("127.0.0.1", port), 1))
                            sockets[-1].sendall(b"POST /api/charts HTTP/1.1\r\nHost: 127.0.0.1\r\nContent-Le")
                time.sleep(0.2)
        finally:
            for one in (one for sockets in standing.values() for one in sockets):
                one.close()


def _is_closed(client: socket.socket) -> bool:
    try:
        return client.recv(1, socket.MSG_DONTWAIT) == b""
    except BlockingIOError:
        return False
    except OSError:
        return True


@pytest.mark.long
def test_nobody_is_kept_waiting_and_nothing_is_lost(tmp_path: Path, page: Any) -> None:
    server = Server(tmp_path)
    server.root.mkdir()
    server.start()
    away = tmp_path / "away"
    away.mkdir()
    environment = {**os.environ, "OPERANT_TRACKING_URI": server.uri, "OPERANT_TRACKING_TOKEN": server.token}
    environment |= {"OPERANT_CACHE_DIR": str(tmp_path / "cache"), "OMP_NUM_THREADS": "1"}
    try:
        with run_ui(server.root) as address, HalfOpen([server.port, int(address.rpartition(":")[2])]) as strangers:
            commands = [[sys.executable, "-c", WRITER, f"writer-{n}", str(SECONDS)] for n in range(WRITERS)]
            writers = [
                subprocess.Popen(one, env=environment, cwd=away, stdout=subprocess.PIPE, text=True) for one in commands
            ]
            page.goto(f"{address}/runs")
            page.wait_for_selector("tr.data")
            times = []
            end = time.monotonic() + SECONDS
            while time.monotonic() < end:
                began = time.monotonic()
                with urllib.request.urlopen(f"{address}/api/runs", timeout=patience(10)) as answer:
                    assert b"writer-" in answer.read()
                with urllib.request.urlopen(address, timeout=patience(10)) as answer:
                    assert b"<title>" in answer.read()
                times.append(time.monotonic() - began)
                time.sleep(0.5)
            page.reload()
            page.wait_for_selector("tr.data:has-text('writer-3')")
            written = [one.communicate(timeout=patience(120))[0].split() for one in writers]
            page.goto("about:blank")  # it would miss the server
        assert [one.returncode for one in writers] == [0] * WRITERS
        for count, run_id in written:
            points = Run.open(run_id, server.root).scalars("count")
            assert len(points) == int(count) > 1000 and points["value"].tolist() == list(range(int(count)))
        slowest = sorted(times)[-1]
        print(f"{len(times)} looks, median {sorted(times)[len(times) // 2]:.3f} s, slowest {slowest:.3f} s;", end=" ")
        print(f"{strangers.turned_away} strangers turned away; {[int(count) for count, _ in written]} points")
        assert slowest < patience(1.0)
    finally:
        server.kill()
