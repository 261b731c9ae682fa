"""Middleware that learn, evaluate, save, log and end."""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from operant.algorithms.contracts import Algorithm
from operant.data import ReplayBuffer
from operant.data.batches import episode_batch, rollout_batch
from operant.envs.vector import VectorEnv
from operant.errors import UsageError
from operant.framework import Context
from operant.framework.task import Stateful
from operant.tracking import SummaryWriter
from operant.training.checkpoints import CheckpointStore
from operant.training.evaluating import evaluate
from operant.training.sources import Source, learn_from_replay

_FAR = 10**12  # environment steps, while nobody says how many there will be


def learner(
    algorithm: Algorithm | Source,
    buffer: ReplayBuffer | None = None,
    *,
    batch: int = 64,
    updates: int = 1,
    total_steps: int | None = None,
    seed: int = 0,
) -> Any:
    """Improve the policy from replay, or without a buffer from what was collected for it.

    With `total_steps` the algorithm is told how far the training is: for schedules and importance weights. Without, it
    is told how many steps there were: for its target network, and the random actions at its start. Instead of an
    algorithm it may get the source of a `collector`: it then learns in that one's own rhythm.

    Reads, without a buffer, the first of these that is there: ``ctx.train_data``, ``ctx.episodes``, ``ctx.trajectory``.
    Writes ``ctx.train_iter`` and ``ctx.metrics``; kept.
    """
    if isinstance(algorithm, Source):
        return _source_learner(algorithm, total_steps)
    rng = np.random.default_rng([seed, 6])

    def _learner(ctx: Context) -> None:
        ctx.setdefault("train_iter", 0)
        if total_steps is not None:
            algorithm.set_progress(ctx.env_step, total_steps)
        elif buffer is not None and "env_step" in ctx:
            tell_steps(algorithm, ctx.env_step)
        if buffer is not None:
            for _ in range(updates if len(buffer) >= batch else 0):
                ctx.metrics = learn_from_replay(algorithm, buffer, rng, batch)
                ctx.train_iter += 1
        else:
            ctx.metrics, _ = algorithm.learn(_collected(ctx))
            ctx.train_iter += 1
        ctx.keep("train_iter")

    return _learner


def tell_steps(policy: Any, steps: int) -> None:
    """Tell a policy how many steps there were. How far the training is remains as it was told last, if it was."""
    progress = getattr(policy, "progress", 0.0)
    policy.set_progress(steps, max(steps, round(steps / progress)) if progress > 0.0 else _FAR)


def _source_learner(source: Source, total_steps: int | None) -> Any:
    if total_steps is None:
        raise UsageError("learner(source) needs total_steps, as its collector does: how long the training is")

    def _learner(ctx: Context) -> None:
        ctx.metrics = source.learn(ctx.get("train_data"), total_steps)
        ctx.train_iter = source.train_iter
        ctx.keep("train_iter")

    return _learner


def _collected(ctx: Context) -> Any:
    if "train_data" in ctx:
        return ctx.train_data
    return episode_batch(ctx.episodes) if "episodes" in ctx else rollout_batch(ctx.trajectory)


def evaluator(
    policy: Algorithm,
    env: VectorEnv,
    *,
    every: int,
    episodes: int = 10,
    seed: int = 1_000_000,
    stop_value: float = math.inf,
) -> Any:
    """Evaluate the policy every so many training iterations; end the training when it is good enough.

    Reads ``ctx.train_iter``. Writes ``ctx.eval_value`` (kept), and ``ctx.finish`` at the stop value.
    """
    last = -every

    def _evaluator(ctx: Context) -> None:
        nonlocal last
        iteration = ctx.get("train_iter", 0)
        if iteration - last < every and not ctx.finish:
            return
        last = iteration
        ctx.eval_value = evaluate(policy, env, episodes, seed).mean
        ctx.keep("eval_value")
        if ctx.eval_value >= stop_value:
            ctx.finish = True

    return _evaluator


def checkpoint_saver(store: CheckpointStore, stateful: Stateful, *, every: int) -> Any:
    """Save an object's state every so many environment steps, and at the end.

    Reads ``ctx.env_step`` and ``ctx.finish``. Writes nothing.
    """
    last = 0

    def _checkpoint_saver(ctx: Context) -> None:
        nonlocal last
        step = ctx.get("env_step", 0)
        if ctx.finish or step - last >= every:
            last = step
            store.save(step, stateful.state_dict())

    return _checkpoint_saver


def logger(writer: SummaryWriter, *, every: int = 1) -> Any:
    """Record what is known, every so many environment steps and at the end.

    Reads ``ctx.env_step``, ``ctx.metrics``, ``ctx.eval_value``, ``ctx.epsilon``, ``ctx.lost``. Writes nothing.
    """
    last = -every

    def _logger(ctx: Context) -> None:
        nonlocal last
        step = ctx.get("env_step", 0)
        if step - last < every and not ctx.finish:
            return
        last = step
        writer.add_scalars({f"train/{name}": value for name, value in (ctx.get("metrics") or {}).items()}, step)
        for name, tag in (
            ("eval_value", "evaluation/return"),
            ("epsilon", "train/epsilon"),
            ("lost", "workers/lost"),
        ):
            if name in ctx:
                writer.add_scalar(tag, float(ctx[name]), step)

    return _logger


def termination_checker(*, max_env_step: float = math.inf, max_train_iter: float = math.inf) -> Any:
    """End the training after so many environment steps or training iterations.

    Reads ``ctx.env_step`` and ``ctx.train_iter``. Writes ``ctx.finish``.
    """

    def _termination_checker(ctx: Context) -> None:
        if ctx.get("env_step", 0) >= max_env_step or ctx.get("train_iter", 0) >= max_train_iter:
            ctx.finish = True

    return _termination_checker
