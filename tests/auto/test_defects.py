"""What is broken in Machin's launcher, from which the configs come: a test for each defect."""

from __future__ import annotations

import importlib.util
import subprocess
import sys

import numpy as np
import pytest
import torch
from tests.machine import patience

from operant.auto import (
    check_config,
    frame_class,
    generate_algorithm_config,
    generate_env_config,
    generate_training_config,
    get_available_algorithms,
    launch,
)
from operant.auto.command import main
from operant.auto.datasets import RLGymDataset
from operant.auto.naming import resolve
from operant.envs import make_env
from operant.errors import UsageError
from operant.tracking import Run


def make_frame(algorithm="DQN", env="CartPole-v1", **frame_config):
    made = make_env(env, 1, seed=0)
    config = frame_class(algorithm).generate_config({"frame_config": {"model": {"hidden": [8]}, **frame_config}})
    frame = frame_class(algorithm).init_from_config(config, made.single_observation_space, made.single_action_space)
    return frame, made


def step(number, *, terminal=False, reward=1.0, **others):
    state = np.full((1, 4), 0.1 * number, np.float32)
    following = np.full((1, 4), 0.1 * (number + 1), np.float32)
    made = {"state": {"state": state}, "action": {"action": number % 2}, "next_state": {"state": following}}
    return {**made, "reward": reward, "terminal": terminal, **others}


def test_generate_works_from_the_command_line(tmp_path):
    target = tmp_path / "config.json"
    assert main(["generate", "--algo", "DQN", "--env", "openai_gym", "--output", str(target)]) == 0
    assert target.is_file()


@pytest.mark.parametrize("algorithm", get_available_algorithms())
def test_defaults_do_not_overwrite_what_the_user_gave(algorithm):
    given = {"frame_config": {"discount": 0.5, "gradient_max": 3.0}}
    for config in (generate_algorithm_config(algorithm, given), frame_class(algorithm).generate_config(given)):
        assert config["frame_config"]["discount"] == 0.5 and config["frame_config"]["gradient_max"] == 3.0


@pytest.mark.parametrize("algorithm", ["A2C", "PPO"])
def test_algorithms_that_learn_from_rollouts_can_be_launched_and_updated_twice(make_config, algorithm):
    assert launch(make_config(algorithm)).episodes >= 9
    frame, _ = make_frame(algorithm, rollout=4)
    frame.store_episode([step(number, terminal=number == 5) for number in range(6)])
    before = frame.algorithm.weights()
    assert frame.update() and frame.update() == {}  # there is nothing new to learn from the second time
    assert any((before[name] != value).any() for name, value in frame.algorithm.weights().items())


CONTINUOUS = ("DDPG", "DDPGPER", "HDDPG", "SAC", "TD3", "APEX_DDPG", "DDPGAPEX")
REFUSED = {
    **dict.fromkeys(("ARS", "ES", "BC"), "does not learn from episodes that somebody else plays"),
    **dict.fromkeys(("GAIL", "GAIL_TRPO"), "learns from recorded episodes"),
    "MADDPG": "is for several agents",
}


@pytest.mark.parametrize("algorithm", get_available_algorithms())
def test_every_algorithm_plays_and_learns_through_its_verbs(algorithm):
    env_id = "Pendulum-v1" if algorithm in CONTINUOUS else "CartPole-v1"
    if algorithm in REFUSED:
        with pytest.raises(UsageError, match=REFUSED[algorithm]):
            make_frame(algorithm, env_id)
        return
    frame, env = make_frame(algorithm, env_id)
    dataset = RLGymDataset(frame, env, None)
    for _ in range(8):
        frame.store_episode(next(dataset).observations)
    assert frame.update()


@pytest.mark.long
@pytest.mark.parametrize("frame", ["IMPALA", "DQNAPEX", "ARS"])
def test_distributed_training_runs(make_config, tmp_path, frame):
    """Machin's launcher never got one to its end."""
    (tmp_path / ".operant").mkdir()
    small = {"ARS": {"directions": 2}, "IMPALA": {"rollout": 8}}.get(frame, {})
    config = make_config(frame, small, num_processes=3)
    config["frame_config"].pop("batch_size", None) if small else None
    result = launch(config, root=tmp_path / ".operant")
    assert result.episodes >= 9 and not result.exact
    again = launch({**config, "max_episodes": 18}, resume=True, root=tmp_path / ".operant")
    assert again.episodes > result.episodes


def test_a_full_buffer_holds_the_newest_and_nothing_stale():
    frame, _ = make_frame(replay_size=8)
    for episode in range(5):
        frame.store_episode([step(number, terminal=number == 3, reward=float(episode)) for number in range(4)])
    drawn = frame.buffer.sample(200, np.random.default_rng(0))
    assert len(frame.buffer) == 8 and set(np.unique(drawn["reward"])) == {3.0, 4.0}


