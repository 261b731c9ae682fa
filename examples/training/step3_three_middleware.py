"""Evaluate, collect and train as three middleware, with the time of each."""

from __future__ import annotations

from cartpole import MAX_PASSES, make_parts
from three import collect, evaluate, train

from operant.framework import StepTimer, Task


def main(async_mode: bool = False) -> float:
    parts = make_parts()
    result = {"return": 0.0}
    with Task(async_mode=async_mode) as task:
        task.use_step_wrapper(StepTimer(print_per_step=2000))
        task.use(evaluate(task, parts.policy, parts.evaluator, result))
        task.use(collect(parts.epsilon_greedy, parts.collector, parts.replay_buffer))
        task.use(train(task, parts.policy, parts.learner, parts.replay_buffer))
        task.run(max_step=MAX_PASSES)
    parts.writer.close()
    print(f"mean return {result['return']:.1f} after {parts.collector.envstep} steps")
    return result["return"]


if __name__ == "__main__":
    main()
