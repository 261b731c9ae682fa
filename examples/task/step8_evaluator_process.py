"""Step 8: evaluate in a process of its own, on the newest weights; it ends the run when they are good."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from cartpole import MAX_PASSES, UPDATES_PER_COLLECT, make_parts
from middleware import collect

from operant.framework import Context, Parallel, Task
from operant.training import AdvancedReplayBuffer, BaseLearner, BaseSerialEvaluator, DQNPolicy


def evaluate(task: Task, evaluator: BaseSerialEvaluator, policy: DQNPolicy) -> Callable[[Context], None]:
    last_train_iter = -1

    def _evaluate(ctx: Context) -> None:
        nonlocal last_train_iter
        ctx.setdefault("envstep", -1)
        ctx.setdefault("train_iter", -1)
        if task.router.is_active:
            newest = task.parallel_ctx
            while not (newest.get("state_dict") and newest.train_iter > last_train_iter):
                newer = newest.wait_newer()
                if newer is None:  # the run is over
                    return
                newest = newer
            # One view is one snapshot: these values belong together.
            policy.algorithm.load_weights(newest.state_dict)
            ctx.train_iter = last_train_iter = newest.train_iter
            ctx.envstep = newest.envstep
            ctx.keep("train_iter", "envstep")
        if evaluator.should_eval(ctx.train_iter):
            stop, ctx.reward = evaluator.eval(None, ctx.train_iter, ctx.envstep)
            ctx.keep("reward")
            if stop:
                ctx.finish = True

    return _evaluate


def train(
    task: Task, learner: BaseLearner, policy: DQNPolicy, replay_buffer: AdvancedReplayBuffer
) -> Callable[[Context], None]:
    task.share("state_dict", "train_iter", "envstep")

    def _train(ctx: Context) -> None:
        ctx.setdefault("envstep", -1)
        for _ in range(UPDATES_PER_COLLECT):
            train_data = replay_buffer.sample(learner.policy.get_attribute("batch_size"), learner.train_iter)
            if train_data is not None:
                learner.train(train_data, ctx.envstep)
                ctx.train_iter = learner.train_iter
                ctx.keep("train_iter")
                if task.router.is_active:
                    ctx.state_dict = policy.algorithm.weights()
        if ctx.finish:
            learner.save_checkpoint()

    return _train


def main() -> dict[str, Any]:
    policy, learner, collector, evaluator, replay_buffer, epsilon_greedy, tb_logger = make_parts()
    with Task() as task:
        task.use(evaluate(task, evaluator, policy), filter_labels=["standalone", "node.1"])
        task.use(collect(epsilon_greedy, collector, replay_buffer), filter_labels=["standalone", "node.0"])
        task.use(train(task, learner, policy, replay_buffer), filter_labels=["standalone", "node.0"])
        ctx = task.run(max_step=MAX_PASSES)
    tb_logger.close()
    return {"reward": ctx.get("reward"), "envstep": ctx.envstep, "train_iter": ctx.train_iter}


if __name__ == "__main__":
    trained, evaluated = Parallel.runner(n_parallel_workers=2, topology="star")(main)
    print(f"node 0 made {trained['train_iter']} iterations and saved")
    print(f"mean return {evaluated['reward']:.1f} after {evaluated['envstep']} steps, judged by node 1")
