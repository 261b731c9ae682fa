"""Step 3: the middleware pass what they need through ctx; train_iter is kept from pass to pass."""

from __future__ import annotations

from middleware import collect, evaluate, train
from workload import Collector, Evaluator, Learner, Model

from operant.framework import Task


def main(max_step: int = 1000) -> Learner:
    model = Model()
    learner, collector = Learner(model), Collector()
    with Task() as task:
        task.use(evaluate(model, Evaluator(collector.target)))
        task.use(collect(collector))
        task.use(train(learner))
        task.run(max_step=max_step)
    return learner


if __name__ == "__main__":
    learner = main()
    print(f"{learner.train_iter} iterations, saved at {learner.saved}")
