"""A search and runs made by hand, and a way to ask the server about them without a socket."""

from __future__ import annotations

import asyncio
import json
import struct
import time
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from tests.machine import patience

from operant.tracking.journal import Journal
from operant.tracking.recording.recorder import Recorder
from operant.web.ui import application


@dataclass
class Answer:
    status: int
    headers: dict[str, str]
    body: bytes

    @property
    def json(self) -> Any:
        return json.loads(self.body)


class Client:
    """Asks the application directly: any method, any header, any path, also those a real client would not send."""

    def __init__(self, root: Path, token: str | None = None, names: Iterable[str] = ()) -> None:
        self.inner, self.app = application(root, token, names)

    def ask(
        self,
        method: str,
        path: str,
        body: Any = None,
        headers: Mapping[str, str] | None = None,
        query: str = "",
        kind: str = "http",
    ) -> Answer:
        path, _, asked = path.partition("?")
        given = {"host": "127.0.0.1:4270", **(headers or {})}
        data = b"" if body is None else body if isinstance(body, bytes) else json.dumps(body).encode()
        if body is not None:
            given.setdefault("content-type", "application/json")
        scope = {
            "type": kind,
            "asgi": {"version": "3.0"},
            "http_version": "1.1",
            "method": method,
            "scheme": "http",
            "path": path,
            "raw_path": path.encode(),
            "query_string": (query or asked).encode(),
            "root_path": "",
            "headers": [(key.lower().encode(), value.encode("latin-1")) for key, value in given.items() if value != ""],
            "client": ("127.0.0.1", 1),
            "server": ("127.0.0.1", 4270),
        }
        return asyncio.run(self._call(scope, data))

    async def _call(self, scope: dict[str, Any], data: bytes) -> Answer:
        sent: list[Any] = []
        left = [data[at : at + 65536] for at in range(0, len(data), 65536)] or [b""]
        done = asyncio.Event()

        async def receive() -> dict[str, Any]:
            if left:
                return {"type": "http.request", "body": left.pop(0), "more_body": bool(left)}
            await done.wait()
            return {"type": "http.disconnect"}

        async def send(message: Any) -> None:
            sent.append(message)
            if message["type"] == "http.response.body" and not message.get("more_body"):
                done.set()

        await asyncio.wait_for(self.app(scope, receive, send), patience(30))
        start = sent[0]
        if start["type"] == "websocket.close":
            return Answer(int(start["code"]), {}, b"")
        headers = {key.decode(): value.decode("latin-1") for key, value in start.get("headers", [])}
        return Answer(start["status"], headers, b"".join(one.get("body", b"") for one in sent[1:]))

    def get(self, path: str, **headers: str) -> Answer:
        return self.ask("GET", path, headers=headers)

    def post(self, path: str, body: Any = None) -> Answer:
        return self.ask("POST", path, body)


def record_run(
    folder: Path, run_id: str, points: Mapping[str, Iterable[float]], *, tags: Iterable[str] = (), end: str = "FINISHED"
) -> Recorder:
    """A run whose points have the steps 0, 1, 2, …"""
    folder.mkdir(parents=True, exist_ok=True)
    recorder = Recorder(
        folder, run_id, run_id, role="main", attempt=1, tags=tags, system_metrics=False, collect_provenance=False
    )
    for tag, values in points.items():
        array = np.array(list(values), "<f8")
        steps = np.arange(len(array), dtype="<i8")
        recorder.add_array(tag, steps, 1e9 + steps.astype("<f8"), array)
    if end:
        recorder.end(end)
    return recorder


CONFIG = {
    "task": {
        "search_args": [
            {"type": "Real", "name": "lr", "data": [1e-5, 1e-1], "log": True},
            {"type": "Int", "name": "units", "data": [1, 64]},
            {"type": "Categorical", "name": "act", "data": ["relu", "tanh"]},
        ]
    },
    "searcher": {"type": "RandomSearcher", "reward_attribute": "acc"},
    "scheduler": {"parallel_size": 2, "stop_criterion": {"max_tries": 12, "time_limits": "1h"}},
}


class MadeSearch:
    """A search as its journal tells it, with a run for each job; it goes on until :meth:`close`."""

    def __init__(self, root: Path, name: str = "made", jobs: int = 12) -> None:
        self.name = name
        self.folder = root / "searches" / name
        self.folder.mkdir(parents=True)
        (self.folder / "search.yaml").write_text("task: {}\n")
        self.journal = Journal.open(self.folder)
        self.began = time.time() - 100
        self.journal.append(
            "opened", name=name, config=CONFIG, digest="", maximize=True, reward="acc", scalars=[], compare={},
            origin=None, host="here", pid=1, wall=self.began,
        )  # fmt: skip
        self.count = 0
        for _ in range(jobs):
            self.add_job()
        self.journal.commit()

    def add_job(self, status: str = "FINISHED", reward: float | None = None, **more: Any) -> str:
        number, self.count = self.count, self.count + 1
        config = {"lr": 10.0 ** -(1 + number % 5), "units": 1 + number, "act": "relu" if number % 2 else "tanh"}
        job = str(number)
        self.journal.append("proposed", number=number, config=config)
        self.journal.append("submitting", job=job, number=number, seed=None, attempt=1, token=f"t{number}")
        started = self.began + 2 * (number // 2)
        self.journal.append("started", job=job, attempt=1, wall=started)
        if status != "RUNNING":
            reward = number / 10 if reward is None else reward
            given = {"reward": reward} if status in ("FINISHED", "STOPPED") else {"error": "exit code 3"}
            self.journal.append("ended", job=job, attempt=1, status=status, wall=started + 1.5, **given, **more)
            values = {"acc": reward} if "reward" in given else {}
            self.journal.append("observed", number=number, status=status, values=values, reward=values.get("acc"))
        folder = self.folder / "jobs" / job
        record_run(folder / "run", f"{self.name}/{job}", {"acc": [0.0, number / 20, number / 10], "loss": [2.0, 1.0]})
        (folder / "stdout").write_text(f"\x1b[31mjob {number}\x1b[0m\n50%\r100%\n")
        self.journal.commit()
        return job

    def close(self, status: str = "FINISHED") -> None:
        self.journal.append("closed", status=status, reason="all done", wall=self.began + 60)
        self.journal.close()


def decode_charts(body: bytes) -> tuple[dict[str, Any], list[dict[str, Any]]]:
    """The header of a charts answer, and each series with its columns."""
    (length,) = struct.unpack_from("<I", body)
    header = json.loads(body[4 : 4 + length])
    assert (4 + length) % 8 == 0
    found = []
    for one in header["series"]:
        columns = {}
        for place, name in enumerate(one["fields"]):
            columns[name] = np.frombuffer(body, "<f8", one["n"], one["offset"] + 8 * place * one["n"])
        found.append({**one, **columns})
    return header, found
