"""DDPG, TD3 and SAC: losses against autograd and by hand, both paths, bounds, noise, observations of every kind."""

from __future__ import annotations

import math

import numpy as np
import pytest
import torch
from gymnasium import spaces
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import nn

from operant.algorithms import DDPG, SAC, TD3, DDPGSettings, DivergedError, SACSettings, TD3Settings
from operant.algorithms.noise import ActionNoise, ParameterNoise
from operant.algorithms.off_policy import critic_gradient, critic_loss
from operant.algorithms.sac import sample_squashed, squashed_gradient, squashed_log_prob
from operant.errors import UsageError
from operant.models import FlatParameters, ModelSettings
from operant.models.builders import build_mlp
from operant.models.fused import FusedCritics

ROW = spaces.Box(-9, 9, (5,), np.float32)
UNEQUAL = spaces.Box(np.array([-2.0, 0.0, 5.0], np.float32), np.array([2.0, 1.0, 9.0], np.float32))
KINDS = {
    "ddpg": (DDPG, DDPGSettings(learning_rate=1e-2)),
    "td3": (TD3, TD3Settings(learning_rate=1e-2, critics=3, increase_rate=0.5)),
    "sac": (SAC, SACSettings(learning_rate=1e-2)),
    "sac fixed": (SAC, SACSettings(learning_rate=1e-2, learn_temperature=False, temperature=0.1, critics=1)),
}


def transitions(rng, rows=16, weighted=False, size=3):
    batch = {
        "obs": rng.standard_normal((rows, 5)).astype(np.float32),
        "next_obs": rng.standard_normal((rows, 5)).astype(np.float32),
        "action": rng.uniform(-1, 1, (rows, size)).astype(np.float32),
        "reward": rng.standard_normal(rows).astype(np.float32),
        "terminated": rng.random(rows) < 0.2,
    }
    return batch | {"weight": rng.random(rows).astype(np.float32)} if weighted else batch


@settings(max_examples=30, deadline=None)
@given(
    critics=st.integers(1, 3),
    rows=st.integers(1, 20),
    weighted=st.booleans(),
    rates=st.sampled_from([(1.0, 1.0), (0.3, 1.0), (1.0, 0.2), (0.7, 0.4)]),
    seed=st.integers(0, 2**31),
)
def test_critics_gradient_is_that_of_autograd(critics, rows, weighted, rates, seed):
    rng = np.random.default_rng(seed)
    q = torch.tensor(3 * rng.standard_normal((critics, rows)), requires_grad=True)
    target, weight = rng.standard_normal(rows), rng.random(rows) if weighted else None
    critic_loss(q, torch.as_tensor(target), None if weight is None else torch.as_tensor(weight), *rates).backward()
    mine = critic_gradient(q.detach().numpy(), target, weight, *rates)
    np.testing.assert_allclose(mine, q.grad.numpy(), rtol=1e-9, atol=1e-12)


def test_critic_loss_by_hand():
    q, target = torch.tensor([[1.0, 4.0], [3.0, 2.0]]), torch.tensor([3.0, 2.0])
    assert critic_loss(q, target, None).item() == pytest.approx((4 + 4) / 2 + 0.0)
    assert critic_loss(q, target, torch.tensor([1.0, 0.5])).item() == pytest.approx((4 + 2) / 2)
    # Half of the error that raises the value of the first, all of the one that lowers the second.
    assert critic_loss(q, target, None, increase=0.5).item() == pytest.approx((1 + 4) / 2)
    assert critic_loss(q, target, None, decrease=0.0).item() == pytest.approx(4 / 2)


