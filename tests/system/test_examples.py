"""Every example in the repository runs."""

from __future__ import annotations

import argparse
import os
import subprocess
import sys
from pathlib import Path

import pytest
from tests.machine import patience

from operant import Run
from operant.cli._dispatch import command_module

EXAMPLES = Path(__file__).parents[2] / "examples"


def run_example(name: str, *words: str) -> str:
    command = [sys.executable, str(EXAMPLES / name), *words]
    done = subprocess.run(command, capture_output=True, text=True, timeout=patience(110), env=os.environ)
    assert done.returncode == 0, done.stderr
    return done.stdout


def test_five_lines() -> None:
    assert run_example("tracking/five_lines.py").startswith("31.6")


def test_hill_climb_learns() -> None:
    run_example("tracking/hill_climb.py", "--iterations", "60", "--seed", "1")
    run = Run.open("last")
    best = run.scalars("best return")["value"]
    assert best[-1] > 3 * best[0]
    assert run.media("angle of the pole")


def test_demo(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("TMPDIR", str(tmp_path))
    out = run_example("demo.py")
    assert "hill-climb" in out and "tensorboard --logdir" in out
    told = out.partition("Three to type next")[2]
    commands = [line for line in told.splitlines() if line.startswith("operant ")]
    assert len(commands) == 3
    for line in commands:  # each is understood as it stands
        words = line.partition("  ")[0].split()[1:]
        parsed = argparse.ArgumentParser()
        command_module(words[0]).configure(parsed)
        parsed.parse_args(words[1:])


def test_the_readme_shows_the_example_as_it_is() -> None:
    readme = (EXAMPLES.parent / "README.md").read_text(encoding="utf-8")
    assert (EXAMPLES / "tracking" / "five_lines.py").read_text(encoding="utf-8") in readme
