"""Step 1: a training loop, and the same loop as a task with one middleware."""

from __future__ import annotations

from collections.abc import Callable

from workload import Collector, Evaluator, Learner, Model

from operant.framework import Context, Task


def training(model: Model, learner: Learner, collector: Collector, evaluator: Evaluator) -> Callable[[Context], None]:
    def _training(ctx: Context) -> None:
        if evaluator.should_eval(learner.train_iter):
            stop, _ = evaluator.eval(model, learner.train_iter)
            if stop:
                ctx.finish = True
        data = collector.collect()
        learner.train(data)
        if ctx.finish:
            learner.save_checkpoint()

    return _training


def main(max_step: int = 1000) -> Learner:
    model = Model()
    learner, collector = Learner(model), Collector()
    evaluator = Evaluator(collector.target)
    with Task() as task:
        task.use(training(model, learner, collector, evaluator))
        task.run(max_step=max_step)
    return learner


if __name__ == "__main__":
    learner = main()
    print(f"{learner.train_iter} iterations, saved at {learner.saved}")
