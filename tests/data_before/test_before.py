"""What the version before has written is read, shown and resumed by the code of today. README.md: how it was made."""

from __future__ import annotations

import json
import os
import shutil
import tarfile
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from operant import Run
from operant.cli import main

ARCHIVE = Path(__file__).with_name("before.tar.gz")


@pytest.fixture(scope="module")
def unpacked(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("before")
    with tarfile.open(ARCHIVE) as archive:
        archive.extractall(folder, filter="data")
    return folder


@pytest.fixture
def before(unpacked: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A copy that the test may change, as the current folder."""
    folder = tmp_path / "before"
    shutil.copytree(unpacked, folder, symlinks=True)
    monkeypatch.chdir(folder)
    return folder


@pytest.fixture(scope="module")
def seen(unpacked: Path) -> dict[str, Any]:
    found: dict[str, Any] = json.loads((unpacked / "seen.json").read_text(encoding="utf-8"))
    return found


def shown(task: str, capsys: pytest.CaptureFixture[str]) -> dict[str, Any]:
    capsys.readouterr()
    assert main(["show", "--task", task, "--json"]) == 0
    found: dict[str, Any] = json.loads(capsys.readouterr().out)
    return found


def statuses(search: dict[str, Any]) -> dict[int, str]:
    return {job["arg_dict"]["x"]: job["status"] for job in search["jobs"]}


def test_every_record_of_a_run(before: Path, seen: dict[str, Any]) -> None:
    then = seen["run"]
    run = Run.open(then["id"])
    told = ("name", "status", "attempt", "params", "tags", "note")
    assert {key: getattr(run, key) for key in told} == {key: then[key] for key in told}
    assert run.scalar_tags == sorted(then["scalars"])
    for tag, points in then["scalars"].items():
        assert [[float(point["step"]), float(point["value"])] for point in run.scalars(tag)] == points
    assert len(run.scalars("return", superseded=True)) == then["superseded"]
    assert [[one.tag, one.step, one.text] for one in run.text()] == then["text"]
    assert sorted([one.tag, one.step, one.path.name] for one in run.media()) == then["media"]
    assert all(one.path.is_file() for one in run.media())
    assert [one["tag"] for one in run.histograms()] == then["histograms"]
    assert sorted(run.files) == then["files"] and run.files["kept.txt"].read_text() == "a file\n"
    assert run.damage == []


def test_runs_are_listed_and_shown(before: Path, seen: dict[str, Any], capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["runs", "--json"]) == 0
    listed = {one["id"] for one in json.loads(capsys.readouterr().out)}
    assert {seen[name]["run"] for name in ("ppo", "dqn")} | {seen["run"]["id"]} <= listed
    assert main(["runs", "show", seen["run"]["id"]]) == 0
    assert "kept for later" in capsys.readouterr().out


def test_a_search_that_has_ended(before: Path, capsys: pytest.CaptureFixture[str]) -> None:
    search = shown("finished", capsys)
    done = {x: "FINISHED" for x in (1, 3, 4, 6)}
    assert statuses(search) == done | {5: "ERROR"}
    assert (search["best"]["arg_dict"], search["best"]["reward"]) == ({"x": 3}, 14.0)
    # More than it had: its failed job runs again, and fails again.
    assert main(["search", "--task", "finished", "search.yaml", "--resume"]) == 0
    assert statuses(shown("finished", capsys)) == done | {5: "ERROR"}


def test_a_search_that_was_killed_goes_on(before: Path, capsys: pytest.CaptureFixture[str]) -> None:
    jobs = before / ".operant" / "searches" / "stopped" / "jobs"
    ended = {number: (jobs / number / "exit-1.json").read_bytes() for number in ("0", "2")}
    assert statuses(shown("stopped", capsys)) == {1: "FINISHED", 3: "FINISHED", 4: "RUNNING"}, "as its journal has it"
    lease = jobs.parent / "lease.json"
    held = json.loads(lease.read_text(encoding="utf-8"))
    assert main(["search", "--task", "stopped", "search.yaml", "--resume"]) == 1, "its controller may live on its host"
    lease.write_text(
        json.dumps(held | {"host": os.uname().nodename}), encoding="utf-8"
    )  # this one, before it restarted
    assert main(["search", "--task", "stopped", "search.yaml", "--resume"]) == 0
    search = shown("stopped", capsys)
    assert statuses(search) == {1: "FINISHED", 3: "FINISHED", 4: "FINISHED", 5: "ERROR", 6: "FINISHED"}
    assert search["best"]["arg_dict"] == {"x": 3}
    for number, told in ended.items():
        assert (jobs / number / "exit-1.json").read_bytes() == told, "what had finished is not run again"
        assert not (jobs / number / "exit-2.json").exists()


def test_a_fluent_search_goes_on(before: Path) -> None:
    from operant.hpo import R, choice, hpo, uniform

    called = []

    def function(config: dict[str, Any]) -> dict[str, float]:
        called.append(config)
        return {"score": -((config["x"] - 0.3) ** 2), "cost": 2.0}

    search = hpo(function).tpe(silent=True).name("fluent").seed(1).max_steps(9).max_workers(1)
    best = search.spaces({"x": uniform(0, 1), "kind": choice(["a", "b"])}).maximize(R["score"]).run()
    assert (len(called), len(search.history)) == (3, 9)
    assert best is not None and best[1]["score"] == max(trial.result["score"] for trial in search.history)


@pytest.mark.parametrize("name", ["ppo", "dqn"])
def test_a_training_goes_on_and_its_policy_acts_as_before(before: Path, seen: dict[str, Any], name: str) -> None:
    pytest.importorskip("torch")
    from operant.training import load_policy, resume

    policy = load_policy(seen[name]["run"])
    acted = np.asarray(policy.act(np.array(seen["observations"], np.float32)))
    assert acted.tolist() == seen[name]["actions"] and len(set(acted.tolist())) > 1
    result = resume(seen[name]["run"], ["total_steps=768"])
    assert (result.run_id, result.steps) == (seen[name]["run"], 768)
    run = Run.open(result.run_id)
    assert run.attempt == 2 and run.status == "FINISHED"
    assert run.scalars("time/steps_per_second")["step"].max() == 768
    assert not any("inexact" in one.text for one in run.text("log"))


@pytest.mark.filterwarnings("ignore:The dirpath has changed:UserWarning")  # Lightning: the folder was elsewhere
def test_a_launch_goes_on(before: Path, capsys: pytest.CaptureFixture[str]) -> None:
    pytest.importorskip("lightning")
    config = json.loads((before / "trial" / "config" / "config.json").read_text(encoding="utf-8"))
    (before / "more.json").write_text(json.dumps(config | {"max_episodes": 12, "root_dir": "trial"}), encoding="utf-8")
    capsys.readouterr()
    assert main(["auto", "launch", "--config", "more.json", "--resume", "--json"]) == 0
    result = json.loads(capsys.readouterr().out)
    assert result["episodes"] >= 12 and result["epochs"] == 4
