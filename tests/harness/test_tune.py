"""Operant's searchers and assessors behind Ray Tune's interfaces: alone, and with a real Tuner."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import pytest
from tests.harness.composing import composed
from tests.machine import patience

from operant.errors import UsageError
from operant.schedulers.views.overview import describe
from operant.tracking import Run

tune = pytest.importorskip("ray.tune", reason="ray is not installed")
ARGS = [{"name": "x", "type": "Real", "data": [-1.0, 1.0]}, {"name": "opt", "type": "Categorical", "data": ["a", "b"]}]


@pytest.fixture(autouse=True)
def authenticated(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("RAY_AUTH_MODE", "token")
    monkeypatch.setenv("OMP_NUM_THREADS", "1")
    monkeypatch.setenv("RAY_worker_niceness", "0")  # by default 15: beside other work nothing would come of them


def search(**options: Any) -> Any:
    from operant.harness.tune import OperantSearch

    return OperantSearch("TpeSearcher", ARGS, "loss", "min", seed=3, **options)


def drive(one: Any, first: int, last: int) -> list[dict[str, Any]]:
    """Trials one after the other; their configurations."""
    given = []
    for number in range(first, last):
        config = one.suggest(f"t{number}")
        given.append(config)
        one.on_trial_complete(f"t{number}", {"loss": config["x"] ** 2})
    return given


def test_a_saved_searcher_goes_on_as_it_would_have(tmp_path: Path) -> None:
    whole = drive(search(), 0, 30)
    first = search()
    before = drive(first, 0, 20)
    under_way = first.suggest("t20")
    first.save(str(tmp_path / "state"))
    json.loads((tmp_path / "state").read_text())  # no pickle
    second = search()
    second.restore(str(tmp_path / "state"))
    second.on_trial_complete("t20", {"loss": under_way["x"] ** 2})
    assert [*before, under_way, *drive(second, 21, 30)] == whole
    trial, reward = second.best
    assert reward == min(config["x"] ** 2 for config in whole) and trial.config in whole


def test_a_recorded_searcher_whose_controller_died_runs_again_what_was_under_way(tmp_path: Path) -> None:
    record = tmp_path / "trials.jsonl"
    first = search(record=record)
    before = drive(first, 0, 5)
    lost = first.suggest("t5")
    with record.open("a") as file:
        file.write('{"observed": 5, "sta')  # killed in the midst of a line
    second = search(record=record)
    assert second.finished == 5
    assert second.suggest("again") == lost
    second.on_trial_complete("again", {"loss": lost["x"] ** 2})
    assert [*before, lost, *drive(second, 6, 12)] == drive(search(), 0, 12)
    record.write_text('{"proposed": 0}\n[1, \n')
    with pytest.raises(UsageError, match="is damaged; move it away"):
        search(record=record)


def test_failed_trials_and_results_that_are_none_teach_nothing(tmp_path: Path) -> None:
    one = search()
    for number, (result, error) in enumerate([(None, True), ({"loss": float("nan")}, False), ({"other": 1}, False)]):
        one.suggest(str(number))
        one.on_trial_complete(str(number), result, error)
    assert one.finished == 3 and one.best is None
    one.on_trial_complete("nobody's", {"loss": 1.0})
    assert one.finished == 3


def test_a_space_of_tunes_own() -> None:
    from operant.harness.tune import search_args_of

    space = {
        "fixed": 3,
        "lr": tune.loguniform(1e-5, 1e-1),
        "net": {"units": tune.randint(8, 65), "layers": tune.qrandint(1, 9, 2), "rate": tune.quniform(0, 1, 0.1)},
        "opt": tune.choice(["adam", "sgd"]),
    }
    found = {one.pop("name"): one for one in search_args_of(space)}
    assert found == {
        "lr": {"type": "Real", "data": [1e-5, 1e-1], "log": True},
        "net/units": {"type": "Int", "data": [8, 64]},
        "net/layers": {"type": "Int", "data": [1, 9], "step": 2},
        "net/rate": {"type": "Real", "data": [0.0, 1.0], "step": 0.1},
        "opt": {"type": "Categorical", "data": ["adam", "sgd"]},
    }
    with pytest.raises(UsageError, match=r"net/a is a grid_search"):
        search_args_of({"net": {"a": tune.grid_search([1, 2])}})
    with pytest.raises(UsageError, match="x is drawn by"):
        search_args_of({"x": tune.randn(0, 1)})


class Seen:
    """A trial, as far as a scheduler looks at it."""

    def __init__(self, name: str, status: str = "RUNNING") -> None:
        self.trial_id, self.status = name, status


def test_an_assessor_ends_trials() -> None:
    from operant.harness.tune import OperantScheduler

    scheduler = OperantScheduler({"type": "MedianStopAssessor", "start_step": 2}, "loss", "min")
    good, bad = Seen("good"), Seen("bad")

    def told(trial: Seen, values: list[float]) -> list[str]:
        results = [{"loss": value, "training_iteration": step} for step, value in enumerate(values, 1)]
        return [scheduler.on_trial_result(None, trial, result) for result in results]

    assert set(told(good, [1.0, 0.5, 0.3, 0.2])) == {"CONTINUE"}
    scheduler.on_trial_complete(None, good, {})
    assert told(bad, [9.0, 9.0]) == ["CONTINUE", "STOP"]
    assert scheduler.on_trial_result(None, Seen("mute"), {"loss": float("nan")}) == "CONTINUE"


def test_a_trial_that_pauses_waits_until_it_is_promoted() -> None:
    from operant.harness.tune import OperantScheduler

    class Controller:
        def __init__(self, trials: list[Seen], finished: bool) -> None:
            self.trials, self.finished, self.stopped = trials, finished, list[Seen]()
            self.search_alg = self

        def get_trials(self) -> list[Seen]:
            return self.trials

        def is_finished(self) -> bool:
            return self.finished

        def stop_trial(self, trial: Seen) -> None:
            self.stopped.append(trial)

    scheduler = OperantScheduler("MedianStopAssessor", "loss", "min")
    paused, running = Seen("1", "PAUSED"), Seen("2")
    assert scheduler.choose_trial_to_run(Controller([paused, running], True)) is None
    scheduler._promoted.add("1")
    assert scheduler.choose_trial_to_run(Controller([paused, running], True)) is paused
    scheduler._promoted.clear()
    over = Controller([paused, Seen("2", "TERMINATED")], True)
    assert scheduler.choose_trial_to_run(over) is None and over.stopped == [paused]


SMALL = (
    "cli.mode=tune",
    "tune.engine=ray",
    "training.lr={type: Real, data: [0.0001, 0.01], log: true}",
    "stop_conditions.training_iteration=2",
    "training.train_batch_size_per_learner=128",
    "rollouts.num_envs_per_env_runner=1",
    "checkpoint.checkpoint_frequency=0",
)


@pytest.mark.long
@pytest.mark.timeout(900)
@pytest.mark.filterwarnings("default")  # Ray's own
def test_a_search_by_ray_that_is_killed_goes_on(tmp_path: Path) -> None:
    tree = composed("ppo", *SMALL, "tune.num_samples=8", "runtime.name=killed")
    words = [sys.executable, "-c", PROGRAM, json.dumps(tree), str(tmp_path / ".operant")]
    record = tmp_path / ".operant" / "tune" / "killed" / "trials.jsonl"
    with subprocess.Popen(words, start_new_session=True, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL) as first:
        deadline = time.monotonic() + patience(240)
        while not record.exists() or record.read_text().count("observed") < 2:
            assert first.poll() is None and time.monotonic() < deadline
            time.sleep(0.2)
        os.killpg(first.pid, signal.SIGKILL)
    kept = [line for line in record.read_text().splitlines() if "observed" in line]
    done = subprocess.run(words, capture_output=True, text=True, timeout=patience(400))
    assert "FINISHED 8" in done.stdout, done.stdout + done.stderr
    lines = [json.loads(line) for line in record.read_text().splitlines()]
    assert [json.dumps(line) for line in lines if "observed" in line][: len(kept)] == kept
    assert sorted(line["observed"] for line in lines if "observed" in line) == list(range(8))
    assert [line["proposed"] for line in lines if "proposed" in line] == list(range(8))


@pytest.mark.long
@pytest.mark.timeout(900)
def test_a_search_of_our_own_that_is_killed_goes_on(tmp_path: Path) -> None:
    own = ("tune.engine=operant", "tune.num_samples=8", "tune.parallel=2", "runtime.name=killed")
    tree = composed("dqn", *SMALL[:4], *own, "checkpoint.checkpoint_frequency=0", "evaluation.evaluation_interval=null")
    folder = tmp_path / ".operant" / "searches" / "killed"
    words = [sys.executable, "-c", PROGRAM, json.dumps(tree), str(tmp_path / ".operant")]

    def finished() -> dict[str, Any]:
        jobs = describe(folder)["jobs"] if (folder / "journal.log").exists() else []
        return {job["id"]: job["arg_dict"] for job in jobs if job["status"] == "FINISHED"}

    with subprocess.Popen(words, start_new_session=True, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL) as first:
        deadline = time.monotonic() + patience(240)
        while len(finished()) < 2:
            assert first.poll() is None and time.monotonic() < deadline
            time.sleep(0.2)
        os.killpg(first.pid, signal.SIGKILL)
    before = finished()
    done = subprocess.run(words, capture_output=True, text=True, timeout=patience(400))
    assert "FINISHED 8" in done.stdout, done.stdout + done.stderr
    assert len(finished()) == 8 and finished().items() >= before.items()


PROGRAM = """
import json, sys
from operant.harness.application import run_tree
outcome = run_tree(json.loads(sys.argv[1]), root=sys.argv[2])
print(outcome.status, outcome.tries)
"""
OWN = """
from operant.framework.parallel.ray_engine import prepare_ray
prepare_ray()  # before Ray is loaded
import ray
from ray import tune
from operant.harness.callbacks import OperantLoggerCallback
from operant.harness.tune import OperantScheduler, OperantSearch

