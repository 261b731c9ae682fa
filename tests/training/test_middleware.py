"""The middleware library: what each reads and writes, and that a loop made of it learns."""

from __future__ import annotations

import numpy as np
import pytest

from operant import SummaryWriter
from operant.algorithms import DQN, PPO, DQNSettings
from operant.data import ReplayBuffer
from operant.envs import make_env
from operant.errors import UsageError
from operant.framework import Context, Task
from operant.models import ModelSettings
from operant.tracking import Run
from operant.training import CheckpointStore
from operant.training import middleware as m

IDENTITY = "operant.envs.identity:DiscreteIdentity"


@pytest.fixture
def env():
    return make_env(IDENTITY, 4, seed=0)


@pytest.fixture
def dqn(env):
    settings = DQNSettings(gamma=0.5, learning_rate=3e-3, target_every=50)
    model = ModelSettings(hidden=(16,), activation="relu")
    return DQN(env.single_observation_space, env.single_action_space, settings, model)


def test_a_loop_of_middleware_learns(env, dqn, root):
    buffer = ReplayBuffer(2000, 4, gamma=0.5)
    store = CheckpointStore(root / "checkpoints")
    judged = make_env(IDENTITY, 4, seed=9)
    with SummaryWriter("loop", root=root, system_metrics=False) as writer, Task() as task:
        task.use(m.epsilon_schedule(1.0, 0.1, 300, "linear"))
        task.use(m.step_collector(dqn, env, steps=4))
        task.use(m.pusher(buffer))
        task.use(lambda ctx: dqn.set_progress(ctx.env_step, 4000))
        task.use(m.learner(dqn, buffer, batch=32, updates=4))
        task.use(m.evaluator(dqn, judged, every=100, episodes=4, stop_value=19))
        task.use(m.checkpoint_saver(store, dqn, every=400))
        task.use(m.logger(writer, every=100))
        task.use(m.termination_checker(max_env_step=6000))
        ctx = task.run()
    assert ctx.eval_value >= 19
    assert store.steps()[-1] == ctx.env_step
    run = Run.open("last", root)
    assert {"train/q_loss", "train/epsilon", "evaluation/return"} <= set(run.scalar_tags)


def test_epsilon_falls_as_di_engine_says():
    exp = m.get_epsilon_greedy_fn(0.95, 0.1, 10_000, "exp")
    assert exp(0) == 0.95
    assert exp(10_000) == pytest.approx(0.1 + 0.85 * np.exp(-1))
    linear = m.get_epsilon_greedy_fn(1.0, 0.0, 100, "linear")
    assert [linear(step) for step in (0, 50, 100, 1000)] == [1.0, 0.5, 0.0, 0.0]
    with pytest.raises(UsageError, match="exp or linear"):
        m.get_epsilon_greedy_fn(1.0, 0.0, 100, "cosine")
    with pytest.raises(UsageError, match="above 0"):
        m.get_epsilon_greedy_fn(1.0, 0.0, 0)


def test_episodes_are_collected_whole(env, dqn):
    collect = m.episode_collector(dqn, env, episodes=5)
    ctx = Context()
    collect(ctx)
    assert len(ctx.episodes) >= 5
    for episode in ctx.episodes:
        assert len(episode["reward"]) == 20
        assert episode["truncated"][-1] and not episode["truncated"][:-1].any()
    assert ctx.env_step == 80 * ((len(ctx.episodes) + 3) // 4)


def step(reward, terminated=False, truncated=False, obs=0.0):
    row = lambda value, kind: np.array([value], kind)  # noqa: E731
    return {
        "obs": np.full((1, 3), obs, np.float32),
        "action": row(0, int),
        "reward": row(reward, np.float32),
        "terminated": row(terminated, bool),
        "truncated": row(truncated, bool),
        "next_obs": np.full((1, 3), obs + 1, np.float32),
    }


def test_n_steps_end_with_the_episode():
    ctx = Context()
    ctx.trajectory = [step(1, obs=0), step(2, terminated=True, obs=1), step(4, obs=9), step(8, truncated=True, obs=10)]
    m.n_step_estimator(0.5, 3)(ctx)
    assert [one["reward"][0] for one in ctx.trajectory] == [2.0, 2.0, 8.0, 8.0]
    assert [one["discount"][0] for one in ctx.trajectory] == [0.0, 0.0, 0.25, 0.5]
    assert [one["next_obs"][0, 0] for one in ctx.trajectory] == [2.0, 2.0, 11.0, 11.0]


def test_advantages_of_a_trajectory(env):
    ppo = PPO(env.single_observation_space, env.single_action_space)
    ctx = Context()
    ctx.trajectory = [step(1.0), step(2.0, terminated=True)]
    m.gae_estimator(ppo, 0.9, 0.8)(ctx)
    value = [ppo.values(one["obs"])[0] for one in ctx.trajectory]
    last = 2.0 - value[1]
    following = ppo.values(ctx.trajectory[0]["next_obs"])[0]
    first = 1.0 + 0.9 * following - value[0] + 0.9 * 0.8 * last
    np.testing.assert_allclose(ctx.train_data["advantage"][:, 0], [first, last], rtol=1e-5)
    np.testing.assert_allclose(ctx.train_data["return"], ctx.train_data["advantage"] + ctx.train_data["value"])


def test_trajectories_and_weights_go_through_a_task(env, dqn):
    with Task() as task:
        ctx = task.ctx
        ctx.trajectory = [step(1.0), step(2.0)]
        m.trajectory_sender(task)(ctx)
        ctx.trajectory = None
        m.trajectory_receiver(task)(ctx)
        assert [one["reward"][0] for one in ctx.trajectory] == [1.0, 2.0]
        assert ctx.env_step == 2
        # Alone there is nobody to exchange weights with.
        m.model_sender(task, dqn)(ctx)
        m.model_receiver(task, dqn)(ctx)
        assert "state_dict" not in ctx
