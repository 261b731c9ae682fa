"""Environments in other processes, with observations and actions in shared memory.

One message each way and step, a few bytes: everything of size lies in memory that both sides see. Worth it only where
a step is expensive; ``docs/environments.md`` has the measurements.
"""

from __future__ import annotations

import itertools
import multiprocessing
import signal
import traceback
from collections.abc import Callable
from multiprocessing.connection import Connection
from multiprocessing.shared_memory import SharedMemory
from typing import Any

import numpy as np
from gymnasium import spaces

from operant.envs._observations import copy_tree, empty
from operant.envs.vector import Array, EpisodeStatistics, Step, Tree, VectorEnv
from operant.errors import OperantError, UsageError

__all__ = ["WorkerVectorEnv"]


class WorkerVectorEnv(VectorEnv):
    """``num_envs`` environments in ``workers`` processes. ``make(num_envs=n)`` is called in each of them.

    The environments' own info dicts stay in the workers; masks belong into the observations.
    """

    def __init__(self, make: Callable[..., VectorEnv], num_envs: int, *, workers: int, seed: int | None = None) -> None:
        self.num_envs = num_envs
        self._seed = seed
        self._begun = False
        self._statistics = EpisodeStatistics(num_envs)
        bounds = np.linspace(0, num_envs, workers + 1).astype(int).tolist()
        self._parts = list(itertools.pairwise(bounds))
        # A clean server process forks the workers: they inherit no threads, locks or memory of the trainer.
        context = multiprocessing.get_context("forkserver")
        self._processes: list[Any] = []
        self._pipes: list[Connection] = []
        self._memory: SharedMemory | None = None
        try:
            for first, end in self._parts:
                here, there = context.Pipe()
                process = context.Process(target=_work, args=(there, make, first, end, num_envs), daemon=True)
                try:
                    process.start()
                except (AttributeError, TypeError) as error:  # how pickle says that it cannot
                    raise UsageError(
                        f"the environment cannot be sent to another process ({error}); "
                        "name it by id or as 'package.module:callable'"
                    ) from error
                finally:
                    there.close()
                self._processes.append(process)
                self._pipes.append(here)
            described = [self._answer(i) for i in range(workers)]
            about = described[0]
            self.single_observation_space = about["observation_space"]
            self.single_action_space = about["action_space"]
            if isinstance(self.single_action_space, spaces.Dict | spaces.Tuple):
                raise UsageError("workers take actions that are one array; flatten the action space or use workers=0")
            self.name, self.max_episode_steps = about["name"], about["max_episode_steps"]
            self.inexact_reason = about["inexact_reason"]
            self._memory = SharedMemory(create=True, size=_size(about, num_envs))
            self._shared = _Shared(self._memory, about, num_envs)
            self._ask_all(("attach", self._memory.name, about))
        except BaseException:
            self.close()
            raise

    def reset(self, seed: int | None = None) -> Tree:
        if seed is None and not self._begun:
            seed = self._seed
        self._begun = True
        self._statistics.clear()
        self._ask_all(("reset", seed))
        return copy_tree(self._shared.obs)

    def step(self, actions: Any) -> Step:
        if not self._begun:
            raise UsageError(f"{self.name} was stepped before it was reset")
        actions = np.asarray(actions)
        if actions.shape != self._shared.actions.shape:
            raise UsageError(f"{self.name} takes actions of shape {self._shared.actions.shape}, not {actions.shape}")
        self._shared.actions[:] = actions
        self._ask_all(("step",))
        shared = self._shared
        reward, terminated, truncated = shared.reward.copy(), shared.terminated.copy(), shared.truncated.copy()
        self._statistics.add(reward)
        where = np.flatnonzero(terminated | truncated)
        if not where.size:
            return Step(copy_tree(shared.obs), reward, terminated, truncated, None, {})
        info = {"episodes": self._statistics.end(where)}
        return Step(copy_tree(shared.obs), reward, terminated, truncated, copy_tree(shared.final_obs), info)

    @property
    def action_mask(self) -> Array | None:
        obs = self._shared.obs
        if isinstance(obs, dict) and "action_mask" in obs:
            return np.asarray(obs["action_mask"], dtype=np.bool_)
        return None

    def render_frame(self, index: int = 0) -> Array:
        for worker, (first, end) in enumerate(self._parts):
            if first <= index < end:
                self._send(worker, ("render", index - first))
                return np.asarray(self._answer(worker))
        raise UsageError(f"there is no environment {index}; they are numbered from 0 to {self.num_envs - 1}")

    def save_state(self) -> dict[str, Any]:
        saved = self._ask_all(("save",))
        workers = {str(i): state for i, state in enumerate(saved)}
        return {"kind": "workers", "workers": workers, "statistics": self._statistics.save_state()}

    def load_state(self, state: dict[str, Any]) -> Tree:
        saved = state.get("workers", {})
        if state.get("kind") != "workers" or len(saved) != len(self._parts):
            raise UsageError(
                f"the saved state is of kind {state.get('kind')!r} with {len(saved)} workers; "
                f"this is 'workers' with {len(self._parts)}"
            )
        for i in range(len(self._parts)):
            self._send(i, ("load", saved[str(i)]))
        for i in range(len(self._parts)):
            self._answer(i)
        self._begun = True
        if self.exact:
            self._statistics.load_state(state["statistics"])
        else:
            self._statistics.clear()
        return copy_tree(self._shared.obs)

    def close(self) -> None:
        for pipe in self._pipes:
            pipe.close()  # the worker reads the end of the pipe and leaves
        for process in self._processes:
            process.join(timeout=5)
            if process.is_alive():
                process.kill()
                process.join()
        self._pipes, self._processes = [], []
        if self._memory is not None:
            del self._shared
            self._memory.close()
            self._memory.unlink()
            self._memory = None

    def __del__(self) -> None:
        if getattr(self, "_processes", None):
            self.close()

    def _ask_all(self, request: tuple[Any, ...]) -> list[Any]:
        for i in range(len(self._pipes)):
            self._send(i, request)
        return [self._answer(i) for i in range(len(self._pipes))]

    def _send(self, worker: int, request: tuple[Any, ...]) -> None:
        try:
            self._pipes[worker].send(request)
        except (BrokenPipeError, ConnectionResetError):
            raise self._died(worker) from None

    def _answer(self, worker: int) -> Any:
        try:
            good, value = self._pipes[worker].recv()
        except (EOFError, ConnectionResetError):
            raise self._died(worker) from None
        if not good:
            first, end = self._parts[worker]
            raise OperantError(f"environments {first} to {end - 1} failed in their worker:\n{value}")
        return value

    def _died(self, worker: int) -> OperantError:
        process, (first, end) = self._processes[worker], self._parts[worker]
        process.join(timeout=5)
        return OperantError(f"the worker with environments {first} to {end - 1} ended with code {process.exitcode}")


