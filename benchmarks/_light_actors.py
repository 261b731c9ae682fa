"""Many actors that act out one recorded trajectory: a process of light clients, all driven by their connections."""

from __future__ import annotations

import json
import sys
import time
from typing import Any

import numpy as np

from operant.framework.parallel.hub import Hub
from operant.framework.parallel.link import Frame, Kind, Link, PeerInfo
from operant.framework.parallel.wire import decode


class LightActor:
    """Puts a trajectory, asks for weights, and puts the next when the learner has accepted it."""

    def __init__(self, number: int, secret: bytes, address: str, message: dict[str, Any], settings: tuple[Any, ...]):
        self._message = {**message, "index": number - 1}
        self._settings, self._number, self._version = settings, 0, 0
        self._hub = Hub(PeerInfo(number, 0, 0, ["collect"]), secret, self._on_frame, lambda _: None, lambda *_: None)
        self._link = self._hub.dial(address, 120.0)
        self._hub.send(self._link, Kind.WANT, ["version"])

    def _on_frame(self, link: Link, frame: Frame) -> None:
        if frame.kind is Kind.SNAPSHOT:
            snapshot = decode(frame.head, frame.body, allow_pickle=True)
            self._hub.send(link, Kind.SNAPSHOT_HERE, snapshot["seq"])
            known, self._version = self._version, decode(snapshot["values"]["version"], frame.body, allow_pickle=True)
            if self._number == 0 and known == 0:
                self._put()
        elif frame.kind is Kind.RESPONSE:
            self._hub.send(link, Kind.WANT, ["version", "weights"])
            self._put()

    def _put(self) -> None:
        self._number += 1
        item = {**self._message, "version": self._version, "seconds": 0.05}
        self._hub.send(self._link, Kind.REQUEST, (self._number, "put", ("trajectories", self._settings, item)))


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
    actors = [
        LightActor(number, bytes.fromhex(given["secret"]), given["address"], message, tuple(given["settings"]))
        for number in range(given["first"], given["first"] + given["count"])
    ]
    print(len(actors), flush=True)
    time.sleep(3600)


if __name__ == "__main__":
    main()
