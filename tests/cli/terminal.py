"""A real terminal for tests: a program at the far end of a pty, its screen as text, keys to press."""

from __future__ import annotations

import fcntl
import os
import pty
import re
import select
import struct
import subprocess
import sys
import termios
import time
from collections.abc import Callable, Mapping

from tests.machine import patience

_LAUNCH = (
    "import fcntl, sys, termios; fcntl.ioctl(0, termios.TIOCSCTTY, 0); "
    "from operant.cli import main; sys.exit(main(sys.argv[1:]))"
)
_SEQUENCE = re.compile(r"\x1b\[[0-?]*[ -/]*[@-~]")
PATIENCE = 60.0


class Terminal:
    """``operant`` with ``words`` on a terminal of its own."""

    def __init__(
        self, words: list[str], columns: int = 80, rows: int = 24, env: Mapping[str, str] | None = None
    ) -> None:
        self.master, self.slave = pty.openpty()
        self.resize(columns, rows)
        self.before = termios.tcgetattr(self.slave)
        # The size is the terminal's, whatever a test before this one left in the environment.
        inherited = {name: value for name, value in os.environ.items() if name not in ("COLUMNS", "LINES")}
        self.process = subprocess.Popen(
            [sys.executable, "-c", _LAUNCH, *words],
            stdin=self.slave,
            stdout=self.slave,
            stderr=self.slave,
            start_new_session=True,
            env={**inherited, "TERM": "xterm-256color", "PYTHONIOENCODING": "utf-8", **(env or {})},
        )
        self.raw = b""
        self._looked_at = 0

    def resize(self, columns: int, rows: int) -> None:
        fcntl.ioctl(self.master, termios.TIOCSWINSZ, struct.pack("HHHH", rows, columns, 0, 0))

    def press(self, keys: str) -> None:
        os.write(self.master, keys.encode())

    def read(self, seconds: float = 0.1) -> None:
        while select.select([self.master], [], [], seconds)[0]:
            try:
                data = os.read(self.master, 65536)
            except OSError:
                return
            if not data:
                return
            self.raw += data

    @property
    def frames(self) -> list[str]:
        """Every whole picture that was drawn, without colours."""
        text = self.raw.decode("utf-8", "replace").replace("\r", "")
        return [_SEQUENCE.sub("", one) for one in text.split("\x1b[H")[1:-1]]  # the last may not be whole yet

    @property
    def text(self) -> str:
        """All that was written, without colours."""
        return _SEQUENCE.sub("", self.raw.decode("utf-8", "replace").replace("\r", ""))

    def wait_for_text(self, wanted: str) -> None:
        """Return once that was written, also by a program that draws no pictures."""
        deadline = time.monotonic() + patience(PATIENCE)
        while wanted not in self.text:
            assert self.process.poll() is None and time.monotonic() < deadline, f"never seen: {wanted}; {self.text}"
            self.read()

    def wait_for(self, seen: Callable[[str], object], what: str) -> str:
        """The first new picture of which ``seen`` is true."""
        deadline = time.monotonic() + patience(PATIENCE)
        while time.monotonic() < deadline:
            self.read()
            for frame in self.frames[self._looked_at :]:
                self._looked_at += 1
                if seen(frame):
                    return frame
            if self.process.poll() is not None:
                self.read()
                break
        raise AssertionError(
            f"never seen: {what}; the last picture was\n{self.frames[-1] if self.frames else self.raw!r}"
        )

    def __enter__(self) -> Terminal:
        return self

    def __exit__(self, kind: object, *_: object) -> None:
        """Wait for the program to end by itself, unless the test has failed already."""
        deadline = time.monotonic() + (patience(PATIENCE) if kind is None else 0.0)
        while self.process.poll() is None and time.monotonic() < deadline:
            self.read()
        if self.process.poll() is None:
            self.process.kill()
        self.code = self.process.wait()
        self.read(0.0)
        self.after = termios.tcgetattr(self.slave)
        os.close(self.master)
        os.close(self.slave)
