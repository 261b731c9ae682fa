"""V-trace against the sums of the paper, and what its two learners make of it."""

from __future__ import annotations

import copy

import numpy as np
import pytest
import torch
from gymnasium import spaces

from operant.algorithms import find_algorithm
from operant.algorithms.impala import IMPALA, IMPALASettings, v_trace
from operant.data.batches import merge_rollouts
from operant.errors import UsageError
from operant.settings import fill
from operant.testing import AlgorithmContract

GAMMA = 0.9


def _case(steps=7, rows=3, seed=0, ends=True):
    rng = np.random.default_rng(seed)
    draw = lambda: rng.normal(size=(steps, rows))  # noqa: E731
    terminated, truncated = (rng.random((steps, rows)) < 0.15 * ends for _ in range(2))
    value = rng.normal(size=(steps + 1, rows))
    next_value = value[1:].copy()
    cut = terminated | truncated
    next_value[cut] = rng.normal(size=cut.sum())  # what an episode truly ended in, not how the next begins
    return {
        "ratio": np.exp(draw()),
        "reward": draw(),
        "terminated": terminated,
        "truncated": truncated,
        "value": value[:-1],
        "next_value": next_value,
    }


def _by_the_paper(case, gamma, lam, clip_rho, clip_c):
    """Equation 1 as it stands: v_s = V(x_s) + Σ_t γ^{t−s} (Π_{i<t} c_i) δ_t, to the end of the episode."""
    steps, rows = case["reward"].shape
    target, advantage = np.zeros((steps, rows)), np.zeros((steps, rows))
    for row in range(rows):
        for start in range(steps):
            total, weight = case["value"][start, row], 1.0
            for t in range(start, steps):
                follows = 0.0 if case["terminated"][t, row] else case["next_value"][t, row]
                delta = case["reward"][t, row] + gamma * follows - case["value"][t, row]
                total += weight * min(clip_rho, case["ratio"][t, row]) * delta
                if case["terminated"][t, row] or case["truncated"][t, row]:
                    break
                weight *= gamma * lam * min(clip_c, case["ratio"][t, row])
            target[start, row] = total
        for t in range(steps):
            ended = case["terminated"][t, row] or case["truncated"][t, row] or t == steps - 1
            follows = case["next_value"][t, row] if ended else target[t + 1, row]
            follows = 0.0 if case["terminated"][t, row] else follows
            advantage[t, row] = case["reward"][t, row] + gamma * follows - case["value"][t, row]
    return target, advantage


@pytest.mark.parametrize("seed", range(5))
@pytest.mark.parametrize(("lam", "clip_rho", "clip_c"), [(1.0, 1.0, 1.0), (0.8, 1.3, 0.7), (0.5, 0.4, 2.0)])
def test_targets_are_those_of_the_paper(seed, lam, clip_rho, clip_c):
    case = _case(seed=seed)
    found = v_trace(**case, gamma=GAMMA, lam=lam, clip_rho=clip_rho, clip_c=clip_c)
    wanted = _by_the_paper(case, GAMMA, lam, clip_rho, clip_c)
    for one, other in zip(found, wanted, strict=True):
        np.testing.assert_allclose(one, other, rtol=1e-12)


def test_each_clip_changes_what_it_is_for():
    case = _case(ends=False)
    plain = v_trace(**case, gamma=GAMMA)
    looser_rho = v_trace(**case, gamma=GAMMA, clip_rho=3.0)
    looser_c = v_trace(**case, gamma=GAMMA, clip_c=3.0)
    assert not np.allclose(plain[0][-1], looser_rho[0][-1])  # δ of the last step is weighed by ρ̄
    np.testing.assert_allclose(plain[0][-1], looser_c[0][-1])  # … and has nothing behind it that c̄ could weigh
    assert not np.allclose(plain[0][0], looser_c[0][0])


def test_a_batch_is_its_split_trajectories_one_behind_the_other():
    """A truncation inside it is bootstrapped from the episode's own last observation, never from the next episode."""
    case = _case(steps=9, rows=1, ends=False)
    case["truncated"][3, 0] = True
    case["next_value"][3, 0] = 5.0
    whole = v_trace(**case, gamma=GAMMA, lam=0.9)
    parts = [
        v_trace(**{name: array[part] for name, array in case.items()}, gamma=GAMMA, lam=0.9)
        for part in (slice(0, 4), slice(4, 9))
    ]
    for number in range(2):
        np.testing.assert_allclose(whole[number], np.concatenate([one[number] for one in parts]))


