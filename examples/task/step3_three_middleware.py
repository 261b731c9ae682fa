"""Step 3: the loop taken apart into evaluate, collect and train, which still share their objects."""

from __future__ import annotations

from collections.abc import Callable

from cartpole import MAX_PASSES, UPDATES_PER_COLLECT, make_parts

from operant.framework import Context, Task
from operant.training import AdvancedReplayBuffer, BaseLearner, BaseSerialEvaluator, SampleCollector


def evaluate(
    learner: BaseLearner, collector: SampleCollector, evaluator: BaseSerialEvaluator
) -> Callable[[Context], None]:
    def _evaluate(ctx: Context) -> None:
        if evaluator.should_eval(learner.train_iter):
            stop, ctx.reward = evaluator.eval(learner.save_checkpoint, learner.train_iter, collector.envstep)
            ctx.keep("reward")
            if stop:
                ctx.finish = True

    return _evaluate


def collect(
    epsilon_greedy: Callable[[int], float],
    learner: BaseLearner,
    collector: SampleCollector,
    replay_buffer: AdvancedReplayBuffer,
) -> Callable[[Context], None]:
    def _collect(ctx: Context) -> None:
        eps = epsilon_greedy(collector.envstep)
        new_data = collector.collect(train_iter=learner.train_iter, policy_kwargs={"eps": eps})
        replay_buffer.push(new_data, cur_collector_envstep=collector.envstep)

    return _collect


def train(
    learner: BaseLearner, collector: SampleCollector, replay_buffer: AdvancedReplayBuffer
) -> Callable[[Context], None]:
    def _train(ctx: Context) -> None:
        for _ in range(UPDATES_PER_COLLECT):
            train_data = replay_buffer.sample(learner.policy.get_attribute("batch_size"), learner.train_iter)
            if train_data is not None:
                learner.train(train_data, collector.envstep)

    return _train


def main() -> None:
    _, learner, collector, evaluator, replay_buffer, epsilon_greedy, tb_logger = make_parts()
    with Task() as task:
        task.use(evaluate(learner, collector, evaluator))
        task.use(collect(epsilon_greedy, learner, collector, replay_buffer))
        task.use(train(learner, collector, replay_buffer))
        ctx = task.run(max_step=MAX_PASSES)
    tb_logger.close()
    print(f"mean return {ctx.reward:.1f} after {collector.envstep} steps")


if __name__ == "__main__":
    main()
