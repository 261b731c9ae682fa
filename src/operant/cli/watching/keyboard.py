"""Single keys from a terminal, without waiting for the end of a line."""

from __future__ import annotations

import os
import select
import termios
import tty
from collections.abc import Iterator
from contextlib import contextmanager

_SEQUENCES = {
    b"\x1b[A": "up", b"\x1bOA": "up", b"\x1b[B": "down", b"\x1bOB": "down",
    b"\x1b[C": "enter", b"\x1bOC": "enter", b"\x1b[D": "back", b"\x1bOD": "back",
    b"\r": "enter", b"\n": "enter", b"\x7f": "back", b"\x08": "back", b"\t": "tab", b"\x1b": "back",
    b"k": "up", b"j": "down",
}  # fmt: skip
# A sequence may arrive in two pieces over a slow line; a lone escape is the key itself.
_REST_OF_SEQUENCE_SECONDS = 0.05


class Keyboard:
    """Keys as words: ``up``, ``down``, ``enter``, ``back``, ``tab``, or the letter itself."""

    def __init__(self, descriptor: int) -> None:
        self.descriptor = descriptor

    @contextmanager
    def opened(self) -> Iterator[Keyboard]:
        """Keys come one by one until the end; then the terminal is as it was."""
        former = termios.tcgetattr(self.descriptor)
        tty.setcbreak(self.descriptor)
        single = termios.tcgetattr(self.descriptor)
        single[6][termios.VSUSP] = b"\0"  # ctrl-Z would leave a shell behind this screen
        termios.tcsetattr(self.descriptor, termios.TCSADRAIN, single)
        try:
            yield self
        finally:
            termios.tcsetattr(self.descriptor, termios.TCSADRAIN, former)

    def read(self) -> list[str]:
        """The keys that are there; ``quit`` when the terminal has gone away."""
        try:
            data = os.read(self.descriptor, 1024)
        except OSError:
            data = b""
        if not data:
            return ["quit"]
        if (
            data in (b"\x1b", b"\x1b[", b"\x1bO")
            and select.select([self.descriptor], [], [], _REST_OF_SEQUENCE_SECONDS)[0]
        ):
            data += os.read(self.descriptor, 1024)
        return list(split_keys(data))


def split_keys(data: bytes) -> Iterator[str]:
    """The keys in what a terminal sent; sequences that mean nothing here are passed over."""
    while data:
        known = next((one for one in _SEQUENCES if len(one) > 1 and data.startswith(one)), None)
        if known is not None:
            yield _SEQUENCES[known]
            data = data[len(known) :]
        elif data[:2] in (b"\x1b[", b"\x1bO"):  # another sequence: up to its final letter
            end = next((at for at, byte in enumerate(data[2:], 2) if 0x40 <= byte <= 0x7E), len(data) - 1)
            data = data[end + 1 :]
        else:
            one, data = data[:1], data[1:]
            if one in _SEQUENCES:
                yield _SEQUENCES[one]
            elif one.isascii() and one.decode().isprintable():
                yield one.decode()
