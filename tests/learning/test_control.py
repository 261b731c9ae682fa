"""DDPG, TD3 and SAC in the closed loop: bounds that differ, many updates for each step, scaled rewards, time limits."""

from __future__ import annotations

import numpy as np
import pytest
from gymnasium import spaces

from operant.envs.identity import ContinuousIdentity, DiscreteIdentity
from operant.tracking import Run
from operant.training import train

HERE = f"{__name__}:"
CONTROL = {"train_every": 8, "updates": 4, "learning_starts": 100, "batch": 64, "learning_rate": 3e-3, "gamma": 0.5}


class UnequalIdentity(ContinuousIdentity):
    """Two axes whose bounds differ; the answer is as far between them as the observation is between −1 and 1."""

    low, high = np.array([-2.0, 5.0], np.float32), np.array([2.0, 6.0], np.float32)

    def __init__(self, num_envs=1, **kwargs):
        super().__init__(num_envs, size=2, **kwargs)
        self.single_action_space = spaces.Box(self.low, self.high)

    def reward_of(self, actions):
        assert (actions >= self.low).all() and (actions <= self.high).all()
        return super().reward_of(2 * (actions - self.low) / (self.high - self.low) - 1)


class PictureIdentity(ContinuousIdentity):
    """The answer is how bright a picture is, beside a row that says nothing."""

    def __init__(self, num_envs=1, **kwargs):
        super().__init__(num_envs, **kwargs)
        picture = spaces.Box(0, 255, (8, 8, 3), np.uint8)
        self.single_observation_space = spaces.Dict({"look": picture, "row": spaces.Box(-1, 1, (2,), np.float32)})

    def observe(self):
        bright = np.round((self.target + 1) * 127.5).astype(np.uint8)
        look = np.broadcast_to(bright[:, :, None, None], (self.num_envs, 8, 8, 3)).copy()
        return {"look": look, "row": np.zeros((self.num_envs, 2), np.float32)}


class Living(ContinuousIdentity):
    """Every step is worth 1 and none is the last; only the limit of steps ends episodes."""

    def __init__(self, num_envs=1, **kwargs):
        super().__init__(num_envs, **{"max_episode_steps": 4, **kwargs})

    def reward_of(self, actions):
        return np.ones(self.num_envs)


class LivingByChoice(DiscreteIdentity, Living):
    """The same with discrete actions."""

    def __init__(self, num_envs=1, **kwargs):
        DiscreteIdentity.__init__(self, num_envs, max_episode_steps=4, **kwargs)

    reward_of = Living.reward_of


@pytest.fixture
def root(tmp_path):
    folder = tmp_path / ".operant"
    folder.mkdir()
    return folder


def config(env, algorithm, steps, model=None, **scaled):
    return {
        "total_steps": steps,
        "env": {"id": HERE + env, "num_envs": 8, **scaled},
        "algorithm": {**CONTROL, **algorithm},
        "model": {"hidden": [32, 32], "activation": "relu", **(model or {})},
        "evaluation": {"every": steps, "episodes": 16},
    }


@pytest.mark.parametrize(
    ("algorithm", "steps", "model", "scaled"),
    [
        ({"name": "ddpg", "noise": "parameter", "noise_scale": 0.2}, 4_000, {}, {}),
        ({"name": "td3", "noise": "ou", "noise_scale": 0.3, "prioritized": True, "n_step": 2}, 6_000, {}, {}),
        ({"name": "sac"}, 4_000, {}, {"normalize_obs": True, "normalize_reward": True}),
        ({"name": "sac", "updates": 16}, 1_200, {"layer_norm": True}, {}),  # two updates for each step
    ],
    ids=["ddpg-noise-on-weights", "td3-ou-prioritized-2-step", "sac-scaled", "sac-many-updates"],
)
def test_it_learns_actions_of_unequal_bounds(root, algorithm, steps, model, scaled):
    result = train(config("UnequalIdentity", algorithm, steps, model, **scaled), root=root)
    assert result.final_return >= -2.0  # random actions: -27


@pytest.mark.long
@pytest.mark.parametrize("name", ["ddpg", "td3", "sac"])
def test_it_learns_from_pictures_in_a_dict(root, name):
    result = train(config("PictureIdentity", {"name": name, "learning_rate": 1e-3}, 6_000), root=root)
    assert result.final_return >= -2.0  # random actions: -13


@pytest.mark.parametrize(
    ("env", "algorithm"),
    [
        ("Living", {"name": "ddpg"}),
        ("Living", {"name": "td3", "n_step": 3}),
        ("Living", {"name": "sac", "learn_temperature": False, "temperature": 1e-3}),
        ("LivingByChoice", {"name": "discrete_sac", "learn_temperature": False, "temperature": 1e-3}),
    ],
    ids=lambda one: one["name"] if isinstance(one, dict) else "",
)
def test_a_limit_of_steps_does_not_lower_values(root, env, algorithm):
    """1 / (1 − γ) = 4. If an end by the limit counted as one, it would be 1 to 2.7 by the steps that are left."""
    usual = {"gamma": 0.75, "target_rate": 0.05}
    result = train(config(env, {**usual, **algorithm}, 3_000), root=root)
    values = Run.open(result.run_id, root).scalars("train/q_mean")["value"]
    assert values[-1] == pytest.approx(4.0, rel=0.08)
