"""Ports of pods on loopback here, through the API server: real listeners, a connection for each, found anew each time.

Kubernetes' protocol: a web socket for each connection, on which channel 0 carries bytes and channel 1 says what went
wrong; the first frame of each is the port's number.
"""

from __future__ import annotations

import contextlib
import select
import socket
import ssl
import threading
import time
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple
from urllib.parse import urlsplit

from operant.cluster.applying import POD
from operant.cluster.pods import CLIENT, DASHBOARD
from operant.cluster.spec import ClusterSpec
from operant.errors import OperantError, UsageError, unknown
from operant.sites._kube import Cluster, Object
from operant.sites.cluster_jobs import SiteAwayError, SiteRefusedError

SERVICE: Object = {"apiVersion": "v1", "kind": "Service"}
_CHUNK = 1 << 16
_MOST_HELD = 1 << 20
"""Bytes for a reader that is slow; then nothing more is taken for it."""
_MOST_CONNECTIONS = 512
"""Of one port: each costs a thread, and a pod on this machine's own network could lead back to us."""
_SOMETHING = select.POLLIN | select.POLLHUP | select.POLLERR
_RETRY_SECONDS = 0.5
_HALF_CLOSED_SECONDS = 5.0
_SETTLE_SECONDS = 0.3
"""So long a pod may take to say that nobody listens there."""


class Target(NamedTuple):
    """What is forwarded: a port of a pod that a selector, or a name, finds."""

    title: str
    port: int
    selector: str = ""
    pod: str = ""
    scheme: str = "http"


class NobodyThere(OperantError):
    """No pod that runs, or nobody who listens there."""


def service_target(cluster: Cluster, text: str) -> Target:
    """``NAME:PORT`` of a Service or a pod."""
    name, colon, number = text.rpartition(":")
    if not colon or not number.isdigit() or not 0 < int(number) < 65536:
        raise UsageError(f"a service is NAME:PORT, such as grafana:3000, not {text!r}")
    found = cluster.get(SERVICE, name)
    if found is None:
        if cluster.get(POD, name) is None:
            known = [one["metadata"]["name"] for kind in (SERVICE, POD) for one in cluster.find(kind)]
            raise UsageError(f"in {cluster.namespace}: {unknown('service or pod', name, known)}")
        return Target(text, int(number), pod=name)
    spec = found["spec"]
    if not spec.get("selector"):
        raise UsageError(f"the service {name} has no selector, so its pods cannot be found")
    selector = ",".join(f"{key}={value}" for key, value in spec["selector"].items())
    for one in spec.get("ports") or ():
        if one["port"] == int(number):
            return Target(text, _port_of_pod(cluster, selector, one.get("targetPort", one["port"])), selector)
    ports = ", ".join(str(one["port"]) for one in spec.get("ports") or ())
    raise UsageError(f"the service {name} has no port {number}; it has {ports or 'none'}")


def _port_of_pod(cluster: Cluster, selector: str, port: int | str) -> int:
    if isinstance(port, int):
        return port
    for pod in cluster.find(POD, selector):
        for container in pod["spec"]["containers"]:
            for one in container.get("ports") or ():
                if one.get("name") == port:
                    return int(one["containerPort"])
    raise UsageError(f"no pod of {selector} has a port that is called {port!r}")


def find_pod(cluster: Cluster, target: Target) -> str:
    """The pod that answers now: one that runs, ready ones first, then the youngest."""
    if target.pod:
        return target.pod
    found = []
    for pod in cluster.find(POD, target.selector):
        about, status = pod["metadata"], pod.get("status") or {}
        if status.get("phase") == "Running" and "deletionTimestamp" not in about:
            containers = status.get("containerStatuses") or ()
            ready = bool(containers) and all(one.get("ready") for one in containers)
            found.append((ready, str(about.get("creationTimestamp") or ""), str(about["name"])))
    if not found:
        raise NobodyThere(f"no pod of {target.selector} runs")
    return max(found)[2]


