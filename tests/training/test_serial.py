"""The objects of a hand-written loop, and the whole of it in one call."""

from __future__ import annotations

import pickle
from pathlib import Path

import numpy as np
import pytest

from operant import SummaryWriter
from operant.errors import UsageError
from operant.tracking import Run
from operant.training import (
    AdvancedReplayBuffer,
    BaseLearner,
    BaseSerialEvaluator,
    DQNPolicy,
    SampleCollector,
    SerialPolicy,
    make_envs,
    serial_pipeline,
)

MAIN = {
    "exp_name": "cartpole_dqn",
    "env": {"collector_env_num": 4, "evaluator_env_num": 2, "n_evaluator_episode": 2, "stop_value": 10_000},
    "policy": {
        "cuda": True,
        "model": {"encoder_hidden_size_list": [16, 16], "dueling": True},
        "discount_factor": 0.97,
        "learn": {"batch_size": 16, "learning_rate": 0.001, "update_per_collect": 2},
        "collect": {"n_sample": 8},
        "eval": {"evaluator": {"eval_freq": 40}},
        "other": {
            "eps": {"type": "exp", "start": 0.95, "end": 0.1, "decay": 10_000},
            "replay_buffer": {"replay_buffer_size": 500},
        },
    },
}
CREATE = {"env": {"type": "cartpole"}, "policy": {"type": "dqn"}}


@pytest.mark.parametrize("priority", [False, True])
def test_the_loop_of_di_engine(root, priority):
    collector_env, evaluator_env = make_envs(MAIN, CREATE)
    policy = DQNPolicy(MAIN, CREATE, collector_env)
    with SummaryWriter("serial", root=root, system_metrics=False) as writer:
        learner = BaseLearner(None, policy.learn_mode, writer, exp_name="x")
        collector = SampleCollector(None, collector_env, policy.collect_mode, writer, exp_name="x")
        evaluator = BaseSerialEvaluator({"eval_freq": 40}, evaluator_env, policy.eval_mode, writer, exp_name="x")
        buffer = AdvancedReplayBuffer({"replay_buffer_size": 500, "priority": priority}, writer, exp_name="x")
        before = policy.algorithm._flat.array.copy()
        assert buffer.sample(16, 0) is None
        evaluations = 0
        for _ in range(60):
            if evaluator.should_eval(learner.train_iter):
                stop, reward = evaluator.eval(learner.save_checkpoint, learner.train_iter, collector.envstep)
                evaluations += 1
                assert not stop and reward > 0
            buffer.push(
                collector.collect(train_iter=learner.train_iter, policy_kwargs={"eps": 0.5}),
                cur_collector_envstep=collector.envstep,
            )
            for _ in range(2):
                data = buffer.sample(learner.policy.get_attribute("batch_size"), learner.train_iter)
                if data is not None:
                    learner.train(data, collector.envstep)
                    if priority:
                        buffer.update(learner.priorities)
                        assert "weight" in data
        path = learner.save_checkpoint()
    assert collector.envstep == 480
    assert buffer.count() == 480
    assert evaluations == 1 + (learner.train_iter - 1) // 40
    assert (policy.algorithm._flat.array != before).any()
    assert path.is_file() and (path.parent / "best.safetensors").is_file()
    with pytest.raises(UsageError, match="no attribute 'batchsize'"):
        learner.policy.get_attribute("batchsize")


def test_serial_pipeline_runs_the_pair(root):
    result = serial_pipeline((MAIN, CREATE), seed=1, max_env_step=800, root=root)
    assert result.steps == 800
    run = Run.open(result.run_id, root)
    assert run.name == "cartpole_dqn"
    assert np.isfinite(result.best_return)
    found = pickle.loads(Path("cartpole_dqn/result.pkl").read_bytes())
    assert (found["env_step"], found["eval_value"], found["stop"]) == (800, result.final_return, False)
    assert found["train_iter"] == result.train_iter == 2 * (800 // 8 - 12)  # from step 100 on, two for each 8 steps


@pytest.mark.parametrize("kind", ["ppo", "a2c"])
def test_serial_pipeline_takes_on_policy_configs(root, kind):
    policy = {"model": {"encoder_hidden_size_list": [16]}, "collect": {"n_sample": 32}}
    main = {"env": {"collector_env_num": 4, "n_evaluator_episode": 2}, "policy": policy}
    result = serial_pipeline((main, {**CREATE, "policy": {"type": kind}}), max_env_step=320, root=root)
    assert (result.steps, result.train_iter) == (320, 10)
    assert not list(Path().glob("*/result.pkl"))  # no exp_name, so no folder of that name


@pytest.mark.parametrize("kind", ["ppo", "a2c"])
def test_a_hand_written_loop_takes_on_policy_algorithms(root, kind):
    main = {"env": {"collector_env_num": 4}, "policy": {"collect": {"n_sample": 32}}}
    create = {**CREATE, "policy": {"type": kind}}
    env, _ = make_envs(main, create)
    policy = SerialPolicy(main, create, env)
    with SummaryWriter("serial", root=root, system_metrics=False) as writer:
        learner = BaseLearner(None, policy.learn_mode, writer)
        collector = SampleCollector(None, env, policy.collect_mode, writer)
        before = policy.algorithm.weights()
        for _ in range(3):
            learner.train(collector.collect(), collector.envstep)
    assert (collector.envstep, learner.train_iter) == (96, 3)
    assert any((before[name] != value).any() for name, value in policy.algorithm.weights().items())


def test_di_engines_config_reaches_its_stop_value(root):
    policy = {**MAIN["policy"], "model": {"encoder_hidden_size_list": [128, 128, 64], "dueling": True}}
    policy["learn"] = {"batch_size": 64, "learning_rate": 0.001}
    policy["other"] = {**policy["other"], "replay_buffer": {"replay_buffer_size": 20_000}}
    env = {"collector_env_num": 8, "evaluator_env_num": 5, "n_evaluator_episode": 5, "stop_value": 195}
    main = {**MAIN, "env": env, "policy": policy}
    assert serial_pipeline((main, CREATE), seed=0, max_env_step=200_000, root=root).best_return >= 195
