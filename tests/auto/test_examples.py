"""The examples of `examples/auto` do what they say."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest
from tests.machine import patience

EXAMPLES = Path(__file__).parents[2] / "examples" / "auto"


@pytest.mark.long
@pytest.mark.parametrize(
    ("words", "least"),
    [(["programmatic.py"], 195), (["own_environment.py"], 0.8), (["own_environment.py", "PPO"], 0.8)],
    ids=lambda words: "-".join(words) if isinstance(words, list) else str(words),
)
def test_examples(words, least):
    command = [sys.executable, str(EXAMPLES / words[0]), *words[1:]]
    done = subprocess.run(
        command, capture_output=True, text=True, timeout=patience(600), env={**os.environ, "OMP_NUM_THREADS": "1"}
    )
    assert done.returncode == 0, done.stderr
    found = re.search(r"best total reward ([\d.]+)", done.stdout)
    assert found is not None and float(found.group(1)) >= least
