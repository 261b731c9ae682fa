"""Many actors that act out one recorded trajectory: a process of light clients, all driven by their connections."""

from __future__ import annotations

import json
import sys
import time
from dataclasses import dataclass
from typing import Any

import numpy as np

from operant.framework.parallel.hub import Hub
from operant.framework.parallel.link import Frame, Kind, Link, PeerInfo
from operant.framework.parallel.wire import decode


class LightActors:
    """Many actors on one hub: each has a connection of its own, and all are driven by what comes in on them."""

    def __init__(self, secret: bytes, message: dict[str, Any], settings: tuple[Any, ...]) -> None:
        self._message, self._settings = message, settings
        self._hub = Hub(PeerInfo(0), secret, self._on_frame, self._on_link, lambda *_: None)
        self._next = 0
        self._actors: dict[Link, _Actor] = {}

    def dial(self, number: int, address: str) -> None:
        self._next = number
        self._hub.info = PeerInfo(number, 0, 0, ["collect"])
        link = self._hub.dial(address, 120.0)
        self._hub.send(link, Kind.WANT, ["version"])

    def _on_link(self, link: Link) -> None:
        self._actors[link] = _Actor(self._next - 1)

    def _on_frame(self, link: Link, frame: Frame) -> None:
        actor = self._actors[link]
        if frame.kind is Kind.SNAPSHOT:
            snapshot = decode(frame.head, frame.body, allow_pickle=True)
            self._hub.send(link, Kind.SNAPSHOT_HERE, snapshot["seq"])
            actor.version = decode(snapshot["values"]["version"], frame.body, allow_pickle=True)
            if actor.messages == 0:
                self._put(link, actor)
        elif frame.kind is Kind.RESPONSE:
            self._hub.send(link, Kind.WANT, ["version", "weights"])
            self._put(link, actor)

    def _put(self, link: Link, actor: _Actor) -> None:
        actor.messages += 1
        item = {**self._message, "index": actor.index, "version": actor.version, "seconds": 0.05}
        self._hub.send(link, Kind.REQUEST, (actor.messages, "put", ("trajectories", self._settings, item)))


@dataclass
class _Actor:
    index: int
    messages: int = 0
    version: int = 0


def main() -> None:
    given = json.loads(sys.stdin.readline())
    steps, rows = given["steps"], given["rows"]
    rng = np.random.default_rng(given["first"])
    data = {
        "obs": rng.normal(size=(steps + 1, rows, 4)).astype(np.float32),
        "action": rng.integers(2, size=(steps, rows)),
        "reward": np.ones((steps, rows), np.float32),
        "terminated": rng.random((steps, rows)) < 0.02,
        "truncated": np.zeros((steps, rows), bool),
        "final_obs": np.zeros((0, 0), np.float32),
        "final_at": np.zeros(0, np.int64),
        "mask": None,
        "log_prob": np.full((steps, rows), -0.69, np.float32),
    }
    message = {"steps": steps * rows, "data": data, "returns": [20.0], "lengths": [20], "unseen": None}
    actors = LightActors(bytes.fromhex(given["secret"]), message, tuple(given["settings"]))
    for number in range(given["first"], given["first"] + given["count"]):
        actors.dial(number, given["address"])
    print(given["count"], flush=True)
    time.sleep(3600)


if __name__ == "__main__":
    main()
