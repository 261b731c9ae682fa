"""MADDPG: losses against numbers worked by hand and against autograd, who sees whom, sub-policies, agents that leave;
and a task that its critics solve and independent ones do not."""

from __future__ import annotations

import copy
from typing import Any, ClassVar

import numpy as np
import pytest
import torch
from gymnasium import spaces

from operant.algorithms.agents import gumbel_softmax
from operant.algorithms.maddpg import MADDPG, joint_critic_loss
from operant.algorithms.maddpg_settings import MADDPGSettings
from operant.envs import make_env
from operant.errors import UsageError
from operant.models import ModelSettings
from operant.testing import AlgorithmContract
from operant.tracking import Run
from operant.training import CheckpointStore, TrainConfig, load_policy, resume, train
from operant.training.collecting import Collector
from operant.training.machin import from_machin, to_machin

SMALL = {"train_every": 8, "batch": 16, "buffer": 400, "learning_starts": 40}
GATES = {"id": "operant.envs.toys:Gates", "num_envs": 8}


class TestMADDPG(AlgorithmContract):
    name = "maddpg"
    settings: ClassVar[dict[str, Any]] = SMALL
    model: ClassVar[dict[str, Any]] = {"hidden": [8]}
    envs = ("operant.envs.toys:AgentsIdentity", "operant.envs.toys:Gates")


class TestSubPolicies(TestMADDPG):
    settings: ClassVar[dict[str, Any]] = {**SMALL, "sub_policies": 2}

    def test_it_says_what_it_learns_from(self) -> None:
        fields = self.source().algorithm.data.fields
        assert {"state", "chosen", "agent_reward"} <= set(fields)

    def test_it_reads_the_fields_it_asks_for_and_no_others(self) -> None:
        """The state is what lets a sub-policy last for an episode; what it was in each step is `chosen`."""
        with pytest.raises(AssertionError, match=r"lists \['state'\], which learn never reads"):
            super().test_it_reads_the_fields_it_asks_for_and_no_others()


def linear(agents=2, discrete=False, **settings) -> MADDPG:
    """Agents that see one number; networks are single layers."""
    box = spaces.Box(-1.0, 1.0, (1,), np.float32)
    names = [f"agent_{number}" for number in range(agents)]
    observed = spaces.Dict({name: box for name in names})
    actions = spaces.Dict({name: spaces.Discrete(2) if discrete else box for name in names})
    model = ModelSettings(hidden=(), orthogonal=False)
    return MADDPG(observed, actions, MADDPGSettings(max_gradient_norm=1e9, **settings), model, 0)


def set_weights(module, weight, bias) -> None:
    with torch.no_grad():
        module.weight.copy_(torch.tensor([weight]))
        module.bias.copy_(torch.tensor([bias]))


def batch_of(algorithm, obs, action, reward, next_obs, terminated=None, present=None) -> dict:
    rows = len(reward)

    def seen(values):
        policies = {name: {"obs": np.array(values, np.float32)[:, [n]]} for n, name in enumerate(algorithm.agents)}
        return {"present": np.ones((rows, len(algorithm.agents)), bool), "policies": policies}

    return {
        "obs": seen(obs),
        "next_obs": seen(next_obs),
        "action": {name: np.array(action, np.float32)[:, [n]] for n, name in enumerate(algorithm.agents)},
        "agent_reward": np.array(reward, np.float32),
        "agent_terminated": np.zeros((rows, len(algorithm.agents)), bool)
        if terminated is None
        else np.array(terminated),
        "present": np.ones((rows, len(algorithm.agents)), bool) if present is None else np.array(present),
    }


