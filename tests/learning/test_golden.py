"""The same seed gives the weights that it always gave: a fingerprint of what each way to train comes to.

    python -m tests.learning.test_golden     # prints the fingerprints of the code at hand, as `golden.json` keeps them

Rounding differs between processors and BLAS builds. So all of it is computed in a process of its own, whose libraries
are held to what every processor with AVX2 has, and compared only if the arithmetic is the one of the machine that made
them.
"""

from __future__ import annotations

import argparse
import hashlib
import json
import os
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any

import numpy as np
import pytest

ENVS = "operant.envs.identity:"
CARTPOLE = {"id": "CartPole-v1", "num_envs": 4}
PENDULUM = {"id": "Pendulum-v1", "num_envs": 4, "normalize_obs": True, "normalize_reward": True}
PPO = {"name": "ppo", "rollout": 32, "minibatch": 48, "epochs": 3, "anneal_learning_rate": True, "anneal_clip": True}
A2C = {"name": "a2c", "entropy_weight": 0.01}
DQN = {
    "name": "dqn",
    "train_every": 8,
    "updates": 2,
    "learning_starts": 64,
    "buffer": 600,
    "batch": 16,
    "target_every": 40,
}
PRIORITIZED = {**DQN, "prioritized": True, "n_step": 3, "dueling": True}
CONTROL = {"train_every": 8, "updates": 2, "learning_starts": 64, "buffer": 600, "batch": 16}

TRAININGS: dict[str, dict[str, Any]] = {
    "ppo": {"env": CARTPOLE, "algorithm": PPO},
    "ppo scaled": {"env": PENDULUM, "algorithm": PPO},
    "ppo masked": {"env": {"id": ENVS + "MaskedIdentity", "num_envs": 3}, "algorithm": PPO},
    "a2c": {"env": CARTPOLE, "algorithm": A2C},
    "a2c torch": {"env": CARTPOLE, "algorithm": A2C, "model": {"fused": False}},
    "a2c state noise": {
        "env": PENDULUM,
        "algorithm": {**A2C, "rollout": 8},
        "model": {"state_noise": True, "log_std": -1.0},
    },
    "dqn": {"env": CARTPOLE, "algorithm": DQN},
    "dqn prioritized": {"env": CARTPOLE, "algorithm": PRIORITIZED},
    "dqn torch": {"env": CARTPOLE, "algorithm": DQN, "model": {"fused": False}},
    "dqn dict": {"env": {"id": ENVS + "DictIdentity", "num_envs": 3}, "algorithm": DQN},
    "dqn masked": {"env": {"id": ENVS + "MaskedIdentity", "num_envs": 3}, "algorithm": DQN},
    "td3": {"env": PENDULUM, "algorithm": {"name": "td3", **CONTROL, "noise": "ou"}},
    "sac": {"env": PENDULUM, "algorithm": {"name": "sac", **CONTROL, "prioritized": True, "n_step": 3}},
    "sac torch": {"env": PENDULUM, "algorithm": {"name": "sac", **CONTROL}, "model": {"fused": False}},
    "discrete sac": {"env": CARTPOLE, "algorithm": {"name": "discrete_sac", **CONTROL}},
}


def digest(weights: dict[str, Any]) -> str:
    found = hashlib.sha256()
    for name in sorted(weights):
        found.update(name.encode())
        found.update(np.ascontiguousarray(weights[name]).tobytes())
    return found.hexdigest()[:16]


def arithmetic() -> str:
    """What this machine makes of the operations that a training consists of."""
    import torch

    rng = np.random.default_rng(0)
    parts = {}
    for rows in (1, 4, 16, 48, 128):
        x = rng.standard_normal((rows, 64), dtype=np.float32)
        w = rng.standard_normal((64, 64), dtype=np.float32)
        y = np.tanh(x @ w)
        parts[f"numpy {rows}"] = np.concatenate([y.ravel(), np.exp(y).ravel(), (x.T @ y).ravel()])
        parts[f"torch {rows}"] = torch.tanh(torch.from_numpy(x) @ torch.from_numpy(w)).numpy()
    return digest(parts)


