"""Step 9: the same training from Operant's own middleware: a pipeline of eight lines."""

from __future__ import annotations

from cartpole import STOP_VALUE

from operant import SummaryWriter
from operant.algorithms import DQN, DQNSettings
from operant.data import ReplayBuffer
from operant.envs import make_env
from operant.framework import Context, Task
from operant.models import ModelSettings
from operant.training.middleware import (
    epsilon_schedule,
    evaluator,
    learner,
    logger,
    pusher,
    step_collector,
    termination_checker,
)


def main() -> None:
    env, evaluation_env = (make_env("CartPole-v1", rows, max_episode_steps=200) for rows in (8, 5))
    settings = DQNSettings(gamma=0.97, learning_rate=1e-3, dueling=True, target_every=300)
    model = ModelSettings(hidden=(64, 64), activation="relu", orthogonal=False)
    algorithm = DQN(env.single_observation_space, env.single_action_space, settings, model)
    buffer = ReplayBuffer(20_000, 8, gamma=settings.gamma)

    def copy_target(ctx: Context) -> None:  # a middleware of one's own: the target network follows by environment steps
        algorithm.set_progress(ctx.env_step, 100_000)

    with SummaryWriter("cartpole_library", system_metrics=False) as writer, Task() as task:
        task.use(evaluator(algorithm, evaluation_env, every=200, episodes=5, stop_value=STOP_VALUE))
        task.use(epsilon_schedule(0.95, 0.1, 3000))
        task.use(step_collector(algorithm, env, steps=1))
        task.use(pusher(buffer)).use(copy_target)
        task.use(learner(algorithm, buffer, batch=64, updates=3))
        task.use(logger(writer, every=500))
        task.use(termination_checker(max_env_step=100_000))
        ctx = task.run()
    print(f"mean return {ctx.eval_value:.1f} after {ctx.env_step} steps")


if __name__ == "__main__":
    main()
