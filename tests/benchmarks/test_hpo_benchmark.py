"""The benchmark of fluent searches runs and compares what it says."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

BENCHMARK = Path(__file__).parents[2] / "benchmarks" / "hpo.py"


def test_it_runs() -> None:
    command = [sys.executable, str(BENCHMARK), "--trials", "30", "--rounds", "1"]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    rows = {line.split()[0]: line for line in done.stdout.splitlines()[2:]}
    assert set(rows) == {"tpe", "random", "grid"} and all(line.count("x") >= 2 for line in rows.values())
