"""The examples of docs/search.md, as a reader would run them."""

from __future__ import annotations

import shutil
import sys
from pathlib import Path

import pytest

from operant.schedulers import NaiveScheduler
from operant.schedulers.engine.state import read_state

EXAMPLES = Path(__file__).parents[2] / "examples" / "search"


@pytest.fixture
def here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    shutil.copytree(EXAMPLES, tmp_path / "search")
    monkeypatch.chdir(tmp_path / "search")
    monkeypatch.setenv("PATH", f"{Path(sys.executable).parent}:{Path('/usr/bin')}:{Path('/bin')}")
    return tmp_path / ".operant" / "searches"


def test_gmls_search(here: Path) -> None:
    outcome = NaiveScheduler(here / "mnist", "search_config.yaml").run()
    assert outcome.tries == 12 and outcome.reward is not None and outcome.reward > 0.4
    state, status = read_state(here / "mnist")
    assert status == "FINISHED" and {job.status for job in state.jobs.values()} == {"FINISHED"}
    # More epochs with a slower decay learn more: the settings reached the program through its file.
    rewards = {number: one.reward or 0.0 for number, one in state.proposals.items()}
    assert rewards[5] > rewards[0] and rewards[11] == max(rewards.values())
    written = (here / "mnist" / "jobs" / "5" / "work" / "config.yaml").read_text()
    assert "epochs: 5" in written and "# epochs between two cuts" in written and "gamma: 0.7" in written


def test_custom_classes(here: Path) -> None:
    outcome = NaiveScheduler(here / "custom", "search_config_custom.yaml").run()
    state, _ = read_state(here / "custom")
    assert outcome.tries == 5 and all(job.status in ("FINISHED", "STOPPED") for job in state.jobs.values())
    ran = [one.config for one in state.proposals.values() if not one.filtered]
    assert not any(config["batch-size"] >= 512 and config["config(epochs)"] >= 4 for config in ran)
    # MySearcher hands out combinations from the last one on.
    assert ran[0] == {
        "batch-size": 128,
        "config(epochs)": 4,
        "config(scheduler.step_size)": 2,
        "config(scheduler.gamma)": 0.7,
    }


def test_seeds_racing_and_final_check(here: Path) -> None:
    outcome = NaiveScheduler(here / "tpe", "search_config_tpe.yaml").run()
    state, _ = read_state(here / "tpe")
    assert outcome.tries == 6 and outcome.best is not None
    assert len([job for job in state.jobs.values() if job.is_check]) == 2
    check = outcome.checks[outcome.best.number]
    assert check["runs"] == 2 and check["low"] <= check["mean"] <= check["high"]
