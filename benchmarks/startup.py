"""How long the commands take that people wait for at the prompt, against Python itself and the peers' imports.

    .venv/bin/python benchmarks/startup.py

Every command runs 20 times, in turns; least and median count. The peers are those of `.venv-peers`, which
`make bench-tracking` makes; without it they are left out.
"""

from __future__ import annotations

import argparse
import os
import platform
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path

from peers import VENV, find_peers

RUNS = 1000
MODULES = {"tensorboardX": "tensorboardX", "Aim": "aim", "MLflow": "mlflow", "W&B": "wandb", "Trackio": "trackio"}


@dataclass
class Command:
    name: str
    words: list[str]
    folder: Callable[[], Path]
    """Where it runs; asked anew for each turn, so that `operant init` always has something to make."""
    wall: list[float] = field(default_factory=list)
    cpu: list[float] = field(default_factory=list)

    def take_turn(self, environment: dict[str, str]) -> None:
        folder = self.folder()
        started = time.perf_counter()
        process = subprocess.Popen(
            self.words, cwd=folder, env=environment, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL
        )
        _, status, used = os.wait4(process.pid, 0)
        self.wall.append(time.perf_counter() - started)
        process.returncode = os.waitstatus_to_exitcode(status)
        self.cpu.append(used.ru_utime + used.ru_stime)
        if process.returncode:
            raise SystemExit(f"{' '.join(self.words)} ended with {process.returncode}")


def make_runs(folder: Path, count: int) -> None:
    """Runs as the jobs of a search make them: they do not each look up the packages."""
    from operant import SummaryWriter
    from operant.tracking.places import find_root, new_run_id, run_dir

    (folder / ".operant").mkdir()
    root = find_root(folder)
    for number in range(count):
        run_id = new_run_id(f"job-{number}")
        os.environ["OPERANT_RUN_DIR"], os.environ["OPERANT_RUN_ID"] = str(run_dir(root, run_id)), run_id
        with SummaryWriter(f"job-{number}", system_metrics=False) as writer:
            for step in range(10):
                writer.add_scalar("return", float(step), step)
    del os.environ["OPERANT_RUN_DIR"], os.environ["OPERANT_RUN_ID"]


def commands(scratch: Path, runs: int, venv: Path) -> list[Command]:
    empty, full = scratch / "empty", scratch / "full"
    for folder in (empty, full):
        folder.mkdir()
    (empty / ".operant").mkdir()
    make_runs(full, runs)
    fresh = (scratch / f"init-{number}" for number in range(1_000_000))

    def fresh_folder() -> Path:
        folder = next(fresh)
        folder.mkdir()
        return folder

    python = sys.executable
    operant = [python, "-m", "operant"]
    found = [
        Command("`python -c pass`", [python, "-c", "pass"], lambda: empty),
        Command("`operant --help`", [*operant, "--help"], lambda: empty),
        Command("`operant init`", [*operant, "init"], fresh_folder),
        Command("`operant runs`, none", [*operant, "runs"], lambda: empty),
        Command(f"`operant runs`, {runs:,} in the index", [*operant, "runs"], lambda: full),
        Command(
            "`from operant import SummaryWriter`", [python, "-c", "from operant import SummaryWriter"], lambda: empty
        ),
    ]
    peers = find_peers(venv, make=False)
    for name, module in MODULES.items():
        if peers.python is not None and name not in peers.missing:
            words = [str(peers.python), "-c", f"import {module}"]
            found.append(Command(f"`import {module}`", words, lambda: empty))
    return found


def table(found: list[Command]) -> list[str]:
    base = min(found[0].wall)
    lines = [
        "| command | by the clock: least, ms | median, ms | CPU: least, ms | median, ms | over `python -c pass`, ms |",
        "|---|---:|---:|---:|---:|---:|",
    ]
    for one in found:
        times = (min(one.wall), statistics.median(one.wall), min(one.cpu), statistics.median(one.cpu))
        cells = " | ".join(f"{seconds * 1000:.0f}" for seconds in times)
        over = "" if one is found[0] else f"{(min(one.wall) - base) * 1000:.0f}"
        lines.append(f"| {one.name} | {cells} | {over} |")
    return lines


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--quick", action="store_true", help="few turns and few runs, to see that it works")
    parser.add_argument("--turns", type=int, default=20)
    parser.add_argument("--peers", type=Path, default=VENV, metavar="FOLDER", help="the peers' virtual environment")
    args = parser.parse_args()
    turns, runs = (2, 20) if args.quick else (args.turns, RUNS)
    with tempfile.TemporaryDirectory(prefix="operant-benchmark-") as scratch:
        environment = {name: value for name, value in os.environ.items() if not name.startswith("OPERANT_")}
        environment |= {"OPERANT_CACHE_DIR": str(Path(scratch, "cache")), "HOME": scratch}
        found = commands(Path(scratch), runs, args.peers.absolute())
        for one in found:
            one.take_turn(environment)  # byte code is written, files are cached, the runs get into the index
            one.wall.clear()
            one.cpu.clear()
        for _ in range(turns):
            for one in found:
                one.take_turn(environment)
    print(f"{os.cpu_count()} cores, Python {platform.python_version()}, {turns} turns.\n")
    print("\n".join(table(found)))


if __name__ == "__main__":
    main()