@settings(max_examples=30, deadline=None)
@given(
    rows=st.integers(1, 20),
    size=st.integers(1, 4),
    temperature=st.sampled_from([0.05, 1.0]),
    seed=st.integers(0, 2**31),
)
def test_the_squashed_policys_gradient_is_that_of_autograd(rows, size, temperature, seed):
    rng = np.random.default_rng(seed)
    raw = rng.standard_normal((rows, 2 * size))
    raw[:, size:] = rng.uniform(-22, 3, (rows, size))  # beyond both bounds of log σ, too
    noise, slope = rng.standard_normal((2, rows, size))
    output = torch.tensor(raw, requires_grad=True)
    log_std = output[:, size:].clamp(-20.0, 2.0)
    before = output[:, :size] + log_std.exp() * torch.as_tensor(noise)
    log_prob = squashed_log_prob(torch.as_tensor(noise), log_std, before)
    action = torch.tanh(before)
    # A value whose gradient by the action is known, so that it can be given to the closed form.
    (temperature * log_prob - (action * torch.as_tensor(slope)).sum(dim=1)).mean().backward()
    mine, my_log_prob, std = sample_squashed(raw, noise)
    np.testing.assert_allclose(mine, action.detach(), rtol=1e-9, atol=1e-12)
    np.testing.assert_allclose(my_log_prob, log_prob.detach(), rtol=1e-9, atol=1e-9)
    np.testing.assert_allclose(
        squashed_gradient(raw, noise, mine, std, slope, temperature), output.grad, rtol=1e-7, atol=1e-10
    )


def test_log_probabilities_are_those_of_torchs_distributions():
    rng = np.random.default_rng(0)
    mean, log_std, noise = (torch.as_tensor(rng.standard_normal((50, 3))) for _ in range(3))
    before = mean + log_std.exp() * noise
    tanh = torch.distributions.transforms.TanhTransform(cache_size=1)
    squashed = torch.distributions.TransformedDistribution(torch.distributions.Normal(mean, log_std.exp()), [tanh])
    expected = squashed.log_prob(tanh(before)).sum(dim=1)
    np.testing.assert_allclose(squashed_log_prob(noise, log_std, before), expected, rtol=1e-7)
    far = squashed_log_prob(torch.zeros(1, 1), torch.zeros(1, 1), torch.full((1, 1), 60.0))
    assert far.item() == pytest.approx(120.0 - 2 * math.log(2) - 0.5 * math.log(2 * math.pi))  # finite, and right


@pytest.mark.parametrize("activation", ["relu", "tanh"])
def test_the_smallest_critics_gradient_by_the_action(activation):
    torch.manual_seed(1)  # with some weights the same critic is the smallest everywhere
    module = torch.nn.ModuleList([build_mlp(8, (40, 33), 1, activation) for _ in range(2)])
    flat = FlatParameters(module)
    fused = FusedCritics(list(module), flat, 5)
    rng = np.random.default_rng(0)
    obs, action = rng.standard_normal((30, 5)).astype(np.float32), rng.standard_normal((30, 3)).astype(np.float32)
    flat.grad[:] = 7.0
    q, gradient = fused.least(obs, action)
    given = torch.tensor(action, requires_grad=True)
    both = torch.stack([chain(torch.cat([torch.as_tensor(obs), given], dim=1))[:, 0] for chain in module])
    least = both.amin(dim=0)
    assert len(set(both.argmin(dim=0).tolist())) == 2
    (expected,) = torch.autograd.grad(least.sum(), given)
    np.testing.assert_allclose(q, least.detach(), rtol=1e-4, atol=1e-6)
    np.testing.assert_allclose(gradient, expected, rtol=1e-4, atol=1e-6)
    assert (flat.grad == 7.0).all()  # the critics' own gradients are not touched


