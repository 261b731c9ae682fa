"""Both ends of a connection prove that they know the shared secret, before anything else is read.

All messages of this exchange have fixed lengths and are compared, never parsed: nothing that an unknown
peer sends reaches a decoder. Challenge and answer go both ways, so neither end talks to a stranger.
"""

from __future__ import annotations

import hmac
import secrets
import socket
import time

from operant.framework.errors import AuthenticationError

_MAGIC = b"OPERANT1"
_NONCE = 32
_PROOF = 32
HANDSHAKE_TIMEOUT = 5.0
"""Seconds for the whole exchange, however many pieces it comes in."""


class HungUp(ConnectionError):
    """The other end closed the connection in the middle of the exchange."""


def greet_as_dialer(sock: socket.socket, secret: bytes, deadline: float) -> None:
    """Prove the secret to a listener, and have it proved, before a moment of the monotonic clock."""
    own = secrets.token_bytes(_NONCE)
    sock.sendall(_MAGIC + own)
    answer = receive_exactly(sock, len(_MAGIC) + _NONCE + _PROOF, deadline)
    theirs, proof = answer[len(_MAGIC) : -_PROOF], answer[-_PROOF:]
    if answer[: len(_MAGIC)] != _MAGIC:
        raise AuthenticationError("the listener does not speak Operant's protocol, version 1")
    if not hmac.compare_digest(proof, _prove(secret, b"listener", own, theirs)):
        raise AuthenticationError("the listener does not know the shared secret")
    sock.sendall(_prove(secret, b"dialer", theirs, own))


def greet_as_listener(sock: socket.socket, secret: bytes, deadline: float) -> None:
    """Have the secret proved by whoever dialled, and prove it."""
    hello = receive_exactly(sock, len(_MAGIC) + _NONCE, deadline)
    if hello[: len(_MAGIC)] != _MAGIC:
        raise AuthenticationError("the peer does not speak Operant's protocol, version 1")
    theirs = hello[len(_MAGIC) :]
    own = secrets.token_bytes(_NONCE)
    sock.sendall(_MAGIC + own + _prove(secret, b"listener", theirs, own))
    try:
        proof = receive_exactly(sock, _PROOF, deadline)
    except HungUp:
        # It has had our proof and did not like it.
        raise AuthenticationError("the peer hung up instead of proving the secret: it knows another one") from None
    if not hmac.compare_digest(proof, _prove(secret, b"dialer", own, theirs)):
        raise AuthenticationError("the peer does not know the shared secret")


def _prove(secret: bytes, role: bytes, challenge: bytes, own: bytes) -> bytes:
    # The role is in the proof, so that an answer cannot be sent back to the one who gave it.
    return hmac.digest(secret, role + challenge + own, "sha256")


def receive_exactly(sock: socket.socket, n: int, deadline: float) -> bytes:
    """So many bytes, all of them before the deadline: one byte now and then does not prolong it."""
    received = b""
    while len(received) < n:
        sock.settimeout(max(1e-3, deadline - time.monotonic()))
        part = sock.recv(n - len(received))
        if not part:
            raise HungUp("the peer hung up during the handshake")
        received += part
        if time.monotonic() > deadline:
            raise TimeoutError("the peer took too long over the handshake")
    return received
