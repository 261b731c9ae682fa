"""A policy made from spaces, settings and weights, in a process without a learner, collects what that would."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import numpy as np

from operant.algorithms import find_algorithm
from operant.envs import make_env
from operant.training.collecting import Collector
from operant.training.evaluating import evaluate

REMOTE = """
import sys
import numpy as np
from operant.algorithms import find_algorithm
from operant.envs import make_env
from operant.training.collecting import Collector
from operant.training.evaluating import evaluate

for name in sys.argv[2:]:
    with np.load(f"{sys.argv[1]}/{name}.npz") as weights:
        env = make_env("CartPole-v1", 3, seed=1)
        algorithm, _ = find_algorithm(name)
        policy = algorithm.make_policy(env.single_observation_space, env.single_action_space)
        assert not hasattr(policy, "optimizer") and not hasattr(policy, "learn")
        policy.load_weights(dict(weights))
    collector = Collector(env, policy, rng=np.random.default_rng(2))
    collector.reset(1)
    print(*np.ravel([step["action"] for step in collector.trajectory(40)]))
    print(evaluate(policy, env, 4, seed=3).returns)
"""


def test_it_collects_in_another_process_what_the_learner_would(tmp_path: Path) -> None:
    expected = []
    names = ("dqn", "ppo")
    for name in names:
        env = make_env("CartPole-v1", 3, seed=1)
        kind, _ = find_algorithm(name)
        algorithm = kind(env.single_observation_space, env.single_action_space, seed=7)
        np.savez(tmp_path / f"{name}.npz", **algorithm.weights())
        collector = Collector(env, algorithm, rng=np.random.default_rng(2))
        collector.reset(1)
        expected.append(" ".join(str(one) for one in np.ravel([step["action"] for step in collector.trajectory(40)])))
        expected.append(str(evaluate(algorithm, env, 4, seed=3).returns))
    command = [sys.executable, "-c", REMOTE, str(tmp_path), *names]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    assert done.stdout.splitlines() == expected