@pytest.mark.parametrize("activation", ["relu", "tanh"])
@pytest.mark.parametrize("kind", KINDS)
def test_both_paths_make_the_same_steps(kind, activation):
    cls, own = KINDS[kind]
    pair = [
        cls(ROW, UNEQUAL, own, ModelSettings(hidden=(40, 33), activation=activation, orthogonal=False, fused=fused))
        for fused in (True, False)
    ]
    assert [one.path.split()[0] for one in pair] == ["fused", "torch"]
    rng = np.random.default_rng(0)
    for step in range(4):
        batch = transitions(rng, weighted=step % 2 == 0)
        metrics, sizes = zip(*(one.learn(batch) for one in pair), strict=True)
        np.testing.assert_allclose(sizes[0], sizes[1], rtol=1e-3, atol=1e-4)
        for key in metrics[0]:
            assert metrics[0][key] == pytest.approx(metrics[1][key], rel=2e-3, abs=1e-4), key
        for one, other in zip(*(one._moved for one in pair), strict=True):
            np.testing.assert_allclose(one.flat.array, other.flat.array, rtol=1e-3, atol=3e-5)
            np.testing.assert_allclose(one.target_flat.array, other.target_flat.array, rtol=1e-3, atol=3e-5)
        np.testing.assert_allclose(pair[0]._flat.array, pair[1]._flat.array, rtol=1e-3, atol=3e-5)


@pytest.mark.parametrize("fused", [True, False])
@pytest.mark.parametrize("kind", ["ddpg", "sac fixed"])
def test_targets_bootstrap_unless_terminated(kind, fused):
    cls, own = KINDS[kind]
    agent = cls(ROW, UNEQUAL, own, ModelSettings(hidden=(8,), activation="relu", fused=fused))
    batch = transitions(np.random.default_rng(0), rows=3)
    batch["terminated"] = np.array([True, False, False])
    batch["truncated"] = np.array([False, True, False])  # cut off: what would have come counts
    for one in agent._moved:
        one.target_flat.array[:] = 0.0
    agent._target_critics.critics[0].q[-1].bias.data[:] = 10.0  # every state is worth 10, less what entropy adds
    _, target = (agent._fused_critic_gradient if fused else agent._critic_gradient)(batch)
    np.testing.assert_allclose(target[0], batch["reward"][0], rtol=1e-6)
    if kind == "ddpg":
        np.testing.assert_allclose(target[1:], batch["reward"][1:] + 0.99 * 10.0, rtol=1e-6)
    else:
        assert (np.abs(target[1:] - batch["reward"][1:] - 9.9) < 0.99 * 0.1 * 20).all()
    _, told = (agent._fused_critic_gradient if fused else agent._critic_gradient)({**batch, "discount": np.zeros(3)})
    np.testing.assert_allclose(told, batch["reward"], rtol=1e-6)


def test_td3_smooths_its_targets_and_delays_its_policy():
    agent = TD3(ROW, UNEQUAL, TD3Settings())
    noise = agent._smoothing(20_000)
    assert np.abs(noise).max() == pytest.approx(0.5) and noise.std() == pytest.approx(0.2, rel=0.03)
    batch = transitions(np.random.default_rng(0))
    before = agent.weights()
    agent.learn(batch)
    assert all(np.array_equal(before[name], value) for name, value in agent.weights().items())
    agent.learn(batch)
    assert not all(np.array_equal(before[name], value) for name, value in agent.weights().items())


def test_the_temperature_follows_the_entropy():
    agent = SAC(ROW, UNEQUAL, SACSettings(target_entropy=-50.0, temperature_rate=0.1))
    batch = transitions(np.random.default_rng(0))
    first = agent.learn(batch)[0]["temperature"]
    for _ in range(5):
        agent.learn(batch)
    assert first == 1.0 and agent.learn(batch)[0]["temperature"] < 0.7  # more random than asked for: worth less
    fixed = SAC(ROW, UNEQUAL, SACSettings(temperature=0.3, learn_temperature=False))
    for _ in range(3):
        assert fixed.learn(batch)[0]["temperature"] == pytest.approx(0.3)


@pytest.mark.parametrize("kind", KINDS)
def test_actions_fill_unequal_bounds(kind):
    cls, own = KINDS[kind]
    agent = cls(ROW, UNEQUAL, own)
    obs = np.random.default_rng(0).standard_normal((4000, 5)).astype(np.float32)
    warm = agent.act(obs, explore=True, rng=np.random.default_rng(1))  # random before learning_starts
    np.testing.assert_allclose(warm.action.min(axis=0), UNEQUAL.low, atol=0.01)
    np.testing.assert_allclose(warm.action.max(axis=0), UNEQUAL.high, atol=0.01)
    assert np.abs(warm.extras["action"]).max() <= 1.0
    agent.set_progress(1000, 10_000)
    for action in agent.act(50 * obs, explore=True, rng=np.random.default_rng(1)).action:
        assert UNEQUAL.contains(action)
    share = agent.act(obs, explore=True, rng=np.random.default_rng(1), epsilon=1.0).action
    np.testing.assert_allclose(share.max(axis=0), UNEQUAL.high, atol=0.01)


