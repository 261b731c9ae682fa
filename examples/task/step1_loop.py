"""Step 1: a DQN learns CartPole in a loop written by hand."""

from __future__ import annotations

from cartpole import MAX_PASSES, UPDATES_PER_COLLECT, make_parts


def main() -> None:
    _, learner, collector, evaluator, replay_buffer, epsilon_greedy, tb_logger = make_parts()
    reward = 0.0
    for _ in range(MAX_PASSES):
        if evaluator.should_eval(learner.train_iter):
            stop, reward = evaluator.eval(learner.save_checkpoint, learner.train_iter, collector.envstep)
            if stop:
                break
        eps = epsilon_greedy(collector.envstep)
        new_data = collector.collect(train_iter=learner.train_iter, policy_kwargs={"eps": eps})
        replay_buffer.push(new_data, cur_collector_envstep=collector.envstep)
        for _ in range(UPDATES_PER_COLLECT):
            train_data = replay_buffer.sample(learner.policy.get_attribute("batch_size"), learner.train_iter)
            if train_data is not None:
                learner.train(train_data, collector.envstep)
    tb_logger.close()
    print(f"mean return {reward:.1f} after {collector.envstep} steps")


if __name__ == "__main__":
    main()
