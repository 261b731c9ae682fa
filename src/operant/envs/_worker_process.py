"""The processes that environments are stepped in, and the memory they share with the trainer.

One process imports what the environments need and forks the workers: a script that takes seconds to import (torch does)
is imported once and not once for each worker, and not at all where no environment comes from it.
"""

from __future__ import annotations

import mmap
import os
import pickle
import signal
import sys
import traceback
from collections.abc import Callable
from multiprocessing import spawn
from multiprocessing.connection import Connection
from pathlib import Path
from time import perf_counter
from typing import Any

import numpy as np

from operant.envs._masks import mask_size
from operant.envs._observations import empty
from operant.envs.parallel import ParallelVectorEnv
from operant.envs.vector import Array, Tree, VectorEnv
from operant.errors import OperantError, UsageError

importing_main = False
"""Whether this process is importing the trainer's script; starting workers then would never end."""


def preparation(payload: bytes) -> dict[str, Any]:
    """What a worker must know before it can unpickle ``payload``: where modules are, and the script if it is in it."""
    about: dict[str, Any] = {"sys_path": list(sys.path), "sys_argv": list(sys.argv), "dir": str(Path.cwd())}
    if b"__main__" in payload:
        main = sys.modules["__main__"]
        spec, file = getattr(main, "__spec__", None), getattr(main, "__file__", None)
        if spec is not None:
            about["init_main_from_name"] = spec.name
        elif file is not None:
            about["init_main_from_path"] = str(Path(file).absolute())
    return about


def run(control: int, memory: int, pipes: list[int]) -> None:
    """The process that forks the workers, and then tells the trainer how each of them ended."""
    global importing_main
    _leave_signals_to_the_trainer()
    link = Connection(control)
    about, payload, parts, num_envs = link.recv()
    try:
        importing_main = True
        spawn.prepare(about)
        make = pickle.loads(payload)
    except BaseException:
        link.send(traceback.format_exc())
        return
    finally:
        importing_main = False
    link.send(None)
    workers: dict[int, int] = {}
    for number, (first, end) in enumerate(parts):
        pid = os.fork()
        if pid:
            workers[pid] = number
            continue
        link.close()
        for other in pipes:
            if other != pipes[number]:
                os.close(other)
        code = 1
        try:
            _work(Connection(pipes[number]), make, memory, first, end, num_envs)
            code = 0
        finally:
            os._exit(code)
    for pipe in pipes:
        os.close(pipe)
    while workers:
        pid, status = os.wait()
        if pid in workers:
            try:
                link.send((workers.pop(pid), os.waitstatus_to_exitcode(status)))
            except OSError:
                workers.pop(pid, None)  # the trainer is gone; its workers are on their way


def _leave_signals_to_the_trainer() -> None:
    # Whatever ends a whole job ends the trainer, which may first want the state of the environments; its end closes the
    # pipes. No-ops, not SIG_IGN: that would be inherited by programs that an environment starts.
    for number in (signal.SIGINT, signal.SIGTERM, signal.SIGUSR1):
        signal.signal(number, lambda *_: None)