def test_an_axis_whose_bounds_are_one_value_has_that_action():
    space = spaces.Box(np.array([-1.0, 2.0], np.float32), np.array([1.0, 2.0], np.float32))
    agent = DDPG(ROW, space)
    recorded = np.array([[0.5, 2.0]], np.float32)
    np.testing.assert_array_equal(agent.from_env(recorded), [[0.5, 0.0]])
    np.testing.assert_array_equal(agent.to_env(agent.from_env(recorded)), recorded)


@pytest.mark.parametrize(
    ("space", "message"),
    [
        (spaces.Discrete(3), "DDPG needs continuous actions with bounds"),
        (spaces.Box(-np.inf, np.inf, (2,), np.float32), "DDPG needs continuous actions with bounds"),
    ],
)
def test_what_has_no_bounds_is_refused(space, message):
    with pytest.raises(UsageError, match=message):
        DDPG(ROW, space)


def test_settings_that_cannot_be_are_refused():
    for wrong, message in (
        ({"noise": "pink"}, "algorithm.noise is gaussian"),
        ({"batch": 0}, "algorithm.batch is 0"),
        ({"noise_steps": 0}, "algorithm.noise_steps is 0"),
        ({"target_rate": 0.0}, "algorithm.target_rate"),
    ):
        with pytest.raises(UsageError, match=message):
            TD3Settings(**wrong)
    with pytest.raises(UsageError, match=r"algorithm\.temperature"):
        SACSettings(temperature=0.0)


def test_noise_has_the_size_it_claims_and_ou_goes_on():
    rng = np.random.default_rng(0)
    for kind, deviation, largest in (("gaussian", 0.3, 9.0), ("clipped", 0.28, 0.5), ("uniform", 0.3 / 3**0.5, 0.3)):
        drawn = ActionNoise(kind, 0.3, 0.5, 2).draw(rng, 20_000)
        assert drawn.std() == pytest.approx(deviation, rel=0.05) and np.abs(drawn).max() <= largest
    assert ActionNoise("none", 0.3, 0.5, 2).draw(rng, 3) == 0.0
    noise = ActionNoise("ou", 0.3, 0.5, 1)
    steps = np.array([noise.draw(rng, 1)[0, 0] for _ in range(4000)])
    assert np.corrcoef(steps[1:], steps[:-1])[0, 1] == pytest.approx(0.85, abs=0.03)
    again = ActionNoise("ou", 0.3, 0.5, 1)
    again.load_state_dict(noise.state_dict())
    assert again.draw(np.random.default_rng(3), 1) == noise.draw(np.random.default_rng(3), 1)


def test_noise_on_weights_stays_for_some_steps_and_comes_to_the_size_it_is_told():
    rng = np.random.default_rng(0)
    weights = torch.tensor([0.5, -0.5, 0.1])
    obs = rng.standard_normal((64, 3)).astype(np.float32)
    noise = ParameterNoise(0.2, 5)
    size, plain = np.float32(3.0), weights.clone()

    def forward():
        return np.tanh(size * (obs @ weights.numpy()))[:, None]

    greedy = forward()
    actions = [noise.act(weights, forward, rng) for _ in range(10)]
    assert torch.equal(weights, plain)
    assert all(np.array_equal(one, actions[0]) for one in actions[:5])
    assert not np.array_equal(actions[4], actions[5]) and not np.array_equal(actions[0], greedy)
    for _ in range(2500):
        noise.act(weights, forward, rng)
    apart = [np.square(noise.act(weights, forward, rng) - greedy).mean() for _ in range(500)]
    assert np.median(np.sqrt(apart)) == pytest.approx(0.2, rel=0.25)
    again = ParameterNoise(0.2, 5)
    again.load_state_dict(noise.state_dict())
    for _ in range(7):
        first, second = (one.act(weights, forward, np.random.default_rng(3)) for one in (again, noise))
        np.testing.assert_array_equal(first, second)


