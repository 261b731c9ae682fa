"""The benchmark of LA-MCTS: its name is that of a library, which it must not hide."""

from __future__ import annotations

import json
import subprocess
import sys
from dataclasses import asdict
from pathlib import Path

import pytest

from operant.benchmark import Outcome

BENCHMARK = Path(__file__).parents[2] / "benchmarks" / "mujoco.py"


def test_it_reports_what_is_there(tmp_path: Path) -> None:
    runs = [
        Outcome("lamcts", "swimmer", 1000, 90, 330.0, 400, 3, hit=90, regions=5),
        Outcome("lamcts-no-tree", "swimmer", 1000, 400, 300.0, 400, 3),
    ]
    (tmp_path / "swimmer.jsonl").write_text("".join(json.dumps(asdict(one)) + "\n" for one in runs))
    command = [sys.executable, str(BENCHMARK), "--report", "--out", str(tmp_path)]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    assert "| lamcts | 1 | 1 | 90 | 270 | 330 |" in done.stdout
    assert "the tree had split before the hit in 1 of 1" in done.stdout
    assert "with the tree better than without in 1 of 1 seeds" in done.stdout


def test_a_script_beside_it_gets_the_library() -> None:
    pytest.importorskip("mujoco")
    folder = str(BENCHMARK.parent)
    program = f"import sys; sys.path.insert(0, {folder!r}); import mujoco; print(mujoco.mj_step.__name__)"
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=False)
    assert done.stdout.strip() == "mj_step", done.stderr
