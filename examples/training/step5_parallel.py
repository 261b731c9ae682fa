"""Evaluation on a process of its own: worker 0 collects and trains, worker 1 judges the newest weights."""

from __future__ import annotations

from cartpole import MAX_PASSES, make_parts
from three import collect, evaluate, train

from operant.framework import Parallel, Task


def main() -> None:
    parts = make_parts()
    result = {"return": 0.0}
    with Task() as task:
        task.use(evaluate(task, parts.policy, parts.evaluator, result), filter_labels=["standalone", "node.1"])
        task.use(
            collect(parts.epsilon_greedy, parts.collector, parts.replay_buffer), filter_labels=["standalone", "node.0"]
        )
        task.use(train(task, parts.policy, parts.learner, parts.replay_buffer), filter_labels=["standalone", "node.0"])
        task.run(max_step=MAX_PASSES)
    parts.writer.close()
    if task.match_labels(["standalone", "node.1"]):
        print(f"mean return {result['return']:.1f}")


if __name__ == "__main__":
    Parallel.runner(n_parallel_workers=2, topology="star")(main)
