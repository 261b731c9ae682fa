"""A training that is told to end saves, says how to go on, and goes on as if nothing had been."""

from __future__ import annotations

import multiprocessing
import os
import signal
import subprocess
import sys
import threading
import time
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from tests.machine import patience

from operant.tracking import Run
from operant.training import resume, train
from operant.training.checkpoints import CheckpointStore
from operant.training.interrupts import Interrupts, resume_command
from operant.training.seeds import _passing_on_sigterm

CONFIG: dict[str, Any] = {
    "total_steps": 1600,
    "env": {"id": "CartPole-v1", "num_envs": 4},
    "algorithm": {"name": "ppo", "rollout": 50},
    "evaluation": {"every": 100_000, "episodes": 2},
    "checkpoint": {"every": 100_000, "keep": 9},
}


class Signals:
    """A callback that sends signals to its own process at some step."""

    def __init__(self, step: int, *numbers: int) -> None:
        self.step, self.numbers = step, numbers

    def __call__(self, training: Any) -> Any:
        def send(ctx: Any) -> None:
            if training.env_step == self.step:
                for number in self.numbers:
                    os.kill(os.getpid(), number)

        return send


def last_weights(root: Path) -> tuple[int, Any, list[int]]:
    run = Run.open("last", root)
    store = CheckpointStore(run.folder / "checkpoints")
    step, state = store.load()
    return step, state["algorithm"]["weights"], store.steps()


@pytest.fixture
def whole(tmp_path: Path) -> Any:
    train(CONFIG, root=tmp_path / "whole")
    return last_weights(tmp_path / "whole")


@pytest.mark.parametrize(
    ("number", "raised"), [(signal.SIGINT, KeyboardInterrupt), (signal.SIGTERM, SystemExit)], ids=["INT", "TERM"]
)
def test_it_saves_and_goes_on_exactly(
    tmp_path: Path, whole: Any, number: int, raised: Any, capfd: pytest.CaptureFixture[str]
) -> None:
    before = {one: signal.getsignal(one) for one in (signal.SIGINT, signal.SIGTERM, signal.SIGUSR1)}
    with pytest.raises(raised) as caught:
        train({**CONFIG, "callbacks": [Signals(600, number)]}, root=tmp_path)
    assert {one: signal.getsignal(one) for one in before} == before
    if raised is SystemExit:
        assert caught.value.code == 143
    run = Run.open("last", tmp_path)
    sentence = f"saved at step 800; go on with: operant train --resume {run.id} --root {tmp_path / '.operant'}"
    assert capfd.readouterr().err.splitlines() == ["saving after this pass; once more ends at once", sentence]
    assert sentence in [one.text for one in run.text("log")]
    assert last_weights(tmp_path)[2] == [800]
    resume("last", ["callbacks=[]"], root=tmp_path)
    step, weights, _ = last_weights(tmp_path)
    assert step == whole[0] == 1600
    np.testing.assert_equal(weights, whole[1])


def test_usr1_saves_and_goes_on(tmp_path: Path, whole: Any) -> None:
    train({**CONFIG, "callbacks": [Signals(600, signal.SIGUSR1)]}, root=tmp_path)
    step, weights, steps = last_weights(tmp_path)
    assert steps == [800, 1600] and step == 1600
    np.testing.assert_equal(weights, whole[1])


def test_a_second_signal_ends_at_once(tmp_path: Path) -> None:
    with pytest.raises(KeyboardInterrupt, match="at once"):
        train({**CONFIG, "callbacks": [Signals(600, signal.SIGINT, signal.SIGINT)]}, root=tmp_path)
    run = Run.open("last", tmp_path)
    assert CheckpointStore(run.folder / "checkpoints").steps() == []


def test_a_signal_in_the_last_pass_changes_nothing(tmp_path: Path) -> None:
    result = train({**CONFIG, "callbacks": [Signals(1600, signal.SIGINT)]}, root=tmp_path)
    assert result.steps == 1600


def test_other_threads_hear_nothing_and_train(tmp_path: Path) -> None:
    before = signal.getsignal(signal.SIGINT)
    results = []
    thread = threading.Thread(target=lambda: results.append(train(CONFIG, root=tmp_path)))
    thread.start()
    thread.join()
    assert results[0].steps == 1600 and signal.getsignal(signal.SIGINT) is before


def test_the_command_ends_with_130_also_where_the_signal_was_ignored(tmp_path: Path) -> None:
    (tmp_path / ".operant").mkdir()
    (tmp_path / "own.py").write_text(
        "import os\n"
        "def stop(training):\n"
        f"    return lambda ctx: os.kill(os.getpid(), {int(signal.SIGINT)}) if training.env_step == 400 else None\n"
    )
    command = "operant train cartpole-a2c total_steps=4000 callbacks=[own.stop] evaluation.every=99999 --quiet"
    begun = subprocess.run(
        [sys.executable, "-c", f"from operant.cli import main; raise SystemExit(main({command.split()[1:]!r}))"],
        cwd=tmp_path,
        capture_output=True,
        text=True,
        timeout=patience(300),
        preexec_fn=lambda: signal.signal(signal.SIGINT, signal.SIG_IGN),  # as in the background
    )
    assert begun.returncode == 130, begun.stderr
    run = Run.open("last", tmp_path / ".operant")
    assert begun.stderr.splitlines()[-1].endswith(f"go on with: operant train --resume {run.id}")
    assert begun.stdout == ""


def test_trainings_of_several_seeds_are_told_of_sigterm() -> None:
    child = multiprocessing.get_context("spawn").Process(target=time.sleep, args=(600,))
    child.start()
    with pytest.raises(SystemExit) as caught, _passing_on_sigterm():
        os.kill(os.getpid(), signal.SIGTERM)
        time.sleep(600)
    child.join()
    assert caught.value.code == 143 and child.exitcode == -signal.SIGTERM


def test_signals_are_heard_once(tmp_path: Path) -> None:
    with Interrupts() as interrupts:
        assert not interrupts.take_request()
        os.kill(os.getpid(), signal.SIGUSR1)
        assert interrupts.take_request() and not interrupts.take_request()
        assert interrupts.stopped_by is None


def test_the_command_names_a_root_that_is_not_found_from_here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("OPERANT_DIR", raising=False)
    (tmp_path / ".operant").mkdir()
    monkeypatch.chdir(tmp_path)
    assert resume_command("a", tmp_path / ".operant" / "runs" / "a") == "operant train --resume a"
    other = tmp_path / "its place" / "runs" / "a"
    assert resume_command("a", other) == f"operant train --resume a --root '{tmp_path / 'its place'}'"
