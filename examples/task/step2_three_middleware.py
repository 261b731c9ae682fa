"""Step 2: the loop taken apart into evaluate, collect and train."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from workload import Collector, Evaluator, Learner, Model

from operant.framework import Context, Task


def evaluate(model: Model, learner: Learner, evaluator: Evaluator) -> Callable[[Context], None]:
    def _evaluate(ctx: Context) -> None:
        if evaluator.should_eval(learner.train_iter):
            stop, _ = evaluator.eval(model, learner.train_iter)
            if stop:
                ctx.finish = True

    return _evaluate


def collect(collector: Collector, buffer: list[Any]) -> Callable[[Context], None]:
    def _collect(ctx: Context) -> None:
        buffer[:] = collector.collect()

    return _collect


def train(learner: Learner, buffer: list[Any]) -> Callable[[Context], None]:
    def _train(ctx: Context) -> None:
        learner.train(buffer)
        if ctx.finish:
            learner.save_checkpoint()

    return _train


def main(max_step: int = 1000) -> Learner:
    model, buffer = Model(), []  # type: ignore[var-annotated]
    learner, collector = Learner(model), Collector()
    with Task() as task:
        task.use(evaluate(model, learner, Evaluator(collector.target)))
        task.use(collect(collector, buffer))
        task.use(train(learner, buffer))
        task.run(max_step=max_step)
    return learner


if __name__ == "__main__":
    learner = main()
    print(f"{learner.train_iter} iterations, saved at {learner.saved}")
