"""Step 6: evaluate in a process of its own, on the newest weights; it ends the run when they are good."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from middleware import collect
from workload import Collector, Evaluator, Learner, Model

from operant.framework import Context, Parallel, Task


def evaluate(task: Task, model: Model, evaluator: Evaluator) -> Callable[[Context], None]:
    last_train_iter = -1

    def _evaluate(ctx: Context) -> None:
        nonlocal last_train_iter
        ctx.setdefault("train_iter", 0)
        if task.router.is_active:
            newest = task.parallel_ctx
            while not ctx.finish:
                if newest.get("state_dict") is not None and newest.train_iter > last_train_iter:
                    # One view is one snapshot: these values belong together.
                    model.load_state_dict(newest.state_dict)
                    ctx.train_iter = last_train_iter = newest.train_iter
                    break
                newest = newest.wait_newer(timeout=1.0) or newest
        if evaluator.should_eval(ctx.train_iter):
            stop, _ = evaluator.eval(model, ctx.train_iter)
            if stop:
                ctx.finish = True

    return _evaluate


def train(task: Task, learner: Learner, model: Model) -> Callable[[Context], None]:
    task.share("state_dict", "train_iter")

    def _train(ctx: Context) -> None:
        learner.train(ctx.train_data)
        ctx.train_iter = learner.train_iter
        ctx.keep("train_iter")
        if task.router.is_active:
            ctx.state_dict = model.state_dict()
        if ctx.finish:
            learner.save_checkpoint()

    return _train


def main(max_step: int = 100_000) -> dict[str, Any]:
    model = Model()
    learner, collector = Learner(model), Collector()
    evaluator = Evaluator(collector.target, every=1)
    with Task() as task:
        task.use(evaluate(task, model, evaluator), filter_labels=["standalone", "node.1"])
        task.use(collect(collector), filter_labels=["standalone", "node.0"])
        task.use(train(task, learner, model), filter_labels=["standalone", "node.0"])
        task.run(max_step=max_step)
    return {
        "train_iter": learner.train_iter,
        "saved": learner.saved,
        "evaluations": evaluator.n_evaluations,
    }


if __name__ == "__main__":
    trained, evaluated = Parallel.runner(n_parallel_workers=2, topology="star")(main)
    print(f"node 0 trained {trained['train_iter']} iterations and saved at {trained['saved']}")
    print(f"node 1 evaluated {evaluated['evaluations']} times")
