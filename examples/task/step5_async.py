"""Step 5: evaluate runs beside collect and train; all meet at the end of the pass."""

from __future__ import annotations

from middleware import collect, evaluate, train
from workload import Collector, Evaluator, Learner, Model

from operant.framework import Task


def main(max_step: int = 1000) -> Learner:
    model = Model()
    learner, collector = Learner(model), Collector()
    collecting = collect(collector)
    with Task(async_mode=True) as task:
        task.use(evaluate(model, Evaluator(collector.target)))
        task.use(collecting)
        task.use(train(learner), after=collecting)  # it needs ctx.train_data
        task.run(max_step=max_step)
    return learner


if __name__ == "__main__":
    learner = main()
    print(f"{learner.train_iter} iterations, saved at {learner.saved}")
