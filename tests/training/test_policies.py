"""Policies apart from learners: in another process, and several in the same environments."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import numpy as np

from operant.algorithms import find_algorithm
from operant.data.batches import add_step, take_rows
from operant.envs import make_env
from operant.training.collecting import Collector
from operant.training.evaluating import evaluate
from operant.training.sources import learn_from_replay, make_replay

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


def test_several_policies_act_in_one_loop_and_each_learns_from_its_rows() -> None:
    """Agents as names of rows: one actor is made of theirs, and each has replay of its own."""
    env = make_env("CartPole-v1", 4, seed=1)
    kind, _ = find_algorithm("dqn")
    spaces = env.single_observation_space, env.single_action_space
    policies = {name: kind(*spaces, seed=seed) for name, seed in (("left", 1), ("right", 3))}
    rows = {"left": slice(0, 2), "right": slice(2, 4)}
    buffers = {name: make_replay(policy.data, 2) for name, policy in policies.items()}
    actors = {name: policy.actor(None, 60, 2) for name, policy in policies.items()}

    def act(obs, mask, state):
        parts = [actors[name](take_rows(obs, rows[name]), mask, state) for name in policies]
        for_env, learned = (np.concatenate([part[place] for part in parts]) for place in (0, 1))
        return for_env, learned, {}

    def keep(step):
        for name, buffer in buffers.items():
            add_step(buffer, take_rows(step, rows[name]))
        taken.append(step["action"])

    taken: list[np.ndarray] = []
    collector = Collector(env, policies["left"], rng=np.random.default_rng(0))
    collector.reset(1)
    collector.run(60, collector.each_step(keep), act=act)
    for name, policy in policies.items():
        alone = Collector(make_env("CartPole-v1", 4, seed=1), policy, rng=np.random.default_rng(0))
        alone.reset(1)
        steps: list[np.ndarray] = []
        greedy = policy.actor(None, 60, 4)
        alone.run(60, alone.each_step(lambda step, steps=steps: steps.append(step["action"])), act=greedy)
        assert np.array_equal(np.stack(taken)[:, rows[name]], np.stack(steps)[:, rows[name]])
    assert not np.array_equal(np.stack(taken)[:, rows["left"]], np.stack(taken)[:, rows["right"]])
    for name, policy in policies.items():
        before, other = policy.weights(), {key: one.weights() for key, one in policies.items() if key != name}
        learn_from_replay(policy, buffers[name], np.random.default_rng(0))
        assert any(not np.array_equal(before[key], value) for key, value in policy.weights().items())
        for key, weights in other.items():
            assert all(np.array_equal(weights[part], value) for part, value in policies[key].weights().items())