def trained(name: str, root: Path) -> str:
    from operant.tracking import Run
    from operant.training import CheckpointStore, train

    given = {"total_steps": 1024, "evaluation": {"episodes": 2, "every": 512}, **TRAININGS[name]}
    given["model"] = {"hidden": [16, 16], **given.get("model", {})}
    result = train(given, root=root)
    _, state = CheckpointStore(Run.open(result.run_id, root).folder / "checkpoints").load()
    return digest({**state["algorithm"]["weights"], "returns": np.array(result.evaluations)})


def launched(algorithm: str, root: Path, env: str = "openai_gym") -> str:
    """`operant auto`: an environment of Gymnasium's, and the same as an extension's dataset of episodes."""
    from operant.auto import generate_algorithm_config, generate_env_config, generate_training_config, launch
    from operant.auto.datasets import gym_env_dataset_creator, launch_dataset
    from operant.auto.saving import load_checkpoint_file, unpack

    small = {"model": {"hidden": [16]}, **({"batch_size": 16} if algorithm == "DQN" else {"rollout": 32})}
    config = generate_algorithm_config(algorithm, {"frame_config": small})
    config["train_env_config"] = {"render_every_episode": None}
    config["test_env_config"] = {"render_every_episode": None, "episodes": 2}
    config = generate_env_config("openai_gym", config)
    config = generate_training_config(str(root / "trial"), 3, 9, config, early_stopping_patience=None)
    config["gpus"] = None
    if env == "dataset":
        result = launch_dataset(config, gym_env_dataset_creator, test_episodes=2)
    else:
        result = launch(config, root=root)
    assert result.last_checkpoint is not None
    state = unpack(load_checkpoint_file(result.last_checkpoint), "it")
    weights = state.get("frame", state)["algorithm"]["weights"]
    return digest({**weights, "rewards": np.array(result.rewards)})


def by_hand(root: Path) -> str:
    """DI-engine's objects in a loop of one's own."""
    from tests.training.test_serial import CREATE, MAIN

    from operant import SummaryWriter
    from operant.training import AdvancedReplayBuffer, BaseLearner, DQNPolicy, SampleCollector, make_envs

    env, _ = make_envs(MAIN, CREATE)
    policy = DQNPolicy(MAIN, CREATE, env)
    with SummaryWriter("serial", root=root, system_metrics=False) as writer:
        learner = BaseLearner(None, policy.learn_mode, writer)
        collector = SampleCollector(None, env, policy.collect_mode, writer)
        buffer = AdvancedReplayBuffer({"replay_buffer_size": 500, "priority": True}, writer)
        for _ in range(60):
            buffer.push(collector.collect(policy_kwargs={"eps": 0.5}))
            data = buffer.sample(16)
            if data is not None:
                learner.train(data, collector.envstep)
                buffer.update(learner.priorities)
    return digest(policy.algorithm.weights())


def pipeline(root: Path) -> str:
    from tests.training.test_serial import CREATE, MAIN

    from operant.tracking import Run
    from operant.training import CheckpointStore, serial_pipeline

    result = serial_pipeline((MAIN, CREATE), seed=1, max_env_step=800, root=root)
    _, state = CheckpointStore(Run.open(result.run_id, root).folder / "checkpoints").load()
    return digest(state["algorithm"]["weights"])


def middleware(_root: Path) -> str:
    from operant.algorithms import DQN as Algorithm
    from operant.algorithms import DQNSettings
    from operant.data import ReplayBuffer
    from operant.envs import make_env
    from operant.framework import Task
    from operant.models import ModelSettings
    from operant.training import middleware as m

    env = make_env("CartPole-v1", 4, seed=0)
    settings = DQNSettings(learning_rate=1e-3, target_every=50)
    dqn = Algorithm(env.single_observation_space, env.single_action_space, settings, ModelSettings(hidden=(16,)))
    buffer = ReplayBuffer(1000, 4)
    with Task() as task:
        task.use(m.epsilon_schedule(1.0, 0.1, 300, "linear"))
        task.use(m.step_collector(dqn, env, steps=4))
        task.use(m.pusher(buffer)).use(lambda ctx: dqn.set_progress(ctx.env_step, 1000))
        task.use(m.learner(dqn, buffer, batch=32, updates=2))
        task.use(m.termination_checker(max_env_step=1000)).run()
    return digest(dqn.weights())


