"""The algorithms of examples/plugins as whoever installs the package has them: found by entry point, used anywhere."""

from __future__ import annotations

import os
import subprocess
import sys
import tomllib
from pathlib import Path
from typing import ClassVar

import pytest
from tests.training.test_resume import Interrupted, assert_same, final_state, interrupt_at

from operant.algorithms import ALGORITHMS
from operant.cli import main
from operant.envs import make_env
from operant.errors import UsageError
from operant.framework import Task
from operant.testing import AlgorithmContract
from operant.tracking import Run
from operant.training import middleware as m
from operant.training import resume, train

PLUGINS = Path(__file__).parents[2] / "examples" / "plugins"
NAMES = ("cem", "reinforce")
SMALL = {
    "cem": {"name": "cem", "population": 6},
    "reinforce": {"name": "reinforce", "episodes": 4},
}


@pytest.fixture
def root(tmp_path):
    folder = tmp_path / ".operant"
    folder.mkdir()
    return folder


@pytest.fixture(scope="module")
def site(tmp_path_factory):
    """What `pip install ./examples/plugins` leaves for others to see."""
    folder = tmp_path_factory.mktemp("site")
    project = tomllib.loads((PLUGINS / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    info = folder / f"operant_examples-{project['version']}.dist-info"
    info.mkdir()
    (info / "METADATA").write_text(f"Metadata-Version: 2.1\nName: {project['name']}\nVersion: {project['version']}\n")
    lines = []
    for group, points in project["entry-points"].items():
        lines += [f"[{group}]", *(f"{name} = {target}" for name, target in points.items())]
    (info / "entry_points.txt").write_text("\n".join(lines) + "\n")
    return folder


@pytest.fixture(autouse=True)
def installed(site, monkeypatch):
    for folder in (PLUGINS, site):
        monkeypatch.syspath_prepend(folder)
    monkeypatch.setattr(ALGORITHMS, "_entry_points_read", False)
    monkeypatch.setattr(ALGORITHMS, "_declared", dict(ALGORITHMS._declared))
    monkeypatch.setattr(ALGORITHMS, "_classes", dict(ALGORITHMS._classes))
    monkeypatch.setenv("PYTHONPATH", os.pathsep.join(map(str, (PLUGINS, site))))


class TestCEM(AlgorithmContract):
    name = "cem"
    settings: ClassVar = {"population": 6}


class TestReinforce(AlgorithmContract):
    name = "reinforce"
    settings: ClassVar = {"episodes": 4}


def test_each_is_one_short_file():
    for name in NAMES:
        assert len((PLUGINS / "operant_examples" / f"{name}.py").read_text(encoding="utf-8").splitlines()) <= 80
    assert set(NAMES) <= set(ALGORITHMS.names)


@pytest.mark.parametrize("name", NAMES)
def test_operant_train_trains_it(name, capsys):
    command = [str(Path(sys.executable).with_name("operant")), "train", str(PLUGINS / f"cartpole-{name}.yaml")]
    done = subprocess.run([*command, "evaluation.stop_value=150"], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    assert "has reached stop_value 150" in done.stdout
    assert main(["runs"]) == 0 and f"cartpole-{name}" in capsys.readouterr().out
    assert main(["train", "--settings", name]) == 0
    settings = capsys.readouterr().out
    assert "population" in settings or "episodes" in settings


@pytest.mark.long
@pytest.mark.parametrize("name", NAMES)
def test_it_solves_cartpole(name, capsys):
    assert main(["train", str(PLUGINS / f"cartpole-{name}.yaml")]) == 0
    assert "has reached stop_value 475" in capsys.readouterr().out


@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize("env", ["CartPole-v1", "Pendulum-v1", "operant.envs.identity:MaskedIdentity"])
def test_resume_is_exact(root, name, env):
    config = {
        "total_steps": 1500,
        "env": {"id": env, "num_envs": 3, "arguments": {"max_episode_steps": 40} if "Pendulum" in env else {}},
        "algorithm": SMALL[name],
        "evaluation": {"episodes": 2, "every": 700},
        "checkpoint": {"every": 300},
    }
    whole = train(config, root=root)
    assert whole.exact and whole.steps >= 1500
    with pytest.raises(Interrupted):
        train({**config, "callbacks": [interrupt_at(900)]}, root=root)
    again = resume("last", ["callbacks=[]"], root=root)
    one, other = final_state(root, whole.run_id), final_state(root, again.run_id)
    for state in (one, other):
        state["config"].pop("callbacks")
    assert_same(one, other)
    tags = Run.open(again.run_id, root).scalar_tags
    assert {"episodes/return", "evaluation/return", "time/collect"} <= set(tags)
    assert any(tag.startswith("train/") for tag in tags)


@pytest.mark.parametrize("name", NAMES)
def test_middleware_runs_it(name):
    env, test = make_env("CartPole-v1", 8, seed=0), make_env("CartPole-v1", 4, seed=9)
    algorithm = ALGORITHMS.get(name)(env.single_observation_space, env.single_action_space)
    source = m.source_of(algorithm, env)
    with Task() as task:
        task.use(m.collector(source, 60_000)).use(m.learner(source, total_steps=60_000))
        task.use(m.evaluator(algorithm, test, every=1, episodes=4, stop_value=150))
        task.use(m.termination_checker(max_env_step=60_000))
        ctx = task.run()
    assert ctx.eval_value >= 150 and ctx.train_iter > 1


def test_whole_episodes_reach_it_through_middleware_too():
    env, test = make_env("CartPole-v1", 8, seed=0), make_env("CartPole-v1", 4, seed=9)
    algorithm = ALGORITHMS.get("reinforce")(env.single_observation_space, env.single_action_space)
    with Task() as task:
        task.use(m.episode_collector(algorithm, env, episodes=8)).use(m.learner(algorithm))
        task.use(m.evaluator(algorithm, test, every=1, episodes=4, stop_value=100))
        assert task.run(max_step=150).eval_value >= 100


@pytest.mark.parametrize("name", NAMES)
def test_operant_auto_generates_and_launches_it(tmp_path, name):
    pytest.importorskip("lightning")
    from operant.auto import generate_algorithm_config, generate_env_config, generate_training_config, launch

    assert name.upper() in __import__("operant.auto", fromlist=["auto"]).get_available_algorithms()
    config = generate_algorithm_config(name.upper())
    assert config["frame"] == name.upper()
    config["frame_config"] |= {key: value for key, value in SMALL[name].items() if key != "name"}
    config["train_env_config"] = {"render_every_episode": None, "num_envs": 2}
    config["test_env_config"] = {"render_every_episode": None, "episodes": 2}
    config = generate_env_config("openai_gym", config)
    config = generate_training_config(str(tmp_path / "trial"), 12, 36, config, early_stopping_patience=None)
    config["gpus"] = None
    whole = launch(config)
    assert whole.epochs == len(whole.rewards) and whole.episodes >= 36 and whole.exact
    again = launch({**config, "max_episodes": 48}, resume=True)
    assert again.run_id == whole.run_id and again.episodes >= 48


def test_frames_play_episodes_for_those_that_learn_from_episodes():
    from operant.auto import generate_algorithm_config
    from operant.auto.frames import frame_class

    env = make_env("CartPole-v1", 1, seed=0)
    spaces = env.single_observation_space, env.single_action_space
    frame = frame_class("REINFORCE").init_from_config(generate_algorithm_config("REINFORCE"), *spaces)
    before = frame.algorithm.weights()
    for number in range(8):
        steps, obs = [], env.reset(number)
        while not steps or not (steps[-1]["terminal"] or steps[-1]["truncated"]):
            (action,) = frame.act({"state": obs})
            step = env.step(frame.to_env(action))
            steps.append(
                {
                    "state": {"state": obs},
                    "action": {"action": action},
                    "next_state": {"state": step.next_obs},
                    "reward": step.reward[0],
                    "terminal": bool(step.terminated[0]),
                    "truncated": bool(step.truncated[0]),
                }
            )
            obs = step.obs
        assert not frame.ready
        frame.store_episode(steps)
    assert frame.ready and frame.update()
    assert any((before[name] != value).any() for name, value in frame.algorithm.weights().items())
    with pytest.raises(UsageError, match="CEM does not learn from episodes that somebody else plays"):
        frame_class("CEM").init_from_config(generate_algorithm_config("CEM"), *spaces)