@pytest.mark.parametrize("fused", [True, False])
def test_noise_on_weights_leaves_them_as_they_were(fused):
    agent = DDPG(ROW, UNEQUAL, DDPGSettings(noise="parameter", learning_starts=0), ModelSettings(fused=fused))
    obs = np.random.default_rng(0).standard_normal((4, 5)).astype(np.float32)
    before = agent.weights()
    explored = agent.act(obs, explore=True, rng=np.random.default_rng(1)).action
    assert not np.array_equal(explored, agent.act(obs, explore=False, rng=np.random.default_rng(1)).action)
    assert all(np.array_equal(before[name], value) for name, value in agent.weights().items())


@pytest.mark.filterwarnings("ignore::RuntimeWarning")
@pytest.mark.parametrize("fused", [True, False])
def test_a_temperature_beyond_all_numbers_ends_it(fused):
    own = SACSettings(target_entropy=100.0, temperature_rate=1e6)
    agent = SAC(ROW, UNEQUAL, own, ModelSettings(hidden=(8,), fused=fused))
    batch = transitions(np.random.default_rng(0))
    agent.learn(batch)
    with pytest.raises(DivergedError):
        agent.learn(batch)


@pytest.mark.filterwarnings("ignore::RuntimeWarning")
@pytest.mark.parametrize("kind", KINDS)
def test_a_reward_that_is_not_finite_ends_it(kind):
    cls, own = KINDS[kind]
    agent = cls(ROW, UNEQUAL, own)
    batch = transitions(np.random.default_rng(0))
    batch["reward"][3] = np.inf
    before = agent.weights()
    with pytest.raises(DivergedError):
        agent.learn(batch)
    assert all(np.array_equal(before[name], value) for name, value in agent.weights().items())


@pytest.mark.parametrize("kind", ["td3", "sac"])
def test_pictures_and_dicts_learn_by_autograd_and_layer_norm_too(kind):
    cls, own = KINDS[kind]
    rng = np.random.default_rng(0)
    picture = spaces.Box(0, 255, (8, 8, 3), np.uint8)
    for space, model in (
        (picture, None),
        (spaces.Dict({"look": picture, "row": ROW}), None),
        (ROW, ModelSettings(hidden=(16, 16), activation="relu", layer_norm=True)),
    ):
        agent = cls(space, UNEQUAL, own, model)
        assert agent.path.startswith("torch")
        batch = transitions(rng, rows=4)
        for key in ("obs", "next_obs"):
            batch[key] = agent.adapter.adapt(_batch_of(space, 4))
        for _ in range(2):
            metrics, _ = agent.learn(batch)
        assert all(math.isfinite(value) for value in metrics.values())
    assert any("LayerNorm" in type(part).__name__ for part in agent._critics.modules())


def test_noise_by_state_has_the_deviation_that_is_learned_from_and_stays_for_some_steps():
    model = ModelSettings(hidden=(16,), activation="relu", state_noise=True, state_noise_steps=2, log_std=-1.0)
    agent = SAC(ROW, UNEQUAL, SACSettings(learning_starts=0), model)
    obs = np.tile(np.random.default_rng(0).standard_normal(5).astype(np.float32), (20_000, 1))
    output = agent._output(obs)
    act = agent.actor(np.random.default_rng(1), 3, 20_000)
    steps = [np.arctanh(act(obs, None, None)[1].astype(float)) for _ in range(3)]
    np.testing.assert_allclose(steps[0].std(axis=0), np.exp(output[0, 3:]), rtol=0.05)
    np.testing.assert_allclose(steps[0], steps[1], atol=1e-3)  # the same state, the same noise
    assert np.abs(steps[1] - steps[2]).max() > 0.1
    before = agent.weights()["log_std"]
    metrics, _ = agent.learn(transitions(np.random.default_rng(0)))
    assert math.isfinite(metrics["policy_loss"]) and (agent.weights()["log_std"] != before).any()
    with pytest.raises(UsageError, match="for policies that are sampled"):
        TD3(ROW, UNEQUAL, TD3Settings(), model)


