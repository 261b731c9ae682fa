"""search-init, search-run and search-ctl, as a user types them."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import pytest
import yaml
from tests.machine import patience

from operant.cli.search_scripts import ctl_main, init_main, run_main
from operant.tracking.journal import controller_is_alive

PROGRAM = """
import json, sys, time
json.dump({"acc": int(sys.argv[1]) / 10}, open("result.json", "w"))
print("x is", sys.argv[1])
if sys.argv[1] == "13":
    print("it went so well\\nno such luck", file=sys.stderr)
    sys.exit(3)
if sys.argv[1] == "99":
    time.sleep(600)
"""


def write_config(folder: Path, values: list[int], **scheduler: Any) -> None:
    config = {
        "task": {
            "template": f"{sys.executable} -I -S program.py {{x}}",
            "search_args": [{"type": "Categorical", "name": "x", "data": values}],
        },
        "searcher": {"type": "GridSearcher", "reward_attribute": "acc"},
        "scheduler": {"parallel_size": 2, "grace_period": 1, **scheduler},
        "pavi": {"compare": {"name": "together"}},
    }
    (folder / "search.yaml").write_text(yaml.safe_dump(config))


@pytest.fixture
def project(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.delenv("OPERANT_DIR", raising=False)
    monkeypatch.chdir(tmp_path)
    (tmp_path / "program.py").write_text(PROGRAM)
    write_config(tmp_path, [3, 7, 13, 5])
    return tmp_path


def output(capsys: pytest.CaptureFixture[str]) -> str:
    return capsys.readouterr().out


def test_a_search_from_the_beginning_to_its_removal(project: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert init_main([]) == 0 and (project / ".operant" / "searches").is_dir()
    assert run_main(["--task", "first", "search.yaml"]) == 0
    said = output(capsys)
    assert "job 1 finished acc 0.7" in said and "best acc 0.7" in said
    assert "job 2 error - exit code 3: no such luck (see .operant/searches/first/jobs/2/stderr)" in said
    assert "page http://127.0.0.1:4270/compare/" in said and "goes on with it" not in said

    assert ctl_main(["show"]) == 0
    said = output(capsys)
    assert "first  FINISHED  4     1 error, 3 finished  0.7   http://127.0.0.1:4270/compare/" in said

    assert ctl_main(["show", "--task", "first", "--json"]) == 0
    found = json.loads(output(capsys))
    assert [found[key] for key in ("task", "status")] == ["first", "FINISHED"] and found["best"]["reward"] == 0.7
    assert [job["id"] for job in found["jobs"]] == ["0", "1", "2", "3"]
    assert set(found["jobs"][0]) == {
        "id",
        "name",
        "status",
        "reward",
        "arg_dict",
        "started",
        "ended",
        "run",
        "url",
        "code",
    }
    assert found["jobs"][0]["url"] == "http://127.0.0.1:4270/run?id=first/0"
    assert found["url"] == f"http://127.0.0.1:4270/compare/{found['compare']['id']}"
    assert found["jobs"][0]["arg_dict"] == {"x": 3} and found["jobs"][0]["run"] == "first/0"
    assert found["jobs"][0]["started"] < found["jobs"][0]["ended"]

    assert ctl_main(["show", "-t", "first", "--jobs", "1,first-3", "--out", "task.yaml"]) == 0
    text = Path("task.yaml").read_text()
    assert [job["reward"] for job in yaml.safe_load(text)["jobs"]] == [0.7, 0.5]
    assert "&id" not in text and "*id" not in text  # the best one's settings are there twice
    capsys.readouterr()
    assert ctl_main(["show", "-t", "first", "--jobs", "1,3"]) == 0
    assert "2 jobs (2 finished)" in output(capsys)
    assert ctl_main(["show", "-t", "first", "--scalar"]) == 0
    said = output(capsys)
    assert "group 'together'" in said and "what a job printed is in .operant/searches/first/jobs/2/stderr" in said

    assert ctl_main(["export", "--task", "first", "--tar-path", "out/a.tar.gz"]) == 0
    assert ctl_main(["rm", "--task", "first"]) == 0
    assert yaml.safe_load(Path("summary.yaml").read_text())["best"]["reward"] == 0.7
    assert not (project / ".operant" / "searches" / "first").exists()
    assert ctl_main(["import", "--tar-path", "out/a.tar.gz"]) == 0
    capsys.readouterr()
    assert ctl_main(["show", "-t", "first", "--json"]) == 0
    assert json.loads(output(capsys))["jobs"] == found["jobs"]


def test_resume_runs_errors_again_and_keeps_the_old_folder(project: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert run_main(["--task", "s", "search.yaml"]) == 0
    (project / "program.py").write_text(PROGRAM.replace("sys.exit(3)", "pass"))
    assert run_main(["--task", "s", "search.yaml", "--resume"]) == 0
    assert "job 2 finished acc 1.3" in output(capsys)
    job = project / ".operant" / "searches" / "s" / "jobs" / "2"
    assert {path.name for path in job.iterdir()} >= {
        "work",
        "work-1",
        "stdout",
        "stdout-1",
        "exit-1.json",
        "exit-2.json",
    }
    assert "sys.exit(3)" in (job / "work-1" / "program.py").read_text()


def test_mistakes_are_one_line_on_stderr(project: Path, capsys: pytest.CaptureFixture[str]) -> None:
    for main, words, message in [
        (run_main, ["--task", "s", "nowhere.yaml"], "nowhere.yaml: cannot be read"),
        (run_main, ["--task", "../s", "search.yaml"], "not valid"),
        (run_main, ["--task", "s", "search.yaml", "--symlinks=nothing"], "there is no 'nothing'"),
        (run_main, ["--task", "s", "search.yaml", "--resume"], "unknown search 's'"),
        (ctl_main, ["show", "--task", "s"], "unknown search 's'"),
        (ctl_main, ["stop", "--task", "s"], "unknown search 's'"),
        (ctl_main, ["import", "--tar-path", "none.tar.gz"], "there is no archive"),
        (ctl_main, ["show", "--jobs", "1"], "need --task"),
    ]:
        assert main(words) == 1
        error = capsys.readouterr().err
        assert message in error and error.count("\n") == 1


def test_a_search_in_which_nothing_succeeded_has_failed_and_says_how_to_go_on(
    project: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    write_config(project, [13])
    assert run_main(["-t", "s", "search.yaml"]) == 1
    said = output(capsys)
    assert "search s: error (no job succeeded)" in said and "search-run --task s search.yaml --resume" in said
    assert ctl_main(["show", "-t", "s"]) == 0
    assert "s: ERROR, 1 jobs (1 error)" in output(capsys)
    (project / "program.py").write_text(PROGRAM.replace("sys.exit(3)", "pass"))
    assert run_main(["-t", "s", "search.yaml", "--resume"]) == 0


def test_stop_and_rm_end_what_killed_wrappers_left_behind(project: Path, capsys: pytest.CaptureFixture[str]) -> None:
    write_config(project, [3])
    assert run_main(["-t", "s", "search.yaml"]) == 0
    claim = json.loads((project / ".operant" / "searches" / "s" / "jobs" / "0" / "claim-1").read_text())
    env = {**os.environ, "OPERANT_JOB_TOKEN": claim["token"]}
    for command in (["stop", "-t", "s"], ["rm", "-t", "s"]):
        left = subprocess.Popen(["sleep", "600"], env=env)
        code = ctl_main(command)
        left.kill()  # which comes too late
        assert (code, left.wait()) == (0, -15)
    assert "1 process that its jobs had left behind was ended" in output(capsys)


def test_a_misspelt_job_or_task_names_the_nearest(project: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert run_main(["-t", "walker", "search.yaml"]) == 0
    capsys.readouterr()
    assert ctl_main(["show", "-t", "walkr"]) == 1
    assert "did you mean 'walker'" in capsys.readouterr().err
    assert ctl_main(["show", "-t", "walker", "--jobs", "walker-9"]) == 1
    assert "did you mean" in capsys.readouterr().err


def test_symlinks_are_links_in_the_work_folder(project: Path) -> None:
    (project / "data").mkdir()
    (project / "data" / "big").write_text("x")
    assert run_main(["--task", "s", "search.yaml", "--symlinks=data"]) == 0
    folder = project / ".operant" / "searches" / "s"
    assert (folder / "jobs" / "0" / "work" / "data").readlink() == project / "data"
    assert not list(folder.glob("code/*/data"))


def test_stop_and_restart(project: Path, capsys: pytest.CaptureFixture[str]) -> None:
    write_config(project, [99, 1, 2, 3], parallel_size=1)
    env = {**os.environ, "OPERANT_DIR": str(project / ".operant")}
    controller = subprocess.Popen(
        [sys.executable, "-m", "operant.cli.search_scripts", "run", "-t", "s", "search.yaml"],
        env=env,
        stdout=subprocess.DEVNULL,
    )
    folder = project / ".operant" / "searches" / "s"
    wait_until(lambda: (folder / "jobs" / "0" / "claim-1").exists())
    assert ctl_main(["rm", "-t", "s"]) == 1 and "is running" in capsys.readouterr().err
    assert ctl_main(["stop", "-t", "s"]) == 0
    assert controller.wait(timeout=patience(30)) == 1
    assert "s: KILLED, 1 jobs were killed" in output(capsys)

    assert ctl_main(["restart", "-t", "s"]) == 0
    assert "goes on in the background" in output(capsys)
    wait_until(lambda: not controller_is_alive(folder) and (folder / "jobs" / "3" / "exit-1.json").exists())
    assert ctl_main(["show", "-t", "s", "--json"]) == 0
    assert [job["status"] for job in json.loads(output(capsys))["jobs"]] == [
        "KILLED",
        "FINISHED",
        "FINISHED",
        "FINISHED",
    ]
    assert run_main(["-t", "t", "search.yaml", "--resume"]) == 1 and capsys.readouterr().err.endswith(".operant: s\n")


def test_a_restart_is_on_the_site_of_the_command(project: Path, capsys: pytest.CaptureFixture[str]) -> None:
    write_config(project, [1], parallel_size=1)
    with Path("search.yaml").open("a") as file:
        file.write("\nsite: {type: container, image: nowhere}\n")
    assert run_main(["-t", "s", "search.yaml", "--site", "{type: local}"]) == 0
    assert ctl_main(["restart", "-t", "s"]) == 0
    assert "goes on in the background" in output(capsys)


def wait_until(condition: Any) -> None:
    deadline = time.monotonic() + patience(30)
    while not condition():
        assert time.monotonic() < deadline, "it never came"
        time.sleep(0.02)


def test_looking_at_a_search_loads_no_numpy(project: Path) -> None:
    assert run_main(["--task", "s", "search.yaml"]) == 0
    text = "import sys; from operant.cli.search_scripts import ctl_main; ctl_main(['show', '-t', 's'])"
    text += "; print('numpy' in sys.modules)"
    shown = subprocess.run([sys.executable, "-c", text], capture_output=True, text=True, check=True).stdout
    assert shown.splitlines()[-1] == "False"
