"""Tasks that any right algorithm solves in seconds: each isolates one thing that an implementation can get wrong."""

from __future__ import annotations

from typing import Any, ClassVar

import numpy as np
from gymnasium import spaces

from operant.envs.numpy_vector import NumpyVectorEnv
from operant.envs.vector import Array, Tree
from operant.errors import UsageError


class _Identity(NumpyVectorEnv):
    """A new random ``target`` [N, ...] in every step; the reward tells how well the action named the last one."""

    state_names: ClassVar[tuple[str, ...]] = ("target",)
    target: Array

    def __init__(self, num_envs: int = 1, *, max_episode_steps: int | None = 20, seed: int | None = None) -> None:
        super().__init__(num_envs, max_episode_steps=max_episode_steps, seed=seed)

    def begin(self, where: Array, drawn: Array) -> None:
        self.target[where] = drawn

    def reward_of(self, actions: Array) -> Array:
        """Reward [N] of actions for the present target."""
        return np.asarray(actions == self.target, dtype=np.float64)

    def advance(self, actions: Array) -> tuple[Array, Array]:
        reward = self.reward_of(actions)
        self.target = self.take_drawn(np.arange(self.num_envs))
        return reward, np.zeros(self.num_envs, np.bool_)


class DiscreteIdentity(_Identity):
    """Observe one of ``choices`` as a one-hot vector, answer with its number: reward 1 if right. Best return: 20."""

    def __init__(self, num_envs: int = 1, *, choices: int = 3, **kwargs: Any) -> None:
        super().__init__(num_envs, **kwargs)
        self.choices = choices
        self.single_observation_space = spaces.Box(0.0, 1.0, (choices,), np.float32)
        self.single_action_space: Any = spaces.Discrete(choices)
        self.target = np.zeros(num_envs, np.int64)

    def draw(self, generator: np.random.Generator, count: int) -> Array:
        return generator.integers(self.choices, size=count)

    def observe(self) -> Tree:
        return np.eye(self.choices, dtype=np.float32)[self.target]


class MultiDiscreteIdentity(_Identity):
    """Several one-hot vectors side by side, one answer for each; reward is the share of right ones. Best return: 20."""

    def __init__(self, num_envs: int = 1, *, choices: tuple[int, ...] = (3, 2), **kwargs: Any) -> None:
        super().__init__(num_envs, **kwargs)
        self.choices = np.array(choices)
        self.single_observation_space = spaces.Box(0.0, 1.0, (sum(choices),), np.float32)
        self.single_action_space = spaces.MultiDiscrete(list(choices))
        self.target = np.zeros((num_envs, len(choices)), np.int64)

    def draw(self, generator: np.random.Generator, count: int) -> Array:
        return generator.integers(self.choices, size=(count, len(self.choices)))

    def reward_of(self, actions: Array) -> Array:
        return np.asarray((actions == self.target).mean(axis=1))

    def observe(self) -> Tree:
        parts = [np.eye(n, dtype=np.float32)[self.target[:, i]] for i, n in enumerate(self.choices)]
        return np.concatenate(parts, axis=1)


class ContinuousIdentity(_Identity):
    """Observe a point of the square, answer with it; reward is minus the squared distance. Best return: 0."""

    def __init__(self, num_envs: int = 1, *, size: int = 1, **kwargs: Any) -> None:
        super().__init__(num_envs, **kwargs)
        self.single_observation_space = spaces.Box(-1.0, 1.0, (size,), np.float32)
        self.single_action_space = spaces.Box(-1.0, 1.0, (size,), np.float32)
        self.target = np.zeros((num_envs, size))

    def draw(self, generator: np.random.Generator, count: int) -> Array:
        return generator.uniform(-1.0, 1.0, size=(count, self.target.shape[1]))

    def reward_of(self, actions: Array) -> Array:
        return np.asarray(-np.square(actions - self.target).sum(axis=1))

    def observe(self) -> Tree:
        return self.target.astype(np.float32)


