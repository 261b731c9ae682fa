"""Middleware that learn, judge, save, log and end."""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from operant.data import ReplayBuffer
from operant.envs.vector import VectorEnv
from operant.framework import Context
from operant.framework.task import Stateful
from operant.tracking import SummaryWriter
from operant.training.checkpoints import CheckpointStore
from operant.training.evaluating import evaluate

__all__ = ["checkpoint_saver", "evaluator", "learner", "logger", "termination_checker"]


def learner(
    algorithm: Any, buffer: ReplayBuffer | None = None, *, batch: int = 64, updates: int = 1, seed: int = 0
) -> Any:
    """Improve the policy from replay, or without a buffer from what other middleware prepared.

    Reads ``ctx.train_data`` if there is no buffer. Writes ``ctx.train_iter`` and ``ctx.metrics``; kept.
    """
    rng = np.random.default_rng([seed, 6])

    def _learner(ctx: Context) -> None:
        ctx.setdefault("train_iter", 0)
        if buffer is None:
            ctx.metrics, _ = algorithm.learn(ctx.train_data)
            ctx.train_iter += 1
        elif len(buffer) >= batch:
            for _ in range(updates):
                data = buffer.sample(batch, rng)
                ctx.metrics, priorities = algorithm.learn(data)
                buffer.update_priorities(data["index"], priorities, data["generation"])
                ctx.train_iter += 1
        ctx.keep("train_iter")

    return _learner


def evaluator(
    policy: Any,
    env: VectorEnv,
    *,
    every: int,
    episodes: int = 10,
    seed: int = 1_000_000,
    stop_value: float = math.inf,
) -> Any:
    """Judge the policy every so many training iterations; end the training when it is good enough.

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

    Reads ``ctx.env_step``, ``ctx.metrics``, ``ctx.eval_value``, ``ctx.epsilon``. Writes nothing.
    """
    last = -every

    def _logger(ctx: Context) -> None:
        nonlocal last
        step = ctx.get("env_step", 0)
        if step - last < every and not ctx.finish:
            return
        last = step
        writer.add_scalars({f"train/{name}": value for name, value in (ctx.get("metrics") or {}).items()}, step)
        for name, tag in (("eval_value", "evaluation/return"), ("epsilon", "train/epsilon")):
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
