"""Python interfaces: NaiveScheduler, jobs, assessors on the tails of real jobs, checkpoints."""

from __future__ import annotations

import json
import shutil
import sys
from pathlib import Path
from typing import Any

import pytest
from tests.machine import patience

from operant.errors import ConfigError, UsageError
from operant.schedulers import LocalJob, NaiveScheduler
from operant.schedulers.engine.control import NoView
from operant.schedulers.engine.state import read_state
from operant.schedulers.views.display import LineView, TableView
from operant.schedulers.views.overview import describe
from operant.sites import FunctionSite
from operant.tracking.reading.compares import list_compares
from operant.tracking.reading.index import Index

PYTHON = sys.executable


def make(
    folder: Path, program: str, values: list[Any], *, searcher: dict[str, Any] | None = None, **more: Any
) -> dict[str, Any]:
    folder.mkdir(exist_ok=True)
    (folder / "program.py").write_text(program)
    scheduler = {"parallel_size": 2, "grace_period": 1, **more.pop("scheduler", {})}
    return {
        "task": {
            "template": f"{PYTHON} program.py {{x}}",
            "search_args": [{"type": "Categorical", "name": "x", "data": values}],
        },
        "searcher": {"type": "GridSearcher", "reward_attribute": "acc", **(searcher or {})},
        "scheduler": scheduler,
        **more,
    }


def run(tmp_path: Path, config: dict[str, Any], **options: Any) -> Any:
    return NaiveScheduler(tmp_path / "searches" / "s", config, source=tmp_path / "source", **options).run()


REPORTS = """
import sys, time
from operant import SummaryWriter
x = float(sys.argv[1])
with SummaryWriter("job", system_metrics=False) as writer:
    for step in range(4):
        writer.add_scalar("acc", x, step)
        writer.flush()
        if x < 0.5:
            time.sleep(60 if step == 2 else 0)
"""


def test_an_assessor_ends_bad_jobs_early(tmp_path: Path) -> None:
    assessor = {"type": "MedianStopAssessor", "start_step": 2}
    config = make(tmp_path / "source", REPORTS, [0.7, 0.8, 0.1, 0.9], scheduler={"parallel_size": 1}, assessor=assessor)
    outcome = run(tmp_path, config)
    state, _ = read_state(tmp_path / "searches" / "s")
    assert [job.status for job in state.jobs.values()] == ["FINISHED", "FINISHED", "STOPPED", "FINISHED"]
    assert state.jobs["2"].reason == "assessor" and state.jobs["2"].reward == 0.1 and outcome.reward == 0.9
    rows = {row.id: row.status for row in Index(tmp_path).rows()}
    assert rows == {"s/0": "FINISHED", "s/1": "FINISHED", "s/2": "STOPPED", "s/3": "FINISHED"}


def test_a_paused_job_goes_on_where_it_was(tmp_path: Path) -> None:
    program = """
import json, os, sys, time
from pathlib import Path
x = float(sys.argv[1])
state = Path("state.json")
start = json.loads(state.read_text()) if state.exists() else 0
if start:
    assert os.environ["OPERANT_RESUME_FROM"] == os.getcwd(), os.environ.get("OPERANT_RESUME_FROM")
for step in range(start, 4):
    print(f"epoch {step} acc {x}", flush=True)
    state.write_text(json.dumps(step + 1))
    if step == 1 and x < 0.5:
        time.sleep(0 if start else 60)
    elif step == 1:
        time.sleep(0.5)
"""
    # With a factor of 2 the second of three at the rung is told to pause; a worse third one lets it go on.
    assessor = {"type": "AshaAssessor", "min_step": 2, "reduction_factor": 2, "max_step": 4, "rest": "pause"}
    searcher = {"pattern": "epoch {step} acc {value}"}
    values = [0.6, 0.4, 0.1, 0.05]
    config = make(
        tmp_path / "source", program, values, searcher=searcher, scheduler={"parallel_size": 1}, assessor=assessor
    )
    run(tmp_path, config)
    state, status = read_state(tmp_path / "searches" / "s")
    found = {job.id: (job.status, job.attempt) for job in state.jobs.values()}
    assert status == "FINISHED" and found["0"] == ("FINISHED", 1)
    assert found["1"] == ("FINISHED", 2) or found["1"] == ("STOPPED", 1)
    assert "PAUSED" not in {one for one, _ in found.values()}


