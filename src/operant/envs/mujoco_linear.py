"""Linear policies on MuJoCo tasks as a function of their weights: what a search on MuJoCo maximises.

The tasks have the reward rules of Gym's v2, for which the thresholds in the literature (Swimmer 325, Hopper 3120) were
set, on the bodies that Gymnasium ships. An action is W (s - mean) / std, without bias or squashing; a sample's value
is the mean return of a few episodes. There is no environment object between policy and physics: a step is one product,
one call of `mj_step` and the reward; where Numba is installed and many episodes are run, all of it is machine code.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from operant.envs._mujoco_episode import compiled_episode
from operant.envs._mujoco_library import stop_timers
from operant.errors import ConfigError, MissingExtraError, unknown

Array = np.ndarray
_STEPS = 1000
# Compiling takes two seconds, which so many steps gain.
_STEPS_BEFORE_COMPILING = 150_000


@dataclass(frozen=True)
class _Task:
    """A task of Gym's v2. Observations are positions from `skip` on, velocities, and `more` of the simulation."""

    model: str
    skip: int
    frame_skip: int
    control_cost: float
    alive: float = 0.0
    # Uniform noise of the first positions and velocities; `normal` draws the velocities from a normal distribution.
    noise: float = 0.005
    normal: bool = False
    clip_velocity: float = np.inf
    forward_weight: float = 1.0
    # Whether an episode goes on; None where it always does.
    goes_on: Callable[[Array, Array], bool] | None = None
    mean: tuple[float, ...] = ()
    std: tuple[float, ...] = ()


def _hopper_goes_on(qpos: Array, qvel: Array) -> bool:
    if not (qpos[1] > 0.7 and abs(qpos[2]) < 0.2):
        return False
    return bool(np.abs(qpos[2:]).max() < 100 and np.abs(qvel).max() < 100)


def _walker_goes_on(qpos: Array, qvel: Array) -> bool:
    return bool(0.8 < qpos[1] < 2.0 and -1.0 < qpos[2] < 1.0)


def _ant_goes_on(qpos: Array, qvel: Array) -> bool:
    return bool(0.2 <= qpos[2] <= 1.0)


def _humanoid_goes_on(qpos: Array, qvel: Array) -> bool:
    return bool(1.0 <= qpos[2] <= 2.0)


# Means and deviations of states are those of the policies trained for ARS (Mania et al. 2018), which the studies of
# these searches took over; without them the boxes [-1, 1] would mean something else.
_TASKS = {
    "swimmer": _Task("swimmer.xml", 2, 4, 1e-4, noise=0.1),
    "hopper": _Task(
        "hopper.xml",
        1,
        4,
        1e-3,
        alive=1.0,
        clip_velocity=10.0,
        goes_on=_hopper_goes_on,
        mean=(
            *(1.41599384, -0.05478602, -0.25522216, -0.25404721, 0.27525085, 2.60889529),
            *(-0.0085352, 0.0068375, -0.07123674, -0.05044839, -0.45569644),
        ),
        std=(
            *(0.19805723, 0.07824488, 0.17120271, 0.32000514, 0.62401884, 0.82814161),
            *(1.51915814, 1.17378372, 1.87761249, 3.63482761, 5.7164752),
        ),
    ),
    "halfcheetah": _Task(
        "half_cheetah.xml",
        1,
        5,
        0.1,
        noise=0.1,
        normal=True,
        mean=(
            *(-0.09292823, 0.07602245, 0.08993747, 0.02011249, 0.07981564, -0.08428448, -0.02150131, -0.03109106),
            *(4.82287926, -0.05346475, -0.0318163, -0.03715201, -0.18675299, 0.0663168, -0.09290028, 0.15043391),
            0.2042574,
        ),
        std=(
            *(0.06852463, 0.35843727, 0.37874848, 0.36028137, 0.40588222, 0.44399708, 0.3060632, 0.37465409),
            *(2.24987835, 0.75029144, 1.99427694, 8.82329989, 7.6671886, 9.35798155, 10.53909492, 8.26358612),
            9.38187307,
        ),
    ),
    "walker2d": _Task(
        "walker2d.xml",
        1,
        4,
        1e-3,
        alive=1.0,
        clip_velocity=10.0,
        goes_on=_walker_goes_on,
        mean=(
            *(0.84884986, -0.66115477, -1.23969706, -0.89500784, -0.24708567, -0.02643668, -2.01521989, 0.17722095),
            *(7.1248795, -0.08177482, -0.09730907, -0.25656911, 0.00763077, 0.68110541, -0.023071, -0.19642743),
            -1.15044568,
        ),
        std=(
            *(0.05610222, 0.11317037, 0.31219766, 0.31169453, 0.64681885, 0.05473553, 0.2433435, 0.91551278),
            *(3.21468087, 0.52963624, 2.2232945, 2.99269189, 4.95843329, 8.56053511, 3.03967491, 4.23574703),
            8.98003033,
        ),
    ),
    "ant": _Task("ant.xml", 2, 5, 0.5, alive=1.0, noise=0.1, normal=True, goes_on=_ant_goes_on),
    "humanoid": _Task("humanoid.xml", 2, 5, 0.1, alive=5.0, noise=0.01, forward_weight=1.25, goes_on=_humanoid_goes_on),
}

