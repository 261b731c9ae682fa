"""Our own algorithms keep the contract that plug-ins have to keep."""

from __future__ import annotations

from typing import ClassVar

from operant.testing import AlgorithmContract

DISCRETE = AlgorithmContract.envs[:3]
CONTINUOUS = ("operant.envs.identity:ContinuousIdentity", "Pendulum-v1")
REPLAY = {"train_every": 6, "learning_starts": 12, "batch": 8, "buffer": 200, "target_every": 20}
CONTROL = {"train_every": 6, "learning_starts": 12, "batch": 8, "buffer": 200}


class TestPPO(AlgorithmContract):
    name = "ppo"
    settings: ClassVar = {"rollout": 8, "minibatch": 12, "epochs": 2, "anneal_learning_rate": True}


class TestRecurrentPPO(AlgorithmContract):
    name = "ppo"
    settings: ClassVar = {"rollout": 8, "minibatch": 12, "epochs": 2}
    model: ClassVar = {"hidden": [8], "recurrent": "lstm", "recurrent_size": 8, "sequence": 5}


class TestA2C(AlgorithmContract):
    name = "a2c"


class TestRecurrentA2C(AlgorithmContract):
    name = "a2c"
    model: ClassVar = {"hidden": [8], "recurrent": "gru", "recurrent_size": 8}


class TestRecurrentA2CInMinibatches(AlgorithmContract):
    name = "a2c"
    settings: ClassVar = {"rollout": 8, "minibatch": 12}
    model: ClassVar = {"hidden": [8], "recurrent": "lstm", "recurrent_size": 8, "sequence": 5}


class TestA3C(AlgorithmContract):
    name = "a3c"
    settings: ClassVar = {"rollout": 8, "minibatch": 12}


class TestTRPO(AlgorithmContract):
    name = "trpo"
    settings: ClassVar = {"rollout": 8, "minibatch": 12, "value_epochs": 2, "conjugate_steps": 3}


class TestDQN(AlgorithmContract):
    name = "dqn"
    settings = REPLAY
    envs = DISCRETE


class TestRecurrentDQN(AlgorithmContract):
    name = "dqn"
    settings: ClassVar = {**REPLAY, "prioritized": True, "n_step": 2}
    model: ClassVar = {"hidden": [8], "recurrent": "lstm", "recurrent_size": 8, "sequence": 5, "burn_in": 3}
    envs = DISCRETE


class TestPrioritizedDQN(AlgorithmContract):
    name = "dqn"
    settings: ClassVar = {**REPLAY, "prioritized": True, "n_step": 3, "dueling": True}
    envs = DISCRETE


class TestC51(AlgorithmContract):
    name = "c51"
    settings: ClassVar = {**REPLAY, "atoms": 7}
    envs = DISCRETE


class TestQRDQN(AlgorithmContract):
    name = "qrdqn"
    settings: ClassVar = {**REPLAY, "quantiles": 5, "prioritized": True}
    envs = DISCRETE


class TestRainbow(AlgorithmContract):
    name = "rainbow"
    settings: ClassVar = {**REPLAY, "atoms": 7}
    envs = DISCRETE


class TestDDPG(AlgorithmContract):
    name = "ddpg"
    settings: ClassVar = {**CONTROL, "noise": "ou", "decrease_rate": 0.8}
    envs = CONTINUOUS


class TestTD3(AlgorithmContract):
    name = "td3"
    settings: ClassVar = {**CONTROL, "noise": "parameter", "noise_steps": 4, "updates": 2}
    envs = CONTINUOUS


class TestSAC(AlgorithmContract):
    name = "sac"
    settings = CONTROL
    envs = CONTINUOUS


class TestPrioritizedSAC(AlgorithmContract):
    name = "sac"
    settings: ClassVar = {**CONTROL, "prioritized": True, "n_step": 3, "actor_every": 2, "learn_temperature": False}
    envs = CONTINUOUS


class TestDiscreteSAC(AlgorithmContract):
    name = "discrete_sac"
    settings: ClassVar = {**CONTROL, "prioritized": True}
    envs = DISCRETE
