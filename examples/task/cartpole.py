"""What the steps of this folder share: the config of a DQN on CartPole, and the objects of its loop.

A step ends when five greedy episodes have a mean return of 195 (200 is the most); `STOP_VALUE=60 python step1_loop.py`
is content with less.
"""

from __future__ import annotations

import os
from collections.abc import Callable
from typing import Any, NamedTuple

from operant import SummaryWriter
from operant.training import (
    AdvancedReplayBuffer,
    BaseLearner,
    BaseSerialEvaluator,
    DQNPolicy,
    SampleCollector,
    get_epsilon_greedy_fn,
    make_envs,
)

STOP_VALUE = float(os.environ.get("STOP_VALUE", "195"))
UPDATES_PER_COLLECT = 3
MAX_PASSES = 20_000

main_config: dict[str, Any] = {
    "exp_name": "cartpole_dqn",
    "env": {"collector_env_num": 8, "evaluator_env_num": 5, "n_evaluator_episode": 5, "stop_value": STOP_VALUE},
    "policy": {
        "model": {"encoder_hidden_size_list": [64, 64], "dueling": True},
        "nstep": 1,
        "discount_factor": 0.97,
        "learn": {"batch_size": 64, "learning_rate": 0.001, "update_per_collect": UPDATES_PER_COLLECT},
        "collect": {"n_sample": 8},
        "eval": {"evaluator": {"eval_freq": 200}},
        "other": {
            "eps": {"type": "exp", "start": 0.95, "end": 0.1, "decay": 3000},
            "replay_buffer": {"replay_buffer_size": 20_000},
        },
    },
}
create_config: dict[str, Any] = {"env": {"type": "cartpole"}, "policy": {"type": "dqn"}}


class Parts(NamedTuple):
    """The objects of one loop."""

    policy: DQNPolicy
    learner: BaseLearner
    collector: SampleCollector
    evaluator: BaseSerialEvaluator
    replay_buffer: AdvancedReplayBuffer
    epsilon_greedy: Callable[[int], float]
    tb_logger: SummaryWriter


def make_parts(seed: int = 0) -> Parts:
    name = main_config["exp_name"]
    settings = main_config["policy"]
    collector_env, evaluator_env = make_envs(main_config, create_config, seed)
    policy = DQNPolicy(main_config, create_config, collector_env, seed)
    tb_logger = SummaryWriter(name, system_metrics=False)
    eps = settings["other"]["eps"]
    return Parts(
        policy,
        BaseLearner(None, policy.learn_mode, tb_logger, exp_name=name),
        SampleCollector(settings["collect"], collector_env, policy.collect_mode, tb_logger, exp_name=name, seed=seed),
        BaseSerialEvaluator(settings["eval"]["evaluator"], evaluator_env, policy.eval_mode, tb_logger, exp_name=name),
        AdvancedReplayBuffer(settings["other"]["replay_buffer"], tb_logger, exp_name=name, gamma=0.97, seed=seed),
        get_epsilon_greedy_fn(eps["start"], eps["end"], eps["decay"], eps["type"]),
        tb_logger,
    )
