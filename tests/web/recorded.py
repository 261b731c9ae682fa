"""Runs and a small search, recorded with the real recorder and the real scheduler, for tests of the page."""

from __future__ import annotations

import math
import os
import subprocess
import sys
import textwrap
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any
from unittest.mock import patch

import numpy as np
from tests.machine import patience

from operant.tracking import SummaryWriter

SCRIPT = "<img src=x onerror=alert(1)>"
"""What must be shown as text wherever it turns up."""
MANY_TAGS = 100
POINTS = 4000
RATES = (0.0003, 0.001, 0.003)

JOB = """
import sys
from operant import SummaryWriter
rate = float(sys.argv[1])
print("\\x1b[31mrate is", rate, "\\x1b[0m")
print("<b>bold?</b>", file=sys.stderr)
with SummaryWriter() as writer:
    for step in range(20):
        writer.add_scalar("reward", rate * step, step)
"""
SEARCH = """
task:
    template: "{python} job.py {{rate}}"
    search_args:
        - type: Categorical
          name: rate
          data: [0.5, 2.0]
searcher:
    type: GridSearcher
    reward_attribute: reward
scheduler:
    type: FIFO
    parallel_size: 1
"""


def writer(root: Path, name: str, **options: Any) -> SummaryWriter:
    return SummaryWriter(name, root=root, system_metrics=False, **options)


def curve(number: int, steps: Any) -> Any:
    """Values of run ``number``: a slope by its rate, a wave by its number, and one point far out."""
    rate = RATES[number % len(RATES)]
    values = 100 * (1 - np.exp(-steps * rate / 2)) + np.sin(steps / 7 + number)
    values[1234] = 250.0
    return values


def record_runs(root: Path, count: int = 6) -> list[str]:
    """``count`` plain runs `agent-0…`; returns their ids."""
    steps = np.arange(POINTS)
    ids = []
    for number in range(count):
        with writer(root, f"agent-{number}", tags=["baseline"] if number < 2 else []) as one:
            one.add_hparams({"rate": RATES[number % len(RATES)], "batch": 32 * (1 + number % 2), "seed": number})
            values = curve(number, steps)
            for step in range(POINTS):
                one.add_scalar("eval/return", values[step], step)
                if step % 4 == 0:
                    one.add_scalar("train/loss", math.exp(-step / 900) + 0.01, step)
                    one.add_scalar("train/norm", math.nan if 1000 <= step < 1200 else 1.0 + step, step)
            one.add_scalar("speed", 1000.0 + number, 0)
        ids.append(one.run_id)
    return ids


def record_small_runs(root: Path, count: int) -> list[str]:
    """Many runs of three points each, as jobs record them (who looks for no commit and no packages); their ids."""
    ids = [f"small-{number:03d}" for number in range(count)]
    for number, run_id in enumerate(ids):
        told = {"OPERANT_RUN_DIR": str(root / "runs" / run_id), "OPERANT_RUN_ID": run_id}
        with patch.dict(os.environ, told), writer(root, "small") as one:
            one.add_hparams({"rate": 0.1 * (number % 4), "batch": number % 2, "seed": number, "size": 3})
            one.add_array("loss", np.arange(3.0) + number)
    return ids


def record_seeds(root: Path, name: str, finals: Sequence[float], first: int = 0, **settings: Any) -> list[str]:
    """Trainings of one kind, one for each seed, that end at these returns."""
    ids = []
    for seed, final in enumerate(finals, first):
        config = {"env.id": "Pole", "env.arguments": "{}", "seed": seed, **settings}
        with SummaryWriter(f"{name}-seed{seed}", root=root, config=config, system_metrics=False) as writer:
            for step in range(3):
                writer.add_scalar("evaluation/return", final * step / 2, 100 * step)
        ids.append(writer.run_id)
    return ids


def record_everything(root: Path, folder: Path) -> str:
    """One run with a record of every kind, hostile text in all of them; returns its id."""
    weights = folder / "weights.txt"
    weights.write_text("1 2 3\n", encoding="utf-8")
    with writer(root, SCRIPT, tags=[SCRIPT]) as one:
        one.add_hparams({SCRIPT: SCRIPT, "net": {"hidden": [64, 64]}, "rate": 0.25})
        for step in range(50):
            one.add_scalar(f"{SCRIPT}/loss", 1 / (step + 1), step)
            for name, milliseconds in (("collect", 3.0), ("learn", 6.0), ("step", 10.0)):
                one.add_scalar(f"time/{name}", milliseconds, step)
            one.add_scalar("system/cpu_percent", 40.0 + step % 5, step)
        one.add_text(SCRIPT, f"first {SCRIPT}\nsecond line", 3)
        for step in (0, 10, 20):
            one.add_image("view", np.full((3, 12, 16), step * 10, np.uint8), step)
        frames = np.zeros((4, 12, 16, 3), np.uint8)
        frames[:, 4:8, 4:8] = 200
        one.add_video("episode", frames, 5, fps=4)
        one.add_histogram("weights", np.linspace(-1, 1, 500), 0)
        one.add_file(weights)
    return one.run_id


