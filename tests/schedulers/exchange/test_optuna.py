"""A search as an Optuna study and back, with Optuna itself; optuna-dashboard's server where it is installed."""

from __future__ import annotations

import importlib.util
import json
import math
import sqlite3
import sys
from pathlib import Path
from typing import Any
from wsgiref.util import setup_testing_defaults

import pytest
import yaml

from operant.cli import main
from operant.cli.search_scripts import ctl_main, run_main
from operant.errors import UsageError
from operant.schedulers.engine.state import read_state
from operant.schedulers.exchange.foreign import ForeignTrial, write_search
from operant.schedulers.exchange.from_optuna import import_from_optuna
from operant.schedulers.exchange.to_optuna import export_to_optuna
from operant.schedulers.views.recorded import job_reader, recorded_rule
from operant.space import build_space

optuna = pytest.importorskip("optuna", reason="optuna is not installed")

SEARCH_ARGS: list[dict[str, Any]] = [
    {"type": "Real", "name": "lr", "data": [1e-4, 1.0], "log": True},
    {"type": "Real", "name": "drop", "data": [0.0, 0.5], "step": 0.1},
    {"type": "Int", "name": "layers", "data": [1, 9], "step": 2},
    {"type": "Categorical", "name": "kind", "data": ["a", "b", None]},
    {"type": "Categorical", "name": "shape", "data": [[8, 8], [16]]},
    {"type": "Categorical", "name": "flag", "data": [1, True]},
    {"type": "Nested", "name": "pair", "data": [{"p": 1, "q": "x"}, {"p": 2, "q": "y"}]},
    {"type": "Real", "name": "momentum", "data": [0.0, 1.0], "when": {"kind": "a"}},
]
CONFIG = {
    "task": {"search_args": SEARCH_ARGS},
    "searcher": {"type": "RandomSearcher", "reward_attribute": "acc", "optimize_mode": "maximize"},
}


def config(place: int) -> dict[str, Any]:
    found = {
        "lr": 10.0 ** -(place % 4),
        "drop": [0.0, 0.1, 0.3][place % 3],
        "layers": [1, 3, 9][place % 3],
        "kind": ["a", "b", None][place % 3],
        "shape": [[8, 8], [16]][place % 2],
        "flag": [1, True][place % 2],
        "p": 1 + place % 2,
        "q": "xy"[place % 2],
    }
    return {**found, "momentum": 0.5} if found["kind"] == "a" else found


def trials() -> list[ForeignTrial]:
    found = []
    for place, status in enumerate(["FINISHED", "STOPPED", "ERROR", "KILLED", "FINISHED", "FINISHED"]):
        usable = status in ("FINISHED", "STOPPED")
        reports = [(step, 5000.0 + 10 * place + step, place + step / 10) for step in range(3)]
        found.append(
            ForeignTrial(
                # Numbers need not be without gaps: filtered proposals have some too.
                number=place * 2,
                config=config(place),
                status=status,
                started=5000.0 + 10 * place,
                ended=5004.0 + 10 * place,
                reward=place + 0.2 if usable else None,
                values={"acc": place + 0.2, "cost": 3.0} if usable else {},
                reports=reports if place < 5 else [],
            )
        )
    return found


