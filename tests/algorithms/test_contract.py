"""Our own algorithms keep the contract that plug-ins have to keep."""

from __future__ import annotations

from typing import ClassVar

from operant.testing import AlgorithmContract

DISCRETE = AlgorithmContract.envs[:3]
REPLAY = {"train_every": 6, "learning_starts": 12, "batch": 8, "buffer": 200, "target_every": 20}


class TestPPO(AlgorithmContract):
    name = "ppo"
    settings: ClassVar = {"rollout": 8, "minibatch": 12, "epochs": 2, "anneal_learning_rate": True}


class TestA2C(AlgorithmContract):
    name = "a2c"


class TestDQN(AlgorithmContract):
    name = "dqn"
    settings = REPLAY
    envs = DISCRETE


class TestPrioritizedDQN(AlgorithmContract):
    name = "dqn"
    settings: ClassVar = {**REPLAY, "prioritized": True, "n_step": 3, "dueling": True}
    envs = DISCRETE
