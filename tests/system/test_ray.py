"""What runs on a real Ray: workers of a task, trials of functions, jobs of a search; one head for all of it."""

from __future__ import annotations

import importlib.util
import json
import os
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import pytest
from tests.cli.terminal import Terminal
from tests.cluster.prometheus import Searching, answers, ask, free_port, query
from tests.cluster.proxy import Proxy
from tests.harness.composing import composed
from tests.machine import patience, wait_until
from tests.system.cluster_search import Search, same_proposals_here_and_at, survive
from tests.system.ray_head import Head, running_head
from tests.web.serving import Page

from operant.assessors import AssessResult
from operant.cli import main
from operant.cluster.monitoring.dashboard import PANELS
from operant.framework import Parallel, WorkerDied
from operant.hpo import R, choice, hpo, report
from operant.sites import Site, Submission
from operant.sites.cluster_jobs import SiteAwayError, SiteRefusedError
from operant.sites.ray import RaySite
from operant.testing import SiteContract
from operant.tracking import Run, SummaryWriter
from operant.training import train

MAINS = Path(__file__).parents[1] / "framework"
sys.path.insert(0, str(MAINS))
import mains  # noqa: E402  # workers import it by this name

# Ray's own code warns on start and shutdown; that is not what is tested here.
pytestmark = [
    pytest.mark.filterwarnings("default"),
    pytest.mark.skipif(importlib.util.find_spec("ray") is None, reason="needs operant[ray]"),
]

_PROGRAMS = {"good": "pass", "bad": "raise SystemExit(3)", "endless": "import time; time.sleep(600)"}


@pytest.fixture(scope="module")
def head() -> Iterator[Head]:
    with running_head(num_cpus=4, resources={"evaluator": 1}) as found:
        yield found


@pytest.fixture(scope="module")
def cluster(head: Head, tmp_path_factory: pytest.TempPathFactory) -> Iterator[None]:
    """This process as a driver."""
    import ray

    here = os.pathsep.join([str(MAINS), *filter(None, os.environ.get("PYTHONPATH", "").split(os.pathsep))])
    env = {"PYTHONPATH": here, "MARKS": str(tmp_path_factory.mktemp("marks"))}
    ray.init(address=head.address, _node_ip_address="127.0.0.2", log_to_driver=False, runtime_env={"env_vars": env})
    with pytest.MonkeyPatch.context() as patch:  # a worker's process imports for minutes where many want the cores
        patch.setattr("operant.framework.parallel.supervisor._START_TIMEOUT", patience(120))
        yield
    ray.shutdown()


def settings(head: Head) -> dict[str, Any]:
    return {"address": head.dashboard, "python": sys.executable, "poll": 0.5, "exit_wait": 5, "cpus": 0.5}


