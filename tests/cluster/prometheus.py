"""A Prometheus that runs, and what it is to scrape."""

from __future__ import annotations

import json
import socket
import threading
import urllib.request
from typing import Any
from urllib.parse import quote

from operant.hpo import R, choice, hpo


def free_port() -> int:
    with socket.create_server(("127.0.0.1", 0)) as free:
        return int(free.getsockname()[1])


def ask(port: int, path: str) -> bytes:
    with urllib.request.urlopen(f"http://127.0.0.1:{port}{path}", timeout=10) as answer:
        return bytes(answer.read())


def answers(port: int) -> bool:
    try:
        return bool(ask(port, "/-/ready"))
    except OSError:
        return False


def query(port: int, text: str) -> list[dict[str, Any]]:
    """What a query finds now."""
    found = json.loads(ask(port, f"/api/v1/query?query={quote(text)}"))
    assert found["status"] == "success", found
    return list(found["data"]["result"])


class Searching:
    """A search of functions in this process: one trial has ended, one goes on until it may end."""

    def __init__(self) -> None:
        self._may_end = threading.Event()
        self._thread = threading.Thread(target=self._run, daemon=True)

    def __enter__(self) -> Searching:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._may_end.set()
        self._thread.join()

    def is_alive(self) -> bool:
        return self._thread.is_alive()

    def _run(self) -> None:
        def trial(config: dict[str, Any]) -> dict[str, float]:
            if config["x"] == 1:
                self._may_end.wait(300)
            return {"y": float(config["x"])}

        search = hpo(trial).grid(silent=True).name("hills").maximize(R["y"]).spaces({"x": choice([0, 1])})
        search.run()
