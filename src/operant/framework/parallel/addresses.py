"""Where workers listen: ``ipc://name`` on one machine, ``tcp://host:port`` between machines."""

from __future__ import annotations

import socket
import sys

DEFAULT_PORT = 50515


def split_address(address: str) -> tuple[str, str, int]:
    """The protocol, the name or host, and the port (0 for ipc)."""
    protocol, separator, rest = address.partition("://")
    if separator and protocol == "ipc" and rest:
        if sys.platform != "linux":
            raise ValueError("ipc addresses need Linux; use protocol='tcp' with address='127.0.0.1'")
        return protocol, rest, 0
    host, colon, port = rest.rpartition(":")
    if separator and protocol == "tcp" and colon and port.isdigit():
        return protocol, host.strip("[]"), int(port)
    raise ValueError(f"an address is tcp://host:port or ipc://name, not {address!r}")


def _family(host: str) -> socket.AddressFamily:
    return socket.AF_INET6 if ":" in host else socket.AF_INET


def listen(address: str) -> socket.socket:
    protocol, host, port = split_address(address)
    if protocol == "ipc":
        sock = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        place: str | tuple[str, int] = "\0" + host
    else:
        sock = socket.socket(_family(host), socket.SOCK_STREAM)
        sock.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        place = (host, port)
    try:
        # An abstract name of Linux: nothing in the file system, so nothing is left behind after a kill.
        sock.bind(place)
        sock.listen(1024)
        sock.setblocking(False)
    except OSError as error:
        sock.close()
        raise OSError(error.errno, f"cannot listen at {address}: {error.strerror}") from error
    return sock


def local_address(sock: socket.socket, address: str) -> str:
    protocol, host, _ = split_address(address)
    if protocol == "ipc":
        return address
    return f"tcp://{f'[{host}]' if ':' in host else host}:{sock.getsockname()[1]}"


def connect(address: str, timeout: float) -> socket.socket:
    protocol, host, port = split_address(address)
    if protocol == "tcp":
        return socket.create_connection((host, port), timeout=timeout)
    sock = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
    sock.settimeout(timeout)
    try:
        sock.connect("\0" + host)
    except OSError:
        sock.close()
        raise
    return sock