def test_on_policy_it_is_the_n_step_return():
    case = _case(ends=False) | {"ratio": np.ones((7, 3))}
    target, advantage = v_trace(**case, gamma=GAMMA)
    returned = case["next_value"][-1]
    for t in range(6, -1, -1):
        returned = case["reward"][t] + GAMMA * returned
        np.testing.assert_allclose(target[t], returned)
        np.testing.assert_allclose(advantage[t], returned - case["value"][t])


SPACES = spaces.Box(-1, 1, (3,), np.float32), spaces.Discrete(4)


def _batch(steps=6, rows=4, seed=0):
    rng = np.random.default_rng(seed)
    obs = rng.normal(size=(steps + 1, rows, 3)).astype(np.float32)
    truncated = np.zeros((steps, rows), bool)
    truncated[2, 1] = True
    return {
        "obs": obs,
        "action": rng.integers(4, size=(steps, rows)),
        "reward": rng.normal(size=(steps, rows)).astype(np.float32),
        "terminated": rng.random((steps, rows)) < 0.1,
        "truncated": truncated,
        "final_obs": rng.normal(size=(1, 3)).astype(np.float32),
        "final_at": np.array([2 * rows + 1]),
        "mask": None,
        "log_prob": rng.uniform(-2.5, -0.5, size=(steps, rows)).astype(np.float32),
    }


def test_what_scaling_takes_off_an_advantage_is_weighed_with_it():
    """A baseline leaves the gradient's mean alone only if it is weighed by the ratio as well: E_μ[ρ b ∇log π] = 0."""
    settings = IMPALASettings(gamma=GAMMA, normalize_advantage=True, clip_pg_rho=1.5)
    algorithm = IMPALA(*SPACES, settings, seed=1)
    data = algorithm._prepare(_batch())
    plain, ratio = data.advantage.copy(), np.minimum(algorithm._ratio, 1.5)
    algorithm._scale_advantage(data)
    scaled = (plain - plain.mean()) / plain.std(ddof=1)
    weighed = algorithm._weighed(data, algorithm._log_prob(data.obs, data.action)[0])
    np.testing.assert_allclose(weighed, scaled * ratio, rtol=1e-4, atol=1e-5)
    assert np.abs(ratio - 1.0).max() > 0.1


def test_the_gradient_is_that_of_the_papers_loss():
    """ρ_s ∇log π (r_s + γ v_{s+1} − V(x_s)), the squared distance to v_s, and entropy; nothing through the targets."""
    algorithm = IMPALA(*SPACES, IMPALASettings(gamma=GAMMA, max_gradient_norm=1e9, clip_pg_rho=0.8), seed=1)
    batch = _batch()
    network = algorithm.network
    policy, value = network(torch.as_tensor(batch["obs"].reshape(-1, 3)))
    value = value.reshape(7, 4)
    with torch.no_grad():
        last = network(torch.as_tensor(batch["final_obs"]))[1]
    logs = torch.log_softmax(policy[:24], 1).reshape(6, 4, 4)
    log_prob = logs.gather(2, torch.as_tensor(batch["action"])[..., None])[..., 0]
    ratio = (log_prob.detach() - torch.as_tensor(batch["log_prob"])).exp().numpy().astype(np.float64)
    next_value = value[1:].detach().numpy().copy()
    next_value[2, 1] = last.item()
    target, advantage = v_trace(
        ratio,
        batch["reward"],
        batch["terminated"],
        batch["truncated"],
        value[:-1].detach().numpy(),
        next_value,
        gamma=GAMMA,
    )
    weighed = torch.as_tensor(np.minimum(ratio, 0.8) * advantage)
    entropy = -(logs.exp() * logs).sum(2).mean()
    loss = -(weighed * log_prob).mean() + 0.5 * (value[:-1] - torch.as_tensor(target)).square().mean() - 0.01 * entropy
    wanted = torch.autograd.grad(loss, list(network.parameters()))
    seen = []
    algorithm.optimizer.step = lambda _rate: seen.append([one.grad.clone() for one in network.parameters()])
    algorithm.learn(batch)
    for one, other in zip(seen[0], wanted, strict=True):
        torch.testing.assert_close(one, other.float(), rtol=1e-4, atol=1e-6)