def test_targets_and_losses_worked_by_hand() -> None:
    algorithm = linear(gamma=0.5)
    # Critics: Q_0 = o0 + 2 o1 + 3 a0 + 4 a1 + 0.5, Q_1 = −o0 + a1; targets: half of them. Policies: tanh(o), tanh(−o).
    set_weights(algorithm._critics[0].q[0], [1.0, 2.0, 3.0, 4.0], 0.5)
    set_weights(algorithm._critics[1].q[0], [-1.0, 0.0, 0.0, 1.0], 0.0)
    set_weights(algorithm._target_critics[0].q[0], [0.5, 1.0, 1.5, 2.0], 0.25)
    set_weights(algorithm._target_critics[1].q[0], [-0.5, 0.0, 0.0, 0.5], 0.0)
    for network in (algorithm.network, algorithm._target_network):
        set_weights(network.agents[0][0].actor[0], [1.0], 0.0)
        set_weights(network.agents[1][0].actor[0], [-1.0], 0.0)
    batch = batch_of(
        algorithm,
        obs=[[0.5, 0.25], [1.0, -1.0]],
        action=[[0.1, 0.2], [0.3, 0.4]],
        reward=[[1.0, 2.0], [3.0, 4.0]],
        next_obs=[[0.5, 1.0], [0.0, 0.5]],
        terminated=[[False, False], [True, False]],
        present=[[True, True], [True, False]],
    )
    a0, a1 = np.tanh(0.5), np.tanh(-1.0)  # of the first row; the second's are 0 and tanh(−0.5)
    following = [[0.25 + 1.0 + 1.5 * a0 + 2 * a1 + 0.25, 0.0], [-0.25 + 0.5 * a1, 0.5 * np.tanh(-0.5)]]
    expected = np.array([[1 + 0.5 * following[0][0], 3.0], [2 + 0.5 * following[1][0], 4 + 0.5 * following[1][1]]])
    target = algorithm._targets(batch)
    np.testing.assert_allclose(target, expected, rtol=1e-6)
    obs, actions, present = algorithm._tensors(batch)
    q = torch.stack([algorithm._q(algorithm._critics, n, obs, actions) for n in range(2)])
    by_hand = [[0.5 + 0.5 + 0.3 + 0.8 + 0.5, 1.0 - 2.0 + 0.9 + 1.6 + 0.5], [-0.5 + 0.2, -1.0 + 0.4]]
    np.testing.assert_allclose(q.detach(), by_hand, rtol=1e-6)
    errors = np.square(np.array(by_hand) - expected)
    loss = joint_critic_loss(q, target, present)
    # The second agent was there in the first row only.
    assert loss.item() == pytest.approx(errors[0].mean() + errors[1, 0], rel=1e-5)
    # Policies: −E[Q_0(o, μ_0(o0), a1)] over both rows, −Q_1(o, a0, μ_1(o1)) of the first; a = tanh(w o + b).
    actor_loss = algorithm._actor_loss(batch, obs, actions, present)
    first = [1.0 + 3 * np.tanh(0.5) + 0.8 + 0.5, -1.0 + 3 * np.tanh(1.0) + 1.6 + 0.5]
    assert actor_loss.item() == pytest.approx(-np.mean(first) - (-0.5 + np.tanh(-0.25)), rel=1e-5)
    algorithm._flat.grad_tensor.zero_()
    torch.autograd.backward(actor_loss, inputs=list(algorithm.network.parameters()))
    slope = [3 * (1 - np.tanh(x) ** 2) for x in (0.5, 1.0)]
    layers = [algorithm.network.agents[n][0].actor[0] for n in range(2)]
    assert layers[0].weight.grad.item() == pytest.approx(-(slope[0] * 0.5 + slope[1] * 1.0) / 2, rel=1e-5)
    assert layers[0].bias.grad.item() == pytest.approx(-np.mean(slope), rel=1e-5)
    assert layers[1].weight.grad.item() == pytest.approx(-(1 - np.tanh(0.25) ** 2) * 0.25, rel=1e-5)


