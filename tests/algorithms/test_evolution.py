"""ARS and ES against steps worked by hand."""

from __future__ import annotations

import numpy as np
import pytest
from gymnasium import spaces

from operant.algorithms.evolution import ARS, ES, ARSSettings, ESSettings, ars_step, centred_ranks
from operant.errors import UsageError
from operant.testing import AlgorithmContract
from operant.training import train

SPACES = spaces.Box(-1, 1, (2,), np.float32), spaces.Discrete(2)
ENVS = (
    "operant.envs.identity:DiscreteIdentity",
    "operant.envs.identity:MultiDiscreteIdentity",
    "CartPole-v1",
    "Pendulum-v1",
)


def test_a_step_of_ars_by_hand():
    """Three directions, the best two by their better side: 10 and 8. The third, with the largest difference, is out."""
    returns = np.array([[10.0, 6.0], [0.0, 8.0], [7.0, -20.0]])
    directions = np.array([[1.0, 0.0], [0.0, 2.0], [100.0, 100.0]])
    deviation = np.std([10.0, 6.0, 0.0, 8.0])
    step = ars_step(returns, directions, 2)
    np.testing.assert_allclose(step, np.array([4.0, -16.0]) / (2 * deviation))
    assert not ars_step(np.ones((3, 2)), directions, 3).any()


def test_learning_follows_the_directions_of_its_candidates():
    algorithm = ARS(*SPACES, ARSSettings(directions=2, noise=0.5, learning_rate=0.1, survival=1.0), seed=3)
    before = algorithm.policy.copy()
    candidates = algorithm.candidates(4, np.random.default_rng(0))
    np.testing.assert_array_equal(candidates, [[0, 1], [0, -1], [1, 1], [1, -1]])
    batch = {"candidate": candidates, "return": np.array([5.0, 3.0, 2.0, 9.0]), "length": np.array([1, 2, 1, 3])}
    algorithm.learn(batch)
    sides = np.array([[4.0, 1.0], [1.0, 6.0]])  # without what staying alive pays
    directions = np.stack([algorithm.direction(0), algorithm.direction(1)])
    wanted = (3.0 * directions[0] - 5.0 * directions[1]) / (2 * sides.std())
    np.testing.assert_allclose(algorithm.policy - before, 0.1 * wanted)
    assert algorithm.candidates(4, np.random.default_rng(0))[0, 0] == 2  # directions are never drawn twice


def test_a_candidate_is_the_policy_changed_by_its_direction_wherever_it_is_made():
    here, elsewhere = (ARS(*SPACES, ARSSettings(noise=0.5), seed=seed) for seed in (3, 4))
    here.policy += 0.3
    elsewhere.load_weights(here.weights())
    obs = np.array([[0.2, -0.4], [0.2, -0.4]], np.float32)
    candidates = np.array([[7, 1], [7, -1]])
    for one in (here, elsewhere):
        np.testing.assert_array_equal(one.direction(7), here.direction(7))
        action, _, _ = one.candidate_actor(candidates)(obs, None, None)
        for row, side in enumerate((1, -1)):
            matrix = (here.policy + side * 0.5 * here.direction(7)).reshape(2, 2)
            assert action[row] == (obs[row] @ matrix).argmax()


def test_ranks_are_centred_and_equals_share_theirs():
    np.testing.assert_allclose(centred_ranks(np.array([[3.0, -9.0], [100.0, 4.0]])), [[-1 / 6, -0.5], [0.5, 1 / 6]])
    np.testing.assert_allclose(centred_ranks(np.array([1.0, 1.0, 5.0])), [-0.25, -0.25, 0.5])
    assert not centred_ranks(np.full((4, 2), 7.0)).any()


def test_a_step_of_es_goes_where_ranks_say():
    algorithm = ES(*SPACES, ESSettings(directions=1, weight_decay=0.0, linear=True, learning_rate=0.1), seed=1)
    candidates = algorithm.candidates(2, np.random.default_rng(0))
    algorithm.learn({"candidate": candidates, "return": np.array([1.0, 1e6]), "length": np.array([1, 1])})
    # The first step of Adam is its rate in the sign of the gradient, which is against the direction here.
    np.testing.assert_allclose(algorithm.policy, -0.1 * np.sign(algorithm.direction(0)), rtol=1e-6)


def test_settings_that_make_no_sense_are_refused():
    with pytest.raises(UsageError, match="of 8 directions at most all can count"):
        ARSSettings(best=9)
    with pytest.raises(UsageError, match="rows of numbers"):
        ARS(spaces.Box(0, 255, (8, 8, 3), np.uint8), SPACES[1])


class TestARS(AlgorithmContract):
    name = "ars"
    settings = {"directions": 3, "best": 2}  # noqa: RUF012
    envs = ENVS
    rounds = 2


class TestES(AlgorithmContract):
    name = "es"
    settings = {"directions": 3}  # noqa: RUF012
    model = {"hidden": [8]}  # noqa: RUF012
    envs = ENVS
    rounds = 2


@pytest.mark.parametrize(
    ("algorithm", "env", "steps", "threshold"),
    [
        ({"name": "ars", "directions": 8, "learning_rate": 0.3, "noise": 0.3}, "DiscreteIdentity", 20_000, 18.0),
        ({"name": "ars", "directions": 8, "learning_rate": 0.1, "noise": 0.1}, "ContinuousIdentity", 30_000, -1.0),
        ({"name": "es", "directions": 16}, "DiscreteIdentity", 40_000, 18.0),
    ],
    ids=["ars", "ars-continuous", "es"],
)
def test_it_learns(tmp_path, algorithm, env, steps, threshold):
    root = tmp_path / ".operant"
    root.mkdir()
    config = {
        "total_steps": steps,
        "env": {"id": f"operant.envs.identity:{env}", "num_envs": 16},
        "algorithm": algorithm,
        "model": {"hidden": [16]},
        "evaluation": {"every": steps, "episodes": 16},
    }
    assert train(config, root=root).final_return >= threshold