class SharedArrays:
    """The same arrays on both sides, over one piece of memory."""

    def __init__(self, file: int, about: dict[str, Any], num_envs: int) -> None:
        self._used = 0
        self._memory: mmap.mmap | None = None
        for size in (0, None):  # once to know the size, once to lie there
            if size is None:
                length = max(self._used, mmap.PAGESIZE)
                if os.fstat(file).st_size < length:
                    os.ftruncate(file, length)
                self._memory, self._used = mmap.mmap(file, length), 0
            template = empty(about["observation_space"], num_envs)
            options = mask_size(about["action_space"])
            self.obs = self._place(template)
            self.final_obs = self._place(template)
            self.actions = self._place(empty(about["action_space"], num_envs))
            self.reward = self._place(np.zeros(num_envs))
            self.terminated = self._place(np.zeros(num_envs, np.bool_))
            self.truncated = self._place(np.zeros(num_envs, np.bool_))
            self.mask = self._place(np.zeros((num_envs, options), np.bool_))
            self.final_mask = self._place(np.zeros((num_envs, options), np.bool_))
            self.seconds = self._place(np.zeros((num_envs, 8)))  # a cache line for each worker's first environment

    def _place(self, tree: Tree) -> Tree:
        if isinstance(tree, dict):
            return {name: self._place(part) for name, part in tree.items()}
        if isinstance(tree, tuple):
            return tuple(self._place(part) for part in tree)
        start = self._used
        self._used += -(-tree.nbytes // 64) * 64  # whole cache lines: neighbours do not wait for each other
        if self._memory is None or not tree.nbytes:
            return tree
        array: Array = np.ndarray(tree.shape, tree.dtype, self._memory, start)
        return array


def _fill(tree: Tree, part: slice, values: Tree) -> None:
    if isinstance(tree, dict):
        for name, leaf in tree.items():
            _fill(leaf, part, values[name])
    elif isinstance(tree, tuple):
        for leaf, value in zip(tree, values, strict=True):
            _fill(leaf, part, value)
    else:
        tree[part] = values


class _Worker:
    """One worker's environments, and what may be asked of them."""

    def __init__(self, env: VectorEnv, memory: int, first: int, num_envs: int) -> None:
        if isinstance(env, ParallelVectorEnv):
            raise UsageError(f"{env.name} has several agents, which are stepped in one process: env.workers is 0")
        self.env, self.first = env, first
        self.part = slice(first, first + env.num_envs)
        self.about = {
            "observation_space": env.single_observation_space,
            "action_space": env.single_action_space,
            "name": env.name,
            "max_episode_steps": env.max_episode_steps,
            "inexact_reason": env.inexact_reason,
        }
        self._memory, self._num_envs = memory, num_envs
        self._masked = False

    def attach(self) -> None:
        self.shared = SharedArrays(self._memory, self.about, self._num_envs)

    def step(self) -> None:
        began = perf_counter()
        shared, part = self.shared, self.part
        step = self.env.step(shared.actions[part])
        _fill(shared.obs, part, step.obs)
        _fill(shared.final_obs, part, step.next_obs)
        shared.reward[part] = step.reward
        shared.terminated[part], shared.truncated[part] = step.terminated, step.truncated
        if self._masked:
            mask = self.env.action_mask
            shared.mask[part] = mask
            shared.final_mask[part] = mask if step.final_mask is None else step.final_mask
        shared.seconds[self.first, 0] += perf_counter() - began

    def reset(self, seed: int | None) -> bool:
        return self._begun(self.env.reset(None if seed is None else seed + self.first))

    def load(self, state: dict[str, Any]) -> bool:
        return self._begun(self.env.load_state(state))

    def _begun(self, obs: Tree) -> bool:
        """Show the first observations; tells whether actions are masked."""
        _fill(self.shared.obs, self.part, obs)
        mask = self.env.action_mask
        self._masked = mask is not None
        if self._masked:
            self.shared.mask[self.part] = mask
        return self._masked

    def save(self) -> dict[str, Any]:
        return self.env.save_state()

    def render(self, index: int) -> Array:
        return self.env.render_frame(index)


def _work(pipe: Connection, make: Callable[..., VectorEnv], memory: int, first: int, end: int, num_envs: int) -> None:
    """Do what is asked until the pipe is closed. An error is told, and the worker stays."""
    try:
        worker = _Worker(make(num_envs=end - first), memory, first, num_envs)
        answer: tuple[str, Any] = ("done", worker.about)
    except Exception as error:
        pipe.send(_problem(error))
        return
    while True:
        try:
            pipe.send(answer)
            request, *arguments = pipe.recv()
        except (EOFError, BrokenPipeError, ConnectionResetError):
            break
        try:
            answer = ("done", getattr(worker, request)(*arguments))
        except Exception as error:
            answer = _problem(error)
    worker.env.close()


def _problem(error: Exception) -> tuple[str, str]:
    if isinstance(error, OperantError):
        return "refused", str(error)
    return "failed", traceback.format_exc()
