"""Each illness is told once, in words; a gradient that is no number stops the run and leaves the last checkpoint."""

from __future__ import annotations

import math

import numpy as np
import pytest

from operant.algorithms import DivergedError
from operant.tracking import Run
from operant.training import CheckpointStore, load_config, train
from operant.training.doctor import Doctor, thread_warning


def complaints(doctor, count=200, progress=0.3, mean_return=None, **metrics):
    said = []
    for number in range(count):
        said += doctor.look(metrics, number if mean_return is None else mean_return, progress)
    return said


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        ({"entropy": 0.001}, "entropy of the policy has collapsed"),
        ({"approx_kl": 0.5}, "moves far in each update"),
        ({"explained_variance": -0.5}, "explained nothing"),
        ({"mean_return": 9.0}, "the mean return has been 9"),
    ],
)
def test_an_illness_is_told_once(arguments, words):
    said = complaints(Doctor(entropy_limit=math.log(2)), **arguments)
    assert len(said) == 1
    assert words in said[0]


def test_a_healthy_training_hears_nothing():
    doctor = Doctor(entropy_limit=math.log(2))
    assert complaints(doctor, entropy=0.5, approx_kl=0.01, explained_variance=0.8) == []
    assert complaints(doctor, progress=0.9, entropy=1e-4) == []


def test_what_was_said_is_remembered_over_a_resume():
    doctor = Doctor(entropy_limit=math.log(2))
    complaints(doctor, entropy=0.001)
    other = Doctor(entropy_limit=math.log(2))
    other.load_state_dict(doctor.state_dict())
    assert complaints(other, entropy=0.001) == []


def test_threads_that_fight_are_told(monkeypatch):
    monkeypatch.setattr("os.getloadavg", lambda: (99.0, 0.0, 0.0))
    assert "OMP_NUM_THREADS=1" in (thread_warning(8) or "")
    assert thread_warning(1) is None


def test_a_training_that_ends_before_it_learns_is_told(root):
    short = {"name": "pendulum-sac", "total_steps": 100, "evaluation": {"episodes": 1}}
    told = train({**load_config("pendulum-sac").to_mapping(), **short}, root=root).warnings
    assert told == (
        "learning begins after 100 steps and the training ends after 100: nothing will be learnt. A smaller "
        "algorithm.learning_starts or a larger total_steps helps",
    )


def poison_at(step):
    def make(training):
        def spoil(ctx):
            if training.env_step >= step:
                training.algorithm._flat.array[:] = np.nan

        return spoil

    return make


def test_nan_stops_the_run_and_leaves_the_last_good_checkpoint(root):
    config = {
        "total_steps": 2000,
        "env": {"id": "CartPole-v1", "num_envs": 2},
        "algorithm": {"name": "a2c"},
        "checkpoint": {"every": 100},
        "callbacks": [poison_at(550)],
    }
    with pytest.raises(DivergedError, match="not finite"):
        train(config, root=root)
    run = Run.open("last", root)
    assert run.status == "ERROR"
    step, state = CheckpointStore(run.folder / "checkpoints").load()
    assert step == 550 - 550 % 100 or step <= 550
    assert all(np.isfinite(value).all() for value in state["algorithm"]["weights"].values())
