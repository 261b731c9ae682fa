"""Each step of docs/task.md learns CartPole: a little in the normal tier, all of it in the long one."""

from __future__ import annotations

import os
import re
import runpy
import subprocess
import sys
from pathlib import Path

import pytest
from tests.machine import patience

from operant import Run

EXAMPLES = Path(__file__).parents[2] / "examples"
STEPS = sorted((EXAMPLES / "task").glob("step*.py"), key=lambda path: int(re.findall(r"\d+", path.name)[0]))
IN_ONE_PROCESS = [path for path in STEPS if "Parallel" not in path.read_text()]
A_LITTLE = 60.0  # an untrained policy gets 9 to 22
LESS = 35.0  # what several processes need not learn as well


@pytest.fixture
def in_process(monkeypatch, capsys):
    """Run a step here, where torch is loaded already; returns what it printed."""
    monkeypatch.setenv("STOP_VALUE", str(A_LITTLE))
    monkeypatch.syspath_prepend(str(EXAMPLES / "task"))

    def run(path):
        try:
            runpy.run_path(str(path), run_name="__main__")
        finally:
            for name in ("cartpole", "middleware"):
                sys.modules.pop(name, None)
        return capsys.readouterr().out

    return run


def in_a_process_of_its_own(path, **environment):
    done = subprocess.run(
        [sys.executable, path],
        env={**os.environ, "OMP_NUM_THREADS": "1", "PYTHONPATH": os.pathsep.join(sys.path), **environment},
        capture_output=True,
        text=True,
        timeout=patience(600),
    )
    assert done.returncode == 0, done.stderr
    return done.stdout


def mean_return(out):
    found = re.search(r"^mean return ([\d.]+)", out, re.MULTILINE)
    assert found is not None, out
    return float(found.group(1))


def test_all_steps_are_here():
    assert [path.name.split("_")[0] for path in STEPS] == [f"step{number}" for number in range(1, 11)]
    assert len(IN_ONE_PROCESS) == 7


@pytest.mark.parametrize("path", IN_ONE_PROCESS, ids=lambda path: path.stem)
def test_a_step_begins_to_learn(path, in_process):
    out = in_process(path)
    assert mean_return(out) >= A_LITTLE
    assert ("evaluate" in out) == ("StepTimer" in path.read_text())
    evaluated = Run.open("last").scalars("evaluation/return")["value"]
    assert evaluated[-1] >= A_LITTLE > evaluated[0]


def test_ctx_carries_what_the_steps_need(in_process):
    out = in_process(EXAMPLES / "task" / "step4_ctx.py")
    steps, iterations = (int(number) for number in re.findall(r"(\d+) (?:steps|iterations)", out))
    # Eight environments fill the first batch of 64 in eight passes; from then on three updates for each pass.
    assert iterations == 3 * (steps // 8 - 7)
    weights = Run.open("last").folder / "checkpoints"
    assert (weights / "last.safetensors").is_file()  # saved by the pass that began with finish set


def test_three_whole_loops_side_by_side():
    out = in_a_process_of_its_own(EXAMPLES / "task" / "step7_parallel.py", STOP_VALUE=str(LESS))
    assert mean_return(out) >= LESS
    steps = [int(number) for number in re.findall(r"^node \d: .* after (\d+) steps", out, re.MULTILINE)]
    assert len(steps) == 3 and min(steps) > 0


def test_the_evaluator_on_its_own_process_ends_the_training():
    out = in_a_process_of_its_own(EXAMPLES / "task" / "step8_evaluator_process.py", STOP_VALUE=str(LESS))
    assert mean_return(out) >= LESS
    assert int(re.findall(r"node 0 made (\d+) iterations and saved", out)[0]) > 0
    runs = [Run.open(path.name) for path in sorted(Path(".operant/runs").iterdir())]
    judged = [run for run in runs if "evaluation/return" in run.scalar_tags]
    learned = [run for run in runs if "learner/q_loss" in run.scalar_tags]
    assert len(judged) == len(learned) == 1 and judged[0].id != learned[0].id
    assert (learned[0].folder / "checkpoints" / "last.safetensors").is_file()


@pytest.mark.long
@pytest.mark.timeout(600)
@pytest.mark.parametrize("path", STEPS, ids=lambda path: path.stem)
def test_a_step_learns_cartpole(path):
    assert mean_return(in_a_process_of_its_own(path)) >= 195
