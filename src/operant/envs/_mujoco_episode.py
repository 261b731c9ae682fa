"""Whole episodes of a linear policy as machine code: no step of Python between policy and physics.

Numba compiles the loop, which calls MuJoCo's own `mj_step`. It does the same operations in the same order as the one in
Python, so both give the same bits.
"""

from __future__ import annotations

import ctypes
from collections.abc import Callable
from typing import Any

import numpy as np

from operant.envs._mujoco_library import library

Array = np.ndarray


def compiled_episode(
    mujoco: Any, model: Any, data: Any, task: Any, steps: int, weight: float
) -> Callable[[Array, Array], float] | None:
    """The return of an episode from the state that `data` has, by policy and offset; None without Numba or the library.

    `task` has `skip`, `clip_velocity`, `frame_skip`, `control_cost`, `alive` and `goes_on`.
    """
    step = _library_step(mujoco)
    try:
        import numba
    except ImportError:
        return None
    if step is None:
        return None
    model_address, data_address = model._address, data._address
    skip, frame_skip = task.skip, task.frame_skip
    clip, cost, alive = task.clip_velocity, task.control_cost, task.alive
    compile_it: Any = numba.njit  # a decorator whose types mypy knows only where numba is installed
    goes_on = compile_it(task.goes_on or _always)

    def loop(policy: Array, offset: Array, qpos: Array, qvel: Array, control: Array) -> float:
        actions, size = policy.shape
        positions = len(qpos) - skip
        seen, action = np.empty(size), np.empty(actions)
        total, before = 0.0, qpos[0]
        for _ in range(steps):
            for j in range(positions):
                seen[j] = qpos[skip + j]
            for j in range(len(qvel)):
                seen[positions + j] = max(min(qvel[j], clip), -clip)
            effort = 0.0
            for i in range(actions):
                value = policy[i, 0] * seen[0]
                for j in range(1, size):
                    value += policy[i, j] * seen[j]
                action[i] = value + offset[i]
                control[i] = action[i]
                effort += action[i] * action[i]
            for _again in range(frame_skip):
                step(model_address, data_address)
            after = qpos[0]
            total += (after - before) * weight - cost * effort + alive
            before = after
            if not goes_on(qpos, qvel):
                break
        return total

    episode = compile_it(loop)

    def run(policy: Array, offset: Array) -> float:
        return float(episode(policy, offset, data.qpos, data.qvel, data.ctrl))

    return run


def _always(qpos: Array, qvel: Array) -> bool:
    return True


def _library_step(mujoco: Any) -> Any:
    """`mj_step` of the library that the module has loaded; None where it is not found."""
    step: Any = getattr(library(mujoco), "mj_step", None)
    if step is not None:
        step.argtypes, step.restype = (ctypes.c_void_p, ctypes.c_void_p), None
    return step
