"""Workers of different machines (here: of different runners), and strangers who knock."""

from __future__ import annotations

import argparse
import pickle
import resource
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, cast

import mains
import pytest
from tests.machine import patience

from operant.cli import task as task_command
from operant.framework import AuthenticationError, Parallel, WorkerDied
from operant.framework.parallel.addresses import split_address
from operant.framework.parallel.cluster import expand_host_list, find_place
from operant.framework.parallel.hub import Hub
from operant.framework.parallel.link import Frame, Kind, Link, PeerInfo
from operant.framework.parallel.local_engine import ExitCallback, LocalEngine
from operant.framework.parallel.settings import RunnerSettings
from operant.framework.parallel.spec import WorkerSpec
from operant.framework.parallel.supervisor import Supervisor, _Worker
from operant.framework.parallel.wire import decode


def free_port() -> int:
    with socket.socket() as sock:
        sock.bind(("127.0.0.1", 0))
        return int(sock.getsockname()[1])


def test_two_runners_meet_over_tcp() -> None:
    port = free_port()
    common = {"protocol": "tcp", "address": "127.0.0.1", "secret": "between us", "topology": "alone"}
    results: dict[int, Any] = {}

    def run(node: int, **settings: Any) -> None:
        (results[node],) = Parallel.runner(1, node_ids=node, **common, **settings)(mains.train_and_evaluate, 20)

    learner = threading.Thread(target=run, args=(0,), kwargs={"ports": port})
    evaluator = threading.Thread(
        target=run, args=(1,), kwargs={"ports": free_port(), "attach_to": [f"tcp://127.0.0.1:{port}"]}
    )
    learner.start()
    evaluator.start()
    learner.join()
    evaluator.join()
    assert results[1]["evaluated"][-1][0] >= 20 and results[0]["saved"]


