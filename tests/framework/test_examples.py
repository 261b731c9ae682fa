"""The examples of docs/task.md, each as a program of its own."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

EXAMPLES = Path(__file__).parents[2] / "examples" / "task"


@pytest.mark.parametrize(
    ("name", "expected"),
    [
        ("step1_single_loop", "saved at ["),
        ("step2_three_middleware", "saved at ["),
        ("step3_ctx", "saved at ["),
        ("step4_step_timer", "evaluate"),
        ("step5_async", "saved at ["),
        ("step6_parallel", "node 1 evaluated"),
    ],
)
def test_example(name: str, expected: str) -> None:
    done = subprocess.run(
        [sys.executable, str(EXAMPLES / f"{name}.py")],
        capture_output=True,
        text=True,
        timeout=60,
        env={**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)},
    )
    assert done.returncode == 0, done.stderr
    assert expected in done.stdout and "saved at []" not in done.stdout
