"""Each loss in closed form equals autograd in double precision; both paths of an algorithm make the same step."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from gymnasium import spaces
from hypothesis import given, settings
from hypothesis import strategies as st

from operant.algorithms import A2C, DQN, PPO, A2CSettings, DivergedError, DQNSettings, PPOSettings
from operant.algorithms.a2c import a2c_gradients, a2c_loss
from operant.algorithms.dqn import dqn_gradient, dqn_loss
from operant.algorithms.heads import Categorical, Gaussian, StateGaussian, make_head
from operant.algorithms.ppo import ppo_gradients, ppo_loss
from operant.models import ModelSettings, action_spec

SPACES = {
    "discrete": spaces.Discrete(4),
    "multi-discrete": spaces.MultiDiscrete([3, 2, 4]),
    "continuous": spaces.Box(-1, 1, (3,), np.float32),
}


def sample(space, rows, rng):
    if isinstance(space, spaces.Discrete):
        return rng.integers(space.n, size=rows)
    if isinstance(space, spaces.MultiDiscrete):
        return rng.integers(space.nvec, size=(rows, len(space.nvec)))
    return rng.standard_normal((rows, *space.shape))


@settings(max_examples=40, deadline=None)
@given(
    kind=st.sampled_from(sorted(SPACES)),
    algorithm=st.sampled_from(["ppo", "a2c"]),
    rows=st.integers(1, 40),
    entropy_weight=st.sampled_from([0.0, 0.01, 1.0]),
    seed=st.integers(0, 2**31),
)
def test_actor_critic_losses(kind, algorithm, rows, entropy_weight, seed):
    rng = np.random.default_rng(seed)
    spec = action_spec(SPACES[kind])
    head = make_head(spec)
    action = sample(SPACES[kind], rows, rng)
    output = torch.tensor(rng.standard_normal((rows, spec.outputs)), requires_grad=True)
    value = torch.tensor(rng.standard_normal(rows), requires_grad=True)
    log_std = torch.tensor(0.3 * rng.standard_normal(spec.outputs), requires_grad=True)
    advantage, target = rng.standard_normal((2, rows))
    log_prob, entropy = head.log_prob_and_entropy(output, torch.as_tensor(action), None, log_std)
    mine, my_entropy, kept = head.evaluate(output.detach().numpy(), action, log_std.detach().numpy())
    np.testing.assert_allclose(mine, log_prob.detach().numpy(), rtol=1e-9)
    np.testing.assert_allclose(np.broadcast_to(my_entropy, rows), entropy.detach().numpy(), rtol=1e-9)

    fixed = {"advantage": advantage, "target": target}
    if algorithm == "ppo":
        fixed["old_log_prob"] = mine + 0.3 * rng.standard_normal(rows)
        by_log_prob, by_value, _ = ppo_gradients(mine, value.detach().numpy(), clip=0.2, value_weight=0.5, **fixed)
        loss = ppo_loss(
            log_prob,
            entropy,
            value,
            clip=0.2,
            value_weight=0.5,
            entropy_weight=entropy_weight,
            **{key: torch.as_tensor(part) for key, part in fixed.items()},
        )
    else:
        by_log_prob, by_value = a2c_gradients(value.detach().numpy(), value_weight=0.5, **fixed)
        loss = a2c_loss(
            log_prob,
            entropy,
            value,
            value_weight=0.5,
            entropy_weight=entropy_weight,
            **{key: torch.as_tensor(part) for key, part in fixed.items()},
        )
    loss.backward()
    grad, spread = head.gradient(kept, by_log_prob, -entropy_weight / rows)

    np.testing.assert_allclose(grad, output.grad.numpy(), rtol=1e-8, atol=1e-12)
    np.testing.assert_allclose(by_value, value.grad.numpy(), rtol=1e-8, atol=1e-12)
    if kind == "continuous":
        np.testing.assert_allclose(spread, log_std.grad.numpy(), rtol=1e-8, atol=1e-10)


@settings(max_examples=25, deadline=None)
@given(rows=st.integers(1, 40), features=st.integers(1, 9), seed=st.integers(0, 2**31))
def test_state_dependent_noise(rows, features, seed):
    rng = np.random.default_rng(seed)
    head = StateGaussian(action_spec(SPACES["continuous"]), features)
    means = torch.tensor(rng.standard_normal((rows, 3)), requires_grad=True)
    hidden = torch.tensor(rng.standard_normal((rows, features)), requires_grad=True)
    log_std = torch.tensor(rng.standard_normal((features, 3)) - 1.0, requires_grad=True)
    action, by_log_prob = rng.standard_normal((rows, 3)), rng.standard_normal(rows)
    log_prob, entropy = head.log_prob_and_entropy(means, torch.as_tensor(action), None, (hidden, log_std))
    sigma = torch.sqrt(hidden.detach().square() @ torch.exp(log_std.detach()).square() + 1e-6)
    normal = torch.distributions.Normal(means.detach(), sigma)
    np.testing.assert_allclose(log_prob.detach(), normal.log_prob(torch.as_tensor(action)).sum(dim=1), rtol=1e-9)
    np.testing.assert_allclose(entropy.detach(), normal.entropy().sum(dim=1), rtol=1e-9)

    spread = (hidden.detach().numpy(), log_std.detach().numpy())
    mine, my_entropy, kept = head.evaluate(means.detach().numpy(), action, spread)
    np.testing.assert_allclose(mine, log_prob.detach(), rtol=1e-9)
    np.testing.assert_allclose(my_entropy, entropy.detach(), rtol=1e-9)
    ((torch.as_tensor(by_log_prob) * log_prob).sum() + 0.3 * entropy.sum()).backward()
    grad, spread_grad = head.gradient(kept, by_log_prob, 0.3)
    np.testing.assert_allclose(grad, means.grad, rtol=1e-8, atol=1e-10)
    np.testing.assert_allclose(spread_grad, log_std.grad, rtol=1e-7, atol=1e-9)
    assert hidden.grad is None  # as in the authors' code: the noise does not shape the features


def test_noise_by_state_has_the_deviation_it_claims_and_lasts_a_rollout():
    head = StateGaussian(action_spec(SPACES["continuous"]), 6)
    rng = np.random.default_rng(0)
    noise = head.noise(rng, 4, 20_000)
    assert noise.shape == (4, 20_000, 6, 3) and (noise[0] == noise[3]).all()
    shorter = StateGaussian(action_spec(SPACES["continuous"]), 6, every=2).noise(rng, 5, 3)
    assert [bool((shorter[t] == shorter[t - 1]).all()) for t in range(1, 5)] == [True, False, True, False]
    features, log_std = rng.standard_normal(6).astype(np.float32), rng.standard_normal((6, 3)).astype(np.float32)
    means = np.full((20_000, 3), 2.0, np.float32)
    spread = (np.broadcast_to(features, (20_000, 6)), log_std)
    action = head.choose(means, noise[1], spread)
    expected = np.sqrt(np.square(features) @ np.exp(2 * log_std))
    np.testing.assert_allclose(action.std(axis=0), expected, rtol=0.03)
    np.testing.assert_array_equal(head.choose(means, noise[2], spread), action)
    np.testing.assert_array_equal(head.choose(means, None, None), means)


@settings(max_examples=25, deadline=None)
@given(
    rows=st.integers(1, 30),
    loss=st.sampled_from(["huber", "squared"]),
    weighted=st.booleans(),
    seed=st.integers(0, 2**31),
)
def test_q_loss(rows, loss, weighted, seed):
    rng = np.random.default_rng(seed)
    q = torch.tensor(3 * rng.standard_normal((rows, 4)), requires_grad=True)
    action, target = rng.integers(4, size=rows), rng.standard_normal(rows)
    weight = rng.random(rows) if weighted else None
    whole = torch.as_tensor(np.ones(rows) if weight is None else weight)
    dqn_loss(q, torch.as_tensor(action), torch.as_tensor(target), whole, loss).backward()
    grad, error = dqn_gradient(q.detach().numpy(), action, target, weight, loss)
    np.testing.assert_allclose(grad, q.grad.numpy(), rtol=1e-9, atol=1e-12)
    np.testing.assert_allclose(error, q.detach().numpy()[np.arange(rows), action] - target)


def make_rollout(space, obs_size=5, steps=7, rows=3, seed=0, mask=None):
    rng = np.random.default_rng(seed)
    action = np.stack([sample(space, rows, rng) for _ in range(steps)])
    if isinstance(space, spaces.Box):
        action = action.astype(np.float32)
    truncated = np.zeros((steps, rows), bool)
    truncated[3, 1] = True
    terminated = np.zeros((steps, rows), bool)
    terminated[4, 0] = True
    return {
        "obs": rng.standard_normal((steps + 1, rows, obs_size)).astype(np.float32),
        "action": action,
        "reward": rng.standard_normal((steps, rows)).astype(np.float32),
        "terminated": terminated,
        "truncated": truncated,
        "final_obs": rng.standard_normal((1, obs_size)).astype(np.float32),
        "final_at": np.array([3 * rows + 1]),
        "mask": mask,
    }


@pytest.mark.parametrize("kind", [*sorted(SPACES), "continuous, noise by state"])
@pytest.mark.parametrize("activation", ["tanh", "relu"])
@pytest.mark.parametrize("name", ["ppo", "a2c"])
def test_both_paths_make_the_same_steps(kind, activation, name):
    space, state_noise = SPACES[kind.partition(",")[0]], "noise" in kind
    cls, own = {
        "ppo": (PPO, PPOSettings(minibatch=8, epochs=2, entropy_weight=0.01, rollout=7)),
        "a2c": (A2C, A2CSettings(entropy_weight=0.01)),
    }[name]
    obs_space = spaces.Box(-9, 9, (5,), np.float32)
    pair = [
        cls(
            obs_space,
            space,
            own,
            ModelSettings(hidden=(40, 33), activation=activation, fused=fused, state_noise=state_noise),
        )
        for fused in (True, False)
    ]
    assert [one.path.split()[0] for one in pair] == ["fused", "torch"]
    if state_noise:
        assert pair[0].weights()["log_std"].shape == (33, 3)
        obs = np.random.default_rng(1).standard_normal((6, 5)).astype(np.float32)
        one, other = (agent.act(obs, explore=True, rng=np.random.default_rng(2)).action for agent in pair)
        np.testing.assert_allclose(one, other, atol=1e-5)
    for seed in range(3):
        results = [one.learn(make_rollout(space, seed=seed))[0] for one in pair]
        for key in results[0]:
            assert results[0][key] == pytest.approx(results[1][key], rel=1e-3, abs=1e-5), key
        np.testing.assert_allclose(pair[0]._flat.array, pair[1]._flat.array, rtol=1e-3, atol=3e-6)


@pytest.mark.parametrize("dueling", [False, True])
@pytest.mark.parametrize("double", [False, True])
@pytest.mark.parametrize("target_every", [0, 5])
def test_both_paths_of_dqn_make_the_same_steps(dueling, double, target_every):
    own = DQNSettings(dueling=dueling, double=double, target_every=target_every, learning_rate=1e-2)
    obs_space = spaces.Box(-9, 9, (5,), np.float32)
    pair = [
        DQN(obs_space, spaces.Discrete(4), own, ModelSettings(hidden=(40, 33), activation="relu", fused=fused))
        for fused in (True, False)
    ]
    assert [one.path.split()[0] for one in pair] == ["fused", "torch"]
    rng = np.random.default_rng(0)
    for step in range(5):
        batch = make_transitions(rng)
        for one in pair:
            one.set_progress(4 * step, 20)
            _, priorities = one.learn(batch)
            assert priorities.shape == (16,)
        np.testing.assert_allclose(pair[0]._flat.array, pair[1]._flat.array, rtol=1e-3, atol=5e-6)


def make_transitions(rng, rows=16):
    return {
        "obs": rng.standard_normal((rows, 5)).astype(np.float32),
        "next_obs": rng.standard_normal((rows, 5)).astype(np.float32),
        "action": rng.integers(4, size=rows),
        "reward": rng.standard_normal(rows).astype(np.float32),
        "terminated": rng.random(rows) < 0.2,
    }


def test_the_target_network_gets_the_weights_at_the_next_multiple_of_its_interval():
    dqn = DQN(spaces.Box(-9, 9, (5,), np.float32), spaces.Discrete(4), DQNSettings(target_every=10))
    obs = np.ones((3, 5), np.float32)

    def agree():
        return np.array_equal(dqn._q.values(obs).copy(), dqn._target_q.values(obs))

    assert agree()
    for step in (10, 20, 30):  # nothing is learned meanwhile
        dqn.set_progress(step, 100)
    dqn.learn(make_transitions(np.random.default_rng(0)))
    dqn.set_progress(39, 100)
    assert not agree()
    dqn.set_progress(40, 100)
    assert agree()
    dqn.load_weights({name: value + 1 for name, value in dqn.weights().items()})
    assert not agree()
    dqn.set_progress(50, 100)
    assert agree()


def test_targets_bootstrap_unless_terminated_and_obey_masks():
    own = DQNSettings(double=False, gamma=0.5)
    dqn = DQN(spaces.Box(-9, 9, (5,), np.float32), spaces.Discrete(4), own)
    batch = make_transitions(np.random.default_rng(0), rows=4)
    batch["terminated"] = np.array([True, False, False, True])
    best = dqn._target_q.values(batch["next_obs"]).max(axis=1)
    expected = batch["reward"] + 0.5 * best * np.array([0, 1, 1, 0])
    np.testing.assert_allclose(dqn._targets(batch), expected, rtol=1e-6)
    only_first = np.zeros((4, 4), bool)
    only_first[:, 0] = True
    first = dqn._target_q.values(batch["next_obs"])[:, 0]
    np.testing.assert_allclose(
        dqn._targets({**batch, "next_mask": only_first})[1:3], (batch["reward"] + 0.5 * first)[1:3], rtol=1e-6
    )


def test_truncation_bootstraps_and_termination_does_not():
    ppo = PPO(spaces.Box(-9, 9, (5,), np.float32), spaces.Discrete(4), PPOSettings(gamma=0.9, gae_lambda=0.7))
    rollout = make_rollout(spaces.Discrete(4))
    data = ppo._prepare(rollout)
    advantage = data.advantage.reshape(7, 3)
    value = data.value.reshape(7, 3)
    at_truncation = rollout["reward"][3, 1] + 0.9 * ppo.values(rollout["final_obs"])[0] - value[3, 1]
    assert advantage[3, 1] == pytest.approx(at_truncation, rel=1e-5)
    assert advantage[4, 0] == pytest.approx(rollout["reward"][4, 0] - value[4, 0], rel=1e-5)


def test_masked_actions_are_never_taken_nor_learned():
    space = spaces.Discrete(4)
    mask = np.array([[True, False, True, False]] * 200)
    rng = np.random.default_rng(0)
    obs = rng.standard_normal((200, 5)).astype(np.float32)
    obs_space = spaces.Box(-9, 9, (5,), np.float32)
    for agent in (PPO(obs_space, space), A2C(obs_space, space), DQN(obs_space, space)):
        actions = agent.act(obs, mask=mask, explore=True, rng=rng).action
        assert set(actions.tolist()) == {0, 2}
    head = make_head(action_spec(space))
    assert isinstance(head, Categorical)
    logits = torch.zeros(1, 4)
    log_prob, _ = head.log_prob_and_entropy(logits, torch.tensor([0]), torch.tensor(mask[:1]), None)
    assert log_prob.item() == pytest.approx(np.log(0.5))


def test_an_exponential_number_of_zero_is_drawn_again():
    """As noise it has no logarithm; and the least number that has one would make the unlikeliest action a sample."""

    class Zeros:
        left = 2

        def standard_exponential(self, shape, dtype):
            drawn = np.ones(shape, dtype)
            if self.left:
                drawn.reshape(-1)[0] = 0.0
                self.left -= 1
            return drawn

    head = make_head(action_spec(spaces.Discrete(3)))
    noise = head.noise(Zeros(), 2, 2)
    assert np.isfinite(noise).all()
    assert head.choose(np.array([[-30.0, 0.0, 0.0]], np.float32), noise[0, :1]).tolist() == [1]


def test_a_gaussian_clips_for_the_environment_only():
    agent = PPO(spaces.Box(-9, 9, (5,), np.float32), SPACES["continuous"], model=ModelSettings(log_std=2.0))
    assert isinstance(agent._head, Gaussian)
    out = agent.act(np.zeros((100, 5), np.float32), explore=True, rng=np.random.default_rng(0))
    assert np.abs(out.action).max() <= 1.0 < np.abs(out.extras["action"]).max()


def test_a_gradient_that_is_no_number_stops_before_the_step():
    agent = A2C(spaces.Box(-9, 9, (5,), np.float32), spaces.Discrete(4))
    before = agent._flat.array.copy()
    rollout = make_rollout(spaces.Discrete(4))
    rollout["reward"][0, 0] = np.nan
    with pytest.raises(DivergedError, match="not finite"):
        agent.learn(rollout)
    assert (agent._flat.array == before).all()


def test_samples_follow_the_probabilities():
    head = make_head(action_spec(spaces.Discrete(3)))
    logits = np.log(np.array([[0.2, 0.5, 0.3]], np.float32)).repeat(20_000, axis=0)
    noise = head.noise(np.random.default_rng(0), 1, 20_000)[0]
    shares = np.bincount(head.choose(logits, noise), minlength=3) / 20_000
    np.testing.assert_allclose(shares, [0.2, 0.5, 0.3], atol=0.02)
