"""Networks from spaces and of the user's own: pictures, dicts, names, instances."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from gymnasium import spaces
from torch import nn

from operant.algorithms import A2C, DQN, PPO, PPOSettings, find_algorithm
from operant.errors import UsageError
from operant.models import ModelSettings

PICTURE = spaces.Box(0, 255, (12, 10, 3), np.uint8)
DICT = spaces.Dict({"camera": PICTURE, "speed": spaces.Box(-1, 1, (2,), np.float32), "gear": spaces.Discrete(3)})
ROW = spaces.Box(-1, 1, (4,), np.float32)


class Own(nn.Module):
    def __init__(self, outputs: int = 2) -> None:
        super().__init__()
        self.layer = nn.Linear(4, outputs)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.layer(x).sin()


class ByName(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.policy = nn.Linear(2 + 3, 2)
        self.value = nn.Linear(2, 1)

    def forward(self, speed: torch.Tensor, gear: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        return self.policy(torch.cat([speed, gear], dim=1)), self.value(speed)


def batch_of(space, count, rng):
    if isinstance(space, spaces.Dict):
        return {key: batch_of(part, count, rng) for key, part in space.items()}
    if isinstance(space, spaces.Discrete):
        return rng.integers(space.n, size=count)
    if isinstance(space, spaces.MultiDiscrete):
        return rng.integers(space.nvec, size=(count, len(space.nvec)))
    if space.dtype == np.uint8:
        return rng.integers(256, size=(count, *space.shape), dtype=np.uint8)
    return rng.standard_normal((count, *space.shape)).astype(np.float32)


def stacked(adapter, space, steps, rows, rng):
    flat = adapter.adapt(batch_of(space, steps * rows, rng))
    fold = lambda part: part.reshape(steps, rows, *part.shape[1:])  # noqa: E731
    return {key: fold(part) for key, part in flat.items()} if isinstance(flat, dict) else fold(flat)


def learn_once(agent, space):
    rng = np.random.default_rng(0)
    before = agent._flat.array.copy()
    metrics, _ = agent.learn(
        {
            "obs": stacked(agent.adapter, space, 6, 2, rng),
            "action": rng.integers(2, size=(5, 2)),
            "reward": rng.standard_normal((5, 2)).astype(np.float32),
            "terminated": np.zeros((5, 2), bool),
            "truncated": np.zeros((5, 2), bool),
            "final_obs": np.zeros((0, 4), np.float32),
            "final_at": np.zeros(0, np.int64),
            "mask": None,
        }
    )
    assert np.isfinite(list(metrics.values())).all()
    assert (agent._flat.array != before).any()


@pytest.mark.parametrize("space", [PICTURE, DICT, spaces.Discrete(5), spaces.MultiDiscrete([2, 3]), ROW])
def test_networks_are_built_from_any_space(space):
    agent = PPO(space, spaces.Discrete(2), PPOSettings(minibatch=5, epochs=1))
    learn_once(agent, space)
    out = agent.act(batch_of(space, 3, np.random.default_rng(1)), explore=False, rng=np.random.default_rng(0))
    assert out.action.shape == (3,)


def test_a_dict_of_rows_takes_the_fast_path_and_learns_the_same():
    space = spaces.Dict({"speed": ROW, "gear": spaces.Discrete(3), "inner": spaces.Dict({"x": ROW})})
    fused, by_torch = (PPO(space, spaces.Discrete(2), model=ModelSettings(fused=fused), seed=3) for fused in (1, 0))
    assert fused.path.startswith("fused") and by_torch.path.startswith("torch")
    row = fused.adapter.adapt(batch_of(space, 5, np.random.default_rng(0)))
    assert row.shape == (5, 4 + 3 + 4) and row.dtype == np.float32
    for agent in (fused, by_torch):
        learn_once(agent, space)
    np.testing.assert_allclose(fused._flat.array, by_torch._flat.array, atol=1e-5)
    assert PPO(DICT, spaces.Discrete(2)).path.startswith("torch")  # one entry is a picture
    masked = spaces.Dict({"observation": ROW, "action_mask": spaces.MultiBinary(2)})
    agent = DQN(masked, spaces.Discrete(2))
    assert agent.path.startswith("fused")
    mask = np.array([[True, False], [False, True]])
    obs = {"observation": np.zeros((2, 4), np.float32), "action_mask": mask}
    out = agent.act(obs, mask=agent.adapter.mask(obs, None), explore=False, rng=np.random.default_rng(0))
    assert out.action.tolist() == [0, 1]


def test_a_dict_observation_is_matched_to_forward_by_name():
    agent = A2C(DICT, spaces.Discrete(2), model=ModelSettings(network=ByName))
    learn_once(agent, DICT)
    assert "actor.policy.weight" in agent.weights()


def test_own_modules_as_class_instance_and_name():
    by_class = PPO(ROW, spaces.Discrete(2), model=ModelSettings(actor=Own, critic=nn.Linear(4, 1)))
    assert by_class.path.startswith("torch")
    learn_once(by_class, ROW)
    by_name = DQN(
        ROW,
        spaces.Discrete(2),
        model=ModelSettings(network="torch.nn.Linear", arguments={"in_features": 4, "out_features": 2}),
    )
    assert by_name.act(np.zeros((3, 4), np.float32), explore=False, rng=np.random.default_rng(0)).action.shape == (3,)
    instance = Own()
    by_instance = DQN(ROW, spaces.Discrete(2), model=ModelSettings(network=instance))
    assert by_instance.network.q is instance
    assert by_instance._target_q is not by_instance._q
    assert not np.shares_memory(by_instance._flat.array, by_instance._target_flat.array)


def test_a_plain_sequential_of_ones_own_takes_the_fast_path():
    chain = lambda outputs: nn.Sequential(nn.Linear(4, 8), nn.ReLU(), nn.Linear(8, outputs))  # noqa: E731
    agent = PPO(ROW, spaces.Discrete(2), model=ModelSettings(actor=chain(2), critic=chain(1)))
    assert agent.path.startswith("fused")


@pytest.mark.parametrize(
    ("model", "message"),
    [
        (ModelSettings(network="nowhere.Net"), "cannot be imported"),
        (ModelSettings(network="torch.nn.Liner"), "has no 'Liner'"),
        (ModelSettings(network=Own, arguments={"outs": 2}), "model.arguments"),
        (ModelSettings(network=3), "an nn.Module"),
        (ModelSettings(activation="tan"), "did you mean 'tanh'"),
    ],
)
def test_a_model_that_cannot_be_had_is_a_sentence(model, message):
    with pytest.raises(UsageError, match=message):
        DQN(ROW, spaces.Discrete(2), model=model)


@pytest.mark.parametrize(
    ("actions", "model", "message"),
    [
        (spaces.Discrete(2), {}, "continuous actions"),
        (ROW, {"network": Own}, "a chain of layers"),
        (ROW, {"actor": Own, "critic": nn.Linear(4, 1)}, "Linear layer at its end"),
    ],
)
def test_noise_by_state_needs_a_last_hidden_layer(actions, model, message):
    with pytest.raises(UsageError, match=message):
        PPO(ROW, actions, model=ModelSettings(state_noise=True, **model))


def test_dqn_refuses_continuous_actions():
    with pytest.raises(UsageError, match="PPO, A2C or SAC"):
        DQN(ROW, ROW)


@pytest.mark.parametrize(
    ("name", "model", "sentence"),
    [
        ("dqn", {"actor": nn.Identity}, "name your module as model.network, not model.actor"),
        ("c51", {"critic": nn.Identity}, "name your module as model.network, not model.critic"),
        ("ppo", {"network": nn.Identity, "critic": nn.Identity}, "model.network is both, policy and value"),
        ("a2c", {"layer_norm": True}, "model.layer_norm is for critics of continuous actions"),
    ],
)
def test_a_module_for_a_role_that_is_not_there_is_refused(name, model, sentence):
    algorithm, _ = find_algorithm(name)
    with pytest.raises(UsageError, match=sentence):
        algorithm(spaces.Box(-1, 1, (3,)), spaces.Discrete(2), None, ModelSettings(**model))
