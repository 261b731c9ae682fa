from __future__ import annotations

import numpy as np
import pytest

from operant.envs.making import make_env
from operant.envs.mujoco_linear import MUJOCO_TASKS, MujocoFunction
from operant.errors import ConfigError

pytest.importorskip("mujoco")
DIMS = {"swimmer": 16, "hopper": 33, "halfcheetah": 102, "walker2d": 102, "ant": 888, "humanoid": 6392}


@pytest.mark.parametrize("name", MUJOCO_TASKS)
def test_each_task_has_as_many_weights_as_in_the_literature(name):
    assert MujocoFunction(name).dims == DIMS[name]


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize(("name", "env"), [("hopper", "Hopper-v5"), ("walker2d", "Walker2d-v5")])
def test_an_episode_is_worth_what_gymnasium_says(name, env):
    """Versions 2 and 5 differ only in the bonus of the last step."""
    gymnasium = pytest.importorskip("gymnasium")
    function, made = MujocoFunction(name), gymnasium.make(env)
    weights = np.random.default_rng(1).uniform(-0.3, 0.3, function.shape)
    observation, _ = made.reset(seed=0)
    data = made.unwrapped.data
    first = data.qpos.copy(), data.qvel.copy()
    total, over = 0.0, False
    while not over:
        action = weights @ ((observation - function._mean) / function._std)
        observation, reward, terminated, truncated, _ = made.step(action)
        total, over = total + reward, terminated or truncated

    def reset(rng):
        function._mujoco.mj_resetData(function._model, function._data)
        function._data.qpos[:], function._data.qvel[:] = first
        function._mujoco.mj_forward(function._model, function._data)

    function._reset = reset
    # Gymnasium counts the cost of the action as clipped, version 2 as it was given.
    assert function.returns(weights, 0, 1)[0] == pytest.approx(total, abs=1.5)


def test_returns_depend_on_the_seed_alone():
    function = MujocoFunction("hopper")
    weights = np.random.default_rng(2).uniform(-1, 1, function.dims)
    assert function(weights, [1, 2]) == function(weights, [1, 2]) != function(weights, [1, 3])


def test_more_rollouts_are_other_episodes():
    returns = MujocoFunction("hopper").returns(np.zeros(33), 0, 4)
    assert len(set(returns)) == 4


def test_an_unknown_task_is_named():
    with pytest.raises(ConfigError, match="did you mean 'hopper'"):
        MujocoFunction("hoper")


@pytest.mark.parametrize("name", ["hopper", pytest.param("swimmer", marks=pytest.mark.long)])
def test_compiled_episodes_give_the_bits_of_the_loop_in_python(name):
    pytest.importorskip("numba")
    function = MujocoFunction(name)
    points = [np.zeros(function.dims), np.random.default_rng(3).uniform(-0.2, 0.2, function.dims)]
    looped = [function.returns(point, 5, 2) for point in points]
    assert function.compile()
    assert [function.returns(point, 5, 2) for point in points] == looped


def test_contacts_are_left_out_only_where_nothing_can_touch():
    contact = pytest.importorskip("mujoco").mjtDisableBit.mjDSBL_CONTACT
    left_out = {name: bool(MujocoFunction(name)._model.opt.disableflags & contact) for name in ("swimmer", "hopper")}
    assert left_out == {"swimmer": True, "hopper": False}


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("name", ["hopper", "walker2d", "ant"])
def test_leaving_out_islands_changes_no_bit(name):
    island = int(pytest.importorskip("mujoco").mjtDisableBit.mjDSBL_ISLAND)
    function = MujocoFunction(name)
    weights = np.random.default_rng(3).uniform(-0.2, 0.2, function.dims)
    without = function.returns(weights, 5, 2)
    assert function._model.opt.disableflags & island
    function._model.opt.disableflags &= ~island
    assert function.returns(weights, 5, 2) == without


def test_mujoco_times_itself_only_by_a_clock_of_the_users():
    mujoco = pytest.importorskip("mujoco")
    timer = int(mujoco.mjtTimer.mjTIMER_STEP)
    try:
        mujoco.set_mjcb_time(None)  # MuJoCo's own
        timed = MujocoFunction("swimmer", 1)
        mujoco.set_mjcb_time(None)
        returned = timed.returns(np.full(timed.dims, 0.1), 5, 1)
        assert timed._data.timer[timer].duration > 0
        env = make_env("Hopper-v5", 1)
        assert timed.returns(np.full(timed.dims, 0.1), 5, 1) == returned
        assert timed._data.timer[timer].duration == 0
        ticks = iter(range(10**9))
        mujoco.set_mjcb_time(lambda: next(ticks))
        make_env("Hopper-v5", 1).close()
        env.reset()
        timed.returns(np.full(timed.dims, 0.1), 5, 1)
        assert timed._data.timer[timer].duration > 0
        env.close()
    finally:
        mujoco.set_mjcb_time(None)
