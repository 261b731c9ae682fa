"""A real ``operant ui`` in a process of its own."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from pathlib import Path

from tests.machine import patience


class Page:
    """``with Page(root) as page: page.address``"""

    def __init__(self, root: Path, *options: str) -> None:
        self.root = root
        self.options = options

    def __enter__(self) -> Page:
        command = [sys.executable, "-m", "operant", "ui", "--port", "0", "--root", str(self.root), *self.options]
        self.process = subprocess.Popen(command, stdout=subprocess.PIPE, text=True, env=dict(os.environ))
        assert self.process.stdout is not None
        self.said = self.process.stdout.readline()
        assert self.said.startswith("Operant shows"), self.said
        self.address = self.said.split()[-1]
        return self

    def __exit__(self, *_: object) -> None:
        self.process.send_signal(signal.SIGINT)
        try:
            self.process.communicate(timeout=patience(20))
        except subprocess.TimeoutExpired:
            self.process.kill()
            self.process.communicate()