@pytest.mark.parametrize("count", [8, pytest.param(50, marks=[pytest.mark.clusters, pytest.mark.long])])
def test_every_job_is_accounted_for_once_though_the_controller_is_killed(
    head: Head, tmp_path: Path, count: int
) -> None:
    site = settings(head)
    search = Search(tmp_path / "project", count, json.dumps({"type": "ray", **site}), limit=4, parallel=count // 2)
    cluster = RaySite(search.place, **site)
    survive(search, lambda job: cluster.end([job]))
    # Ray tells the end of a job some time after the job's own exit file does.
    wait_until(lambda: all(one.state == "ended" for one in cluster.look()), "the end of all jobs", 60)


@pytest.mark.clusters
@pytest.mark.long
def test_the_example_makes_the_same_proposals_here_and_there(head: Head, tmp_path: Path) -> None:
    same_proposals_here_and_at({"type": "ray", **settings(head)}, tmp_path / "project")


@pytest.mark.clusters
@pytest.mark.long
def test_nodes_that_do_not_see_the_folder(head: Head, tmp_path: Path) -> None:
    site = {"type": "ray", **settings(head), "channel": "http", "channel_address": "127.0.0.1"}
    same_proposals_here_and_at(site, tmp_path / "project")


@pytest.mark.clusters
@pytest.mark.long
class TestRayJobs(SiteContract):
    patience = patience(180)

    @pytest.fixture(autouse=True)
    def cluster(self, head: Head) -> None:
        self.head = head

    def build(self, folder: Path) -> Site:
        return RaySite(folder, **settings(self.head))

    def job(self, token: str, folder: Path, kind: str) -> Submission:
        return Submission(token, folder.name, 1, [sys.executable, "-I", "-S", "-c", _PROGRAMS[kind]], folder, folder)


@pytest.mark.usefixtures("head")
def test_a_head_that_is_not_there(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("RAY_API_SERVER_ADDRESS", raising=False)
    with pytest.raises(SiteRefusedError, match="which Ray"):
        RaySite(tmp_path).look()
    with pytest.raises((SiteAwayError, SiteRefusedError), match="head"):
        RaySite(tmp_path, address="http://127.0.0.1:9").look()


def test_the_same_main_on_ray(cluster: None) -> None:
    trained, evaluated = Parallel.runner(2, topology="star", engine="ray", labels={1: "evaluator"})(
        mains.train_and_evaluate, 20
    )
    assert evaluated["evaluated"][-1][0] >= 20 and trained["saved"]


@pytest.mark.long
def test_a_failure_comes_with_its_traceback(cluster: None) -> None:
    with pytest.raises(WorkerDied, match="the reward is not a number"):
        Parallel.runner(2, engine="ray")(mains.fail_on, 1, "raise")


@pytest.mark.long
def test_a_killed_actor_comes_back_with_its_state(cluster: None) -> None:
    results = Parallel.runner(2, engine="ray", auto_recover=True)(mains.die_and_go_on, 1, [3], 6, "kill")
    assert results == [(6, 0, 0), (6, 3, 1)]


def _learning(steps: int) -> dict[str, Any]:
    return {
        "total_steps": steps,
        "workers": 2,
        "engine": "ray",
        "env": {"id": "operant.envs.identity:DiscreteIdentity", "num_envs": 8},
        "algorithm": {"name": "impala", "rollout": 8, "learning_rate": 5e-3, "gamma": 0.5},
        "model": {"hidden": [32, 32]},
        "evaluation": {"every": steps, "episodes": 16},
        "log": {"every": 800},
    }


def test_a_training_whose_workers_ray_places(cluster: None, tmp_path: Path) -> None:
    (tmp_path / ".operant").mkdir()
    result = train(_learning(12_000), root=tmp_path / ".operant")
    assert result.final_return >= 18.0


def test_rllib_trains_from_the_harness_s_tree(cluster: None, tmp_path: Path) -> None:
    from operant.harness.application import run_tree

    (tmp_path / ".operant").mkdir()
    small = ("algo.library=rllib", "rollouts.num_envs_per_env_runner=1", "training.train_batch_size_per_learner=128")
    small += ("stop_conditions.training_iteration=2", "training.num_epochs=1", "evaluation.evaluation_interval=null")
    report = run_tree(composed("ppo", *small), root=tmp_path / ".operant")
    points = Run.open(report.run_id, tmp_path / ".operant").scalars("env_runners/episode_return_mean")["value"]
    assert "training_iteration is 2" in report.reason and report.steps == 256 and len(points) == 2


def test_trials_of_a_search_are_calls_of_warm_workers(cluster: None, tmp_path: Path) -> None:
    marks = str(tmp_path)

    def trial(config: dict[str, Any]) -> dict[str, Any]:
        x = config["x"]
        if x == 3 and not os.path.exists(f"{marks}/died"):  # noqa: PTH110 - runs elsewhere
            open(f"{marks}/died", "w").close()  # noqa: PTH123
            os._exit(1)
        if x == 4:
            raise ValueError("not four")
        for step in range(3):
            report(step, -x if x < 6 else -100)
        return {"y": -abs(x - 2), "pid": os.getpid()}

    search = hpo(trial).grid(silent=True).workers("ray", num_cpus=0.5).max_workers(2).max_retries(1).ephemeral()
    found = search.spaces({"x": choice(list(range(8)))}).maximize(R["y"]).early_stop(_Last()).run()
    assert found is not None and found[0] == {"x": 2}
    by_x = {one.config["x"]: one for one in search.history}
    assert by_x[3].status == "FINISHED", "a worker that died was replaced, and the trial tried again"
    assert by_x[4].status == "ERROR" and {by_x[6].status, by_x[7].status} == {"STOPPED"}
    assert len({one.result["pid"] for one in by_x.values() if one.status == "FINISHED"}) <= 3


class _Last:
    """Ends trials that report -100."""

    def assess_job(self, job_id: str, history: list[dict[str, Any]]) -> AssessResult:
        return AssessResult.Bad if history[-1]["value"] == -100 else AssessResult.Good

    def job_end(self, job_id: str) -> None:
        pass


# -- jobs by `operant cluster`: submitted with their files, followed, stopped, their runs fetched ----------------------


_PROGRAM = """
import os, sys, time
from pathlib import Path
from operant.tracking import SummaryWriter

print("files:", sorted(path.name for path in Path.cwd().iterdir()), os.environ["COLOUR"], flush=True)
with SummaryWriter("walk") as writer:
    for step in range(20):
        writer.add_scalar("height", step * 0.5, step)
        print("step", step, flush=True)
        time.sleep(0.1)
    folder = Path(os.environ["OPERANT_DIR"], "runs", writer.run_id, "checkpoints")
    folder.mkdir()
    (folder / "last.npz").write_bytes(b"weights" * 100_000)
sys.exit(3)
"""


def _submitting(head: str, *words: str, folder: Path) -> subprocess.Popen[str]:
    verb, *rest = words
    return subprocess.Popen(
        [sys.executable, "-m", "operant", "cluster", verb, "--address", head, *rest],
        stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, cwd=folder,
    )  # fmt: skip


def test_a_job_is_followed_over_a_cut_and_its_run_comes_home(head: Head, tmp_path: Path) -> None:
    for name in (".git", ".venv", ".operant", "data"):
        (tmp_path / name).mkdir()
        (tmp_path / name / "large.bin").write_bytes(b"x")
    (tmp_path / "walk.py").write_text(_PROGRAM)
    port = int(head.dashboard.rpartition(":")[2])
    with Proxy(port) as proxy:
        words = ["submit", "--python", sys.executable, "--env", "COLOUR=blue", "--exclude", "data", "--name", "walk-1"]
        command = ["--", sys.executable, "walk.py"]
        process = _submitting(f"http://127.0.0.1:{proxy.port}", *words, *command, folder=tmp_path)
        assert process.stdout is not None
        lines = []
        for line in process.stdout:
            lines.append(line.rstrip())
            if line == "step 2\n":
                proxy.cut()
        _, said = process.communicate(timeout=patience(120))
        assert process.returncode == 3, said
    assert "files: ['.operant-job', 'walk.py'] blue" in lines
    steps = [line for line in lines if line.startswith("step")]
    assert steps == [f"step {number}" for number in range(20)], "each line once, though the connection was cut"
    runs = list((tmp_path / ".operant").glob("runs/*"))
    assert len(runs) == 1, f"{lines} {said}"
    (run,) = runs
    heights = Run.open(run.name, root=tmp_path / ".operant").scalars("height")["value"]
    assert heights.tolist() == [0.5 * step for step in range(20)]
    assert (run / "checkpoints" / "last.npz").read_bytes() == b"weights" * 100_000


def test_ctrl_c_leaves_a_job_running_and_it_is_listed_followed_and_stopped(
    head: Head, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    words = ["submit", "--no-fetch", "--working-dir", "", "--name", "endless-1", "--", "echo begun; sleep 600"]
    process = _submitting(head.dashboard, *words, folder=tmp_path)
    assert process.stdout is not None
    wait_until(lambda: "begun" in process.stdout.readline(), "the job's first line", 120)  # type: ignore[union-attr]
    process.send_signal(signal.SIGINT)
    _, said = process.communicate(timeout=patience(60))
    assert process.returncode == 130 and "endless-1 goes on" in said
    assert f"`operant cluster logs --address {head.dashboard} endless-1` follows it" in said
    assert main(["cluster", "jobs", "--address", head.dashboard]) == 0
    listed = capsys.readouterr().out.splitlines()
    assert any(line.split()[:2] == ["endless-1", "RUNNING"] and "sleep 600" in line for line in listed)
    following = _submitting(head.dashboard, "logs", "endless-1", folder=tmp_path)
    assert main(["cluster", "stop", "--address", head.dashboard, "endless-1"]) == 0
    assert "endless-1 is stopped" in capsys.readouterr().out
    printed, _ = following.communicate(timeout=patience(60))
    assert following.returncode == 130 and "begun" in printed, "a job that somebody stopped ends as by ctrl-C"


@pytest.mark.parametrize(
    "answers",
    [["\x03", "s\r"], pytest.param(["l\r", "\x04", "\r", "stop\r"], marks=pytest.mark.long)],
    ids=["ctrl-C again, then stop", "leave, end of input, nothing, then stop"],
)
def test_ctrl_c_on_a_terminal_asks_whether_to_stop_the_job(head: Head, answers: list[str]) -> None:
    job = f"asked-{len(answers)}"
    program = (
        "mkdir $OPERANT_DIR/runs/a; trap 'echo last words; printf saved > $OPERANT_DIR/runs/a/x.seg; exit 0' TERM; "
        "echo begun; while :; do sleep 0.1; done"
    )
    submit = ["submit", "--working-dir", "", "--python", sys.executable, "--name", job, "--", program]
    for number, answer in enumerate(answers):
        words = ["logs", job] if number else submit
        with Terminal(["cluster", words[0], "--address", head.dashboard, *words[1:]]) as terminal:
            terminal.wait_for_text("\nbegun\n")
            terminal.press("\x03")
            terminal.wait_for_text("Stop the job, or leave it running? [s/L] ")
            terminal.press(answer)
        assert terminal.code == 130
        assert (f"{job} goes on" in terminal.text) == (answer[0] != "s"), "whoever says nothing leaves it running"
    assert f"{job} is stopped" in terminal.text and terminal.text.count("\nbegun\n") == 1
    assert "\nlast words\n" in terminal.text and "sdk.py" not in terminal.text, "the job's words, not Ray's client's"
    assert Path(".operant", "runs", "a", "x.seg").read_text() == "saved"


def test_who_refuses_jobs_is_told_in_one_sentence(
    head: Head, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["cluster", "jobs", "--address", "http://127.0.0.1:9"]) == 1
    assert "the head does not answer" in capsys.readouterr().err
    assert main(["cluster", "jobs", "--address", "head:8265"]) == 1
    assert "that of its dashboard, http://head:8265, not 'head:8265'" in capsys.readouterr().err
    words = ["--address", head.dashboard, "--no-fetch", "--working-dir", "", "--no-wait", "--name", "twice-1"]
    assert (
        main(["cluster", "submit", *words, "--", "true"]) == 0 and capsys.readouterr().err == "operant: job twice-1\n"
    )
    assert main(["cluster", "submit", *words, "--", "true"]) == 1
    assert capsys.readouterr().err.startswith("operant: Ray refuses: Job with submission_id twice-1 already exists.")
    for verb in ("logs", "stop"):
        assert main(["cluster", verb, "--address", head.dashboard, "none-1"]) == 1
        assert capsys.readouterr().err == "operant: the head knows no job none-1; `operant cluster jobs` lists all\n"
    words = [sys.executable, "-m", "operant", "cluster", "jobs", "--address", head.dashboard]
    env = {**os.environ, "RAY_AUTH_TOKEN": "0" * 64}  # Ray reads it once for each process
    done = subprocess.run(words, cwd=tmp_path, env=env, capture_output=True, text=True, check=False)
    assert done.returncode == 1 and "Ray refuses: " in done.stderr and done.stderr.count("\n") == 1, done.stderr


@pytest.mark.skipif(shutil.which("prometheus") is None, reason="needs Debian's package prometheus")
def test_prometheus_scrapes_a_training_a_search_the_page_and_ray(
    head: Head, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """`operant monitor start` finds them by itself, and every chart of our dashboard has data."""
    root = tmp_path / ".operant"
    root.mkdir()
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("OPERANT_METRICS", "0")
    port = free_port()
    training = [sys.executable, "-m", "operant", "train", "cartpole-ppo", "total_steps=100_000_000", "log.every=2000"]
    with Page(root), ExitStack() as stack:
        trainer = stack.enter_context(subprocess.Popen(training, stdout=subprocess.DEVNULL))
        stack.callback(trainer.kill)
        search = stack.enter_context(Searching())
        writer = stack.enter_context(SummaryWriter("busy"))
        figures = {"workers/queue": 3.0, "workers/lag": 1.5, "workers/restarts": 0.0, "system/gpu0_percent": 80.0}
        assert main(["monitor", "start", "--port", str(port), "--ray", str(head.folder), "--interval", "1s"]) == 0
        stack.callback(lambda: main(["monitor", "stop"]))
        missing = {one.title: one.query for one in PANELS}
        deadline, step = time.monotonic() + patience(90), 0
        while missing:
            assert time.monotonic() < deadline, missing
            step += 1
            writer.add_scalars(figures, step)
            missing = {title: text for title, text in missing.items() if not query(port, text)}
            time.sleep(0.5)
        jobs = query(port, "count by (job, operant) (up == 1)")
        assert {(one["metric"]["job"], one["metric"].get("operant")) for one in jobs} >= {
            ("operant", "page"), ("operant", "program"), ("ray", None),
        }  # fmt: skip
        assert {one["metric"]["run"].partition("-2")[0] for one in query(port, "operant_run_step")} >= {
            "busy",
            "cartpole-ppo",
        }
        assert query(port, 'operant_jobs{state="RUNNING"} == 1') and search.is_alive()
        rules = json.loads(ask(port, "/api/v1/rules"))["data"]["groups"][0]["rules"]
        assert len(rules) >= 5 and all(one["health"] == "ok" for one in rules)
        assert main(["monitor", "start", "--port", str(port)]) == 0 and "runs already" in capsys.readouterr().out
    wait_until(lambda: not answers(port), "the end of Prometheus")
