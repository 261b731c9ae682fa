"""A stand-in for what a forward asks of an API server: a list of pods, and web sockets that lead to local ports."""

from __future__ import annotations

import base64
import contextlib
import hashlib
import json
import socket
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

_MAGIC = "258EAFA5-E914-47DA-95CA-C5AB0DC85B11"


class ForwardStandIn:
    """Pods by name, each with its ports: number in the pod -> port here (None: nobody listens)."""

    def __init__(self, folder: Path) -> None:
        self.pods: dict[str, dict[int, int | None]] = {}
        self.services: dict[str, dict[str, Any]] = {}
        self.refuses: int | None = None
        self.tunnels: list[socket.socket] = []
        self._server = socket.create_server(("127.0.0.1", 0), backlog=256)
        self.port = self._server.getsockname()[1]
        self.kubeconfig = folder / "kubeconfig"
        self.kubeconfig.write_text(
            json.dumps(
                {
                    "clusters": [{"name": "c", "cluster": {"server": f"http://127.0.0.1:{self.port}"}}],
                    "users": [{"name": "u", "user": {"token": "t0ken"}}],
                    "contexts": [{"name": "x", "context": {"cluster": "c", "user": "u", "namespace": "lab"}}],
                    "current-context": "x",
                }
            )
        )
        threading.Thread(target=self._accept, daemon=True).start()

    def close(self) -> None:
        self._server.close()
        self.cut()

    def cut(self) -> None:
        """End all tunnels at once, without a word."""
        tunnels, self.tunnels = self.tunnels, []
        for one in tunnels:
            with contextlib.suppress(OSError):
                one.shutdown(socket.SHUT_RDWR)

    def _accept(self) -> None:
        while True:
            try:
                client, _ = self._server.accept()
            except OSError:
                return
            threading.Thread(target=self._serve, args=(client,), daemon=True).start()

    def _serve(self, client: socket.socket) -> None:
        with client, contextlib.suppress(OSError, ValueError):
            head = b""
            while b"\r\n\r\n" not in head:
                if not (data := client.recv(4096)):
                    return
                head += data
            lines = head.decode().split("\r\n")
            path = lines[0].split()[1]
            headers = {key.lower(): value.strip() for key, _, value in (line.partition(":") for line in lines[1:])}
            if self.refuses is not None or headers.get("authorization") != "Bearer t0ken":
                _answer(client, self.refuses or 401, {"message": "no", "reason": "Forbidden"})
            elif "/portforward" in path:
                self._tunnel(client, path, headers)
            else:
                self._object(client, path.partition("?")[0].split("/namespaces/lab/")[1].split("/"))

    def _object(self, client: socket.socket, words: list[str]) -> None:
        if words[0] == "services":
            found = self.services.get(words[1]) if len(words) > 1 else {"items": list(self.services.values())}
            _answer(client, 404 if found is None else 200, found or {"message": "none", "reason": "NotFound"})
            return
        items = []
        for number, name in enumerate(self.pods):
            about = {"name": name, "creationTimestamp": f"2026-01-01T00:00:{number:02}Z"}
            spec = {"containers": [{"ports": [{"name": "web", "containerPort": 8265}]}]}
            items.append({"metadata": about, "spec": spec, "status": {"phase": "Running"}})
        if len(words) > 1:
            items = [one for one in items if one["metadata"]["name"] == words[1]]
            _answer(client, 200 if items else 404, items[0] if items else {"message": "none", "reason": "NotFound"})
        else:
            _answer(client, 200, {"items": items})

    def _tunnel(self, client: socket.socket, path: str, headers: dict[str, str]) -> None:
        name = path.split("/pods/")[1].split("/")[0]
        number = int(path.partition("ports=")[2])
        if name not in self.pods:
            _answer(client, 404, {"message": "gone", "reason": "NotFound"})
            return
        key = base64.b64encode(hashlib.sha1((headers["sec-websocket-key"] + _MAGIC).encode()).digest()).decode()
        client.sendall(
            f"HTTP/1.1 101 Switching Protocols\r\nUpgrade: websocket\r\nConnection: Upgrade\r\n"
            f"Sec-WebSocket-Accept: {key}\r\nSec-WebSocket-Protocol: v4.channel.k8s.io\r\n\r\n".encode()
        )
        self.tunnels.append(client)
        for channel in (0, 1):
            _send(client, bytes([channel]) + number.to_bytes(2, "little"))
        here = self.pods[name].get(number)
        if here is None:
            _send(client, b"\1connection refused")
            return
        with socket.create_connection(("127.0.0.1", here)) as behind:
            threading.Thread(target=self._back, args=(behind, client), daemon=True).start()
            with contextlib.suppress(OSError):
                while (frame := _receive(client)) is not None:
                    behind.sendall(frame[1:])
            behind.shutdown(socket.SHUT_RDWR)  # a thread that waits for its bytes would not notice that it is closed

    def _back(self, behind: socket.socket, client: socket.socket) -> None:
        with contextlib.suppress(OSError):
            while data := behind.recv(65536):
                _send(client, b"\0" + data)
            client.sendall(b"\x88\0")  # the end of the web socket


def _answer(client: socket.socket, code: int, body: dict[str, Any]) -> None:
    data = json.dumps(body).encode()
    head = f"HTTP/1.1 {code} Answer\r\nContent-Type: application/json\r\nContent-Length: {len(data)}\r\n"
    client.sendall(f"{head}Connection: close\r\n\r\n".encode() + data)


def _send(client: socket.socket, data: bytes) -> None:
    size = len(data)
    head = bytes([0x82, size]) if size < 126 else b"\x82\x7f" + size.to_bytes(8, "big")
    client.sendall(head + data)


def _receive(client: socket.socket) -> bytes | None:
    """A frame of a client's, which are masked; None at the end."""

    def exactly(count: int) -> bytes:
        data = b""
        while len(data) < count:
            part = client.recv(count - len(data))
            if not part:
                raise OSError("the end")
            data += part
        return data

    first, size = exactly(2)
    size &= 0x7F
    if size > 125:
        size = int.from_bytes(exactly(2 if size == 126 else 8), "big")
    mask, data = exactly(4), bytearray(exactly(size))
    if first & 0x0F == 8:
        return None
    wide = (mask * (size // 4 + 1))[:size]
    return (int.from_bytes(data, "big") ^ int.from_bytes(wide, "big")).to_bytes(size, "big")


@contextmanager
def echoing(prefix: bytes = b"") -> Iterator[int]:
    """A server that gives back what it gets, with a prefix first."""
    server = socket.create_server(("127.0.0.1", 0), backlog=256)

    def serve(client: socket.socket) -> None:
        with client, contextlib.suppress(OSError):
            client.sendall(prefix)
            while data := client.recv(65536):
                client.sendall(data)

    def accept() -> None:
        with contextlib.suppress(OSError):
            while True:
                threading.Thread(target=serve, args=(server.accept()[0],), daemon=True).start()

    threading.Thread(target=accept, daemon=True).start()
    try:
        yield server.getsockname()[1]
    finally:
        server.close()
