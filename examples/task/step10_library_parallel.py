"""Step 10: three kinds of workers from the library: one learns, two collect for it, one judges the newest weights."""

from __future__ import annotations

from cartpole import STOP_VALUE

from operant.algorithms import DQN, DQNSettings
from operant.data import ReplayBuffer
from operant.envs import make_env
from operant.framework import Context, Parallel, Task
from operant.models import ModelSettings
from operant.training.middleware import (
    epsilon_schedule,
    evaluator,
    learner,
    model_receiver,
    model_sender,
    pusher,
    step_collector,
    termination_checker,
    trajectory_receiver,
    trajectory_sender,
)


def main() -> None:
    with Task() as task:
        node = task.router.node_id or 0
        env = make_env("CartPole-v1", 8 if node < 3 else 5, max_episode_steps=200, seed=node)
        settings = DQNSettings(gamma=0.97, learning_rate=1e-3, dueling=True, target_every=300)
        model = ModelSettings(hidden=(64, 64), activation="relu", orthogonal=False)
        algorithm = DQN(env.single_observation_space, env.single_action_space, settings, model)
        # Rows of 8 environments from two workers arrive in turn; the buffer sees where one does not go on the other.
        buffer = ReplayBuffer(20_000, 8, gamma=settings.gamma)

        def follow(ctx: Context) -> None:
            algorithm.set_progress(ctx.env_step, 200_000)

        task.use(trajectory_receiver(task), filter_labels="node.0")
        task.use(pusher(buffer), filter_labels="node.0").use(follow, filter_labels="node.0")
        task.use(learner(algorithm, buffer, batch=64, updates=8), filter_labels="node.0")
        task.use(model_sender(task, algorithm), filter_labels="node.0")
        task.use(termination_checker(max_env_step=200_000), filter_labels="node.0")

        task.use(model_receiver(task, algorithm, wait=False), filter_labels=["node.1", "node.2"])
        task.use(epsilon_schedule(0.95, 0.1, 3000), filter_labels=["node.1", "node.2"])
        task.use(step_collector(algorithm, env, steps=4, seed=node), filter_labels=["node.1", "node.2"])
        task.use(trajectory_sender(task), filter_labels=["node.1", "node.2"])

        task.use(model_receiver(task, algorithm), filter_labels="node.3")
        task.use(evaluator(algorithm, env, every=200, episodes=5, stop_value=STOP_VALUE), filter_labels="node.3")
        ctx = task.run()
        if node == 3:
            print(f"mean return {ctx.eval_value:.1f} after {ctx.get('env_step', 0)} steps")


if __name__ == "__main__":
    Parallel.runner(n_parallel_workers=4, topology="star")(main)
