"""Middleware to build a training loop from; each says which ctx keys it reads and writes."""

from __future__ import annotations

from operant.training.middleware.collecting import (
    collector,
    episode_collector,
    epsilon_schedule,
    gae_estimator,
    get_epsilon_greedy_fn,
    n_step_estimator,
    pusher,
    source_of,
    step_collector,
)
from operant.training.middleware.exchanging import (
    model_receiver,
    model_sender,
    trajectory_receiver,
    trajectory_sender,
)
from operant.training.middleware.learning import (
    checkpoint_saver,
    evaluator,
    learner,
    logger,
    termination_checker,
)

__all__ = [
    "checkpoint_saver",
    "collector",
    "episode_collector",
    "epsilon_schedule",
    "evaluator",
    "gae_estimator",
    "get_epsilon_greedy_fn",
    "learner",
    "logger",
    "model_receiver",
    "model_sender",
    "n_step_estimator",
    "pusher",
    "source_of",
    "step_collector",
    "termination_checker",
    "trajectory_receiver",
    "trajectory_sender",
]