MUJOCO_TASKS = tuple(_TASKS)


class MujocoFunction:
    """The mean return of a linear policy, higher is better; the weights are one row after the other.

    Args:
        name: one of `MUJOCO_TASKS`.
        rollouts: episodes for a sample. More make a sample less noisy and as much dearer.
    """

    low, high = -1.0, 1.0

    def __init__(self, name: str, rollouts: int = 3) -> None:
        if name not in _TASKS:
            raise ConfigError(unknown("MuJoCo task", name, _TASKS), ("func_type",))
        try:
            import gymnasium
            import mujoco
        except ImportError:
            raise MissingExtraError("the MuJoCo tasks", "mujoco") from None
        self.name = name
        self.rollouts = rollouts
        self._task = _TASKS[name]
        self._mujoco = mujoco
        stop_timers()
        folder = Path(gymnasium.__file__).parent / "envs" / "mujoco" / "assets"
        self._model: Any = mujoco.MjModel.from_xml_path(str(folder / self._task.model))
        if not _may_touch(self._model):
            # Then looking for contacts, which is a tenth of the time, changes nothing.
            self._model.opt.disableflags |= mujoco.mjtDisableBit.mjDSBL_CONTACT
        if self._model.ntree == 1:
            # One body has one island of constraints: looking for more takes up to a tenth and changes nothing.
            self._model.opt.disableflags |= mujoco.mjtDisableBit.mjDSBL_ISLAND
        self._data: Any = mujoco.MjData(self._model)
        self._observe = _OBSERVERS.get(name, _plain_observation)
        size = len(self._observe(self._task, self._data))
        self.shape = (int(self._model.nu), size)
        self.dims = self.shape[0] * size
        self._mean = np.array(self._task.mean or np.zeros(size))
        self._std = np.array(self._task.std or np.ones(size))
        self._position = _POSITIONS.get(name, _root_position)
        self._weight = self._task.forward_weight / (self._model.opt.timestep * self._task.frame_skip)
        self._steps = 0
        self._compiled: Callable[[Array, Array], float] | None = None

    def __call__(self, weights: Sequence[float] | Array, seed: int | Sequence[int]) -> float:
        """The mean over `rollouts` episodes, whose first states come from `seed`."""
        return float(np.mean(self.returns(weights, seed, self.rollouts)))

    def returns(self, weights: Sequence[float] | Array, seed: int | Sequence[int], rollouts: int) -> list[float]:
        """The return of each of so many episodes."""
        policy = np.asarray(weights, dtype=float).reshape(self.shape) / self._std
        offset = -policy @ self._mean
        rng = np.random.default_rng(seed)
        if self._steps >= _STEPS_BEFORE_COMPILING:
            self.compile()
        return [self._episode(policy, offset, rng) for _ in range(rollouts)]

    def compile(self) -> bool:
        """Have episodes run as machine code from now on, as they are after many steps anyway; whether they can be."""
        self._steps = -sys.maxsize  # once
        if self.name not in _OBSERVERS and self._compiled is None:
            self._compiled = compiled_episode(self._mujoco, self._model, self._data, self._task, _STEPS, self._weight)
        return self._compiled is not None

    def _reset(self, rng: np.random.Generator) -> None:
        task, data = self._task, self._data
        self._mujoco.mj_resetData(self._model, data)
        data.qpos += rng.uniform(-task.noise, task.noise, len(data.qpos))
        if task.normal:
            data.qvel += task.noise * rng.standard_normal(len(data.qvel))
        else:
            data.qvel += rng.uniform(-task.noise, task.noise, len(data.qvel))
        self._mujoco.mj_forward(self._model, data)

    def _episode(self, policy: Array, offset: Array, rng: np.random.Generator) -> float:
        self._reset(rng)
        return self._python_episode(policy, offset) if self._compiled is None else self._compiled(policy, offset)

    def _python_episode(self, policy: Array, offset: Array) -> float:
        task, model, data, step = self._task, self._model, self._data, self._mujoco.mj_step
        qpos, qvel, control = data.qpos, data.qvel, data.ctrl
        observe, position, extra = self._observe, self._position, _COSTS.get(self.name)
        columns = np.ascontiguousarray(policy.T)
        total, before = 0.0, position(model, data)
        for _ in range(_STEPS):
            self._steps += 1
            # Sums in the order of the columns, not of the BLAS at hand: everywhere the same bits.
            action = np.add.reduce(columns * observe(task, data)[:, None])
            action += offset
            control[:] = action
            step(model, data, task.frame_skip)
            if extra is not None:
                total -= extra(self._mujoco, model, data)
            after = position(model, data)
            effort = float(np.add.reduce(action * action))
            total += (after - before) * self._weight - task.control_cost * effort + task.alive
            before = after
            if task.goes_on is not None and not task.goes_on(qpos, qvel):
                break
        return float(total)