def test_a_result_is_the_jobs_and_can_hurt_that_job_only(tmp_path: Path) -> None:
    program = """
import sys
from pathlib import Path
text = {"1": '{"acc": 1}', "2": '{"acc": 1%s}' % ("0" * 400), "3": "[" * 100_000, "4": ""}.get(sys.argv[1])
if text is not None:
    Path("result.json").write_text(text)
"""
    config = make(tmp_path / "source", program, ["0", "1", "2", "3", "4"])
    (tmp_path / "source" / "result.json").write_text('{"acc": 0.99}')
    outcome = run(tmp_path, config)
    jobs = read_state(tmp_path / "searches" / "s")[0].jobs
    assert [jobs[name].status for name in "01234"] == ["ERROR", "FINISHED", "ERROR", "ERROR", "ERROR"]
    assert outcome.reward == 1 and jobs["0"].reward is None and jobs["0"].error == "it reported no 'acc'"
    assert "too large" in str(jobs["2"].error) and "result.json cannot be read" in str(jobs["3"].error)
    shutil.rmtree(tmp_path / "searches" / "s" / "jobs")  # by its user, for want of space
    assert run(tmp_path, config, resume=True).reward == 1


def test_checkpoints_are_kept_with_the_run_and_found_by_the_next_attempt(tmp_path: Path) -> None:
    program = """
import json, os, sys
from pathlib import Path
kept = Path(os.environ["OPERANT_CKPT_DIR"])
assert Path("MnistNet").resolve() == kept
if os.environ["OPERANT_ATTEMPT"] == "1":
    assert "OPERANT_RESUME_FROM" not in os.environ
    (kept / "weights").write_text("7")
    sys.exit(1)
assert os.environ["OPERANT_RESUME_FROM"] == str(kept)
json.dump({"acc": float((kept / "weights").read_text())}, open("result.json", "w"))
"""
    searcher = {"ckpt_save_path": "pavi:/MnistNet"}
    config = make(
        tmp_path / "source", program, [1], searcher=searcher, scheduler={"max_retries": 1, "retry_delay": "1ms"}
    )
    assert run(tmp_path, config).reward == 7.0
    assert (tmp_path / "searches" / "s" / "jobs" / "0" / "run" / "checkpoints" / "MnistNet" / "weights").exists()


def test_a_program_learns_its_seed_and_gpus(tmp_path: Path) -> None:
    program = """
import json, os
seed, gpus = float(os.environ["OPERANT_SEED"]), os.environ["CUDA_VISIBLE_DEVICES"].split(",")
json.dump({"acc": seed + 10 * len(gpus)}, open("result.json", "w"))
"""
    config = make(tmp_path / "source", program, [1], scheduler={"gpus": ["3", "5"], "gpus_per_job": 2}, seeds=[4, 6])
    assert run(tmp_path, config).reward == 25.0


def test_a_search_whose_site_never_started_begins_anew_under_its_name(tmp_path: Path) -> None:
    class Refuses(FunctionSite):
        def start(self, emit: Any) -> None:
            raise ConfigError("such jobs are refused")

    config = make(tmp_path / "source", "", [1, 2])
    with pytest.raises(ConfigError, match="are refused"):
        run(tmp_path, config, site=Refuses(lambda config: 1.0))
    found = run(tmp_path, make(tmp_path / "source", "", [1, 2, 3]), function=lambda config: {"acc": config["x"]})
    assert found.reward == 3
    with pytest.raises(UsageError, match="there is a search 's' already"):
        run(tmp_path, config)


def test_compare_groups(tmp_path: Path) -> None:
    config = make(tmp_path / "source", "", [1], pavi={"compare": {"name": "my group"}})
    function: Any = lambda c: 1.0  # noqa: E731
    NaiveScheduler(tmp_path / "searches" / "a", config, function=function, source=tmp_path / "source").run()
    (group,) = list_compares(tmp_path).values()
    assert group["name"] == "my group" and group["searches"] == ["a"]
    config["pavi"] = {"compare": {"id": group["id"]}}
    NaiveScheduler(tmp_path / "searches" / "b", config, function=function, source=tmp_path / "source").run()
    assert list_compares(tmp_path)[group["id"]]["searches"] == ["a", "b"]
    config["pavi"] = {"compare": {"id": "nothing"}}
    with pytest.raises(ConfigError, match="there is no group 'nothing'"):
        NaiveScheduler(tmp_path / "searches" / "c", config, function=function, source=tmp_path / "source").run()


def test_a_function_in_place_of_a_program(tmp_path: Path) -> None:
    def objective(config: dict[str, Any]) -> dict[str, float]:
        if config["x"] == 2:
            raise ValueError("no such thing")
        return {"acc": config["x"] * 2.0, "loss": 1.0}

    config = make(tmp_path / "source", "", [1, 2, 3])
    outcome = run(tmp_path, config, function=objective)
    state, _ = read_state(tmp_path / "searches" / "s")
    assert outcome.reward == 6.0 and state.jobs["1"].error == "ValueError: no such thing"
    assert state.proposals[2].values == {"acc": 6.0, "loss": 1.0}


