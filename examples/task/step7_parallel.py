"""Step 7: the whole loop in three processes, linked as a star; the first that is good enough ends all."""

from __future__ import annotations

from cartpole import MAX_PASSES, make_parts
from middleware import collect, evaluate, train

from operant.framework import Parallel, Task


def main() -> tuple[float, int]:
    with Task() as task:
        seed = task.router.node_id or 0
        _, learner, collector, evaluator, replay_buffer, epsilon_greedy, tb_logger = make_parts(seed)
        task.share("train_iter")  # nobody reads the others here, so little is sent
        task.use(evaluate(evaluator))
        task.use(collect(epsilon_greedy, collector, replay_buffer))
        task.use(train(learner, replay_buffer))
        ctx = task.run(max_step=MAX_PASSES)
    tb_logger.close()
    return ctx.reward, ctx.envstep


if __name__ == "__main__":
    results = Parallel.runner(n_parallel_workers=3, topology="star")(main)
    for node, (reward, envstep) in enumerate(results):
        print(f"node {node}: last mean return {reward:.1f} after {envstep} steps")
    print(f"mean return {max(reward for reward, _ in results):.1f}")
