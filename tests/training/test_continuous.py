"""Continuous control through the other ways to train: DI-engine's pipeline and objects, and middleware."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

from operant import SummaryWriter
from operant.algorithms import TD3, TD3Settings
from operant.data import ReplayBuffer
from operant.envs import make_env
from operant.framework import Task
from operant.hpo import R, hpo, run_scheduler_local, uniform
from operant.models import ModelSettings
from operant.training import (
    AdvancedReplayBuffer,
    BaseLearner,
    SampleCollector,
    SerialPolicy,
    make_envs,
    serial_pipeline,
)
from operant.training import middleware as m

LEARN = {"update_per_collect": 2, "batch_size": 16}
POLICY: dict[str, Any] = {
    "random_collect_size": 40,
    "model": {"obs_shape": 3, "action_shape": 1, "encoder_hidden_size_list": [16]},
    "collect": {"n_sample": 16},
    "learn": LEARN,
    "eval": {"evaluator": {"eval_freq": 100}},
}
ENV = {"collector_env_num": 4, "evaluator_env_num": 2, "n_evaluator_episode": 2}


def pair(kind: str) -> tuple[dict[str, Any], dict[str, Any]]:
    return {"env": ENV, "policy": POLICY}, {"env": {"type": "pendulum"}, "policy": {"type": kind}}


@pytest.mark.parametrize("kind", ["ddpg", "td3", "sac"])
def test_di_engines_pipeline(kind: str, tmp_path: Path) -> None:
    result = serial_pipeline(pair(kind), seed=1, max_env_step=320, root=tmp_path)
    assert result.steps >= 320 and result.train_iter > 20


def test_a_search_over_di_engines_config_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    main, create = pair("sac")
    Path("pendulum_sac_config.py").write_text(
        "from easydict import EasyDict\n"
        f"main_config = EasyDict({main!r} | dict(exp_name='pendulum_sac_seed0'))\n"
        f"create_config = EasyDict({create!r})\n"
        "if __name__ == '__main__':\n"
        "    from ding.entry import serial_pipeline\n"
        "    serial_pipeline((main_config, create_config), seed=0, max_env_step=64)\n"
    )
    with run_scheduler_local("pendulum_sac_config.py", dijob_project_name="searched") as scheduler:
        search = hpo(scheduler.get_hpo_callable()).random().max_steps(1).maximize(R["eval_value"])
        config, result, _ = search.spaces({"policy": {"learn": {"learning_rate_q": uniform(1e-4, 1e-3)}}}).run()
    assert 1e-4 <= config["policy"]["learn"]["learning_rate_q"] <= 1e-3
    assert -2000.0 < result["eval_value"] < 0.0


def test_di_engines_objects_and_their_share_of_random_actions(tmp_path: Path) -> None:
    env, _ = make_envs(*pair("td3"))
    policy = SerialPolicy(*pair("td3"), env)
    before = policy.algorithm.weights()
    with SummaryWriter("serial", root=tmp_path, system_metrics=False) as writer:
        learner = BaseLearner(None, policy.learn_mode, writer)
        collector = SampleCollector(None, env, policy.collect_mode, writer)
        buffer = AdvancedReplayBuffer({"replay_buffer_size": 500}, writer)
        for _ in range(10):
            steps = collector.collect(policy_kwargs={"eps": 0.5})
            assert all(np.abs(step["action"]).max() <= 1.0 for step in steps)
            buffer.push(steps)
            learner.train(buffer.sample(16), collector.envstep)
    assert any((before[name] != value).any() for name, value in policy.algorithm.weights().items())


def test_middleware() -> None:
    env = make_env("Pendulum-v1", 2, seed=0)
    own = TD3Settings(learning_starts=8, batch=8)
    td3 = TD3(env.single_observation_space, env.single_action_space, own, ModelSettings(hidden=(16,)))
    before, buffer = td3.weights(), ReplayBuffer(200, 2)
    with Task() as task:
        task.use(m.step_collector(td3, env, steps=4)).use(m.pusher(buffer))
        task.use(m.learner(td3, buffer, batch=8, total_steps=100))
        task.run(max_step=6)
    assert any((before[name] != value).any() for name, value in td3.weights().items())


def test_middleware_without_a_length_ends_its_random_start_too() -> None:
    env = make_env("Pendulum-v1", 2, seed=0)
    own = TD3Settings(learning_starts=8, batch=8, noise="none")
    td3 = TD3(env.single_observation_space, env.single_action_space, own, ModelSettings(hidden=(16,)))
    buffer, acted = ReplayBuffer(200, 2), []
    with Task() as task:
        task.use(m.step_collector(td3, env, steps=4)).use(m.pusher(buffer)).use(m.learner(td3, buffer, batch=8))
        task.use(lambda ctx: acted.append((ctx.trajectory, td3.weights())))
        task.run(max_step=3)
    (_, before), (then, _) = acted[:2]
    td3.load_weights(before)  # what it acted with
    for step in then:
        np.testing.assert_allclose(step["action"], td3._output(step["obs"]), atol=1e-6)
