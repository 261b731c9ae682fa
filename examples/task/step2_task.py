"""Step 2: the same loop as a task with one middleware."""

from __future__ import annotations

from collections.abc import Callable

from cartpole import MAX_PASSES, UPDATES_PER_COLLECT, Parts, make_parts

from operant.framework import Context, Task


def training(parts: Parts) -> Callable[[Context], None]:
    _, learner, collector, evaluator, replay_buffer, epsilon_greedy, _ = parts

    def _training(ctx: Context) -> None:
        if evaluator.should_eval(learner.train_iter):
            stop, ctx.reward = evaluator.eval(learner.save_checkpoint, learner.train_iter, collector.envstep)
            ctx.keep("reward")
            if stop:
                ctx.finish = True
                return
        eps = epsilon_greedy(collector.envstep)
        new_data = collector.collect(train_iter=learner.train_iter, policy_kwargs={"eps": eps})
        replay_buffer.push(new_data, cur_collector_envstep=collector.envstep)
        for _ in range(UPDATES_PER_COLLECT):
            train_data = replay_buffer.sample(learner.policy.get_attribute("batch_size"), learner.train_iter)
            if train_data is not None:
                learner.train(train_data, collector.envstep)

    return _training


def main() -> None:
    parts = make_parts()
    with Task() as task:
        task.use(training(parts))
        ctx = task.run(max_step=MAX_PASSES)
    parts.tb_logger.close()
    print(f"mean return {ctx.reward:.1f} after {parts.collector.envstep} steps")


if __name__ == "__main__":
    main()
