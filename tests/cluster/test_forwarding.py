"""Ports of pods on loopback, through a stand-in of the API server."""

from __future__ import annotations

import contextlib
import os
import socket
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest
from tests.cluster.forward_stand_in import ForwardStandIn, echoing
from tests.machine import patience, wait_until

from operant.cluster.forwarding import Listener, NobodyThere, Target, find_pod, service_target, watch_health
from operant.errors import UsageError
from operant.sites._kube import Cluster

pytest.importorskip("kubernetes", reason="needs operant[k8s]")

HEAD = Target("Ray dashboard", 8265, "ray.io/node-type=head")


@pytest.fixture
def server(tmp_path: Path) -> Iterator[ForwardStandIn]:
    stand_in = ForwardStandIn(tmp_path)
    yield stand_in
    stand_in.close()


@pytest.fixture
def cluster(server: ForwardStandIn) -> Cluster:
    return Cluster(str(server.kubeconfig))


def ask(port: int, data: bytes, count: int | None = None) -> bytes:
    """Send, and read as many bytes back."""
    with socket.create_connection(("127.0.0.1", port), timeout=patience(20)) as client:
        threading.Thread(target=client.sendall, args=(data,), daemon=True).start()
        found = b""
        while len(found) < (len(data) if count is None else count):
            part = client.recv(65536)
            if not part:
                break
            found += part
        return found


def test_many_connections_at_once_and_large_ones(server: ForwardStandIn, cluster: Cluster) -> None:
    with echoing() as port, Listener(cluster, HEAD, 0) as listener:
        server.pods["head-a"] = {8265: port}
        large = os.urandom(3 << 20)
        answers: dict[int, bytes] = {}

        def one(number: int) -> None:
            answers[number] = ask(listener.port, large if number == 0 else b"%d" % number * 1000)

        threads = [threading.Thread(target=one, args=(number,)) for number in range(30)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        assert answers[0] == large
        assert all(answers[number] == b"%d" % number * 1000 for number in range(1, 30))
        wait_until(lambda: listener.connections == 0, "the end of all connections")


def test_a_pod_that_moves_is_found_and_a_cut_costs_only_its_connections(
    server: ForwardStandIn, cluster: Cluster
) -> None:
    with echoing(b"old") as old, echoing(b"new") as new, Listener(cluster, HEAD, 0) as listener:
        server.pods["head-a"] = {8265: old}
        with socket.create_connection(("127.0.0.1", listener.port), timeout=patience(20)) as client:
            assert client.recv(3) == b"old"
            del server.pods["head-a"]
            server.cut()
            assert client.recv(10) == b"", "whoever was connected hears that it is over"
        answers: list[bytes] = []
        waiting = threading.Thread(target=lambda: answers.append(ask(listener.port, b"", 3)))
        waiting.start()  # there is no pod now: it waits for one
        server.pods["head-b"] = {8265: new}
        waiting.join()
        assert answers == [b"new"] and find_pod(cluster, HEAD) == "head-b"


def test_cut_fifty_times(server: ForwardStandIn, cluster: Cluster) -> None:
    with echoing() as port, Listener(cluster, HEAD, 0) as listener:
        server.pods["head-a"] = {8265: port}
        before = threading.active_count()
        for number in range(50):
            with socket.create_connection(("127.0.0.1", listener.port), timeout=patience(20)) as client:
                client.sendall(b"%d" % number)
                assert client.recv(10) == b"%d" % number
                server.cut()
                with contextlib.suppress(ConnectionResetError):
                    assert client.recv(10) == b""
        wait_until(lambda: listener.connections == 0, "the end of all connections")
        wait_until(lambda: threading.active_count() <= before + 2, "the end of their threads")


def test_a_client_that_has_said_all_still_gets_its_answer(server: ForwardStandIn, cluster: Cluster) -> None:
    with echoing() as port, Listener(cluster, HEAD, 0) as listener:
        server.pods["head-a"] = {8265: port}
        with socket.create_connection(("127.0.0.1", listener.port), timeout=patience(20)) as client:
            client.sendall(b"all")
            client.shutdown(socket.SHUT_WR)
            assert client.recv(10) == b"all"


def test_health_in_words(server: ForwardStandIn, cluster: Cluster) -> None:
    with echoing() as port, Listener(cluster, HEAD, 0) as listener:
        found: dict[str, tuple[bool, str]] = {}
        seen: list[tuple[bool, str]] = []
        ends = threading.Event()
        words = (found, lambda: seen.append(found[HEAD.title]), ends, 0.05)
        thread = threading.Thread(target=watch_health, args=([listener], *words))
        thread.start()
        wait_until(lambda: (False, "no pod of ray.io/node-type=head runs") in seen, "the first word")
        server.pods["head-a"] = {8265: None}
        wait_until(lambda: (False, "nobody listens there in head-a") in seen, "a pod")
        server.pods["head-a"] = {8265: port}
        wait_until(lambda: (True, "head-a answers") in seen, "an answer")
        server.refuses = 403
        wait_until(lambda: not seen[-1][0] and "refuses" in seen[-1][1], "a refusal")
        ends.set()
        thread.join()
        assert len(seen) == 4, "only what is different is told"


def test_services_and_pods_by_name(server: ForwardStandIn, cluster: Cluster) -> None:
    server.pods["head-a"] = {}
    ports = [{"port": 80, "targetPort": "web"}, {"port": 90, "targetPort": 9090}]
    server.services["page"] = {"metadata": {"name": "page"}, "spec": {"selector": {"app": "x"}, "ports": ports}}
    assert service_target(cluster, "page:80") == Target("page:80", 8265, "app=x")
    assert service_target(cluster, "page:90") == Target("page:90", 9090, "app=x")
    assert service_target(cluster, "head-a:7") == Target("head-a:7", 7, pod="head-a")
    for text, told in [
        ("page", "a service is NAME:PORT"),
        ("page:81", "the service page has no port 81; it has 80, 90"),
        ("pge:80", "did you mean 'page'"),
    ]:
        with pytest.raises(UsageError, match=told):
            service_target(cluster, text)
    server.pods.clear()
    with pytest.raises(NobodyThere):
        find_pod(cluster, HEAD)


def test_a_port_that_is_taken(server: ForwardStandIn, cluster: Cluster) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        number = taken.getsockname()[1]
        with Listener(cluster, Target("x", number, "a=b")) as listener:
            assert listener.port != number, "another is as good where none was asked for"
        with pytest.raises(UsageError, match=f"cannot listen on 127.0.0.1:{number}"):
            Listener(cluster, Target("x", 1, "a=b"), number)