def record_many_tags(root: Path) -> str:
    with writer(root, "many-tags") as one:
        for tag in range(MANY_TAGS):
            for step in range(3):
                one.add_scalar(f"layer{tag:03d}/norm", float(tag + step), step)
    return one.run_id


def record_with_changes(root: Path, folder: Path) -> str:
    """A run of a program in a git folder with uncommitted changes; returns its id."""
    here = folder / "project"
    here.mkdir()
    program = here / "train.py"
    identity = ["-c", "user.name=tester", "-c", "user.email=tester@example.invalid"]
    program.write_text("rate = 1\n", encoding="utf-8")
    for words in (["init", "-q"], ["add", "train.py"], [*identity, "commit", "-qm", "first"]):
        subprocess.run(["git", *words], cwd=here, check=True, capture_output=True)
    program.write_text(
        textwrap.dedent(
            f"""
            rate = 2  # {SCRIPT}
            from operant import SummaryWriter
            with SummaryWriter("changed", system_metrics=False) as writer:
                writer.add_scalar("loss", 1.0, 0)
                print(writer.run_id)
            """
        ),
        encoding="utf-8",
    )
    done = subprocess.run(
        [sys.executable, "train.py"],
        cwd=here,
        env={**os.environ, "OPERANT_DIR": str(root)},
        check=True,
        capture_output=True,
        text=True,
    )
    return done.stdout.strip()


def run_search(root: Path, folder: Path, name: str) -> list[str]:
    """A grid of two jobs that print and record; returns the ids of their runs."""
    here = folder / "search"
    here.mkdir()
    (here / "job.py").write_text(JOB, encoding="utf-8")
    (here / "search.yaml").write_text(SEARCH.format(python=sys.executable), encoding="utf-8")
    command = [sys.executable, "-c", "import sys; from operant.cli import main; sys.exit(main())"]
    environment = {**os.environ, "OPERANT_DIR": str(root), "OPERANT_CACHE_DIR": str(folder / "search-cache")}
    subprocess.run(
        [*command, "search", "search.yaml", "--task", name], cwd=here, env=environment, check=True, capture_output=True
    )
    return [f"{name}/{job.name}" for job in sorted((root / "searches" / name / "jobs").iterdir())]


WAITING_JOB = """
import sys, time
from pathlib import Path
from operant import SummaryWriter
writer = SummaryWriter()
writer.add_scalar("reward", float(sys.argv[1]), 0)
writer.flush()
print("begun", flush=True)
while not Path({proceed!r}).exists():
    time.sleep(0.02)
print("went on", flush=True)
while True:
    time.sleep(0.05)
"""


@contextmanager
def waiting_job(root: Path, folder: Path, name: str) -> Iterator[tuple[str, Path]]:
    """A search whose only job prints, waits for a file, prints again and never ends; gives its id and the file."""
    here = folder / name
    here.mkdir()
    proceed = here / "proceed"
    (here / "job.py").write_text(WAITING_JOB.format(proceed=str(proceed)), encoding="utf-8")
    one = SEARCH.format(python=sys.executable).replace("[0.5, 2.0]", "[1.0]")
    (here / "search.yaml").write_text(one, encoding="utf-8")
    command = [sys.executable, "-c", "import sys; from operant.cli import main; sys.exit(main())"]
    environment = {**os.environ, "OPERANT_DIR": str(root), "OPERANT_CACHE_DIR": str(folder / "search-cache")}
    with (here / "log").open("wb") as log:
        search = subprocess.Popen(
            [*command, "search", "search.yaml", "--task", name], cwd=here, env=environment, stdout=log, stderr=log
        )
    try:
        yield f"{name}/0", proceed
    finally:
        search.terminate()
        search.wait(timeout=patience(30))


LIVE = """
import sys
from operant import SummaryWriter
with SummaryWriter("live", system_metrics=False) as writer:
    writer.add_hparams({"rate": 1.0})
    step = 0
    print(writer.run_id, flush=True)
    for line in sys.stdin:
        for _ in range(int(line)):
            writer.add_scalar("progress", float(step), step)
            step += 1
        writer.flush()
        print(step, flush=True)
"""


class LiveRun:
    """A program that records as many points as it is told to."""

    def __init__(self, process: subprocess.Popen[str]) -> None:
        self._process = process
        assert process.stdout is not None
        self.id = process.stdout.readline().strip()

    def record(self, points: int) -> None:
        assert self._process.stdin is not None and self._process.stdout is not None
        self._process.stdin.write(f"{points}\n")
        self._process.stdin.flush()
        self._process.stdout.readline()

    def end(self) -> None:
        self._process.communicate(timeout=patience(30))


@contextmanager
def live_run(root: Path) -> Iterator[LiveRun]:
    process = subprocess.Popen(
        [sys.executable, "-c", LIVE],
        env={**os.environ, "OPERANT_DIR": str(root)},
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    )
    try:
        yield LiveRun(process)
    finally:
        if process.poll() is None:
            process.kill()
        process.communicate()