class Tunnel:
    """One connection to a port of a pod."""

    def __init__(self, cluster: Cluster, pod: str, port: int) -> None:
        from kubernetes.stream.ws_client import create_websocket

        settings = cluster.api.configuration
        place = urlsplit(settings.host)
        scheme = "wss" if place.scheme == "https" else "ws"
        path = f"{place.path}/api/v1/namespaces/{cluster.namespace}/pods/{pod}/portforward?ports={port}"
        headers = {**cluster.authorization(), "sec-websocket-protocol": "v4.channel.k8s.io"}
        try:
            self._web: Any = create_websocket(settings, f"{scheme}://{place.netloc}{path}", headers)
        except Exception as error:  # the library's own kinds, and what its sockets raise
            raise _refusal(error, pod) from None
        self.socket: socket.socket = self._web.sock
        self.socket.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
        self._greeted = [False, False]
        self._unsent = bytearray()
        self.error = ""

    def fileno(self) -> int:
        return self.socket.fileno()

    def waiting(self) -> bool:
        """Whether there are bytes that `select` does not see: TLS has whole records."""
        return bool(getattr(self.socket, "pending", int)())

    def receive(self) -> bytes | None:
        """Bytes that came, perhaps none; None at the end, and `error` says why if the pod did."""
        from websocket import ABNF, WebSocketException

        try:
            frame = self._web.recv_frame()
        except (WebSocketException, OSError):
            return None
        if frame.opcode == ABNF.OPCODE_CLOSE:
            return None
        if frame.opcode == ABNF.OPCODE_PING:
            self._unsent += ABNF.create_frame(frame.data, ABNF.OPCODE_PONG).format()
        if frame.opcode != ABNF.OPCODE_BINARY or not frame.data or frame.data[0] > 1:
            return b""
        channel, content = frame.data[0], bytes(frame.data[1:])
        if not self._greeted[channel]:
            self._greeted[channel] = True
            return b""
        if channel == 1:
            self.error = content.decode("utf-8", "replace").strip()
            return None
        return content

    @property
    def unsent(self) -> int:
        return len(self._unsent)

    def put(self, data: bytes) -> None:
        """Bytes that `send` will send."""
        from websocket import ABNF

        self._unsent += ABNF.create_frame(b"\0" + data, ABNF.OPCODE_BINARY).format()

    def send(self) -> bool:
        """Send what goes without waiting: whoever waited here would not read, and others may wait for that."""
        self.socket.setblocking(False)
        try:
            del self._unsent[: self.socket.send(self._unsent)]
        except (BlockingIOError, ssl.SSLWantWriteError, ssl.SSLWantReadError):
            pass
        except OSError:
            return False
        finally:
            with contextlib.suppress(OSError):
                self.socket.setblocking(True)
        return True

    def close(self) -> None:
        with contextlib.suppress(Exception):  # it may be gone already, in any state
            self._web.shutdown()


def _refusal(error: Exception, pod: str) -> OperantError:
    status = getattr(error, "status_code", None)
    said = str(error).splitlines()[0][:200] if str(error) else type(error).__name__
    if status == 404:
        return NobodyThere(f"the pod {pod} is gone")
    if status in (401, 403):
        return SiteRefusedError(f"you may not forward to pods: {said}")
    return SiteAwayError(f"the API server does not answer: {said}")


class Listener:
    """A port here that is one of a pod's. Connections go on when others are cut; new ones find where the pod is now.

    :param patience: seconds for which a new connection waits until there is a pod.
    """

    def __init__(self, cluster: Cluster, target: Target, port: int | None = None, *, patience: float = 60.0) -> None:
        self.cluster, self.target, self._patience = cluster, target, patience
        wanted = target.port if port is None else port
        try:
            self._server = socket.create_server(("127.0.0.1", wanted), backlog=128)
        except OSError as error:
            if port:
                raise UsageError(f"cannot listen on 127.0.0.1:{port}: {error.strerror}") from None
            self._server = socket.create_server(("127.0.0.1", 0), backlog=128)
        self.port: int = self._server.getsockname()[1]
        self._closed = threading.Event()
        self._open: set[socket.socket] = set()
        self._lock = threading.Lock()
        self.last_error = ""
        threading.Thread(target=self._accept, name=f"operant-forward-{self.port}", daemon=True).start()

    @property
    def address(self) -> str:
        return f"{self.target.scheme}://127.0.0.1:{self.port}"

    @property
    def connections(self) -> int:
        with self._lock:
            return len(self._open)

    def health(self) -> tuple[bool, str]:
        """Whether somebody listens in the pod now, and in words."""
        try:
            pod = find_pod(self.cluster, self.target)
            tunnel = Tunnel(self.cluster, pod, self.target.port)
        except OperantError as error:
            return False, str(error)
        try:
            deadline = time.monotonic() + _SETTLE_SECONDS
            while (left := deadline - time.monotonic()) > 0:
                if (tunnel.waiting() or _readable(tunnel, left)) and tunnel.receive() is None:
                    return False, f"nobody listens there in {pod}"
            return True, f"{pod} answers"
        finally:
            tunnel.close()

    def close(self) -> None:
        self._closed.set()
        with contextlib.suppress(OSError):
            self._server.shutdown(socket.SHUT_RDWR)
        self._server.close()
        with self._lock:
            left = list(self._open)
        for one in left:
            with contextlib.suppress(OSError):
                one.shutdown(socket.SHUT_RDWR)

    def __enter__(self) -> Listener:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def _accept(self) -> None:
        while not self._closed.is_set():
            try:
                local, _ = self._server.accept()
            except OSError:
                if self._closed.wait(0.1):  # closed; or too many files are open, which passes
                    return
                continue
            with self._lock:
                if len(self._open) >= _MOST_CONNECTIONS:
                    local.close()
                    continue
                self._open.add(local)
            threading.Thread(target=self._serve, args=(local,), name="operant-forwarded", daemon=True).start()

    def _serve(self, local: socket.socket) -> None:
        try:
            tunnel = self._reach(local)
            if tunnel is not None:
                try:
                    _relay(local, tunnel, self._closed)
                    self.last_error = tunnel.error
                finally:
                    tunnel.close()
        finally:
            with self._lock:
                self._open.discard(local)
            local.close()

    def _reach(self, local: socket.socket) -> Tunnel | None:
        """The pod, as soon as there is one again; None where the client or we have gone meanwhile."""
        deadline = time.monotonic() + self._patience
        while not self._closed.is_set():
            try:
                return Tunnel(self.cluster, find_pod(self.cluster, self.target), self.target.port)
            except SiteRefusedError as error:
                self.last_error = str(error)
                return None
            except OperantError as error:
                self.last_error = str(error)
            if time.monotonic() > deadline or _has_left(local):
                return None
            self._closed.wait(_RETRY_SECONDS)
        return None


