"""The middleware of steps 4 to 7: they know `ctx`, not each other.

evaluate   reads ctx.train_iter, ctx.envstep; writes ctx.reward (kept), sets ctx.finish
collect    reads ctx.train_iter; writes ctx.envstep (kept)
train      reads ctx.envstep, ctx.finish; writes ctx.train_iter (kept)
"""

from __future__ import annotations

from collections.abc import Callable

from cartpole import UPDATES_PER_COLLECT

from operant.framework import Context
from operant.training import AdvancedReplayBuffer, BaseLearner, BaseSerialEvaluator, SampleCollector


def evaluate(evaluator: BaseSerialEvaluator) -> Callable[[Context], None]:
    def _evaluate(ctx: Context) -> None:
        ctx.setdefault("envstep", -1)
        ctx.setdefault("train_iter", -1)
        if evaluator.should_eval(ctx.train_iter):
            stop, ctx.reward = evaluator.eval(None, ctx.train_iter, ctx.envstep)
            ctx.keep("reward")
            if stop:
                ctx.finish = True

    return _evaluate


def collect(
    epsilon_greedy: Callable[[int], float], collector: SampleCollector, replay_buffer: AdvancedReplayBuffer
) -> Callable[[Context], None]:
    def _collect(ctx: Context) -> None:
        ctx.setdefault("train_iter", -1)
        eps = epsilon_greedy(collector.envstep)
        new_data = collector.collect(train_iter=ctx.train_iter, policy_kwargs={"eps": eps})
        replay_buffer.push(new_data, cur_collector_envstep=collector.envstep)
        ctx.envstep = collector.envstep
        ctx.keep("envstep")

    return _collect


def train(learner: BaseLearner, replay_buffer: AdvancedReplayBuffer) -> Callable[[Context], None]:
    def _train(ctx: Context) -> None:
        ctx.setdefault("envstep", -1)
        for _ in range(UPDATES_PER_COLLECT):
            train_data = replay_buffer.sample(learner.policy.get_attribute("batch_size"), learner.train_iter)
            if train_data is not None:
                learner.train(train_data, ctx.envstep)
                ctx.train_iter = learner.train_iter
                ctx.keep("train_iter")
        if ctx.finish:
            learner.save_checkpoint()

    return _train
