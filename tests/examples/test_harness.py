"""examples/harness: each command and the tree outside the package, with trainings made short."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest
from tests.machine import patience

from operant.harness.tree import CONF
from operant.schedulers.views.overview import describe
from operant.tracking import Run

EXAMPLES = Path(__file__).parents[2] / "examples" / "harness"
SHORT = ("stop_conditions.timesteps_total=1000", "evaluation.evaluation_duration=1")
SMALL = ("stop_conditions.training_iteration=2", "training.train_batch_size_per_learner=128")
RLLIB = pytest.param("rllib", marks=[pytest.mark.long, pytest.mark.timeout(900)])
RAY = pytest.param("ray", marks=[pytest.mark.long, pytest.mark.timeout(1800)])


def ran(*words: str, seconds: float = 120) -> str:
    """What a command printed; it is called in the test's own folder."""
    path = f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}"
    env = {**os.environ, "PATH": path, "RAY_AUTH_MODE": "token", "OMP_NUM_THREADS": "1"}
    done = subprocess.run(words, capture_output=True, text=True, timeout=patience(seconds), env=env)
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


def runs() -> list[Run]:
    return [Run.open(one.name) for one in Path(".operant/runs").iterdir()]


@pytest.mark.parametrize("library", ["operant", RLLIB])
def test_dqn_and_a_look_at_it(library: str) -> None:
    script = str(EXAMPLES / "dqn.sh")
    ran("sh", script, f"algo.library={library}", *SHORT, seconds=300)
    [run] = runs()
    assert run.params["algo.library"] == library and len(run.scalars("env_runners/episode_return_mean")["value"])
    place = run.id if library == "operant" else str(Path(".operant/runs").absolute())
    out = ran("sh", str(EXAMPLES / "view.sh"), f"algo.library={library}", f"algo.checkpoint_path={place}", seconds=300)
    assert "wrote view.gif" in out and Path("view.gif").read_bytes().startswith(b"GIF8")
    assert len(Path("view.csv").read_text().splitlines()) == 3


@pytest.mark.long
@pytest.mark.parametrize("library", ["operant", RLLIB])
def test_ppo(library: str) -> None:
    more = SMALL if library == "rllib" else SHORT
    ran("sh", str(EXAMPLES / "ppo.sh"), f"algo.library={library}", *more, "training.num_epochs=1", seconds=300)
    [run] = runs()
    assert len(run.scalars("env_runners/episode_return_mean")["value"])


@pytest.mark.long
@pytest.mark.parametrize("engine", ["operant", RAY])
def test_a_search_of_eight_trials(engine: str) -> None:
    ran("sh", str(EXAMPLES / "tune.sh"), f"tune.engine={engine}", SHORT[0], seconds=600)
    if engine == "operant":
        jobs = describe(Path(".operant/searches/cartpole-lr"))["jobs"]
        assert len(jobs) == 8 and {job["status"] for job in jobs} == {"FINISHED"}
    else:
        assert len(runs()) == 8 and len({run.params["training.lr"] for run in runs()}) == 8


def test_a_sweep() -> None:
    ran("sh", str(EXAMPLES / "sweep.sh"), *SHORT)
    assert sorted(run.params["training.gamma"] for run in runs()) == [0.9, 0.95]


def test_a_tree_outside_the_package() -> None:
    ran(sys.executable, str(EXAMPLES / "own_tree" / "main.py"), "cli.mode=train", *SHORT)
    [run] = runs()
    assert run.params["training.lr"] == 0.0001 and run.params["environment.env"] == "Acrobot-v1"
    assert not (CONF / "training" / "patient.yaml").exists()
