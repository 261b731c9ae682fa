"""Runs on a server: every point once, whatever dies."""

from __future__ import annotations

import io
import os
import random
import signal
import socket
import subprocess
import sys
import time
from pathlib import Path

import numpy as np
import pytest
from tests.machine import patience
from tests.tracking.serving import Server

from operant import Run, SummaryWriter
from operant.cli import main
from operant.errors import UsageError
from operant.tracking.remote.client import Client, RefusedError, ServerAway

pytest.importorskip("uvicorn", reason="operant[web] is not installed")


def spooled() -> list[Path]:
    return sorted((Path(os.environ["OPERANT_CACHE_DIR"]) / "spool").rglob("seg-*"))


def test_a_remote_run_is_the_same_run(server: Server) -> None:
    with SummaryWriter("far", tags=["x"], config={"lr": 0.1}, system_metrics=False) as writer:
        for step in range(20_000):
            writer.add_scalar("a", step * 0.5, step)
        writer.add_image("i", np.zeros((3, 4, 4)))
    run = Run.open(writer.run_id, server.root)
    assert run.scalars("a")["value"].tolist() == [step * 0.5 for step in range(20_000)]
    assert (run.status, run.tags, run.params) == ("FINISHED", ["x"], {"lr": 0.1})
    assert run.media()[0].path.is_file()
    assert spooled() == []
    assert not list((Path(os.environ["OPERANT_CACHE_DIR"]) / "spool").rglob("blobs"))


def test_a_remote_run_can_be_resumed_and_joined(server: Server) -> None:
    with SummaryWriter("far", system_metrics=False) as writer:
        writer.add_array("x", np.ones(10))
    with SummaryWriter(run=writer.run_id, resumed_from=4, system_metrics=False) as again:
        again.add_array("x", np.full(2, 2.0), [5, 6])
    run = Run.open(writer.run_id, server.root)
    assert run.scalars("x")["value"].tolist() == [1.0] * 5 + [2.0] * 2
    assert run.name == "far"