def test_an_update_is_a_step_down_the_gradients_of_autograd() -> None:
    """All agents at once against each agent by itself, in double precision."""
    algorithm = linear(agents=3, discrete=True, learning_rate=0.1, target_rate=0.25, gamma=0.9)
    rng = np.random.default_rng(0)
    rows = 12
    batch = batch_of(
        algorithm,
        rng.uniform(-1, 1, (rows, 3)),
        np.zeros((rows, 3)),
        rng.normal(size=(rows, 3)),
        rng.uniform(-1, 1, (rows, 3)),
        rng.random((rows, 3)) < 0.3,
        rng.random((rows, 3)) < 0.8,
    )
    batch["action"] = {name: rng.integers(2, size=rows) for name in algorithm.agents}
    before = copy.deepcopy(algorithm._critics)
    target = algorithm._targets(batch)
    algorithm.learn(batch)
    rows_of = torch.cat([torch.as_tensor(batch["obs"]["policies"][name]["obs"]) for name in algorithm.agents], dim=1)
    chosen = [torch.eye(2)[torch.as_tensor(batch["action"][name])] for name in algorithm.agents]
    for number, critic in enumerate(before):
        q = critic.q(torch.cat([rows_of, *chosen], dim=1))[:, 0].double()
        present = torch.as_tensor(batch["present"][:, number])
        loss = (q - target[number])[present].square().mean()
        gradients = torch.autograd.grad(loss, list(critic.parameters()))
        for gradient, new in zip(gradients, algorithm._critics[number].parameters(), strict=True):
            np.testing.assert_allclose(new.grad, gradient, rtol=1e-4, atol=1e-6)
    # Target networks have moved by a quarter.
    for old, new, follows in zip(
        before.parameters(), algorithm._critics.parameters(), algorithm._target_critics.parameters(), strict=True
    ):
        np.testing.assert_allclose(follows.detach(), (old + 0.25 * (new - old)).detach(), rtol=1e-4, atol=1e-6)


def test_the_sampled_choice_has_the_gradient_of_the_softmax() -> None:
    logits = torch.tensor([[1.0, 2.0, 0.5]], requires_grad=True)
    noise = torch.tensor([[0.5, -1.0, 0.25]])
    choice = gumbel_softmax(logits, noise)
    assert choice.detach().tolist() == [[1.0, 0.0, 0.0]]
    worth = torch.tensor([[3.0, -1.0, 2.0]])
    (found,) = torch.autograd.grad((choice * worth).sum(), logits)
    soft = torch.softmax(logits.detach() + noise, dim=1)
    np.testing.assert_allclose(found, soft * (worth - (soft * worth).sum()), rtol=1e-6)


def test_a_critic_sees_who_it_is_to_see() -> None:
    algorithm = linear(agents=3, critic_visible_actors=([0], ["agent_1", "agent_0"], [0, 1, 2]))
    assert algorithm._visible == [[0], [0, 1], [0, 1, 2]]
    assert [critic.q[0].in_features for critic in algorithm._critics] == [2, 4, 6]
    for given, message in (
        (([0], [1]), "has 2 entries; there is a list for each of agent_0, agent_1, agent_2"),
        (([1], [1], [2]), r"critic_visible_actors\[0\] is \[1\].*this one among them"),
        (([0, 7], [1], [2]), r"critic_visible_actors\[0\] is \[0, 7\]"),
        (([0, [1]], [1], [2]), r"critic_visible_actors\[0\] is \[0, \[1\]\]"),
    ):
        with pytest.raises(UsageError, match=message):
            linear(agents=3, critic_visible_actors=given)


NAMED = torch.nn.Linear(1, 1)


@pytest.mark.parametrize("actor", [NAMED, f"{__name__}.NAMED"])
def test_of_one_module_each_agent_has_its_own(actor) -> None:
    box = spaces.Box(-1.0, 1.0, (1,), np.float32)
    both = spaces.Dict({"a": box, "b": box})
    algorithm = MADDPG(both, both, MADDPGSettings(sub_policies=2), ModelSettings(actor=actor), 0)
    weights = {value.data_ptr() for value in algorithm.network.parameters()}
    assert len(weights) == 2 * 2 * 2


def test_each_sub_policy_learns_from_its_own_episodes() -> None:
    algorithm = linear(sub_policies=2)
    batch = batch_of(algorithm, [[1.0, 1.0]] * 4, [[0.0, 0.0]] * 4, [[1.0, 1.0]] * 4, [[0.0, 0.0]] * 4)
    batch["chosen"] = np.array([[0, 1]] * 4)
    before = copy.deepcopy(algorithm.network)
    algorithm.learn(batch)
    moved = [
        [not torch.equal(one.actor[0].weight, other.actor[0].weight) for one, other in zip(its, theirs, strict=True)]
        for its, theirs in zip(algorithm.network.agents, before.agents, strict=True)
    ]
    assert moved == [[True, False], [False, True]]