def _has_left(local: socket.socket) -> bool:
    """Whether a client has closed its side, which it does as a rule when it gives up."""
    try:
        return _readable(local, 0) and not local.recv(1, socket.MSG_PEEK)
    except OSError:
        return True


def _readable(one: socket.socket | Tunnel, seconds: float) -> bool:
    poll = select.poll()
    poll.register(one, select.POLLIN)
    return bool(poll.poll(seconds * 1000))


def _relay(local: socket.socket, tunnel: Tunnel, closed: threading.Event) -> None:
    """Bytes both ways until one side ends.

    The protocol has no half-closed connections: a client that has said all gets what still comes, until for some
    seconds nothing does.
    """
    local.setblocking(False)
    held, done_at, poll = bytearray(), None, select.poll()
    while not closed.is_set():
        takes, gives = len(held) < _MOST_HELD, done_at is None and tunnel.unsent < _MOST_HELD
        poll.register(local, (select.POLLIN if gives else 0) | (select.POLLOUT if held else 0))
        poll.register(tunnel, (select.POLLIN if takes else 0) | (select.POLLOUT if tunnel.unsent else 0))
        ready = dict(poll.poll(0 if takes and tunnel.waiting() else 1000))
        mine, theirs = ready.get(local.fileno(), 0), ready.get(tunnel.fileno(), 0)
        if takes and (theirs & _SOMETHING or tunnel.waiting()):
            data = tunnel.receive()
            if data is None:
                _finish(local, held)
                return
            held += data
            if data and done_at:
                done_at = time.monotonic()
        if gives and mine & _SOMETHING:
            try:
                if said := local.recv(_CHUNK):
                    tunnel.put(said)
                else:
                    done_at = time.monotonic()
            except BlockingIOError:
                pass
            except OSError:
                return
        if tunnel.unsent and not tunnel.send():
            return
        if held and not _send(local, held):
            return
        if done_at and not held and (mine & select.POLLHUP or time.monotonic() - done_at > _HALF_CLOSED_SECONDS):
            return


def _send(local: socket.socket, held: bytearray) -> bool:
    """Give a client what it takes; whether it is there."""
    try:
        del held[: local.send(held)]
    except BlockingIOError:
        pass
    except OSError:
        return False
    return True


def _finish(local: socket.socket, held: bytearray) -> None:
    """What came before the end reaches the client, if it takes it within some seconds."""
    with contextlib.suppress(OSError):
        local.settimeout(_HALF_CLOSED_SECONDS)
        local.sendall(held)


def cluster_targets(spec: ClusterSpec) -> list[Target]:
    """Every dashboard of a Ray cluster: in its head's pod, and Operant's page where it is deployed."""
    head = f"ray.io/cluster={spec.name},ray.io/node-type=head"
    page = "app.kubernetes.io/name=operant"
    given = spec.head.ray_start
    return [
        Target("Operant's page", 4270, page),
        Target("Operant's ingest", 8642, page),
        Target("Ray dashboard", int(given.get("dashboard-port", DASHBOARD)), head),
        Target("Ray client", int(given.get("ray-client-server-port", CLIENT)), head, scheme="ray"),
        Target("Prometheus", 9090, head),
        Target("Grafana", 3000, head),
        Target("Aim", 43800, head),
    ]


def dashboard_target(spec: ClusterSpec) -> Target:
    """Where Ray takes jobs."""
    return cluster_targets(spec)[2]


def watch_health(
    listeners: Sequence[Listener],
    found: dict[str, tuple[bool, str]],
    changed: Callable[[], None],
    ends: threading.Event,
    seconds: float = 5.0,
) -> None:
    """Ask for the health of each again and again until ``ends``, into ``found``; ``changed`` is called after each
    difference."""
    while True:
        now = {one.target.title: one.health() for one in listeners}
        if now != found:
            found.clear()
            found.update(now)
            changed()
        if ends.wait(seconds):
            return
