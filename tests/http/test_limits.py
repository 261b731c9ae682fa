"""Clients that send half a request: they are shown out, and others are served meanwhile."""

from __future__ import annotations

import gc
import logging
import resource
import signal
import socket
import subprocess
import sys
import threading
import time
import tracemalloc
import urllib.error
import urllib.request
from collections.abc import Iterator
from pathlib import Path

import pytest
from tests.machine import patience

from operant.http import server
from operant.http.server import application, listen, run_server

TOKEN = "a token of some length"


class Served:
    def __init__(self, root: Path) -> None:
        self.listener, self.address = listen("127.0.0.1", 0)
        self.port = self.listener.getsockname()[1]
        self.app = application(root, TOKEN, {"127.0.0.1"})

    def connect(self, sent: bytes = b"") -> socket.socket:
        sock = socket.create_connection(("127.0.0.1", self.port), timeout=patience(30))
        sock.sendall(sent)
        return sock

    def ask(self) -> int:
        with urllib.request.urlopen(f"{self.address}/health", timeout=patience(30)) as answer:
            return int(answer.status)


@pytest.fixture
def served(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Served]:
    """A server in a thread, which has no signals: it ends when its loop is told to."""
    import uvicorn

    servers: list[uvicorn.Server] = []
    begin = uvicorn.Server.__init__

    def remember(self: uvicorn.Server, config: uvicorn.Config) -> None:
        begin(self, config)
        servers.append(self)

    monkeypatch.setattr(uvicorn.Server, "__init__", remember)
    monkeypatch.setattr(server, "_MOST_CONNECTIONS", 32)
    one = Served(tmp_path)
    thread = threading.Thread(target=lambda: run_server(one.app, one.listener, patience=1))
    thread.start()
    try:
        yield one
    finally:
        servers[0].should_exit = True
        thread.join(30)
        one.listener.close()
    assert not thread.is_alive()


def is_closed(sock: socket.socket, within: float = 30.0) -> bool:
    sock.settimeout(within)
    try:
        return sock.recv(1) == b""
    except ConnectionError:
        return True
    except TimeoutError:
        return False


def test_half_a_header_is_waited_for_only_so_long(served: Served, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(server, "_HEADER_SECONDS", 0.5)
    silent, begun, slow = served.connect(), served.connect(b"GET / HT"), served.connect(b"GET /")
    with pytest.raises(OSError):
        for _ in range(200):  # a byte now and then does not prolong it
            slow.sendall(b"x")
            time.sleep(0.05)
    slow.close()
    for sock in (silent, begun):
        assert is_closed(sock)
        sock.close()
    assert served.ask() == 200


def segment_head(length: int) -> bytes:
    return (
        f"PUT /api/ingest/segment?run=r&name=seg-{'0' * 16}-00000.seg&offset=0 HTTP/1.1\r\nHost: 127.0.0.1\r\n"
        f"Authorization: Bearer {TOKEN}\r\nContent-Length: {length}\r\n\r\n"
    ).encode()


def test_a_body_must_come_at_a_pace(served: Served, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(server, "_BODY_GRACE", 0.5)
    stopped = served.connect(segment_head(70_000_000) + b"x" * 100)
    assert is_closed(stopped)
    stopped.close()
    assert served.ask() == 200


def test_segments_take_no_memory_before_they_are_whole_nor_after_they_are_refused(served: Served) -> None:
    whole, half = bytes(6 << 20), memoryview(bytes(5 << 20))
    gc.disable()  # it may come late, as what is large need not be many objects
    tracemalloc.start()
    try:
        standing = [served.connect(segment_head(len(whole))) for _ in range(8)]
        for sock in standing:
            sock.sendall(half)
        for _ in range(4):
            with served.connect(segment_head(len(whole))) as sock:
                sock.sendall(whole)
                assert b"400 Bad Request" in sock.recv(4096)
        held, _ = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
        gc.enable()
    for sock in standing:
        sock.close()
    assert held < 16 << 20, held


def test_a_kept_connection_serves_one_request_after_the_other(served: Served) -> None:
    request = b"GET /health HTTP/1.1\r\nHost: 127.0.0.1\r\n\r\n"
    with served.connect() as sock:
        for _ in range(3):
            sock.sendall(request)
            answer = b""
            while not answer.endswith(b"}"):
                answer += sock.recv(4096)
            assert b"200 OK" in answer


def test_clients_that_stand_at_the_door_keep_nobody_out(served: Served, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.WARNING)
    standing = [served.connect(b"GET / HTTP/1.1\r\n") for _ in range(100)]  # the fixture's server takes 32
    for _ in range(5):
        assert served.ask() == 200
    assert sum("closed" in record.message for record in caplog.records) <= 1
    for sock in standing:
        sock.close()


def test_few_open_files_are_enough(tmp_path: Path) -> None:
    """With `ulimit -n 256` in a process of its own, more clients than that connect and send nothing.

    They all come while the server is not looking, and yet none finds the queue full: it would try again a second later.
    """
    program = (
        "import sys\n"
        "from pathlib import Path\n"
        "from operant.http.server import application, listen, run_server\n"
        "listener, address = listen('127.0.0.1', 0)\n"
        "print(address, flush=True)\n"
        f"run_server(application(Path({str(tmp_path)!r}), {TOKEN!r}, {{'127.0.0.1'}}), listener, patience=1)\n"
    )

    def few_files() -> None:
        resource.setrlimit(resource.RLIMIT_NOFILE, (256, 256))

    log = tmp_path / "log"
    with log.open("w") as errors:
        server = subprocess.Popen(
            [sys.executable, "-c", program], stdout=subprocess.PIPE, stderr=errors, text=True, preexec_fn=few_files
        )
    try:
        assert server.stdout is not None
        address = server.stdout.readline().strip()
        host, port = address.removeprefix("http://").split(":")
        _is_healthy(address)
        server.send_signal(signal.SIGSTOP)
        standing = [socket.create_connection((host, int(port)), timeout=0.9) for _ in range(300)]
        server.send_signal(signal.SIGCONT)
        _is_healthy(address)
        for sock in standing:
            sock.close()
    finally:
        server.kill()
        server.communicate(timeout=patience(30))
    assert log.stat().st_size < 2000, log.read_text()


def _is_healthy(address: str) -> None:
    with urllib.request.urlopen(f"{address}/health", timeout=patience(30)) as answer:
        assert answer.status == 200


def test_an_offset_of_many_digits_is_refused(served: Served) -> None:
    request = urllib.request.Request(
        f"{served.address}/api/ingest/segment?run=r&name=n&offset={'9' * 5000}",
        method="PUT",
        data=b"x",
        headers={"Authorization": f"Bearer {TOKEN}"},
    )
    with pytest.raises(urllib.error.HTTPError) as caught:
        urllib.request.urlopen(request, timeout=patience(30))
    assert caught.value.code == 400
    caught.value.close()