def test_minibatches_learn_from_each_step_once_by_the_policy_of_the_moment():
    """As many gradients as parts, of all rows; the ratio of a later part is that of the policy it finds."""
    given = {"gamma": GAMMA, "normalize_advantage": True, "clip_pg_rho": 5.0, "learning_rate": 0.05}
    algorithm = IMPALA(*SPACES, IMPALASettings(**given, minibatch=8), seed=1)
    rows, ratios, advantages = [], [], []
    step, weighed = algorithm._step, algorithm._weighed

    def seen_step(data):
        rows.extend(map(tuple, data.obs))
        advantages.append(data.advantage)
        return step(data)

    def seen_ratio(data, log_prob):
        ratios.append((np.exp(log_prob - data.log_prob), np.exp(algorithm._before(data) - data.log_prob)))
        return weighed(data, log_prob)

    first = IMPALA(*SPACES, IMPALASettings(**given), seed=1)
    algorithm._before = lambda data: first._log_prob(data.obs, data.action)[0]
    algorithm._step, algorithm._weighed = seen_step, seen_ratio
    batch = _batch()
    metrics, _ = algorithm.learn(batch)
    assert metrics["updates"] == 3.0
    assert sorted(rows) == sorted(map(tuple, batch["obs"][:-1].reshape(-1, 3)))
    np.testing.assert_allclose(*ratios[0], rtol=1e-5)
    assert np.abs(ratios[2][0] - ratios[2][1]).max() > 0.01
    for one in advantages:
        np.testing.assert_allclose([one.mean(), one.std(ddof=1)], [0.0, 1.0], atol=1e-5)


def test_a_minibatch_of_all_rows_is_the_whole_batch():
    learned = [IMPALA(*SPACES, IMPALASettings(minibatch=size), seed=1) for size in (0, 24, 1000)]
    for one in learned:
        one.learn(_batch())
    for other in learned[1:]:
        for key, value in learned[0].weights().items():
            np.testing.assert_array_equal(value, other.weights()[key])


@pytest.mark.parametrize("minibatch", [0, 8])
def test_gradients_that_a_worker_sends_are_those_of_learning_here(minibatch):
    """With minibatches as many as there are parts, each by the weights that the ones before have left."""
    algorithm, settings = find_algorithm("a3c")
    here, worker, learner = (
        algorithm(*SPACES, fill(settings, {"gamma": GAMMA, "minibatch": minibatch}), seed=1) for _ in range(3)
    )
    for number in range(2):
        batch = _batch(seed=number)
        here.learn(batch)
        sent = worker.digest(batch)
        assert len(sent["gradient"]) == (3 if minibatch else 1)
        learner.learn(sent)
        worker.load_weights(learner.weights())
        for key, value in here.weights().items():
            np.testing.assert_array_equal(value, learner.weights()[key])


@pytest.mark.parametrize("name", ["impala", "appo"])
def test_without_v_trace_targets_are_those_of_the_policy_that_learns(name):
    """Lag is not corrected in them; in the policy's gradient it still is."""
    algorithm, settings = find_algorithm(name)
    batch = _batch()
    found = {}
    for v_trace_on, acted in ((True, True), (False, True), (True, False)):
        one = algorithm(*SPACES, fill(settings, {"gamma": GAMMA, "gae_lambda": 0.9, "v_trace": v_trace_on}), seed=1)
        data = one._prepare(batch if acted else {key: batch[key] for key in batch if key != "log_prob"})
        found[v_trace_on, acted] = data
        ratios = np.abs(one._ratio - 1.0).max()
        assert ratios > 0.1 if acted else ratios == 0.0
    np.testing.assert_allclose(found[False, True].target, found[True, False].target, rtol=1e-5, atol=1e-6)
    np.testing.assert_allclose(found[False, True].advantage, found[True, False].advantage, rtol=1e-5, atol=1e-6)
    assert not np.allclose(found[False, True].target, found[True, True].target)