class _Shared:
    """The same arrays on both sides, over one piece of shared memory."""

    def __init__(self, memory: SharedMemory, about: dict[str, Any], num_envs: int) -> None:
        self._memory, self._used = memory, 0
        template, actions = empty(about["observation_space"], num_envs), empty(about["action_space"], num_envs)
        self.obs = self._place(template)
        self.final_obs = self._place(template)
        self.actions = self._place(actions)
        self.reward = self._place(np.zeros(num_envs))
        self.terminated = self._place(np.zeros(num_envs, np.bool_))
        self.truncated = self._place(np.zeros(num_envs, np.bool_))

    def _place(self, tree: Tree) -> Tree:
        if isinstance(tree, dict):
            return {name: self._place(part) for name, part in tree.items()}
        if isinstance(tree, tuple):
            return tuple(self._place(part) for part in tree)
        array: Array = np.ndarray(tree.shape, tree.dtype, self._memory.buf, self._used)
        self._used += _aligned(tree.nbytes)
        return array


def _aligned(size: int) -> int:
    return -(-size // 64) * 64  # whole cache lines: processes that write neighbours do not wait for each other


def _size(about: dict[str, Any], num_envs: int) -> int:
    def total(tree: Tree) -> int:
        if isinstance(tree, dict):
            return sum(total(part) for part in tree.values())
        if isinstance(tree, tuple):
            return sum(total(part) for part in tree)
        return _aligned(tree.nbytes)

    observation, action = empty(about["observation_space"], num_envs), empty(about["action_space"], num_envs)
    return 2 * total(observation) + total(action) + 3 * _aligned(8 * num_envs)


def _fill(tree: Tree, part: slice, values: Tree) -> None:
    if isinstance(tree, dict):
        for name, leaf in tree.items():
            _fill(leaf, part, values[name])
    elif isinstance(tree, tuple):
        for leaf, value in zip(tree, values, strict=True):
            _fill(leaf, part, value)
    else:
        tree[part] = values


def _work(pipe: Connection, make: Callable[..., VectorEnv], first: int, end: int, num_envs: int) -> None:
    """The worker: do what is asked until the pipe is closed. An error is told, and the worker stays."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C reaches the trainer, whose end closes the pipe
    part = slice(first, end)
    shared: _Shared | None = None
    memory: SharedMemory | None = None
    try:
        env = make(num_envs=end - first)
        answer: Any = {
            "observation_space": env.single_observation_space,
            "action_space": env.single_action_space,
            "name": env.name,
            "max_episode_steps": env.max_episode_steps,
            "inexact_reason": env.inexact_reason,
        }
    except Exception:
        pipe.send((False, traceback.format_exc()))
        return
    good = True
    while True:
        try:
            pipe.send((good, answer))
            request, *arguments = pipe.recv()
        except (EOFError, BrokenPipeError, ConnectionResetError):
            break
        good, answer = True, None
        try:
            if request == "step":
                assert shared is not None
                step = env.step(shared.actions[part])
                _fill(shared.obs, part, step.obs)
                _fill(shared.final_obs, part, step.next_obs)
                shared.reward[part] = step.reward
                shared.terminated[part], shared.truncated[part] = step.terminated, step.truncated
            elif request == "reset":
                assert shared is not None
                _fill(shared.obs, part, env.reset(None if arguments[0] is None else arguments[0] + first))
            elif request == "load":
                assert shared is not None
                _fill(shared.obs, part, env.load_state(arguments[0]))
            elif request == "save":
                answer = env.save_state()
            elif request == "render":
                answer = env.render_frame(arguments[0])
            else:
                memory = SharedMemory(name=arguments[0])
                shared = _Shared(memory, arguments[1], num_envs)
        except Exception:
            good, answer = False, traceback.format_exc()
    env.close()
    shared = None
    if memory is not None:
        memory.close()
