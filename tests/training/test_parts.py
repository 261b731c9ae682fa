"""Running scales, evaluation by quota, and how a training shows itself."""

from __future__ import annotations

import numpy as np
import pytest

from operant.algorithms import PPO
from operant.cli._training_progress import Lines, progress_for
from operant.envs import make_env
from operant.tracking import SummaryWriter
from operant.training import Evaluation, TrainConfig, Training, evaluate, load_config
from operant.training.normalizing import Normalizer, RunningMoments


def test_running_moments_equal_those_of_all_rows():
    rng = np.random.default_rng(0)
    rows = rng.normal(3.0, 2.0, size=(500, 4))
    moments = RunningMoments((4,))
    for part in np.array_split(rows, 7):
        moments.update(part)
    np.testing.assert_allclose(moments.mean, rows.mean(axis=0), rtol=1e-4)
    np.testing.assert_allclose(moments.variance, rows.var(axis=0), rtol=1e-4)


def test_observations_and_rewards_come_to_one_scale():
    rng = np.random.default_rng(0)
    normalizer = Normalizer(3, 8, 0.9, obs=True, reward=True)
    for _ in range(300):
        scaled = normalizer.observe(rng.normal(50.0, 20.0, size=(8, 3)).astype(np.float32))
        reward = normalizer.reward(rng.normal(0.0, 100.0, size=8), np.zeros(8, bool))
    assert scaled.dtype == np.float32
    assert np.abs(scaled).max() < 6
    assert np.abs(reward).max() < 6
    before = normalizer.obs_moments.count
    normalizer.observe(np.zeros((8, 3), np.float32), learn=False)
    assert normalizer.obs_moments.count == before


def test_every_environment_plays_its_share():
    env = make_env("CartPole-v1", 4, seed=0)
    policy = PPO(env.single_observation_space, env.single_action_space)
    found = evaluate(policy, env, 10, seed=3)
    assert len(found.returns) == len(found.lengths) == 10
    assert found.mean == pytest.approx(np.mean(found.returns))
    assert evaluate(policy, env, 10, seed=3) == found
    assert evaluate(policy, env, 10, seed=4) != found


def test_evaluation_has_an_environment_of_its_own(tmp_path):
    config = TrainConfig.from_mapping(
        {
            "env": {"id": "CartPole-v1", "arguments": {"max_episode_steps": 30}},
            "algorithm": {"name": "ppo", "rollout": 64, "minibatch": 64},
            "total_steps": 64,
            "evaluation": {"episodes": 4, "arguments": {"max_episode_steps": 7}},
        }
    )
    with SummaryWriter("training", root=tmp_path) as writer:
        training = Training(config, writer)
        assert set(training.evaluation(4).lengths) == {7}
        assert training.env.max_episode_steps == 30


def test_a_pipe_gets_a_line_for_each_evaluation(capsys):
    with progress_for(load_config("cartpole-ppo"), quiet=False) as observer:
        assert type(observer) is Lines
        observer.point(100, 5000.0, 20.0)
        observer.evaluated(100, Evaluation((10.0, 20.0), (10, 20)), True)
    out = capsys.readouterr().out
    assert "15.00 ± 5.00" in out and "5,000/s" in out and "best" in out


def test_a_terminal_gets_a_live_line(monkeypatch, capsys):
    monkeypatch.setattr("sys.stdout.isatty", lambda: True, raising=False)
    with progress_for(load_config("cartpole-ppo"), quiet=False) as observer:
        for step in range(1, 40):
            observer.point(step * 1000, 5000.0, float(step))
        observer.point(100_000, 5000.0, 40.0)
        observer.said("something [odd]")
    out = capsys.readouterr().out
    assert "100,000 of 100,000 (100%)" in out
    assert "something [odd]" in out
