"""An import path out of a run is a stranger's, unless this user recorded it here or allows it."""

from __future__ import annotations

import stat
from pathlib import Path
from typing import Any

import pytest

from operant._util.signing import sign
from operant.cli import main
from operant.errors import UsageError
from operant.tracking import Run
from operant.training import load_policy, resume, train
from operant.training.checkpoints import CheckpointStore, read_weights, write_weights
from operant.training.targets import load_config
from operant.training.trust import Untrusted, check_trust, code_names

SMALL = {
    "env": {"id": "CartPole-v1"},
    "algorithm": {"name": "a2c"},
    "total_steps": 200,
    "evaluation": {"episodes": 1},
    "checkpoint": {"every": 100},
}


@pytest.fixture(autouse=True)
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path / "config"))
    monkeypatch.delenv("OPERANT_JOB_ID", raising=False)
    return tmp_path / "config"


@pytest.fixture
def root(tmp_path: Path) -> Path:
    return tmp_path / ".operant"


def poison(root: Path, run_id: str, mark: Path) -> None:
    """What somebody writes who wants a command of his to run: everything else of the run is in order."""
    folder = Run.open(run_id, root).folder
    env = {"id": "os:system", "arguments": {"command": f"touch {mark}"}}
    store = CheckpointStore(folder / "checkpoints")
    step, state = store.load()
    state["config"]["env"] |= env
    store.save(step, state)
    weights, about = read_weights(folder / "best" / "weights.safetensors")
    about["config"]["env"] |= env
    write_weights(folder / "best" / "weights.safetensors", weights, about)


def test_a_command_in_a_run_does_not_run(root: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    run_id, mark = train(SMALL, root=root).run_id, tmp_path / "ran"
    load_policy(run_id, root)
    poison(root, run_id, mark)
    with pytest.raises(Untrusted, match=r"os:system.*--trust"):
        load_policy(run_id, root)
    with pytest.raises(Untrusted, match="os:system"):
        resume(run_id, ["total_steps=300"], root=root)
    with pytest.raises(Untrusted):
        load_policy(run_id, root, trust=["other:name"])
    for command in (["view", run_id, "--no-window"], ["train", "--resume", run_id, "total_steps=300"]):
        assert main([*command, "--root", str(root)]) != 0
        assert "os:system" in capsys.readouterr().err
    assert not mark.exists()
    with pytest.raises(UsageError):  # it runs now, and is no environment
        load_policy(run_id, root, trust=True)
    assert mark.exists()


def test_what_this_user_recorded_here_needs_no_question(root: Path, home: Path) -> None:
    config = {**SMALL, "env": {"id": "gymnasium.envs.classic_control:CartPoleEnv", "arguments": {}}}
    run_id = train(config, root=root).run_id
    load_policy(run_id, root)
    resume(run_id, ["total_steps=300"], root=root)
    key = home / "operant" / "key"
    assert stat.S_IMODE(key.stat().st_mode) == 0o600
    key.unlink()  # another user, or another machine
    with pytest.raises(Untrusted):
        load_policy(run_id, root)
    load_policy(run_id, root, trust=["gymnasium.envs.classic_control:CartPoleEnv"])
    resume(run_id, ["total_steps=400"], root=root, trust=True)
    resume(run_id, ["total_steps=500"], root=root)  # once is enough: it is this user's now


def test_a_config_of_ones_own_names_code_itself(root: Path, home: Path) -> None:
    own = {**SMALL, "env": {"id": "gymnasium.envs.classic_control:CartPoleEnv", "arguments": {}}}
    run_id = train(own, root=root).run_id
    (home / "operant" / "key").unlink()
    with pytest.raises(Untrusted):
        resume(run_id, root=root)
    resume(run_id, root=root, config=load_config({**own, "total_steps": 300}))


def test_a_key_that_others_can_read_vouches_for_nothing(home: Path) -> None:
    config = {"env": {"id": "a:b"}}
    saved = {"config": config, "signature": sign(config)}
    check_trust(saved, "it")
    (home / "operant" / "key").chmod(0o644)
    with pytest.raises(Untrusted):
        check_trust(saved, "it")
    for signature in ("", "-", "é", "\ud800", None, [], sign(config)):
        with pytest.raises(Untrusted):
            check_trust({"config": config, "signature": signature}, "it")


@pytest.mark.parametrize(
    ("config", "names"),
    [
        ({"env": {"id": "CartPole-v1"}, "callbacks": []}, []),
        ({"env": {"id": "os:system"}}, ["os:system"]),
        ({"env": {"id": "os.system"}}, ["os.system"]),
        ({"env": {"id": "a_module:CartPole-v1"}}, ["a_module:CartPole-v1"]),
        ({"env": {"id": "CartPole-v1", "wrappers": ["os:abort"]}}, ["os:abort"]),
        ({"env": {"id": "wildfire", "arguments": {"reward": ["os:abort"]}}}, ["os:abort"]),
        ({"evaluation": {"arguments": {"reward": "os:abort"}}}, ["os:abort"]),
        ({"env": {"arguments": {"reward": "a-file:f", "map": "/maps/a", "n": "1.5"}}}, ["a-file:f"]),
        ({"env": {"arguments": [{"a": "モジュール:f"}, "2:b", "a-b.c"]}}, ["モジュール:f", "2:b", "a-b.c"]),
        ({"model": {"network": "os.abort"}}, ["os.abort"]),
        ({"model": {"actor": {"class": "os.abort", "args": []}}}, ["os.abort"]),
        ({"callbacks": ["os.abort"], "loggers": ["os:abort"]}, ["os.abort", "os:abort"]),
        ([], []),
        ({"env": 3, "model": "x", "callbacks": {"a": "os:abort"}}, ["os:abort"]),
    ],
)
def test_which_names_are_code(config: Any, names: list[str]) -> None:
    assert code_names(config) == names


def test_inside_a_job_a_run_of_somebody_else_is_still_that(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("OPERANT_JOB_ID", "3")
    with pytest.raises(Untrusted) as error:
        check_trust({"config": {"env": {"id": "a:b"}}}, "it")
    assert error.value.names == ("a:b",)


def test_names_are_allowed_one_by_one(root: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    run_id, mark = train(SMALL, root=root).run_id, tmp_path / "ran"
    poison(root, run_id, mark)
    command = ["view", run_id, "--no-window", "--root", str(root)]
    assert main([*command, "--allow", "os:path"]) != 0 and not mark.exists()
    assert "--allow NAME" in capsys.readouterr().err
    assert main([*command, "--allow", "os:path", "--allow", "os:system"]) != 0  # it runs now, and is no environment
    assert mark.exists()


@pytest.mark.parametrize("env", [{"id": ["os:system"]}, {"id": None}, {"arguments": {"workers": 2}}])
def test_an_environment_of_another_kind_is_refused_in_a_sentence(root: Path, env: dict[str, Any]) -> None:
    run_id = train(SMALL, root=root).run_id
    store = CheckpointStore(Run.open(run_id, root).folder / "checkpoints")
    step, state = store.load()
    state["config"]["env"] |= env
    store.save(step, state)
    with pytest.raises(UsageError, match=r"env\.arguments|environment"):
        resume(run_id, ["total_steps=300"], root=root)
