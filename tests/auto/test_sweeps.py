"""Searches that drive `launch`: three lines of one's own, `operant.hpo`, Optuna, and `search-run`."""

from __future__ import annotations

import importlib.util
import shutil
import sys
from pathlib import Path

import pytest

from operant.auto import launch
from operant.hpo import R, choice, hpo
from operant.schedulers import NaiveScheduler
from operant.schedulers.engine.state import read_state

EXAMPLES = Path(__file__).parents[2] / "examples" / "auto"


def test_a_search_is_three_lines(make_config):
    rewards = {}
    for rate in (1e-4, 1e-2):
        rewards[rate] = launch(make_config(frame_config={"learning_rate": rate}, max_episodes=3)).best_reward
    assert len(rewards) == 2 and all(reward > 0 for reward in rewards.values())


def test_hpo_drives_launch(make_config):
    def experiment(point):
        return launch(make_config(frame_config={"learning_rate": point["rate"]}, max_episodes=3))

    search = hpo(experiment).grid(silent=True).spaces({"rate": choice([1e-4, 1e-3, 1e-2])})
    config, result, _ = search.maximize(R.best_reward).max_steps(3).max_workers(1).workers("thread").ephemeral().run()
    assert config["rate"] in (1e-4, 1e-3, 1e-2)
    assert len({one.result.run_id for one in search.history}) == 3
    assert result.best_reward == max(one.result.best_reward for one in search.history)


@pytest.fixture
def sweep():
    spec = importlib.util.spec_from_file_location("sweep_example", EXAMPLES / "sweep.py")
    module = importlib.util.module_from_spec(spec)
    sys.modules["sweep_example"] = module
    spec.loader.exec_module(module)
    yield module
    del sys.modules["sweep_example"]


@pytest.mark.parametrize("library", ["operant", "optuna"])
def test_the_examples_sweep(sweep, monkeypatch, library):
    original = sweep.make_config
    monkeypatch.setattr(sweep, "make_config", lambda rate, batch: original(rate, batch, episodes=5))
    found = getattr(sweep, f"with_{library}")(2)
    assert found["reward"] > 0 and found["batch"] in (32, 64) and 1e-4 <= found["rate"] <= 1e-2


@pytest.mark.long
def test_search_run_drives_launch(tmp_path, monkeypatch):
    shutil.copytree(EXAMPLES, tmp_path / "auto")
    monkeypatch.chdir(tmp_path / "auto")
    monkeypatch.setenv("PATH", f"{Path(sys.executable).parent}:/usr/bin:/bin")
    here = tmp_path / ".operant" / "searches"
    outcome = NaiveScheduler(here / "cartpole", "search.yaml").run()
    state, status = read_state(here / "cartpole")
    assert status == "FINISHED" and {job.status for job in state.jobs.values()} == {"FINISHED"}
    assert outcome.tries == 2 and outcome.reward is not None and outcome.reward > 9
    assert {one.config["config(frame_config.learning_rate)"] for one in state.proposals.values()} == {0.0001, 0.001}