def objective(config):
    for step in range(4):
        tune.report({"loss": config["net"]["x"] ** 2 + 1 / (step + 1), "seen": [1.0, 2.0]})

ray.init(num_cpus=2, include_dashboard=False, log_to_driver=False)
search, scheduler = OperantSearch(seed=1), OperantScheduler()
found = tune.Tuner(
    objective,
    param_space={"net": {"x": tune.uniform(-1, 1)}, "fixed": 1},
    tune_config=tune.TuneConfig(
        metric="loss", mode="min", search_alg=search, scheduler=scheduler, num_samples=6
    ),
    run_config=tune.RunConfig(name="own", storage_path=".", verbose=0, callbacks=[OperantLoggerCallback()]),
).fit()
print(len(found), "trials", len(found.errors), "errors")
ray.shutdown()
"""


@pytest.mark.long
@pytest.mark.timeout(600)
def test_a_tuner_of_ones_own() -> None:
    program = OWN.replace('storage_path="."', f"storage_path={str(Path.cwd())!r}")
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, timeout=patience(300))
    assert "6 trials 0 errors" in done.stdout, done.stdout + done.stderr
    recorded = [Run.open(one.name) for one in Path(".operant/runs").iterdir()]
    assert len(recorded) == 6 and all(run.status == "FINISHED" for run in recorded)
    assert all(1 <= len(run.scalars("loss")["value"]) <= 4 for run in recorded)
    assert {run.params["fixed"] for run in recorded} == {1}
