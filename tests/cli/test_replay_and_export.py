"""`operant replay` and `operant export`, on a search that really ran."""

from __future__ import annotations

import json
import sys
from pathlib import Path

import pytest
import yaml

from operant.cli import main
from operant.cli.search_scripts import run_main
from operant.schedulers.engine.state import read_state

PROGRAM = """
import sys, time
from operant import SummaryWriter
x, pace = int(sys.argv[1]), float(open("pace").read())
with SummaryWriter("job", system_metrics=False) as writer:
    for step in range(9 if pace == 0 else 20):
        writer.add_scalar("acc", x + step / 10, step)
        writer.flush()
        time.sleep(pace)
"""


@pytest.fixture
def search(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("OPERANT_DIR", str(tmp_path / ".operant"))
    monkeypatch.chdir(tmp_path)
    (tmp_path / "program.py").write_text(PROGRAM)
    (tmp_path / "pace").write_text("0")
    config = {
        "task": {
            "template": f"{sys.executable} program.py {{x}}",
            "search_args": [{"type": "Categorical", "name": "x", "data": [3, 2, 1, 5]}],
        },
        "searcher": {"type": "GridSearcher", "reward_attribute": "acc"},
        "scheduler": {"parallel_size": 1},
    }
    (tmp_path / "search.yaml").write_text(yaml.safe_dump(config))
    assert run_main(["-t", "s", "search.yaml"]) == 0
    return tmp_path


def test_several_assessors_side_by_side(search: Path, capsys: pytest.CaptureFixture[str]) -> None:
    capsys.readouterr()
    words = ["--assessor", "asha", "--assessor", "asha:min_step=3", "--assessor", "median", "--option", "start_step=4"]
    assert main(["replay", "s", *words]) == 0
    text = capsys.readouterr().out
    assert "4 jobs with 36 reports of acc" in text and "its best: 5.8 by proposal 3" in text
    assert main(["replay", "--task", "s", *words, "--json"]) == 0
    found = json.loads(capsys.readouterr().out)["replays"]
    # One after the other: jobs 1 and 2 are worse than job 0 wherever they are first judged.
    assert [one["stopped"] for one in found] == [{"1": 1, "2": 1}, {"1": 3, "2": 3}, {"1": 4, "2": 4}]
    assert [one["steps_saved"] for one in found] == [16, 12, 10]
    assert all(one["best"] == one["found"] == {"number": 3, "reward": 5.8} and one["best_kept"] for one in found)
    assert all(0 < one["seconds_saved"] < one["seconds"] for one in found)
    assert [one["options"].get("start_step") for one in found] == [None, None, 4]


def test_mistakes_are_one_line(search: Path, capsys: pytest.CaptureFixture[str]) -> None:
    capsys.readouterr()
    for words, message in [
        ([], "which search"),
        (["t"], "unknown search 't'"),
        (["s", "--assessor", "asher"], "did you mean 'asha'"),
        (["s", "--assessor", "asha", "--option", "epoch_num=3"], "none of these assessors has an option 'epoch_num'"),
        (["s", "--option", "start_step"], "an option is key=value"),
        (["s", "--assessor", "asha:reduction_factor=1"], "from 2 on"),
    ]:
        assert main(["replay", *words]) == 1
        error = capsys.readouterr().err
        assert message in error and error.count("\n") == 1


def test_all_runs_of_a_search_are_exported_together(search: Path, capsys: pytest.CaptureFixture[str]) -> None:
    capsys.readouterr()
    assert main(["export", "--task", "s", "--to", "csv"]) == 0
    assert "Wrote 4 runs to s-csv" in capsys.readouterr().out
    assert sorted(path.name for path in Path("s-csv").iterdir()) == ["0.csv", "1.csv", "2.csv", "3.csv"]
    assert Path("s-csv/3.csv").read_text().splitlines()[-1].endswith(",5.8")
    assert main(["export", "--task", "s", "--to", "csv"]) == 1 and "exists already" in capsys.readouterr().err
    assert main(["export", "--task", "s", "--to", "tensorboard", "--out", "tb"]) == 0
    assert "tensorboard --logdir tb" in capsys.readouterr().out
    assert sorted(path.name for path in Path("tb").iterdir()) == ["0", "1", "2", "3"]


@pytest.mark.long
def test_a_replay_foretells_what_the_assessor_does(search: Path, capsys: pytest.CaptureFixture[str]) -> None:
    capsys.readouterr()
    assert main(["replay", "s", "--assessor", "asha", "--json"]) == 0
    (foretold,) = json.loads(capsys.readouterr().out)["replays"]
    (search / "pace").write_text("0.3")
    config = yaml.safe_load((search / "search.yaml").read_text())
    config["assessor"] = {"type": "AshaAssessor"}
    (search / "search.yaml").write_text(yaml.safe_dump(config))
    assert run_main(["-t", "live", "search.yaml"]) == 0
    state, _ = read_state(search / ".operant" / "searches" / "live")
    assert {job.id for job in state.jobs.values() if job.status == "STOPPED"} == set(foretold["stopped"])