def test_appo_is_kept_close_to_the_policy_that_learns_and_weighs_steps_of_an_older_one():
    """The gradient of −E[ρ min(r A, clip(r) A)], r to the policy as it was when the batch came: 1 in the first step."""
    algorithm, settings = find_algorithm("appo")
    given = {"gamma": GAMMA, "minibatch": 64, "epochs": 1, "normalize_advantage": True, "entropy_weight": 0.0}
    one = algorithm(*SPACES, fill(settings, {**given, "max_gradient_norm": 1e9, "clip_pg_rho": 1.2}), seed=1)
    batch = _batch()
    data = one._prepare(batch)
    assert (np.abs(one._ratio - 1.0) > one.settings.clip).any()  # beyond the clip, were it around the one that acted
    np.testing.assert_allclose(data.weight, np.minimum(one._ratio, 1.2), rtol=1e-6)
    scaled = (data.advantage - data.advantage.mean()) / data.advantage.std(ddof=1) * data.weight
    network = copy.deepcopy(one.network).double()
    logits, value = network(torch.as_tensor(data.obs).double())
    log_prob = torch.log_softmax(logits, 1)[torch.arange(len(data)), torch.as_tensor(data.action)]
    loss = -((log_prob - log_prob.detach()).exp() * torch.as_tensor(scaled)).mean()
    loss = loss + 0.5 * (value.reshape(-1) - torch.as_tensor(data.target)).square().mean()
    wanted = torch.autograd.grad(loss, list(network.parameters()))
    seen = []
    one.optimizer.step = lambda _rate: seen.append([each.grad.clone() for each in one.network.parameters()])
    one.learn(batch)
    for each, other in zip(seen[0], wanted, strict=True):
        torch.testing.assert_close(each, other.float(), rtol=1e-4, atol=1e-6)


@pytest.mark.parametrize("name", ["impala", "appo"])
def test_fused_and_autograd_agree(name):
    algorithm, settings = find_algorithm(name)
    from operant.models.settings import ModelSettings

    weights = []
    for fused in (True, False):
        one = algorithm(*SPACES, fill(settings, {"gamma": GAMMA}), ModelSettings(hidden=(8,), fused=fused), 1)
        one.learn(_batch())
        weights.append(one.weights())
    for key, value in weights[0].items():
        np.testing.assert_allclose(value, weights[1][key], rtol=1e-3, atol=1e-5)


def test_merged_rollouts_are_learned_from_as_one():
    """Two workers' trajectories side by side, with the last observation of a truncated episode at its new place."""
    whole = _batch(rows=5)
    whole["final_at"] = np.array([2 * 5 + 1])
    left = {name: None if value is None else value[:, :2] for name, value in whole.items() if "final" not in name}
    right = {name: None if value is None else value[:, 2:] for name, value in whole.items() if "final" not in name}
    left |= {"final_obs": whole["final_obs"], "final_at": np.array([2 * 2 + 1])}
    right |= {"final_obs": np.zeros((0, 0), np.float32), "final_at": np.zeros(0, np.int64)}
    merged = merge_rollouts([left, right])
    for name, value in whole.items():
        if value is not None:
            np.testing.assert_array_equal(merged[name], value, err_msg=name)
    other = merge_rollouts([right, left])
    np.testing.assert_array_equal(other["final_at"], [2 * 5 + 3 + 1])


def test_settings_that_make_no_sense_are_refused():
    with pytest.raises(UsageError, match="max_lag is 0"):
        IMPALASettings(max_lag=0)
    with pytest.raises(UsageError, match="clip_c is 0"):
        IMPALASettings(clip_c=0.0)
    with pytest.raises(UsageError, match="minibatch is -1"):
        IMPALASettings(minibatch=-1)
    with pytest.raises(UsageError, match="minibatch is 1; it must be at least 2"):
        IMPALASettings(minibatch=1)


def test_a_row_that_is_left_over_is_not_learned_from_alone():
    algorithm = IMPALA(*SPACES, IMPALASettings(minibatch=23, normalize_advantage=True), seed=1)
    assert algorithm.learn(_batch())[0]["updates"] == 1.0  # of 24 rows


class TestIMPALA(AlgorithmContract):
    name = "impala"


class TestRecurrentIMPALA(AlgorithmContract):
    name = "impala"
    settings = {"rollout": 8}  # noqa: RUF012
    model = {"hidden": [8], "recurrent": "gru", "recurrent_size": 8}  # noqa: RUF012


class TestIMPALAInMinibatches(AlgorithmContract):
    name = "impala"
    settings = {"rollout": 8, "minibatch": 12, "v_trace": False}  # noqa: RUF012


class TestAPPO(AlgorithmContract):
    name = "appo"
    settings = {"rollout": 8, "minibatch": 12, "epochs": 2}  # noqa: RUF012
