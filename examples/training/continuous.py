"""Continuous actions: SAC on Pendulum with small networks, and its policy in a process of its own without the learner.

python examples/training/continuous.py [STEPS]        5,000 steps take some seconds and are enough to swing it up
"""

from __future__ import annotations

import sys

import numpy as np

from operant.algorithms import SAC
from operant.envs import make_env
from operant.training import load_policy, train
from operant.training.evaluating import evaluate


def main(steps: int = 5000) -> None:
    small = ["model.hidden=[64,64]", "algorithm.learning_starts=200", f"total_steps={steps}"]
    result = train("pendulum-sac", small)
    print(f"best mean return {result.best_return:.0f} at step {result.best_step}")

    # What acts needs neither optimizer nor critics: spaces, settings and weights make it, wherever it is to act.
    trained = load_policy(result.run_id)
    env = make_env("Pendulum-v1", 4)
    policy = SAC.make_policy(env.single_observation_space, env.single_action_space, None, trained.config.model)
    policy.load_weights(trained.policy.weights())
    print(f"four episodes elsewhere: {np.round(evaluate(policy, env, 4, seed=1).returns).astype(int).tolist()}")


if __name__ == "__main__":
    main(*map(int, sys.argv[1:]))
