"""The middleware of steps 3 to 5: they know `ctx`, not each other.

evaluate   reads ctx.train_iter; sets ctx.finish
collect    writes ctx.train_data, ctx.envstep
train      reads ctx.train_data, ctx.finish; writes ctx.train_iter (kept)
"""

from __future__ import annotations

from collections.abc import Callable

from workload import Collector, Evaluator, Learner, Model

from operant.framework import Context


def evaluate(model: Model, evaluator: Evaluator) -> Callable[[Context], None]:
    def _evaluate(ctx: Context) -> None:
        ctx.setdefault("train_iter", 0)
        if evaluator.should_eval(ctx.train_iter):
            stop, _ = evaluator.eval(model, ctx.train_iter)
            if stop:
                ctx.finish = True

    return _evaluate


def collect(collector: Collector) -> Callable[[Context], None]:
    def _collect(ctx: Context) -> None:
        ctx.train_data = collector.collect()
        ctx.envstep = collector.envstep

    return _collect


def train(learner: Learner) -> Callable[[Context], None]:
    def _train(ctx: Context) -> None:
        learner.train(ctx.train_data)
        ctx.train_iter = learner.train_iter
        ctx.keep("train_iter")
        if ctx.finish:
            learner.save_checkpoint()

    return _train