def test_while_the_server_is_away_points_wait_and_are_sent_later(
    server: Server, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setenv("OPERANT_SYNC_SECONDS", "0.5")
    server.kill()
    with SummaryWriter("far", system_metrics=False) as writer:
        writer.add_array("x", np.arange(1000.0))
        writer.add_text("t", "hello")
    assert any("operant sync" in record.message for record in caplog.records)
    assert len([record for record in caplog.records if "does not answer" in record.message]) == 1
    assert spooled()
    assert main(["sync"]) == 1
    server.start()
    assert main(["sync"]) == 0
    run = Run.open(writer.run_id, server.root)
    assert run.scalars("x")["value"].tolist() == list(range(1000))
    assert run.text()[0].text == "hello"
    assert spooled() == []


def test_the_next_program_sends_what_a_dead_one_left(server: Server) -> None:
    server.kill()
    script = "import os\nfrom operant import SummaryWriter\nw = SummaryWriter('dead')\n"
    script += "w.add_scalar('x', 1.0, 0)\nw.flush()\nos._exit(1)"
    subprocess.run([sys.executable, "-c", script], check=False, timeout=patience(60))
    assert spooled()
    server.start()
    with SummaryWriter("next", system_metrics=False) as writer:
        writer.add_scalar("y", 1.0, 0)
        writer.flush()
        until = time.monotonic() + patience(30)
        while len(spooled()) > 1 and time.monotonic() < until:
            time.sleep(0.05)
    assert Run.open("dead", server.root).latest("x") is not None
    assert spooled() == []


WRITER = """
import sys, time
from operant import SummaryWriter
with SummaryWriter(f"writer{sys.argv[1]}", system_metrics=False) as writer:
    print(writer.run_id, flush=True)
    for step in range(int(sys.argv[2])):
        writer.add_scalar("x", float(step), step)
        writer.add_scalar("y", -float(step), step)
        if step % 50 == 0:
            writer.flush()
            time.sleep(0.002)
"""


def kill_the_server(server: Server, seed: int, kills: int, points: int) -> None:
    rng = random.Random(seed)
    environment = {**os.environ, "OPERANT_SYNC_SECONDS": "60"}
    writers = [
        subprocess.Popen(
            [sys.executable, "-c", WRITER, str(n), str(points)], stdout=subprocess.PIPE, text=True, env=environment
        )
        for n in range(4)
    ]
    ids = [writer.stdout.readline().strip() for writer in writers if writer.stdout is not None]
    for _ in range(kills):
        time.sleep(rng.uniform(0.05, 0.4))
        server.kill()
        time.sleep(rng.uniform(0, 0.2))
        server.start()
    for writer in writers:
        writer.communicate(timeout=patience(90))
        assert writer.returncode == 0
    for run_id in ids:
        run = Run.open(run_id, server.root)
        assert run.scalars("x")["value"].tolist() == list(range(points))
        assert run.scalars("y")["step"].tolist() == list(range(points))
        assert run.damage == []
        assert run.status == "FINISHED"
    assert spooled() == []


def test_server_killed_and_restarted_while_4_writers_send(server: Server) -> None:
    kill_the_server(server, seed=0, kills=2, points=5000)


@pytest.mark.long
def test_server_killed_many_times(server: Server) -> None:
    for seed in range(1, 9):
        kill_the_server(server, seed=seed, kills=5, points=20_000)


def test_a_writer_killed_while_sending_is_finished_by_sync(server: Server) -> None:
    process = subprocess.Popen([sys.executable, "-c", WRITER, "0", "1000000"], stdout=subprocess.PIPE, text=True)
    assert process.stdout is not None
    run_id = process.stdout.readline().strip()
    time.sleep(1.0)
    process.send_signal(signal.SIGKILL)
    process.communicate()
    (local,) = {path.parent for path in spooled()}
    truth = Run(local).scalars("x").tolist()
    assert main(["sync"]) == 0
    assert Run.open(run_id, server.root).scalars("x").tolist() == truth
    assert spooled() == []


def test_a_segment_that_has_only_just_begun_is_left_to_its_program(server: Server) -> None:
    from operant.tracking.remote.send import spool_root

    folder = spool_root(server.uri) / "runs" / "young"
    folder.mkdir(parents=True)
    young = folder / "seg-0123456789abcdef-0000.seg"
    young.touch()
    assert main(["sync"]) == 0
    assert young.exists()
    os.utime(young, (0, 0))
    assert main(["sync"]) == 0
    assert not folder.exists()


@pytest.mark.filterwarnings("ignore:This process .* is multi-threaded:DeprecationWarning")
def test_a_forked_child_sends_its_part(server: Server) -> None:
    writer = SummaryWriter("forks", system_metrics=False)
    writer.add_scalar("parent", 1.0, 0)
    writer.flush()
    pid = os.fork()
    if pid == 0:
        writer.add_scalar("child", 2.0, 0)
        writer.close()
        os._exit(0)
    os.waitpid(pid, 0)
    writer.close()
    run = Run.open(writer.run_id, server.root)
    assert run.scalar_tags == ["child", "parent"]


def good_blocks() -> tuple[str, bytes]:
    with SummaryWriter("local", system_metrics=False, root=Path.cwd() / "local" / ".operant") as writer:
        writer.add_scalar("x", 1.0, 0)
    (path,) = writer.run_dir.glob("seg-*")
    return path.name, path.read_bytes()


def test_what_the_server_refuses(server: Server) -> None:
    client = Client(server.uri, server.token)
    name, data = good_blocks()
    with Client(server.uri, "wrong") as stranger, pytest.raises(RefusedError, match="401"):
        stranger.state("a")
    for run_id in ("../x", "a/../b", "/etc/passwd", "a/b/c", "..%2fx", "a\x00"):
        with pytest.raises(RefusedError, match="400"):
            client.send_blocks(run_id, name, 0, data)
        with pytest.raises(RefusedError, match="400"):
            client.state(run_id)
    for segment in ("../../evil", "seg-x.seg", "seg-0000000000000000-0000.seg", "journal.log"):
        with pytest.raises(RefusedError, match="400"):
            client.send_blocks("run", segment, 0, data)
    with pytest.raises(RefusedError, match="whole, undamaged blocks"):
        client.send_blocks("run", name, 0, data[:-8])
    with pytest.raises(RefusedError, match="whole, undamaged blocks"):
        client.send_blocks("run", name, 0, data[:40] + b"x" + data[41:])
    with pytest.raises(RefusedError, match="checksum"):
        client.send_blob("run", "0" * 64 + ".png", io.BytesIO(b"0123456789"), 10)
    with pytest.raises(RefusedError, match="not a blob's name"):
        client.send_blob("run", "../../x", io.BytesIO(b"0123456789"), 10)
    assert client.send_blocks("run", name, 0, data) == len(data)
    assert client.send_blocks("run", name, 0, data) == len(data)  # a repetition changes nothing
    assert Run.open("run", server.root).scalars("x")["value"].tolist() == [1.0]
    client.close()


def test_a_sender_that_is_ahead_is_told_where_to_go_on(server: Server) -> None:
    from operant.tracking.format.blocks import scan_blocks

    name, data = good_blocks()
    cut = 32 + scan_blocks(memoryview(data[32:])).blocks[1].offset
    with Client(server.uri, server.token) as client:
        assert client.send_blocks("run", name, cut, data[cut:]) == 0
        assert client.send_blocks("run", name, 0, data[:cut]) == cut
        assert client.send_blocks("run", name, 0, data) == len(data)
        assert client.state("run")["segments"] == {name: len(data)}


@pytest.mark.parametrize("body", [b"", b'{"leng', b"[]", b"<html>"])
def test_an_answer_that_is_cut_off_is_asked_for_again(body: bytes) -> None:
    """A server that is killed between the head and the body of its answer has perhaps stored what it got."""
    import threading

    with socket.create_server(("127.0.0.1", 0)) as listener:

        def answer() -> None:
            connection, _ = listener.accept()
            with connection:
                connection.recv(65536)
                connection.sendall(b"HTTP/1.1 200 OK\r\nContent-Length: 100\r\n\r\n" + body)

        thread = threading.Thread(target=answer)
        thread.start()
        with Client(f"http://127.0.0.1:{listener.getsockname()[1]}", "t") as client, pytest.raises(ServerAway):
            client.state("run")
        thread.join()


def test_without_a_token_or_with_another_hosts_name_nothing_answers(server: Server) -> None:
    import http.client

    from operant.http.ingest import ingest_routes
    from operant.tracking.remote.receive import Receiver

    paths = ["/", "/api/x", *(route.path for route in ingest_routes(Receiver(server.root)))]
    for path in paths:
        for method in ("GET", "PUT", "POST", "DELETE", "PATCH", "OPTIONS", "HEAD"):
            for headers in ({}, {"Authorization": "Bearer nonsense"}, {"Authorization": f"Basic {server.token}"}):
                connection = http.client.HTTPConnection("127.0.0.1", server.port, timeout=patience(10))
                connection.request(method, path, headers=headers)
                assert connection.getresponse().status == 401, (method, path)
                connection.close()
    for host in ("evil.com", "127.0.0.1.evil.com", "", "localhost.evil.com:80"):
        connection = http.client.HTTPConnection("127.0.0.1", server.port, timeout=patience(10))
        connection.request("GET", "/health", headers={"Host": host, "Authorization": f"Bearer {server.token}"})
        assert connection.getresponse().status in (400, 403), host
        connection.close()


def test_a_token_is_needed_and_a_bad_address_is_told(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("OPERANT_TRACKING_URI", "ftp://x")
    with pytest.raises(UsageError, match="must look like http://host:port"):
        SummaryWriter("x")
    monkeypatch.setenv("OPERANT_TRACKING_URI", "http://127.0.0.1:9")
    with pytest.raises(UsageError, match="there is no token"):
        SummaryWriter("x")
    monkeypatch.setenv("OPERANT_TRACKING_TOKEN_FILE", "nowhere")
    with pytest.raises(UsageError, match="cannot be read"):
        SummaryWriter("x")
    with pytest.raises(ServerAway, match="does not answer"):
        Client("http://127.0.0.1:9", "t").state("a")
