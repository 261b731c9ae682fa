"""The same searches write the same journals as ever, and journals of earlier versions are read and gone on with."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest
from tests.schedulers.scenarios import ASHA, SCENARIOS, by_seed, config, curve, lines, simulated

from operant.schedulers import Scheduler
from operant.schedulers.engine.state import read_state
from operant.schedulers.views.live import LiveSearch

JOURNALS = Path(__file__).parents[1] / "journals"
BEFORE = ("tpe_assessor", "tpe_assessor_before")  # TPE made other proposals then


def kept(folder: Path, name: str) -> Path:
    """A search's folder with one of the journals that are kept."""
    folder.mkdir(parents=True)
    shutil.copy(JOURNALS / f"{name}.log", folder / "journal.log")
    return folder


@pytest.mark.parametrize("name", SCENARIOS)
def test_the_same_search_writes_the_same_journal(name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    folder = tmp_path / ".operant" / "searches" / name
    folder.parent.mkdir(parents=True)
    SCENARIOS[name](folder)
    assert list(lines(folder)) == list(lines(kept(tmp_path / "then" / name, name)))


@pytest.mark.parametrize(("name", "journal"), [*((one, one) for one in SCENARIOS), BEFORE])
def test_an_earlier_journal_is_shown_and_gone_on_with(
    name: str, journal: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    folder = kept(tmp_path / ".operant" / "searches" / name, journal)
    then = LiveSearch(folder).summary()
    assert then["status"] in ("FINISHED", "KILLED") and then["counts"]["finished"] == then["counts"]["defined"]
    failed = {job.id: job.attempt for job in read_state(folder)[0].jobs.values() if job.status == "ERROR"}
    SCENARIOS[name](folder, resume=True)
    state, _ = read_state(folder)
    assert all(state.jobs[job].attempt > attempt for job, attempt in failed.items())
    now = LiveSearch(folder).summary()
    assert now["tries"] >= then["tries"] and now["status"] == then["status"]
    if then["best"] is not None:
        assert (now["best"]["number"] == then["best"]["number"]) or now["tries"] > then["tries"]


def died(folder: Path, name: str) -> Scheduler:
    if name == "died_pausing":
        args = [{"type": "Categorical", "name": "x", "data": [6.0, 4.0, 1.0, 0.5]}]
        return simulated(folder, config({"parallel_size": 1, "assessor": ASHA}, search_args=args), curve, resume=True)
    cfg = config({"parallel_size": 3, "seeds": [0, 1, 2, 3], "racing": True})
    return simulated(folder, cfg, by_seed, resume=True)


@pytest.mark.parametrize("name", ["died_pausing", "died_seeds"])
def test_the_search_of_an_earlier_controller_that_died_is_gone_on_with(name: str, tmp_path: Path) -> None:
    folder = kept(tmp_path / name, name)
    before, status = read_state(folder)
    assert status == "ERROR"
    under_way = [job.id for job in before.jobs.values() if job.reason == "controller_lost"]
    finished = {job.id for job in before.jobs.values() if job.status == "FINISHED"}
    assert under_way and finished
    scheduler = died(folder, name)
    assert scheduler.run().status == "FINISHED"
    submitted = {job.job_id for job in scheduler.site.submitted}  # type: ignore[attr-defined]
    assert submitted >= set(under_way) and not submitted & finished
    state, status = read_state(folder)
    assert status == "FINISHED" and all(one.status is not None for one in state.proposals.values())
