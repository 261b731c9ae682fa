"""Step 4: the middleware pass what they need through ctx; train_iter and envstep are kept from pass to pass."""

from __future__ import annotations

from cartpole import MAX_PASSES, make_parts
from middleware import collect, evaluate, train

from operant.framework import Task


def main() -> None:
    _, learner, collector, evaluator, replay_buffer, epsilon_greedy, tb_logger = make_parts()
    with Task() as task:
        task.use(evaluate(evaluator))
        task.use(collect(epsilon_greedy, collector, replay_buffer))
        task.use(train(learner, replay_buffer))
        ctx = task.run(max_step=MAX_PASSES)
    tb_logger.close()
    print(f"mean return {ctx.reward:.1f} after {ctx.envstep} steps, {ctx.train_iter} iterations")


if __name__ == "__main__":
    main()
