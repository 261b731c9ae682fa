"""Three middleware that know of each other only through ctx; used by the later steps."""

from __future__ import annotations

from typing import Any

from cartpole import UPDATES_PER_COLLECT

from operant.framework import Context, Task


def evaluate(task: Task, policy: Any, evaluator: Any, result: dict[str, float]) -> Any:
    """Reads ``ctx.train_iter`` and ``ctx.envstep``; sets ``ctx.finish`` when the policy is good enough.

    On a worker of its own it waits for newer weights of the one that trains.
    """
    last_train_iter = -1

    def _evaluate(ctx: Context) -> None:
        nonlocal last_train_iter
        ctx.setdefault("envstep", -1)
        ctx.setdefault("train_iter", -1)
        if task.router.is_active:
            view = task.parallel_ctx
            while not ("state_dict" in view and view.get("train_iter", -1) > last_train_iter):
                newer = view.wait_newer()
                if newer is None:
                    return
                view = newer
            policy.algorithm.load_weights(view["state_dict"])
            ctx.train_iter = last_train_iter = view["train_iter"]
            ctx.envstep = view["envstep"]
        if evaluator.should_eval(ctx.train_iter):
            stop, result["return"] = evaluator.eval(None, ctx.train_iter, ctx.envstep)
            if stop:
                ctx.finish = True

    return _evaluate


def collect(epsilon_greedy: Any, collector: Any, replay_buffer: Any) -> Any:
    """Reads ``ctx.train_iter``; writes ``ctx.envstep``."""

    def _collect(ctx: Context) -> None:
        ctx.setdefault("train_iter", -1)
        eps = epsilon_greedy(collector.envstep)
        new_data = collector.collect(train_iter=ctx.train_iter, policy_kwargs={"eps": eps})
        replay_buffer.push(new_data, cur_collector_envstep=collector.envstep)
        ctx.envstep = collector.envstep

    return _collect


def train(task: Task, policy: Any, learner: Any, replay_buffer: Any) -> Any:
    """Reads ``ctx.envstep`` and ``ctx.finish``; writes ``ctx.train_iter``, and ``ctx.state_dict`` for other workers."""

    def _train(ctx: Context) -> None:
        ctx.setdefault("envstep", -1)
        for _ in range(UPDATES_PER_COLLECT):
            train_data = replay_buffer.sample(learner.policy.get_attribute("batch_size"), learner.train_iter)
            if train_data is not None:
                learner.train(train_data, ctx.envstep)
                ctx.train_iter = learner.train_iter
        ctx.keep("train_iter", "envstep")
        if task.router.is_active:
            ctx.state_dict = policy.algorithm.weights()
        if ctx.finish:
            learner.save_checkpoint()

    return _train