def test_a_transition_with_a_wrong_or_missing_key_is_not_taken_silently():
    frame, _ = make_frame()
    with pytest.raises(UsageError, match="did you mean 'terminal'"):
        frame.store_episode([{**step(0), "terminale": True}])
    missing = step(0)
    del missing["reward"]
    with pytest.raises(UsageError, match="transition 0 has no reward"):
        frame.store_episode([missing])
    with pytest.raises(UsageError, match=r"shape \(1, 3\)"):
        frame.store_episode([{**step(0), "state": {"state": np.zeros((1, 3))}}])


@pytest.mark.parametrize("key", ["optimizer", "criterion", "lr_scheduler"])
def test_an_unknown_name_is_an_error_that_lists_what_was_tried(make_config, key):
    with pytest.raises(
        UsageError, match=r"'Adamm' was not found: tried torch.*in the calling module 'test_defects'|tests"
    ):
        launch(make_config(frame_config={key: "Adamm"}))


def test_a_name_in_a_module_that_was_not_imported_yet(tmp_path, monkeypatch):
    (tmp_path / "outer_package" / "inner").mkdir(parents=True)
    for folder in ("outer_package", "outer_package/inner"):
        (tmp_path / folder / "__init__.py").touch()
    (tmp_path / "outer_package" / "inner" / "deep.py").write_text("class Deep:\n    pass\n")
    monkeypatch.syspath_prepend(str(tmp_path))
    assert resolve("models", "outer_package.inner.deep.Deep").__name__ == "Deep"
    with pytest.raises(UsageError, match="has no 'Deeper'"):
        resolve("models", "outer_package.inner.deep.Deeper")


def test_truncation_bootstraps_and_termination_does_not():
    frame, _ = make_frame()
    frame.store_episode([step(0), step(1, truncated=True)])
    frame.store_episode([step(0), step(1, terminal=True)])
    frame.store_episode([step(0), step(1)])  # cut off by the dataset: the same as truncated
    drawn = frame.buffer.sample(500, np.random.default_rng(0))
    last = np.isclose(drawn["obs"][:, 0], 0.1)
    assert set(np.round(drawn["discount"][~last], 6)) == {np.float32(0.99)}
    assert sorted(set(np.round(drawn["discount"][last].astype(float), 6))) == [0.0, 0.99]
    assert 0.2 < np.mean(drawn["discount"][last] == 0.0) < 0.5  # one of three


def test_epsilon_has_a_floor():
    frame, _ = make_frame(epsilon_decay=0.9)
    frame.algorithm.set_progress(100_000, 1_000_000)
    assert frame.algorithm._epsilon == pytest.approx(frame.parts.settings.exploration_end) != 0.0


def test_several_choices_at_once(make_config):
    space = {"env_name": "operant.envs.identity:MultiDiscreteIdentity"}
    assert launch(make_config("PPO", train=space, test=space)).episodes >= 9
    with pytest.raises(UsageError, match="PPO, A2C or SAC may take it"):
        launch(make_config("DQN", train=space, test=space))


def test_infos_of_an_environment_are_not_logged(make_config):
    result = launch(make_config(train={"act_kwargs": {"epsilon": 0.5}}))
    tags = {tag.partition("/")[0] for tag in Run.open(result.run_id).scalar_tags}
    assert tags <= {"train", "episodes", "evaluation", "total_reward", "epoch", "system"}


def test_the_test_environment_is_evaluated_in(make_config):
    result = launch(make_config(test={"arguments": {"max_episode_steps": 4}}))
    assert result.rewards == (4.0,) * result.epochs


def test_what_machins_examples_import_is_here():
    config = generate_algorithm_config("DQN")
    config = generate_env_config("openai_gym", config)
    config = generate_training_config(root_dir=".trial", episode_per_epoch=10, max_episodes=10000, config=config)
    assert check_config(config).epochs == 1000


def test_nothing_that_is_gone_is_needed():
    """The packages whose changes broke it: none of them is imported, or is used by its present names."""
    for name in ("moviepy", "gym", "torchviz", "GPUtil"):
        assert importlib.util.find_spec(name) is None or name not in sys.modules
    assert not hasattr(torch.distributed, "broadcast_multigpu")


def test_unknown_names_leave_with_an_error_code():
    command = [sys.executable, "-m", "operant.auto", "generate", "--algo", "DQM", "--print"]
    done = subprocess.run(command, capture_output=True, text=True, timeout=patience(100))
    assert done.returncode == 1 and "did you mean 'DQN'" in done.stderr and "Traceback" not in done.stderr
