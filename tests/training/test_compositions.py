"""Parts put together as users put them together: what comes out equals what a whole training learns from."""

from __future__ import annotations

import numpy as np
import pytest

from operant.algorithms import A2C, DQN, PPO, A2CSettings, DQNSettings, PPOSettings
from operant.data import PrioritizedReplayBuffer, ReplayBuffer
from operant.envs import make_env
from operant.errors import UsageError
from operant.framework import Context, Task
from operant.models import ModelSettings
from operant.training import middleware as m
from operant.training.collecting import Collector

IDENTITY = "operant.envs.identity:DiscreteIdentity"
MASKED = "operant.envs.identity:MaskedIdentity"


def make(kind, env, settings=None, **model):
    return kind(env.single_observation_space, env.single_action_space, settings, ModelSettings(**model))


def test_step_collector_gae_estimator_learner():
    """Advantages made by middleware lead to the same weights as those that PPO makes of the trajectory itself."""
    learned = []
    for estimated in (True, False):
        env = make_env("CartPole-v1", 4, seed=0)
        ppo = make(PPO, env, PPOSettings(rollout=32, minibatch=32, epochs=2, gamma=0.9, gae_lambda=0.8), hidden=(16,))
        with Task() as task:
            task.use(m.step_collector(ppo, env, steps=32))
            if estimated:
                task.use(m.gae_estimator(ppo, 0.9, 0.8))
            task.use(m.learner(ppo))
            ctx = task.run(max_step=5)
        assert ctx.train_iter == 5 and np.isfinite(ctx.metrics["policy_loss"])
        learned.append(ppo.weights())
    for name, value in learned[0].items():
        np.testing.assert_allclose(value, learned[1][name], rtol=1e-3, atol=1e-5, err_msg=name)


@pytest.mark.parametrize("kind", [PPO, A2C])
def test_a_loop_of_steps_and_advantages_learns(kind):
    env, test = make_env(IDENTITY, 8, seed=0), make_env(IDENTITY, 4, seed=9)
    settings = (
        PPOSettings(minibatch=64, epochs=6, learning_rate=3e-3, gamma=0.5)
        if kind is PPO
        else A2CSettings(learning_rate=3e-3, optimizer="adam", gamma=0.5)
    )
    algorithm = make(kind, env, settings, hidden=(16,))
    with Task() as task:
        task.use(m.step_collector(algorithm, env, steps=16)).use(m.gae_estimator(algorithm, 0.5, 0.95))
        task.use(m.learner(algorithm)).use(m.evaluator(algorithm, test, every=50, episodes=4, stop_value=19))
        ctx = task.run(max_step=600)
    assert ctx.eval_value >= 19


@pytest.mark.parametrize("kind", [ReplayBuffer, PrioritizedReplayBuffer])
def test_n_step_estimator_and_pusher_keep_the_discount(kind):
    """The batch says what a buffer with n_step=3 says of the same steps."""
    env = make_env("CartPole-v1", 2, seed=0)
    dqn = make(DQN, env)
    by_middleware, by_buffer = kind(1000, 2, gamma=0.9), kind(1000, 2, n_step=3, gamma=0.9)
    ctx = Context()
    m.step_collector(dqn, env, steps=60)(ctx)
    m.pusher(by_buffer)(ctx)
    m.n_step_estimator(0.9, 3)(ctx)
    m.pusher(by_middleware)(ctx)
    slots = np.arange(0, 100)
    one, other = by_middleware.transitions(slots), by_buffer.transitions(slots)
    for name in ("obs", "action", "reward", "next_obs", "discount", "terminated"):
        np.testing.assert_allclose(one[name], other[name], rtol=1e-6, err_msg=name)
    assert {0.0, 0.729} <= set(np.round(one["discount"].astype(float), 3).tolist())
    np.testing.assert_allclose(dqn._targets(one), dqn._targets(other), rtol=1e-5)
    sequence = by_middleware.sequences(np.array([0]), 2)
    np.testing.assert_allclose(sequence["discount"][:, 0], by_middleware.transitions(np.array([0, 2]))["discount"])


def test_steps_with_a_discount_do_not_go_into_an_n_step_buffer():
    env = make_env("CartPole-v1", 2, seed=0)
    ctx = Context()
    m.step_collector(make(DQN, env), env, steps=4)(ctx)
    m.n_step_estimator(0.9, 3)(ctx)
    with pytest.raises(UsageError, match="the buffer has n_step=3: give it 1"):
        m.pusher(ReplayBuffer(100, 2, n_step=3))(ctx)


def test_masks_go_through_replay_and_beta_rises():
    env, test = make_env(MASKED, 4, seed=0), make_env(MASKED, 4, seed=9)
    dqn = make(DQN, env, DQNSettings(gamma=0.5, learning_rate=3e-3, target_every=50), hidden=(16,), activation="relu")
    buffer = PrioritizedReplayBuffer(2000, 4, gamma=0.5, beta=0.1)
    batches, original = [], dqn.learn

    def learn(batch):
        batches.append((batch, buffer.beta))
        return original(batch)

    dqn.learn = learn
    with Task() as task:
        task.use(m.epsilon_schedule(1.0, 0.1, 300, "linear")).use(m.step_collector(dqn, env, steps=4))
        task.use(m.pusher(buffer)).use(m.learner(dqn, buffer, batch=32, updates=4, total_steps=4000))
        task.use(m.evaluator(dqn, test, every=200, episodes=4)).use(m.termination_checker(max_env_step=4000))
        ctx = task.run()
    assert ctx.eval_value >= 19
    assert all(batch["next_mask"].sum(axis=1).min() == 2 for batch, _ in batches)
    betas = [beta for _, beta in batches]
    assert betas == sorted(betas) and betas[0] < 0.45 and betas[-1] == 1.0


def test_what_is_allowed_behind_a_truncated_episode_is_read_from_its_last_observation():
    env = make_env(MASKED, 2, seed=0)
    dqn = make(DQN, env)
    collector = Collector(env, dqn, rng=np.random.default_rng(0))
    collector.reset(0)
    seen, step = [], env.step

    def watched(action):
        seen.append(step(action))
        return seen[-1]

    env.step = watched
    steps = collector.trajectory(45)
    ends = [(one, happened) for one, happened in zip(seen, steps, strict=True) if one.truncated.any()]
    assert ends
    for one, happened in ends:
        np.testing.assert_array_equal(happened["next_mask"], one.final_obs["action_mask"].astype(bool))
    assert any((one.final_obs["action_mask"] != one.obs["action_mask"]).any() for one, _ in ends)


@pytest.mark.parametrize("name", ["ppo", "dqn"])
def test_collector_and_learner_of_one_source_are_a_training(name):
    env, test = make_env(IDENTITY, 8, seed=0), make_env(IDENTITY, 4, seed=9)
    if name == "ppo":
        algorithm = make(PPO, env, PPOSettings(rollout=32, minibatch=64, epochs=6, learning_rate=3e-3, gamma=0.5))
    else:
        settings = DQNSettings(
            train_every=16, updates=8, batch=64, buffer=5000, learning_rate=2e-3, target_every=100, gamma=0.5
        )
        algorithm = make(DQN, env, settings, activation="relu")
    source = m.source_of(algorithm, env)
    with Task() as task:
        task.use(m.collector(source, 12_000)).use(m.learner(source, total_steps=12_000))
        task.use(m.evaluator(algorithm, test, every=5, episodes=4, stop_value=19))
        task.use(m.termination_checker(max_env_step=12_000))
        assert task.run().eval_value >= 19
    with pytest.raises(UsageError, match="needs total_steps"):
        m.learner(source)
