"""A server of runs for tests."""

from __future__ import annotations

import socket
import subprocess
import sys
from pathlib import Path


class Server:
    """A real ``operant serve`` on loopback, which can be killed and started again on the same port."""

    def __init__(self, folder: Path) -> None:
        self.root = folder / ".operant"
        with socket.create_server(("127.0.0.1", 0)) as free:
            self.port = free.getsockname()[1]
        self.uri = f"http://127.0.0.1:{self.port}"
        self.process: subprocess.Popen[str] | None = None

    def start(self) -> None:
        command = [sys.executable, "-m", "operant", "serve", "--port", str(self.port), "--root", str(self.root)]
        self.process = subprocess.Popen(command, stdout=subprocess.PIPE, text=True)
        assert self.process.stdout is not None
        assert self.process.stdout.readline().startswith("Operant serves")

    def kill(self) -> None:
        if self.process is not None:
            self.process.kill()
            self.process.communicate()
            self.process = None

    @property
    def token(self) -> str:
        return (self.root / "server-token").read_text().strip()