def test_attach_callback_gets_the_first_ctx() -> None:
    port = free_port()
    common = {"protocol": "tcp", "secret": "s", "topology": "alone"}
    results: dict[int, Any] = {}

    def run(node: int, **settings: Any) -> None:
        (results[node],) = Parallel.runner(1, node_ids=node, **common, **settings)(mains.attach_late)

    threads = [
        threading.Thread(target=run, args=(0,), kwargs={"ports": port}),
        threading.Thread(
            target=run, args=(1,), kwargs={"ports": free_port(), "attach_to": [f"tcp://127.0.0.1:{port}"]}
        ),
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert results[1] == "from node 0"


def test_two_workers_of_one_number_are_refused() -> None:
    port = free_port()
    common = {"protocol": "tcp", "secret": "s", "topology": "alone"}
    first = threading.Thread(target=lambda: Parallel.runner(1, node_ids=0, ports=port, **common)(mains.wait_for_finish))
    first.start()
    attach_to = [f"tcp://127.0.0.1:{port}"]
    Parallel.runner(1, node_ids=1, ports=free_port(), attach_to=attach_to, **common)(mains.return_node_id)
    with pytest.raises(WorkerDied, match=r"two workers call themselves node\.0"):
        Parallel.runner(1, node_ids=0, ports=free_port(), attach_to=attach_to, **common)(mains.return_node_id)
    Parallel.runner(1, node_ids=2, ports=free_port(), attach_to=attach_to, **common)(mains.raise_finish)
    first.join()


# -- strangers ---------------------------------------------------------------------------------------


class Recorder:
    def __init__(self, secret: bytes = b"right") -> None:
        self.links: list[Link] = []
        self.frames: list[Any] = []
        self.lost = threading.Event()
        self.linked = threading.Event()
        self.hub = Hub(PeerInfo(0), secret, self._on_frame, self._on_link, lambda link, why: self.lost.set())

    def _on_link(self, link: Link) -> None:
        self.links.append(link)
        self.linked.set()

    def _on_frame(self, link: Link, frame: Frame) -> None:
        self.frames.append(frame.value())


@contextmanager
def two_hubs(dialer_secret: bytes = b"right") -> Iterator[tuple[Recorder, Recorder, str]]:
    listener, dialer = Recorder(), Recorder(dialer_secret)
    address = listener.hub.listen("tcp://127.0.0.1:0")
    try:
        yield listener, dialer, address
    finally:
        dialer.hub.close()
        listener.hub.close()


class Bomb:
    def __reduce__(self) -> Any:
        return Path.touch, (Path("exploded"),)


@pytest.mark.parametrize(
    "garbage",
    [
        b"",
        b"GET / HTTP/1.1\r\nHost: x\r\n\r\n" * 4,
        pickle.dumps(Bomb()) * 3,
        b"OPERANT1" + bytes(32) + bytes(32),
        b"OP" + bytes(200),
        b"\xff" * 100_000,
    ],
    ids=["nothing", "http", "pickle", "wrong proof", "frame", "noise"],
)
def test_garbage_reaches_no_decoder(
    garbage: bytes, monkeypatch: pytest.MonkeyPatch, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.chdir(tmp_path)
    with two_hubs() as (listener, dialer, address):
        with socket.create_connection(split_address(address)[1:]) as stranger:
            try:
                stranger.sendall(garbage)
                stranger.shutdown(socket.SHUT_WR)
                while stranger.recv(4096):
                    pass
            except OSError:
                pass
        assert not listener.links and not listener.frames
        # Whoever knows the secret is served as before.
        link = dialer.hub.dial(address, timeout=patience(5))
        assert listener.linked.wait(10)
        dialer.hub.send(link, Kind.EVENT, {"hello": 1})
        _wait_until(lambda: listener.frames == [{"hello": 1}])
    assert not (tmp_path / "exploded").exists()


def test_a_silent_peer_holds_nobody_up(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("operant.framework.parallel.hub.HANDSHAKE_TIMEOUT", 600.0)  # when the silent are thrown out
    with two_hubs() as (listener, dialer, address):
        silent = [socket.create_connection(split_address(address)[1:]) for _ in range(5)]
        dialer.hub.dial(address, timeout=patience(5))
        assert listener.linked.wait(patience(10))
        for sock in silent:
            sock.close()


def test_strangers_who_fill_every_place_and_send_a_byte_now_and_then_lock_nobody_out(
    caplog: pytest.LogCaptureFixture,
) -> None:
    with two_hubs() as (listener, dialer, address):
        strangers = [socket.create_connection(split_address(address)[1:]) for _ in range(100)]
        for sock in strangers:
            try:
                sock.sendall(b"O")
            except OSError:  # thrown out already, for a later one
                pass
        dialer.hub.dial(address, timeout=patience(30))
        assert listener.linked.wait(30)
        for sock in strangers:
            sock.close()
    # A hundred were refused. Another hub of this process may have had its one word meanwhile, too.
    assert sum("refused a connection" in record.message for record in caplog.records) <= 2


def test_one_byte_after_the_other_does_not_prolong_a_handshake(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("operant.framework.parallel.hub.HANDSHAKE_TIMEOUT", 0.3)
    with two_hubs() as (_, _, address), socket.create_connection(split_address(address)[1:]) as slow:
        slow.settimeout(20)
        sent = 0
        with pytest.raises(OSError):
            while sent < 40:  # all of them would take two seconds
                slow.sendall(b"OPERANT1"[sent % 8 : sent % 8 + 1])
                sent += 1
                time.sleep(0.05)
        assert sent < 40


def test_a_listener_that_hangs_up_is_not_said_to_have_another_secret() -> None:
    with socket.socket() as listener:
        listener.bind(("127.0.0.1", 0))
        listener.listen()
        tries: list[int] = []

        def hang_up() -> None:
            try:
                while True:
                    sock, _ = listener.accept()
                    tries.append(1)
                    sock.close()
            except OSError:
                pass

        thread = threading.Thread(target=hang_up)
        thread.start()
        dialer = Recorder()
        with pytest.raises(
            ConnectionError, match="other connections crowd it, or it is ending; tried for 1 s"
        ) as caught:
            dialer.hub.dial(f"tcp://127.0.0.1:{listener.getsockname()[1]}", timeout=1)
        assert "secret" not in str(caught.value) and len(tries) > 2
        dialer.hub.close()
        listener.shutdown(socket.SHUT_RDWR)
        thread.join()


def test_the_wrong_secret_is_refused_at_both_ends() -> None:
    with two_hubs(dialer_secret=b"wrong") as (listener, dialer, address):
        with pytest.raises(AuthenticationError, match="does not know the shared secret"):
            dialer.hub.dial(address, timeout=patience(5))
        assert not listener.links


def test_a_listener_without_the_secret_learns_nothing_and_is_refused() -> None:
    with socket.socket() as listener:
        listener.bind(("127.0.0.1", 0))
        listener.listen()
        received: list[bytes] = []

        def impostor() -> None:
            sock, _ = listener.accept()
            with sock:
                hello = sock.recv(40)
                sock.sendall(b"OPERANT1" + hello[8:] + bytes(32))
                received.append(sock.recv(4096))

        thread = threading.Thread(target=impostor)
        thread.start()
        dialer = Recorder()
        with pytest.raises(AuthenticationError):
            dialer.hub.dial(f"tcp://127.0.0.1:{listener.getsockname()[1]}", timeout=patience(5))
        thread.join()
        dialer.hub.close()
    assert received == [b""]


def test_garbage_after_the_handshake_costs_only_that_link() -> None:
    with two_hubs() as (listener, dialer, address):
        link = dialer.hub.dial(address, timeout=patience(5))
        link.sock.setblocking(True)
        link.sock.sendall(b"\x00" * 64)
        assert listener.lost.wait(10) and not listener.frames


def test_large_messages_go_inline_where_memory_cannot_be_shared() -> None:
    import numpy as np

    with two_hubs() as (listener, dialer, address):
        link = dialer.hub.dial(address, timeout=patience(5))
        link.peer_can_read = False
        big = np.random.default_rng(0).random(2_000_000)
        dialer.hub.send(link, Kind.EVENT, big)
        _wait_until(lambda: bool(listener.frames))
        assert np.array_equal(listener.frames[0], big)


# -- places in a cluster -----------------------------------------------------------------------------


def test_slurm_host_lists() -> None:
    assert expand_host_list("n[1-3,07],gpu,r[1-2]c[01-02]") == [
        "n1",
        "n2",
        "n3",
        "n07",
        "gpu",
        "r1c01",
        "r1c02",
        "r2c01",
        "r2c02",
    ]
    assert expand_host_list("n[08-10]") == ["n08", "n09", "n10"]


def test_the_place_under_slurm() -> None:
    place = find_place(
        {
            "SLURM_PROCID": "2",
            "SLURM_NTASKS": "3",
            "SLURM_STEP_NODELIST": "n[1-2]",
            "SLURM_STEP_TASKS_PER_NODE": "2,1",
        }
    )
    assert place is not None and place.hosts == [("n1", 50515), ("n1", 50615), ("n2", 50515)] and place.rank == 2
    assert place.runner_settings(2, "mesh")["attach_to"] == [
        "tcp://n1:50515",
        "tcp://n1:50516",
        "tcp://n1:50615",
        "tcp://n1:50616",
    ]
    assert find_place({"SLURM_PROCID": "0", "SLURM_NTASKS": "1"}) is None
    shared = {"SLURM_PROCID": "0", "SLURM_NTASKS": "2", "SLURM_JOB_NODELIST": "n1", "SLURM_TASKS_PER_NODE": "2"}
    ports = [find_place({**shared, "SLURM_JOB_ID": job}).hosts for job in ("1042", "1043")]  # type: ignore[union-attr]
    assert not set(ports[0]) & set(ports[1])  # two jobs on one node


def test_the_place_in_a_headless_service() -> None:
    nodes = {"OPERANT_NODES": "w-0.svc, w-1.svc:60000"}
    place = find_place(nodes, host_name="w-1")
    assert place is not None and place.rank == 1
    assert place.runner_settings(2, "star") == {
        "topology": "alone",
        "protocol": "tcp",
        "address": "0.0.0.0",
        "ports": 60000,
        "node_ids": 2,
        "attach_to": ["tcp://w-0.svc:50515"],
    }
    first = find_place({**nodes, "OPERANT_RANK": "0"}, host_name="anything")
    assert first is not None and first.runner_settings(2, "star")["topology"] == "star"
    with pytest.raises(ValueError, match="which one is 'laptop'"):
        find_place(nodes, host_name="laptop")
    with pytest.raises(ValueError, match="rank 5, but there are only 2"):
        find_place({**nodes, "OPERANT_RANK": "5"})


# -- the command -------------------------------------------------------------------------------------


def parse(*words: str) -> argparse.Namespace:
    parser = argparse.ArgumentParser()
    task_command.configure(parser)
    return parser.parse_args(words)


HERE = str(Path(__file__).parent)


def test_the_command_runs_main_in_every_worker(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("OUT", str(tmp_path))
    words = ["-m", "mains:write_labels", "-p", HERE, "--parallel-workers", "2", "--topology", "star"]
    assert task_command.run(parse(*words, "--labels", "a,b")) == 0
    assert [path.read_text() for path in sorted(tmp_path.iterdir())] == [
        "a b distributed node.0",
        "a b distributed node.1",
    ]


def test_the_command_says_what_is_wrong(capsys: pytest.CaptureFixture[str]) -> None:
    assert task_command.run(parse("-m", "mains:nothing_here", "-p", HERE)) == 2
    assert "mains has no function 'nothing_here'; it has:" in capsys.readouterr().err
    assert task_command.run(parse("-m", "no_such_module_here:main", "-p", HERE)) == 2
    assert "there is no module 'no_such_module_here'" in capsys.readouterr().err
    assert task_command.run(parse("-m", "main", "-p", HERE)) == 2
    assert "package.module:function" in capsys.readouterr().err
    assert task_command.run(parse("-m", "mains:fail_at_once", "-p", HERE, "--parallel-workers", "2")) == 1
    assert "ZeroDivisionError" in capsys.readouterr().err


def test_the_same_command_on_every_machine_of_a_list(tmp_path: Path) -> None:
    import os

    nodes = f"127.0.0.1:{free_port()},127.0.0.1:{free_port()}"
    script = (
        "import argparse, sys; from operant.cli import task\n"
        "parser = argparse.ArgumentParser(); task.configure(parser)\n"
        "if __name__ == '__main__': sys.exit(task.run(parser.parse_args()))\n"
    )
    (tmp_path / "command.py").write_text(script)
    (tmp_path / "out").mkdir()
    processes = [
        subprocess.Popen(
            [sys.executable, str(tmp_path / "command.py"), "-m", "mains:write_peers", "-p", HERE],
            env={
                **os.environ,
                "OPERANT_NODES": nodes,
                "OPERANT_RANK": str(rank),
                "OPERANT_SECRET": "x",
                "OUT": str(tmp_path / "out"),
                "PYTHONPATH": os.pathsep.join(sys.path),
            },
        )
        for rank in (0, 1)
    ]
    assert [process.wait(timeout=patience(60)) for process in processes] == [0, 0]
    assert sorted(path.read_text() for path in (tmp_path / "out").iterdir()) == ["node.0: [1]", "node.1: [0]"]


def _wait_until(predicate: Any) -> None:
    deadline = time.monotonic() + patience(10)
    while not predicate() and time.monotonic() < deadline:
        time.sleep(0.005)
    assert predicate()


_MANY_PEERS = """
import resource, threading
from operant.framework.parallel.hub import Hub
from operant.framework.parallel.link import PeerInfo

_, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
resource.setrlimit(resource.RLIMIT_NOFILE, (128, hard))
joined, everybody = [], threading.Event()

def on_link(link):
    joined.append(link.node_id)
    if len(set(joined)) == 100:
        everybody.set()

nothing = lambda *_: None
hub = Hub(PeerInfo(0), b"s", nothing, on_link, nothing)
others = Hub(PeerInfo(0), b"s", nothing, nothing, nothing)
address = hub.listen("tcp://127.0.0.1:0")
for number in range(1, 101):
    others.info = PeerInfo(number)
    others.dial(address, 30.0)
assert everybody.wait(30.0)
assert resource.getrlimit(resource.RLIMIT_NOFILE)[0] > 128
others.close()
hub.close()
"""


def test_more_peers_may_join_than_files_may_be_open_at_first() -> None:
    hard = resource.getrlimit(resource.RLIMIT_NOFILE)[1]
    if hard != resource.RLIM_INFINITY and hard < 1024:
        pytest.skip("this machine allows too few files")
    subprocess.run([sys.executable, "-c", _MANY_PEERS], check=True, timeout=patience(60))


def test_who_joins_does_not_wait_until_all_busy_links_were_served() -> None:
    served: list[int] = []

    def slowly(link: Link, frame: Frame) -> None:
        served.append(link.node_id)
        time.sleep(0.02)

    hub = Hub(PeerInfo(0), b"s", slowly, lambda _: None, lambda *_: None)
    others = Hub(PeerInfo(0), b"s", lambda *_: None, lambda _: None, lambda *_: None)
    try:
        address = hub.listen("tcp://127.0.0.1:0")
        links = []
        for number in range(1, 81):
            others.info = PeerInfo(number)
            links.append(others.dial(address, patience(10.0)))
        for _ in range(3):
            for link in links:
                others.send(link, Kind.PING)
        _wait_until(lambda: served)
        others.info = PeerInfo(99)
        others.dial(address, patience(10.0))
        assert len(served) < 80  # of 240: not even once around
    finally:
        others.close()
        hub.close()


def test_in_a_star_only_the_centre_hears_of_the_others(monkeypatch: pytest.MonkeyPatch) -> None:
    class Engine(LocalEngine):
        def start(self, spec: WorkerSpec, on_exit: ExitCallback) -> Any:
            return None

    supervisor = Supervisor(RunnerSettings(4, topology="star"), Engine(), b"", [])
    told: list[tuple[list[int], Any]] = []
    monkeypatch.setattr(
        supervisor._hub, "send_all", lambda links, parcel: told.append((links, decode(parcel.head, allow_pickle=False)))
    )
    try:
        for node in range(4):
            spec, link = WorkerSpec(node, [0, 1, 2, 3], b"", ""), cast(Any, node + 10)
            supervisor._workers[node] = _Worker(spec, cast(Any, None), link, f"ipc://{node}")
        supervisor._send_directory()
        centre = {0: ("ipc://0", 0)}
        assert [(links, set(running)) for links, (running, _) in told] == [([10], {0, 1, 2, 3}), ([11, 12, 13], {0})]
        assert told[1][1] == (centre, [])
        told.clear()
        supervisor._workers[2].over = supervisor._workers[2].returned = True
        supervisor._send_directory()
        assert [(links, left) for links, (_, left) in told if links] == [([10], [2])]
    finally:
        supervisor._hub.close()
