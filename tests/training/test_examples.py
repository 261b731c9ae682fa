"""The examples of `examples/training` do what they say."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

EXAMPLES = Path(__file__).parents[2] / "examples" / "training"


def run(name, tmp_path):
    (tmp_path / ".operant").mkdir(exist_ok=True)
    done = subprocess.run(
        [sys.executable, EXAMPLES / name],
        cwd=tmp_path,
        env={**os.environ, "OMP_NUM_THREADS": "1"},
        capture_output=True,
        text=True,
        timeout=600,
    )
    assert done.returncode == 0, done.stderr
    return done.stdout


@pytest.mark.parametrize(
    "name",
    [
        pytest.param("step1_loop.py", marks=pytest.mark.long),
        pytest.param("step2_task.py", marks=pytest.mark.long),
        "step3_three_middleware.py",
        pytest.param("step4_async.py", marks=pytest.mark.long),
        pytest.param("step5_parallel.py", marks=pytest.mark.long),
        "step6_library.py",
        pytest.param("step7_distributed.py", marks=pytest.mark.long),
    ],
)
def test_cartpole_is_learned(name, tmp_path):
    out = run(name, tmp_path)
    found = re.search(r"mean return ([\d.]+)", out)
    assert found is not None, out
    assert float(found.group(1)) >= 195


@pytest.mark.long
def test_presets_from_python(tmp_path):
    assert out_best(run("train_presets.py", tmp_path)) >= 300


def out_best(text):
    return max(float(value) for value in re.findall(r"best mean return ([\d.]+)", text))
