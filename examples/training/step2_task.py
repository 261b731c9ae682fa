"""The same loop as one middleware of a task."""

from __future__ import annotations

from typing import Any

from cartpole import MAX_PASSES, UPDATES_PER_COLLECT, make_parts

from operant.framework import Context, Task


def training(parts: Any, result: dict[str, float]) -> Any:
    _, learner, collector, evaluator, replay_buffer, epsilon_greedy, _ = parts

    def _training(ctx: Context) -> None:
        if ctx.finish:
            return
        if evaluator.should_eval(learner.train_iter):
            stop, result["return"] = evaluator.eval(learner.save_checkpoint, learner.train_iter, collector.envstep)
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


def main() -> float:
    parts = make_parts()
    result = {"return": 0.0}
    with Task() as task:
        task.use(training(parts, result))
        task.run(max_step=MAX_PASSES)
    parts.writer.close()
    print(f"mean return {result['return']:.1f} after {parts.collector.envstep} steps")
    return result["return"]


if __name__ == "__main__":
    main()