def _batch_of(space, rows):
    drawn = [space.sample() for _ in range(rows)]
    return {key: np.stack([one[key] for one in drawn]) for key in space} if isinstance(space, spaces.Dict) else drawn


class OwnActor(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.layer = torch.nn.Linear(5, 6)

    def forward(self, state):
        return self.layer(state)


class OwnCritic(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.layer = torch.nn.Linear(8, 1)

    def forward(self, state, action):
        return self.layer(torch.cat([state, action], dim=1))


def test_modules_of_ones_own_are_called_with_state_and_action():
    agent = SAC(ROW, UNEQUAL, SACSettings(), ModelSettings(actor=OwnActor, critic=OwnCritic()))
    first, second = (critic.q for critic in agent._critics.critics)
    assert first is not second and agent.path.startswith("torch")
    metrics, _ = agent.learn(transitions(np.random.default_rng(0)))
    assert math.isfinite(metrics["policy_loss"]) and "actor.layer.weight" in agent.weights()


SHARED_CRITIC = OwnCritic()


@pytest.mark.parametrize("kind", [DDPG, TD3])
def test_one_policy_that_was_given_serves_as_the_target_too(kind):
    actor = nn.Sequential(nn.Linear(5, 8), nn.ReLU(), nn.Linear(8, 3), nn.Tanh())
    agent = kind(ROW, UNEQUAL, None, ModelSettings(actor=actor))
    assert agent._target_network.actor is not agent.network.actor
    before = agent.weights()
    for _ in range(4):
        agent.learn(transitions(np.random.default_rng(0)))
    assert any((before[name] != value).any() for name, value in agent.weights().items())


def test_one_critic_that_is_named_serves_as_several():
    agent = TD3(ROW, UNEQUAL, None, ModelSettings(critic=f"{__name__}.SHARED_CRITIC"))
    modules = [critic.q for part in (agent._critics, agent._target_critics) for critic in part.critics]
    assert len({id(one) for one in modules}) == 4 and not any(one is SHARED_CRITIC for one in modules)


class OneOutput(nn.Module):
    """Also a critic that does not look at the action."""

    def __init__(self, outputs=1):
        super().__init__()
        self.layer = nn.Linear(5, outputs)

    def forward(self, state):
        return self.layer(state)


class WithoutNames(OneOutput):
    def forward(self, x):
        return self.layer(x)


@pytest.mark.parametrize(
    ("model", "message"),
    [
        ({"actor": OneOutput}, r"model\.actor must give an output of shape \(2, 6\) for 2 observations, not \(2, 1\)"),
        ({"actor": nn.Linear(3, 6)}, r"model\.actor cannot take observations of Box.*RuntimeError"),
        ({"critic": OneOutput}, r"model\.critic gives values on which actions have no bearing"),
        ({"critic": WithoutNames}, r"model\.critic cannot take observations and actions, as forward\(state, action\)"),
        ({"network": OneOutput}, r"SAC has two kinds of networks: model\.actor and model\.critic"),
    ],
)
def test_own_modules_that_do_not_fit_are_told_before_anything_begins(model, message):
    with pytest.raises(UsageError, match=message):
        SAC(ROW, UNEQUAL, SACSettings(), ModelSettings(**model))


def test_bounds_too_far_apart_are_none():
    largest = float(np.finfo(np.float32).max)
    with pytest.raises(UsageError, match="DDPG needs continuous actions with bounds") as told:
        DDPG(ROW, spaces.Box(-largest, np.float32([[1, 2, largest], [1, 2, 3]])))
    assert "\n" not in str(told.value)