CASES: dict[str, Any] = {name: (lambda root, name=name: trained(name, root)) for name in TRAININGS}
CASES |= {f"auto {name}": (lambda root, name=name: launched(name, root)) for name in ("DQN", "PPO")}
CASES |= {
    f"auto dataset {name}": (lambda root, name=name: launched(name, root, "dataset")) for name in ("DQN", "PPO", "A2C")
}
CASES |= {"serial objects": by_hand, "serial_pipeline": pipeline, "middleware": middleware}

KEPT = Path(__file__).with_name("golden.json")


def plain_arithmetic() -> dict[str, str]:
    """What makes numpy, torch and their libraries compute alike on every processor with AVX2, in a new process."""
    from numpy._core._multiarray_umath import __cpu_dispatch__ as known

    wide = [name for name in known if name.startswith("AVX512") or name == "X86_V4"]
    libraries = {"OPENBLAS_CORETYPE": "Haswell", "ATEN_CPU_CAPABILITY": "avx2", "DNNL_MAX_CPU_ISA": "AVX2"}
    threads = {f"{name}_NUM_THREADS": "1" for name in ("OMP", "MKL", "OPENBLAS")}
    return {**libraries, **threads, "MKL_CBWR": "COMPATIBLE", "NPY_DISABLE_CPU_FEATURES": " ".join(wide)}


def fingerprints(*words: str, **env: str) -> dict[str, Any]:
    done = subprocess.run(
        [sys.executable, "-W", "ignore", "-m", "tests.learning.test_golden", "--here", *words],
        cwd=Path(__file__).parents[2],
        env={**os.environ, **plain_arithmetic(), **env},
        capture_output=True,
        text=True,
    )
    assert done.returncode == 0, done.stderr
    found: dict[str, Any] = json.loads(done.stdout.splitlines()[-1])
    return found


@pytest.fixture(scope="module")
def kept() -> dict[str, Any]:
    found: dict[str, Any] = json.loads(KEPT.read_text(encoding="utf-8"))
    return found


@pytest.fixture(scope="module")
def found(kept: dict[str, Any], tmp_path_factory: pytest.TempPathFactory) -> dict[str, str]:
    pytest.importorskip("lightning")
    made = fingerprints("--like", kept["arithmetic"], OPERANT_CACHE_DIR=str(tmp_path_factory.mktemp("cache")))
    if made["arithmetic"] != kept["arithmetic"]:
        pytest.skip("this machine rounds otherwise than the one that the fingerprints were made on")
    weights: dict[str, str] = made["weights"]
    return weights


@pytest.mark.parametrize("name", CASES)
def test_the_weights_are_those_of_before(name: str, kept: dict[str, Any], found: dict[str, str]) -> None:
    assert found[name] == kept["weights"][name]


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--here", action="store_true", help="in this process, whatever its arithmetic")
    parser.add_argument("--like", help="nothing but the arithmetic, if that is another")
    arguments = parser.parse_args()
    if not arguments.here:
        print(json.dumps(fingerprints(), indent=2))
        return
    made: dict[str, Any] = {"arithmetic": arithmetic(), "weights": {}}
    for name, case in CASES.items() if arguments.like in (None, made["arithmetic"]) else ():
        with tempfile.TemporaryDirectory() as folder:
            os.chdir(folder)
            Path(".operant").mkdir()
            made["weights"][name] = case(Path(".operant").absolute())
    print(json.dumps(made))


if __name__ == "__main__":
    main()