@pytest.fixture
def search(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("OPERANT_DIR", str(tmp_path / ".operant"))
    monkeypatch.chdir(tmp_path)
    folder = tmp_path / ".operant" / "searches" / "s"
    write_search(folder, CONFIG, trials(), reward="acc", maximize=True, source="a test")
    return folder


def test_the_space_of_the_tests_is_one() -> None:
    space = build_space(SEARCH_ARGS)
    assert all(space.contains(config(place)) for place in range(6))


@pytest.mark.parametrize("name", ["study.db", "study.log"])
def test_what_optuna_sees(search: Path, tmp_path: Path, name: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["export", "s", "--to", "optuna", "--out", name]) == 0
    said = capsys.readouterr().out
    assert "6 trials" in said and "optuna-dashboard" in said
    assert sorted(path.name for path in tmp_path.iterdir()) == [".operant", name]  # nothing half done is left
    study = optuna.load_study(study_name="s", storage=storage_of(tmp_path / name))
    assert study.direction.name == "MAXIMIZE" and study.metric_names == ["acc"]
    assert [one.state.name for one in study.trials] == ["COMPLETE", "PRUNED", "FAIL", "FAIL", "COMPLETE", "COMPLETE"]
    assert study.best_value == 5.2 and study.best_trial.user_attrs["operant:number"] == 10
    first = study.trials[0]
    assert first.intermediate_values == {0: 0.0, 1: 0.1, 2: 0.2}
    assert first.datetime_start.timestamp() == 5000.0 and first.duration.total_seconds() == 4.0
    assert first.params["lr"] == 1.0 and first.params["shape"] == "[8, 8]" and first.params["momentum"] == 0.5
    assert first.distributions["lr"] == optuna.distributions.FloatDistribution(1e-4, 1.0, log=True)
    assert first.distributions["layers"] == optuna.distributions.IntDistribution(1, 9, step=2)
    assert study.trials[1].value == 1.2 and study.trials[2].value is None
    assert "momentum" not in study.trials[1].params
    assert study.trials[0].user_attrs["operant:values"] == {"cost": 3.0}
    # Optuna can go on with it.
    trial = study.ask({"lr": first.distributions["lr"], "kind": first.distributions["kind"]})
    study.tell(trial, 9.0)
    assert study.best_value == 9.0


def storage_of(path: Path) -> Any:
    if path.suffix == ".db":
        return f"sqlite:///{path}"
    return optuna.storages.JournalStorage(optuna.storages.journal.JournalFileBackend(str(path)))


@pytest.mark.parametrize("name", ["study.sqlite", "study.journal"])
def test_there_and_back(search: Path, tmp_path: Path, name: str, capsys: pytest.CaptureFixture[str]) -> None:
    export_to_optuna(search, tmp_path / name)
    before = (tmp_path / name).read_bytes()
    assert main(["import", "--from", "optuna", name, "--task", "back"]) == 0
    assert (tmp_path / name).read_bytes() == before  # reading changes nothing
    back = search.with_name("back")
    (ours, _), (theirs, status) = read_state(search), read_state(back)
    assert status == "FINISHED" and theirs.maximize and theirs.opened["reward"] == "acc"
    assert theirs.opened["config"]["task"]["search_args"] == SEARCH_ARGS
    assert list(theirs.proposals) == list(ours.proposals) == [0, 2, 4, 6, 8, 10]
    for number, one in ours.proposals.items():
        other = theirs.proposals[number]
        assert json.dumps(other.config, sort_keys=True) == json.dumps(one.config, sort_keys=True)
        assert (other.status, other.reward, other.values) == (one.status, one.reward, one.values)
        job, same = ours.jobs[str(number)], theirs.jobs[str(number)]
        assert (same.status, same.reward) == (job.status, job.reward)
        assert same.started == pytest.approx(job.started) and same.ended == pytest.approx(job.ended)
        curves = [curve(folder, str(number)) for folder in (search, back)]
        assert curves[0] == curves[1]
    assert ours.best is not None and theirs.best is not None and theirs.best.number == ours.best.number
    capsys.readouterr()
    assert main(["import", "--from", "optuna", name, "--task", "back"]) == 1
    assert "already" in capsys.readouterr().err
    assert main(["import", "--from", "optuna", name, "--task", "back", "--force"]) == 0


def curve(folder: Path, job: str) -> list[tuple[int, float]]:
    reader = job_reader(folder, job, recorded_rule(read_state(folder)[0].opened))
    reader.refresh(ended=True)
    return [(one["iteration"], one["value"]) for one in reader.history()]


def test_a_study_that_optuna_made(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: Any) -> None:
    monkeypatch.setenv("OPERANT_DIR", str(tmp_path / ".operant"))
    monkeypatch.chdir(tmp_path)
    study = optuna.create_study(storage="sqlite:///mine.db", study_name="my study", directions=["minimize", "maximize"])

    def objective(trial: Any) -> tuple[float, float]:
        x = trial.suggest_float("x", 0.0, 1.0 + trial.number)  # ranges may change from trial to trial
        if trial.number == 3:
            raise ValueError("no")
        n = trial.suggest_int("n", 1, 4) if trial.number % 2 else 0
        return x, float(n)

    study.optimize(objective, n_trials=6, catch=(ValueError,))
    study.ask()
    assert main(["import", "--from", "optuna", "mine.db"]) == 0
    said = capsys.readouterr().out
    assert "6 trials (1 had not ended" in said and "Imported my-study" in said
    state, _ = read_state(tmp_path / ".operant" / "searches" / "my-study")
    assert not state.maximize and state.opened["reward"] == "value_0"
    best = min(one.values[0] for one in study.trials if one.values)
    assert state.best is not None and state.best.reward == best
    assert state.jobs["3"].status == "ERROR" and set(state.proposals[1].values) == {"value_0", "value_1"}
    space = build_space(state.opened["config"]["task"]["search_args"])
    assert space.kwspaces["x"].high == 6.0 and space.kwspaces["n"].data == range(1, 5)  # type: ignore[attr-defined]


def test_several_seeds_become_their_mean(tmp_path: Path) -> None:
    from operant.tracking.journal import Journal

    folder = tmp_path / "s"
    with Journal.open(folder) as journal:
        journal.append("opened", name="s", config=CONFIG, digest="", maximize=True, reward="acc", wall=1.0)
        journal.append("proposed", number=0, config={"lr": 0.5})
        for seed in (1, 2):
            job = f"0-s{seed}"
            journal.append("submitting", job=job, number=0, seed=seed, attempt=1, token="")
            journal.append("started", job=job, attempt=1, wall=1.0)
            journal.append("ended", job=job, attempt=1, status="FINISHED", wall=2.0, reward=float(seed))
        journal.append("observed", number=0, status="FINISHED", values={"acc": 1.5}, reward=1.5)
        journal.append("proposed", number=1, config={"lr": 0.25})
    from operant.tracking.recording.recorder import Recorder

    for seed, values in ((1, [1.0, 2.0, 3.0]), (2, [3.0, 4.0])):
        run = folder / "jobs" / f"0-s{seed}" / "run"
        recorder = Recorder(run, "r", "r", role="main", attempt=1, system_metrics=False, collect_provenance=False)
        for step, value in enumerate(values):
            recorder.rows.extend((recorder.declare("acc"), step, 1.0, value))
        recorder.end("FINISHED")
    done = export_to_optuna(folder, tmp_path / "study.log")
    assert (done.trials, done.left_out) == (1, 1)
    (trial,) = optuna.load_study(study_name="s", storage=storage_of(tmp_path / "study.log")).trials
    assert trial.intermediate_values == {0: 2.0, 1: 3.0} and trial.value == 1.5
    assert trial.user_attrs["operant:seed_rewards"] == {"1": 1.0, "2": 2.0}


def test_a_reward_that_is_no_number_is_a_failure(tmp_path: Path) -> None:
    one = ForeignTrial(0, {"lr": 0.1}, "FINISHED", 0.0, 1.0, math.nan, {}, [(0, 0.5, math.nan)])
    write_search(tmp_path / "s", CONFIG, [one], reward="acc", maximize=True, source="a test")
    export_to_optuna(tmp_path / "s", tmp_path / "study.db")
    (trial,) = optuna.load_study(study_name="s", storage=f"sqlite:///{tmp_path / 'study.db'}").trials
    assert trial.state.name == "FAIL" and math.isnan(trial.intermediate_values[0])


def test_files_that_are_no_study(tmp_path: Path, search: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "text.db").write_text("hello")
    (tmp_path / "odd.log").write_text('{"a": 1}\n')
    with sqlite3.connect(tmp_path / "other.db") as database:
        database.execute("create table t (x)")
    database.close()
    for name, message in [
        ("none.db", "there is no file"),
        ("text.db", "neither a SQLite file nor a journal"),
        ("other.db", "cannot be read as an Optuna study"),
        ("odd.log", "cannot be read as an Optuna journal"),
    ]:
        assert main(["import", "--from", "optuna", name]) == 1
        error = capsys.readouterr().err
        assert message in error and error.count("\n") == 1, error
    assert not [one for one in search.parent.iterdir() if one.name != "s"]
    assert main(["import", "--from", "optun", "x"]) == 1 and "did you mean 'optuna'" in capsys.readouterr().err
    assert (
        main(["export", "s", "--to", "optuna", "--out", "text.db"]) == 1 and "exists already" in capsys.readouterr().err
    )
    assert main(["export", "--task", "s", "--to", "cvs"]) == 1 and "did you mean 'csv'" in capsys.readouterr().err
    assert ctl_main(["export", "--task", "s", "--to", "optuna", "--out", "ours.log"]) == 0
    words = ["export", "--task", "s", "--to", "optuna", "--tar-path", "x"]
    assert main(words) == 1 and "--tar-path goes with an archive" in capsys.readouterr().err


def test_which_of_several_studies(tmp_path: Path) -> None:
    url = f"sqlite:///{tmp_path / 'two.db'}"
    for name in ("one", "two"):
        optuna.create_study(storage=url, study_name=name)
    with pytest.raises(UsageError, match=r"holds 2 studies \(one, two\)"):
        import_from_optuna(tmp_path / "two.db", tmp_path)
    with pytest.raises(UsageError, match="did you mean 'two'"):
        import_from_optuna(tmp_path / "two.db", tmp_path, study="twoo")
    assert import_from_optuna(tmp_path / "two.db", tmp_path, study="two").trials == 0


def test_a_search_of_a_hostile_name_stays_in_its_folder(tmp_path: Path) -> None:
    url = f"sqlite:///{tmp_path / 'x.db'}"
    optuna.create_study(storage=url, study_name="../../evil")
    done = import_from_optuna(tmp_path / "x.db", tmp_path / "searches")
    assert done.folder.parent == tmp_path / "searches"
    with pytest.raises(UsageError, match="not valid"):
        import_from_optuna(tmp_path / "x.db", tmp_path / "searches", "../evil")


def test_the_dashboard_opens_it(search: Path, tmp_path: Path) -> None:
    if importlib.util.find_spec("optuna_dashboard") is None:
        pytest.skip("optuna-dashboard is not installed")
    import optuna_dashboard

    export_to_optuna(search, tmp_path / "study.db")
    app = optuna_dashboard.wsgi(f"sqlite:///{tmp_path / 'study.db'}")

    def get(path: str) -> Any:
        said: list[str] = []
        environ: dict[str, Any] = {"PATH_INFO": path, "QUERY_STRING": "after=0"}
        setup_testing_defaults(environ)
        body = b"".join(app(environ, lambda status, headers, error=None: said.append(status)))
        assert said[0].startswith("200"), (path, said, body)
        return json.loads(body)

    (summary,) = get("/api/studies")["study_summaries"]
    study = get(f"/api/studies/{summary['study_id']}")
    assert len(study["trials"]) == 6 and study["trials"][0]["state"] == "Complete"


def test_a_search_goes_on_where_a_study_ended(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("OPERANT_DIR", str(tmp_path / ".operant"))
    monkeypatch.chdir(tmp_path)
    study = optuna.create_study(storage="sqlite:///mine.db", study_name="mine", direction="maximize")
    study.optimize(lambda trial: float(trial.suggest_int("x", 1, 8)), n_trials=4)
    assert main(["import", "--from", "optuna", "mine.db"]) == 0
    (tmp_path / "program.py").write_text(
        "import json, sys\njson.dump({'value': int(sys.argv[1])}, open('result.json', 'w'))"
    )
    more = {
        "task": {
            "template": f"{sys.executable} -I -S program.py {{x}}",
            "search_args": [{"type": "Int", "name": "x", "data": [1, 8]}],
        },
        "searcher": {"type": "RandomSearcher", "reward_attribute": "value"},
        "scheduler": {"stop_criterion": {"max_tries": 7}},
    }
    (tmp_path / "more.yaml").write_text(yaml.safe_dump(more))
    assert run_main(["--task", "mine", "more.yaml", "--resume", "--force"]) == 0
    state, status = read_state(tmp_path / ".operant" / "searches" / "mine")
    assert status == "FINISHED" and set(state.proposals) == set(range(7))
    assert [state.proposals[number].reward for number in range(4)] == [one.value for one in study.trials]
    tried = {one.params["x"] for one in study.trials}
    fresh = [state.proposals[number].config["x"] for number in (4, 5, 6)]
    assert not tried & set(fresh) and [state.proposals[number].reward for number in (4, 5, 6)] == fresh