def test_views_survive_what_jobs_print(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    config = make(tmp_path / "source", "import sys; sys.exit(4)", ["\x1b[31mred", "b"])
    run(tmp_path, config, view=LineView())
    shown = capsys.readouterr().out
    assert "job 0 error - exit code 4" in shown and "\x1b" not in shown
    log = (tmp_path / "searches" / "s" / "search.log").read_text()
    assert "job 1 error" in log and "2 abnormal" in log


def test_the_table_shows_counts_best_and_running_jobs(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    config = make(
        tmp_path / "source", REPORTS, [0.9, 0.8, 0.7], scheduler={"stop_criterion": {"max_tries": 3, "time_limits": 1}}
    )
    run(tmp_path, config, view=TableView())
    shown = capsys.readouterr().out
    assert "defined 3" in shown and "success 3" in shown and "best 0.9" in shown and "3 of 3 tries" in shown


def test_a_job_by_itself(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "source").mkdir()
    (tmp_path / "source" / "p.py").write_text("import sys, time; print(sys.argv[1]); time.sleep(float(sys.argv[1]))")
    monkeypatch.chdir(tmp_path / "source")
    job = LocalJob(f"{PYTHON} p.py 0", "quick", {"x": 0})
    assert job.status == "PENDING"
    job.start(workdir=tmp_path / "jobs")
    assert job.wait() == "FINISHED" and job.exit is not None and job.exit["code"] == 0
    assert (job.folder / "stdout").read_text() == "0\n"
    with pytest.raises(UsageError, match="started before"):
        job.start(workdir=tmp_path / "jobs")
    slow = LocalJob([PYTHON, "p.py", "600"], "slow")
    slow.start(workdir=tmp_path / "jobs")
    assert slow.wait(timeout=0.01) in ("PENDING", "RUNNING")
    slow.kill()
    assert slow.wait(timeout=patience(30)) == "KILLED"


def test_searchers_without_a_scheduler() -> None:
    from operant.searchers import Observation, build_searcher

    searcher = build_searcher({"type": "RandomSearcher", "seed": 1}, [{"type": "Real", "name": "x", "data": [0, 1]}])
    for _ in range(5):
        proposal = searcher.propose()
        assert proposal is not None
        searcher.observe(Observation(proposal.number, values={"acc": proposal.config["x"]}))
    assert searcher.best is not None and json.dumps(searcher.best.config)


def test_changed_code_is_said_and_kept_apart(tmp_path: Path) -> None:
    """Which jobs ran with which code can be told afterwards, and both are still there."""
    program = "import json, sys\njson.dump({'acc': float(sys.argv[1])}, open('result.json', 'w'))\n"
    config = make(tmp_path / "source", program, [1, 2, 3, 4], scheduler={"stop_criterion": {"max_tries": 2}})
    run(tmp_path, config)
    said: list[str] = []
    view = NoView()
    view.note = said.append  # type: ignore[method-assign]
    config["scheduler"]["stop_criterion"]["max_tries"] = 3
    run(tmp_path, config, resume=True, force=True, view=view)
    assert not said
    (tmp_path / "source" / "program.py").write_text(program + "# better\n")
    (tmp_path / "source" / "more.py").write_text("")
    config["scheduler"]["stop_criterion"]["max_tries"] = 4
    run(tmp_path, config, resume=True, force=True, view=view)
    assert len(said) == 1 and "the code has changed" in said[0] and "(more.py, program.py)" in said[0]
    folder = tmp_path / "searches" / "s"
    used = [job["code"] for job in describe(folder)["jobs"]]
    assert used[0] == used[1] == used[2] != used[3]
    for name, better in ((used[0], False), (used[3], True)):
        assert ("better" in (folder / "code" / name / "program.py").read_text()) is better


def test_a_search_as_pyyaml_reads_it_in_a_folder_with_any_name(tmp_path: Path) -> None:
    """YAML 1.1 makes texts of `1e-5` and `inf`."""
    config = {
        "task": {"search_args": [{"type": "Real", "name": "lr", "data": ["1e-5", "1e-1"]}]},
        "searcher": {"type": "RandomSearcher"},
        "scheduler": {"stop_criterion": {"max_reward": "inf", "max_tries": "3", "time_limits": "inf"}},
    }
    folder = tmp_path / "zwei Worte é 学"
    done = NaiveScheduler(work_dir=folder, config=config, function=lambda config: config["lr"]).run()
    assert (done.status, done.tries) == ("FINISHED", 3) and read_state(folder)[0].name == folder.name
    for name in (" x", "x ", "-x", "x/y/z", "é" * 101, "a\nb", "a\x00b"):
        with pytest.raises(UsageError, match="not valid"):
            NaiveScheduler(tmp_path / "other" / name.replace("/", "\t"), config, function=len)