def test_a_sub_policy_is_drawn_for_an_episode() -> None:
    env = make_env("operant.envs.toys:AgentsIdentity", 6, seed=0, length=4)
    algorithm = MADDPG(
        env.single_observation_space, env.single_action_space, MADDPGSettings(**{**SMALL, "sub_policies": 3})
    )
    collector = Collector(env, algorithm, rng=np.random.default_rng(0))
    collector.reset(0)
    chosen = np.stack([step["chosen"] for step in collector.trajectory(12)])  # three episodes
    assert (chosen[:4] == chosen[0]).all() and (chosen[4:8] == chosen[4]).all()
    assert (chosen[0] != chosen[4]).any() and set(chosen.ravel()) == {0, 1, 2}


@pytest.mark.long
def test_it_solves_what_independent_learners_do_not(root) -> None:
    """What the keeper opens is seen by the runner alone: see `operant.envs.toys.Gates`. (With seed 0 it is an example,
    `examples/training/several_agents.py`.) Independent learners may come upon it by chance, for a while.
    """
    settings = {"batch": 128, "buffer": 20_000, "learning_starts": 400, "train_every": 16, "learning_rate": 0.01}
    maddpg = {"algorithm": {"name": "maddpg", **settings}}
    dqn = {"name": "dqn", **SMALL, "buffer": 6000, "learning_rate": 0.01, "gamma": 0.95}
    independent = {"algorithm": dqn, "policy_mapping": "independent"}

    def best(seed: int, learner: dict[str, Any]) -> float:
        common = {"total_steps": 8000, "env": GATES, "evaluation": {"episodes": 64, "every": 2000}}
        model = {"hidden": [32], "activation": "relu"}
        return train({**common, **learner, "model": model, "seed": seed}, root=root).best_return

    together, alone = ([best(seed, learner) for seed in (1, 2, 3)] for learner in (maddpg, independent))
    assert min(together) > 1.6 and sorted(alone)[1] < 1.4, (together, alone)


@pytest.fixture
def root(tmp_path):
    folder = tmp_path / ".operant"
    folder.mkdir()
    return folder


def test_a_resumed_training_equals_one_that_was_not_interrupted(root) -> None:
    values = {
        "algorithm": {"name": "maddpg", **SMALL, "sub_policies": 2},
        "env": {"id": "operant.envs.toys:AgentsIdentity", "num_envs": 4, "arguments": {"coming": True, "going": True}},
        "total_steps": 240,
        "model": {"hidden": [8]},
        "evaluation": {"episodes": 2, "every": 100},
        "checkpoint": {"every": 64},
    }
    whole = train(values, root=root)
    part = train({**values, "total_steps": 120}, root=root)
    found = resume(part.run_id, root=root, config=TrainConfig.from_mapping(values))

    def state(run_id):
        _, saved = CheckpointStore(Run.open(run_id, root).folder / "checkpoints").load()
        return {key: saved[key] for key in ("algorithm", "collector", "rng", "train_iter", "agents")}

    np.testing.assert_equal(state(found.run_id), state(whole.run_id))
    policy = load_policy(found.run_id, root)
    assert policy.remembers and set(policy.act_from(policy.env.reset(0), None)[0]) == set(policy.env.agents)


def test_it_takes_machins_words() -> None:
    settings, _ = from_machin(
        MADDPGSettings, {"critic_visible_actors": [[0], [0, 1]], "sub_policy_num": 1, "update_rate": 0.1}
    )
    assert (settings.critic_visible_actors, settings.sub_policies, settings.target_rate) == (([0], [0, 1]), 2, 0.1)
    assert from_machin(MADDPGSettings, to_machin(settings))[0] == settings


def test_what_cannot_be_is_said() -> None:
    box = spaces.Box(-1.0, 1.0, (1,), np.float32)
    with pytest.raises(UsageError, match="is for several agents, whose observations are a Dict"):
        MADDPG(box, box)
    with pytest.raises(UsageError, match="learns from rows of numbers; a observes"):
        MADDPG(spaces.Dict({"a": spaces.Box(0, 255, (8, 8, 3), np.uint8)}), spaces.Dict({"a": box}))
    with pytest.raises(UsageError, match="one choice or continuous actions with bounds; a has"):
        MADDPG(spaces.Dict({"a": box}), spaces.Dict({"a": spaces.MultiDiscrete([2, 2])}))
    with pytest.raises(UsageError, match="sub_policies is 0"):
        MADDPGSettings(sub_policies=0)