def _may_touch(model: Any) -> bool:
    types, affinities = model.geom_contype, model.geom_conaffinity
    return bool(model.npair or (types[:, None] & affinities).any())


def _plain_observation(task: _Task, data: Any) -> Array:
    seen: Array = np.concatenate((data.qpos[task.skip :], data.qvel))
    if task.clip_velocity < np.inf:
        velocity = seen[-len(data.qvel) :]
        np.minimum(velocity, task.clip_velocity, out=velocity)
        np.maximum(velocity, -task.clip_velocity, out=velocity)
    return seen


def _ant_observation(task: _Task, data: Any) -> Array:
    return np.concatenate((data.qpos[task.skip :], data.qvel, np.clip(data.cfrc_ext, -1, 1).ravel()))


def _humanoid_observation(task: _Task, data: Any) -> Array:
    inside = (data.cinert.ravel(), data.cvel.ravel(), data.qfrc_actuator, data.cfrc_ext.ravel())
    return np.concatenate((data.qpos[task.skip :], data.qvel, *inside))


def _root_position(model: Any, data: Any) -> float:
    return float(data.qpos[0])


def _centre_of_mass(model: Any, data: Any) -> float:
    return float(model.body_mass @ data.xipos[:, 0] / model.body_mass.sum())


def _ant_costs(mujoco: Any, model: Any, data: Any) -> float:
    mujoco.mj_rnePostConstraint(model, data)
    return 0.5e-3 * float(np.square(np.clip(data.cfrc_ext, -1, 1)).sum())


def _humanoid_costs(mujoco: Any, model: Any, data: Any) -> float:
    mujoco.mj_rnePostConstraint(model, data)
    return min(0.5e-6 * float(np.square(data.cfrc_ext).sum()), 10.0)


_OBSERVERS = {"ant": _ant_observation, "humanoid": _humanoid_observation}
_POSITIONS = {"humanoid": _centre_of_mass}
_COSTS = {"ant": _ant_costs, "humanoid": _humanoid_costs}
