"""Step 6: evaluate runs beside collect and train, in a thread; all meet at the end of the pass."""

from __future__ import annotations

from cartpole import MAX_PASSES, make_parts
from middleware import collect, evaluate, train

from operant.framework import StepTimer, Task


def main() -> None:
    _, learner, collector, evaluator, replay_buffer, epsilon_greedy, tb_logger = make_parts()
    collecting = collect(epsilon_greedy, collector, replay_buffer)
    with Task(async_mode=True) as task:
        task.use_step_wrapper(StepTimer(print_per_step=200))
        task.use(evaluate(evaluator))
        task.use(collecting)
        task.use(train(learner, replay_buffer), after=collecting)  # both use the replay buffer
        ctx = task.run(max_step=MAX_PASSES)
    tb_logger.close()
    print(f"mean return {ctx.reward:.1f} after {ctx.envstep} steps, {ctx.train_iter} iterations")


if __name__ == "__main__":
    main()
