"""Environments in other processes, with observations and actions in shared memory.

One message each way and step, a few bytes: everything of size lies in memory that both sides see. Worth it only where
a step is expensive; ``docs/environments.md`` has the measurements.
"""

from __future__ import annotations

import itertools
import os
import pickle
import signal
import socket
import subprocess
import sys
import tempfile
from collections.abc import Callable
from multiprocessing.connection import Connection
from pathlib import Path
from time import perf_counter
from typing import Any

import numpy as np
from gymnasium import spaces

from operant.envs import _worker_process
from operant.envs._observations import copy_tree
from operant.envs._worker_process import SharedArrays
from operant.envs.vector import Array, EpisodeStatistics, Step, Tree, VectorEnv
from operant.errors import OperantError, UsageError

_ENOUGH = 200  # steps after which it is clear whether workers pay


class WorkerVectorEnv(VectorEnv):
    """``num_envs`` environments in ``workers`` processes. ``make(num_envs=n)`` is called in each of them.

    The environments' own info dicts stay in the workers; masks in them do not.
    """

    def __init__(self, make: Callable[..., VectorEnv], num_envs: int, *, workers: int, seed: int | None = None) -> None:
        if _worker_process.importing_main:
            raise UsageError(
                "this script makes environments with workers while a worker imports it; "
                "put what it does under `if __name__ == '__main__':`"
            )
        self.num_envs = num_envs
        self._seed = seed
        self._begun = False
        self._masked = False
        self._statistics = EpisodeStatistics(num_envs)
        self._steps, self._seconds = 0, 0.0
        bounds = np.linspace(0, num_envs, workers + 1).astype(int).tolist()
        self._parts = list(itertools.pairwise(bounds))
        self._pipes: list[Connection] = []
        self._ended: dict[int, int] = {}
        self._process: subprocess.Popen[bytes] | None = None
        folder = "/dev/shm" if Path("/dev/shm").is_dir() else None
        with tempfile.TemporaryFile(dir=folder) as memory:  # has no name, so nothing is left behind
            try:
                self._start(make, memory.fileno())
                about, *_ = [self._answer(i) for i in range(workers)]
                self.single_observation_space = about["observation_space"]
                self.single_action_space = about["action_space"]
                if isinstance(self.single_action_space, spaces.Dict | spaces.Tuple):
                    raise UsageError(
                        "workers take actions that are one array; flatten the action space or use workers=0"
                    )
                self.name, self.max_episode_steps = about["name"], about["max_episode_steps"]
                self.inexact_reason = about["inexact_reason"]
                self._shared = SharedArrays(memory.fileno(), about, num_envs)
                self._ask_all(("attach",))
            except BaseException:
                self.close()
                raise

    def _start(self, make: Callable[..., VectorEnv], memory: int) -> None:
        """Start the process that forks the workers."""
        try:
            payload = pickle.dumps(make)
        except (AttributeError, TypeError, pickle.PicklingError) as error:
            raise UsageError(
                f"the environment cannot be sent to another process ({error}); "
                "name it by id or as 'package.module:callable'"
            ) from error
        here, there = zip(*(socket.socketpair() for _ in range(len(self._parts) + 1)), strict=True)
        self._control, *self._pipes = (Connection(one.detach()) for one in here)
        descriptors = [one.fileno() for one in there]
        root = str(Path(__file__).parents[2])  # until it is told where modules are
        command = (
            f"import sys; sys.path.insert(0, {root!r}); from operant.envs._worker_process import run; "
            f"run({descriptors[0]}, {memory}, {descriptors[1:]})"
        )
        try:
            self._process = subprocess.Popen(
                [sys.executable, "-P", "-c", command],
                pass_fds=[memory, *descriptors],
                stdin=subprocess.DEVNULL,
                # Each worker is one thread's work: pools of threads in every one of them would fight for the cores.
                env={"OMP_NUM_THREADS": "1", "OPENBLAS_NUM_THREADS": "1", **os.environ},
                start_new_session=True,  # ctrl-C reaches the trainer alone, and all of it can be ended at once
            )
        finally:
            for one in there:
                one.close()
        self._control.send((_worker_process.preparation(payload), payload, self._parts, self.num_envs))
        try:
            problem = self._control.recv()
        except EOFError:
            problem = f"it ended with code {self._process.wait()}"
        if problem is not None:
            raise OperantError(f"the environment cannot be made in another process:\n{problem}")

    def reset(self, seed: int | None = None) -> Tree:
        if seed is None and not self._begun:
            seed = self._seed
        self._begun = True
        self._statistics.clear()
        self._masked = any(self._ask_all(("reset", seed)))
        return copy_tree(self._shared.obs)

    def step(self, actions: Any) -> Step:
        if not self._begun:
            raise UsageError(f"{self.name} was stepped before it was reset")
        actions = np.asarray(actions)
        if actions.shape != self._shared.actions.shape:
            raise UsageError(f"{self.name} takes actions of shape {self._shared.actions.shape}, not {actions.shape}")
        shared = self._shared
        shared.actions[:] = actions
        began = perf_counter()
        self._ask_all(("step",))
        self._seconds += perf_counter() - began
        self._steps += 1
        reward, terminated, truncated = shared.reward.copy(), shared.terminated.copy(), shared.truncated.copy()
        self._statistics.add(reward)
        where = np.flatnonzero(terminated | truncated)
        if not where.size:
            return Step(copy_tree(shared.obs), reward, terminated, truncated, None, {})
        info = {"episodes": self._statistics.end(where)}
        final_mask = shared.final_mask.copy() if self._masked else None
        return Step(copy_tree(shared.obs), reward, terminated, truncated, copy_tree(shared.final_obs), info, final_mask)

    @property
    def action_mask(self) -> Array | None:
        return self._shared.mask.copy() if self._masked else None

    @property
    def advice(self) -> str:
        if self._steps < _ENOUGH:
            return ""
        alone = float(self._shared.seconds[:, 0].sum())
        if alone >= self._seconds:
            return ""
        return (
            f"env.workers={len(self._parts)} makes the environments slower: {self._seconds / self._steps * 1e6:.0f} µs "
            f"for a step of all {self.num_envs}, of which {alone / self._steps * 1e6:.0f} µs are their own work; "
            "env.workers=0 steps them in this process"
        )

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
        self._masked = any([self._answer(i) for i in range(len(self._parts))])
        self._begun = True
        if self.exact:
            self._statistics.load_state(state["statistics"])
        else:
            self._statistics.clear()
        return copy_tree(self._shared.obs)

    def close(self) -> None:
        for pipe in self._pipes:
            pipe.close()  # the worker reads the end of the pipe and leaves
        self._pipes = []
        if self._process is not None:
            self._control.close()
            try:
                self._process.wait(timeout=5)
            except subprocess.TimeoutExpired:
                os.killpg(self._process.pid, signal.SIGKILL)
                self._process.wait()
            self._process = None

    def __del__(self) -> None:
        if getattr(self, "_process", None) is not None:
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
            how, value = self._pipes[worker].recv()
        except (EOFError, ConnectionResetError):
            raise self._died(worker) from None
        first, end = self._parts[worker]
        if how == "refused":
            raise UsageError(value)
        if how == "failed":
            raise OperantError(f"environments {first} to {end - 1} failed in their worker:\n{value}")
        return value

    def _died(self, worker: int) -> OperantError:
        first, end = self._parts[worker]
        try:
            while worker not in self._ended and self._control.poll(5):
                number, code = self._control.recv()
                self._ended[number] = code
        except (EOFError, ConnectionResetError):
            pass
        return OperantError(
            f"the worker with environments {first} to {end - 1} ended with code {self._ended.get(worker, 'unknown')}"
        )