class DictIdentity(DiscreteIdentity):
    """The discrete task with the answer in one entry of a dict and noise in the other, larger one."""

    def __init__(self, num_envs: int = 1, *, choices: int = 3, **kwargs: Any) -> None:
        super().__init__(num_envs, choices=choices, **kwargs)
        self.single_observation_space: Any = spaces.Dict(
            {"answer": self.single_observation_space, "noise": spaces.Box(0.0, 1.0, (2, 2), np.float32)}
        )

    def observe(self) -> Tree:
        # Noise that is a function of the state: what is saved then needs no second generator.
        phase = (self._statistics.lengths * 7 + self.target * 3) % 11 / np.float32(11)
        noise = np.broadcast_to(phase.astype(np.float32)[:, None, None], (self.num_envs, 2, 2)).copy()
        return {"answer": super().observe(), "noise": noise}


class MaskedIdentity(DiscreteIdentity):
    """The right answer is one of two allowed ones; a forbidden answer is an error, not a bad reward.

    The mask is the observation's entry ``action_mask``, so that it goes through buffers with it.
    """

    def __init__(self, num_envs: int = 1, *, choices: int = 4, **kwargs: Any) -> None:
        super().__init__(num_envs, choices=choices, **kwargs)
        self.single_observation_space = spaces.Dict(
            {"observation": self.single_observation_space, "action_mask": spaces.MultiBinary(choices)}
        )

    @property
    def action_mask(self) -> Array:
        rows = np.arange(self.num_envs)
        mask = np.zeros((self.num_envs, self.choices), np.bool_)
        mask[rows, self.target] = True
        mask[rows, (self.target + 1) % self.choices] = True
        return mask

    def reward_of(self, actions: Array) -> Array:
        forbidden = np.flatnonzero(~self.action_mask[np.arange(self.num_envs), actions])
        if forbidden.size:
            i = int(forbidden[0])
            raise UsageError(f"action {int(actions[i])} in environment {i} is masked out")
        return super().reward_of(actions)

    def observe(self) -> Tree:
        return {"observation": super().observe(), "action_mask": self.action_mask.astype(np.int8)}


class MemoryIdentity(NumpyVectorEnv):
    """The answer is shown in the first step only and asked for in the last: reward 1 if right. Best return: 1.

    A policy without memory gets 1/2 on average.
    """

    state_names: ClassVar[tuple[str, ...]] = ("target",)

    def __init__(self, num_envs: int = 1, *, length: int = 4, seed: int | None = None) -> None:
        super().__init__(num_envs, seed=seed)
        self.length = length
        self.single_observation_space = spaces.Box(-1.0, 1.0, (2,), np.float32)
        self.single_action_space: Any = spaces.Discrete(2)
        self.target = np.zeros(num_envs, np.int64)

    def draw(self, generator: np.random.Generator, count: int) -> Array:
        return generator.integers(2, size=count)

    def begin(self, where: Array, drawn: Array) -> None:
        self.target[where] = drawn

    def advance(self, actions: Array) -> tuple[Array, Array]:
        terminated = self._statistics.lengths + 1 >= self.length
        return np.where(terminated & (actions == self.target), 1.0, 0.0), terminated

    def observe(self) -> Tree:
        obs = np.zeros((self.num_envs, 2), np.float32)
        lengths = self._statistics.lengths
        obs[:, 0] = np.where(lengths == 0, self.target * 2 - 1, 0)
        obs[:, 1] = lengths >= self.length - 1  # now answer
        return obs


class ContinuousMemoryIdentity(MemoryIdentity):
    """The same with an answer between −1 and 1: the reward of the last step is 1 less half the distance to it."""

    def __init__(self, num_envs: int = 1, *, length: int = 4, seed: int | None = None) -> None:
        super().__init__(num_envs, length=length, seed=seed)
        self.single_action_space = spaces.Box(-1.0, 1.0, (1,), np.float32)

    def advance(self, actions: Array) -> tuple[Array, Array]:
        terminated = self._statistics.lengths + 1 >= self.length
        distance = np.abs(actions[:, 0] - (self.target * 2 - 1))
        return np.where(terminated, 1.0 - distance / 2, 0.0), terminated
