"""Step 4: one line shows where the time goes."""

from __future__ import annotations

from middleware import collect, evaluate, train
from workload import Collector, Evaluator, Learner, Model

from operant.framework import StepTimer, Task


def main(max_step: int = 1000, print_per_step: int = 10) -> StepTimer:
    model = Model()
    learner, collector = Learner(model), Collector()
    timer = StepTimer(print_per_step=print_per_step)
    with Task() as task:
        task.use_step_wrapper(timer)
        task.use(evaluate(model, Evaluator(collector.target)))
        task.use(collect(collector))
        task.use(train(learner))
        task.run(max_step=max_step)
    return timer


if __name__ == "__main__":
    main()
