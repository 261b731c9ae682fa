"""A real search of 200 jobs that goes on when it is told to: programs that report, fail, are stopped early, or wait."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import yaml
from tests.machine import patience

import operant
from operant.schedulers.views.overview import describe

JOBS = 200
PARALLEL = 4
FIRST_GATE = 120
SECOND_GATE = JOBS - PARALLEL
WAIT_SECONDS = 120.0

PROGRAM = """
import json, math, os, sys, time

job, source, gates, every = int(sys.argv[1]), sys.argv[2], sys.argv[3], int(sys.argv[4])
given = dict(zip(sys.argv[5::2], sys.argv[6::2]))
rate, layers, dropout = float(given["--lr"]), int(given["--layers"]), float(given["--dropout"])
momentum = float(given.get("--momentum", 0.8))

if job >= {second}:
    gate = "second"
elif job >= {first}:
    gate = "first"
else:
    gate = None
while gate and not os.path.exists(os.path.join(gates, gate)):
    time.sleep(0.02)
if job % 25 == 13:
    print("the loss is not a number", file=sys.stderr)
    sys.exit(3)
best = 0.98 - 0.06 * (math.log10(rate) + 2.5) ** 2 - 0.015 * abs(layers - 5) - 0.3 * (dropout - 0.2) ** 2
best -= 0.1 * (momentum - 0.9) ** 2 + (0.03 if given["--activation"] == "tanh" else 0.0)
best += 0.01 * math.sin(job * 12.9898)
if job % every:
    json.dump({{"accuracy": best}}, open("result.json", "w"))
    sys.exit()
sys.path.insert(0, source)
from operant.tracking import SummaryWriter

is_hopeless = job % 16 == 8
writer = SummaryWriter("training")
for step in range(20):
    if is_hopeless and step > 3:  # slow enough that it is stopped on its way, and ends all the same where it is not
        writer.flush()
        time.sleep(0.3)
    reached = (0.1 if is_hopeless else best) * (1 - math.exp(-(step + 1) / 5)) if step < 19 or is_hopeless else best
    writer.add_scalar("accuracy", reached, step)
    writer.add_scalar("loss", 1.5 - reached, step)
writer.close()
"""

SEARCH = {
    "task": {
        "template": (
            "{python} -I -S train.py {{job_id}} {source} {gates} {every} --lr {{lr}} --layers {{layers}}"
            " --dropout {{dropout}} --activation {{activation}} --optimizer {{optimizer}} --momentum {{momentum}}"
        ),
        "search_args": [
            {"type": "Real", "name": "lr", "data": [1e-5, 1e-1], "log": True},
            {"type": "Int", "name": "layers", "data": [1, 8]},
            {"type": "Real", "name": "dropout", "data": [0.0, 0.6]},
            {"type": "Categorical", "name": "activation", "data": ["relu", "tanh", "gelu"]},
            {"type": "Categorical", "name": "optimizer", "data": ["adam", "sgd"]},
            {"type": "Real", "name": "momentum", "data": [0.5, 0.99], "when": {"optimizer": "sgd"}},
        ],
    },
    "searcher": {"type": "RandomSearcher", "reward_attribute": "accuracy", "seed": 7},
    "scheduler": {
        "parallel_size": PARALLEL,
        "grace_period": 1,
        "stop_criterion": {"max_tries": JOBS},
        "assessor": {"type": "MedianStopAssessor", "start_step": 3},
    },
}


class RunningSearch:
    """A search under way in another process. Its jobs wait at two gates that the test opens."""

    def __init__(self, root: Path, name: str, gates: Path, process: subprocess.Popen[bytes]) -> None:
        self.root = root
        self.name = name
        self.folder = root / "searches" / name
        self._gates = gates
        self._process = process

    def open_gate(self, name: str) -> None:
        (self._gates / name).touch()

    def journal(self) -> dict[str, Any]:
        """The search as its journal tells it now."""
        return describe(self.folder)

    def jobs(self) -> dict[str, dict[str, Any]]:
        return {job["id"]: job for job in self.journal()["jobs"]}

    def wait_until_it_stands(self, waiting_from: int) -> None:
        """Wait until the jobs from that one on stand at their gate, and all before it have ended."""
        expected = {str(job) for job in range(waiting_from, waiting_from + PARALLEL)}

        def stands() -> bool:
            statuses = {one: job["status"] for one, job in self.jobs().items()}
            running = {one for one, status in statuses.items() if status == "RUNNING"}
            return running == expected and len(statuses) == waiting_from + PARALLEL

        wait_for(stands, f"the search to stand at job {waiting_from}", self._process)

    def wait_until_it_ends(self) -> None:
        wait_for(lambda: self._process.poll() is not None, "the search to end")


def wait_for(condition: Callable[[], bool], what: str, process: subprocess.Popen[bytes] | None = None) -> None:
    deadline = time.monotonic() + patience(WAIT_SECONDS)
    while not condition():
        assert process is None or process.poll() is None, f"the search ended while the test waited for {what}"
        assert time.monotonic() < deadline, f"waited {WAIT_SECONDS:.0f} s for {what}"
        time.sleep(0.05)


@contextmanager
def start_search(home: Path, name: str = "digits", every: int = 4) -> Iterator[RunningSearch]:
    """Start the search below ``home``; each ``every``-th job reports on its way, the others only give their result."""
    project, gates, root = home / name / "project", home / name / "gates", home / ".operant"
    for folder in (project, gates, root):
        folder.mkdir(parents=True, exist_ok=True)
    (project / "train.py").write_text(PROGRAM.format(first=FIRST_GATE, second=SECOND_GATE))
    config: dict[str, Any] = yaml.safe_load(yaml.safe_dump(SEARCH))
    source = Path(operant.__file__).parent.parent
    config["task"]["template"] = config["task"]["template"].format(
        python=sys.executable, source=source, gates=gates, every=every
    )
    (project / "search.yaml").write_text(yaml.safe_dump(config, sort_keys=False))
    environment = {key: value for key, value in os.environ.items() if not key.startswith("OPERANT_")}
    environment |= {"OPERANT_DIR": str(root), "OPERANT_CACHE_DIR": str(home / name / "cache"), "OMP_NUM_THREADS": "1"}
    start = "import sys; from operant.cli.search_scripts import run_main; sys.exit(run_main())"
    with (home / name / "search.log").open("wb") as log:
        process = subprocess.Popen(
            [sys.executable, "-c", start, "--task", name, "search.yaml"],
            cwd=project,
            env=environment,
            stdin=subprocess.DEVNULL,
            stdout=log,
            stderr=subprocess.STDOUT,
        )
        try:
            yield RunningSearch(root, name, gates, process)
        finally:
            if process.poll() is None:
                process.send_signal(signal.SIGINT)
                try:
                    process.wait(timeout=patience(20))
                except subprocess.TimeoutExpired:
                    process.kill()
                    process.wait()
