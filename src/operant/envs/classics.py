"""The classic control tasks, vectorised, equal to Gymnasium's state by state.

Equal means the same bits: every expression keeps the order of operations and the precision of the original, because
Acrobot doubles a difference of one bit every second or so. Two consequences look odd and are meant:
squares of Acrobot and Pendulum go through ``np.float_power``, which calls the C library's ``pow`` as ``x ** 2`` on a
numpy scalar does (``x * x`` differs in the last bit once in a thousand times), and MountainCarContinuous computes in
float64 until its first step and in float32 afterwards, as Gymnasium's does.
"""

from __future__ import annotations

import math
from typing import Any, ClassVar

import numpy as np
from gymnasium import spaces

from operant.envs import drawing
from operant.envs.numpy_vector import NumpyVectorEnv
from operant.envs.vector import Array


class CartPole(NumpyVectorEnv):
    """CartPole-v1 (500 steps) and -v0 (200): +1 for every step that the pole stands."""

    state_names: ClassVar[tuple[str, ...]] = ("state",)

    # Arrays without dimensions: with few environments numpy reckons with them a third faster than with plain numbers.
    _GRAVITY = np.array(9.8)
    _POLE_MASS = np.array(0.1)
    _TOTAL_MASS = np.array(0.1 + 1.0)
    _HALF_LENGTH = np.array(0.5)
    _POLE_MOMENT = np.array(0.1 * 0.5)
    _FOUR_THIRDS = np.array(4.0 / 3.0)
    _TAU = np.array(0.02)
    _X_LIMIT = np.array(2.4)
    _ANGLE_LIMIT = np.array(12 * 2 * math.pi / 360)

    def __init__(self, num_envs: int = 1, *, sutton_barto_reward: bool = False, **kwargs: Any) -> None:
        super().__init__(num_envs, **kwargs)
        high = np.array([self._X_LIMIT * 2, np.inf, self._ANGLE_LIMIT * 2, np.inf], dtype=np.float32)
        self.single_observation_space = spaces.Box(-high, high, dtype=np.float32)
        self.single_action_space = spaces.Discrete(2)
        self._sutton_barto_reward = sutton_barto_reward
        self._forces = np.array([-10.0, 10.0])
        self.state = np.zeros((4, num_envs))
        self._rates = np.zeros((4, num_envs))  # of change of the state
        self._standing = np.ones(num_envs)  # the reward while the pole stands

    def draw(self, generator: np.random.Generator, count: int) -> Array:
        return generator.uniform(-0.05, 0.05, size=(count, 4))

    def begin(self, where: Array, drawn: Array) -> None:
        self.state[:, where] = drawn.T

    def advance(self, actions: Array) -> tuple[Array, Array]:
        x, _, angle, angle_speed = self.state
        _, x_speed_rate, _, angle_speed_rate = self._rates
        cosine, sine = np.cos(angle), np.sin(angle)
        push = (self._forces[actions] + self._POLE_MOMENT * np.square(angle_speed) * sine) / self._TOTAL_MASS
        self._rates[::2] = self.state[1::2]
        inertia = self._HALF_LENGTH * (self._FOUR_THIRDS - self._POLE_MASS * np.square(cosine) / self._TOTAL_MASS)
        np.divide(self._GRAVITY * sine - cosine * push, inertia, out=angle_speed_rate)
        np.subtract(push, self._POLE_MOMENT * angle_speed_rate * cosine / self._TOTAL_MASS, out=x_speed_rate)
        self.state += self._TAU * self._rates
        terminated = (np.abs(x) > self._X_LIMIT) | (np.abs(angle) > self._ANGLE_LIMIT)
        if self._sutton_barto_reward:
            return -terminated.astype(np.float64), terminated
        return self._standing.copy(), terminated

    def observe(self) -> Array:
        obs = np.empty((self.num_envs, 4), np.float32)
        obs[:] = self.state.T
        return obs

    def draw_frame(self, index: int) -> Array:
        return drawing.cart_pole(float(self.state[0, index]), float(self.state[2, index]))


class Acrobot(NumpyVectorEnv):
    """Acrobot-v1: -1 for every step until the free end is above the line. Dynamics of the book (Sutton and Barto)."""

    state_names: ClassVar[tuple[str, ...]] = ("state",)

    _DT = 0.2
    _MAX_SPEEDS = (4 * np.pi, 9 * np.pi)

    def __init__(self, num_envs: int = 1, **kwargs: Any) -> None:
        super().__init__(num_envs, **kwargs)
        high = np.array([1.0, 1.0, 1.0, 1.0, *self._MAX_SPEEDS], dtype=np.float32)
        self.single_observation_space = spaces.Box(-high, high, dtype=np.float32)
        self.single_action_space = spaces.Discrete(3)
        self._torques = np.array([-1.0, 0.0, 1.0])
        self._speed_limits = np.array(self._MAX_SPEEDS)[:, None]
        self.state = np.zeros((4, num_envs))

    def draw(self, generator: np.random.Generator, count: int) -> Array:
        return generator.uniform(-0.1, 0.1, size=(count, 4)).astype(np.float32)

    def begin(self, where: Array, drawn: Array) -> None:
        self.state[:, where] = drawn.T

    def advance(self, actions: Array) -> tuple[Array, Array]:
        torque = self._torques[actions]
        start, dt = self.state, self._DT
        k1 = _acrobot_rates(start, torque)
        k2 = _acrobot_rates(start + dt / 2.0 * k1, torque)
        k3 = _acrobot_rates(start + dt / 2.0 * k2, torque)
        k4 = _acrobot_rates(start + dt * k3, torque)
        state = start + dt / 6.0 * (k1 + _TWO * k2 + _TWO * k3 + k4)
        _wrap_angles(state[:2])
        np.clip(state[2:], -self._speed_limits, self._speed_limits, out=state[2:])
        self.state = state
        terminated = -np.cos(state[0]) - np.cos(state[1] + state[0]) > 1.0
        return np.where(terminated, 0.0, -1.0), terminated

    def observe(self) -> Array:
        obs = np.empty((self.num_envs, 6), np.float32)
        angles = self.state[:2]
        obs[:, 0:4:2] = np.cos(angles).T
        obs[:, 1:4:2] = np.sin(angles).T
        obs[:, 4:] = self.state[2:].T
        fresh = np.flatnonzero(self._statistics.lengths == 0)
        if fresh.size:  # Gymnasium's start state is float32, and so are its cosines
            angles = angles[:, fresh].astype(np.float32)
            obs[fresh, 0:4:2] = np.cos(angles).T
            obs[fresh, 1:4:2] = np.sin(angles).T
        return obs

    def draw_frame(self, index: int) -> Array:
        return drawing.acrobot(float(self.state[0, index]), float(self.state[1, index]))


_QUARTER, _HALF, _ONE, _FIVE_QUARTERS, _TWO = (np.array(number) for number in (0.25, 0.5, 1.0, 1.25, 2.0))
_WEIGHT_1, _WEIGHT_2 = np.array((0.5 + 1.0) * 9.8), np.array(0.5 * 9.8)
_RIGHT_ANGLE = np.array(np.pi / 2)


def _acrobot_rates(state: Array, torque: Array) -> Array:
    """Time derivative of (angle 1, angle 2, speed 1, speed 2).

    Masses, lengths and moments of inertia are 1, centres of mass half way along the links, gravity is 9.8.
    """
    angle1, angle2, speed1, speed2 = state
    cosine, sine = np.cos(angle2), np.sin(angle2)
    d1 = _QUARTER + (_FIVE_QUARTERS + cosine) + _ONE + _ONE
    d2 = (_QUARTER + _HALF * cosine) + _ONE
    phi2 = _WEIGHT_2 * np.cos(angle1 + angle2 - _RIGHT_ANGLE)
    phi1 = (
        -_HALF * np.float_power(speed2, _TWO) * sine
        - speed2 * speed1 * sine
        + _WEIGHT_1 * np.cos(angle1 - _RIGHT_ANGLE)
        + phi2
    )
    rates = np.empty_like(state)
    rates[:2] = state[2:]
    rates[3] = (torque + d2 / d1 * phi1 - _HALF * np.float_power(speed1, _TWO) * sine - phi2) / (
        _FIVE_QUARTERS - np.float_power(d2, _TWO) / d1
    )
    rates[2] = -(d2 * rates[3] + phi1) / d1
    return rates


def _wrap_angles(angles: Array) -> None:
    """Bring angles into [-pi, pi] by whole turns, one at a time as Gymnasium does, so that rounding agrees."""
    while (over := angles > np.pi).any():
        angles[over] -= 2 * np.pi
    while (under := angles < -np.pi).any():
        angles[under] += 2 * np.pi


class MountainCar(NumpyVectorEnv):
    """MountainCar-v0: -1 for every step until the car is at the flag."""

    state_names: ClassVar[tuple[str, ...]] = ("state",)

    def __init__(self, num_envs: int = 1, *, goal_velocity: float = 0, **kwargs: Any) -> None:
        super().__init__(num_envs, **kwargs)
        low, high = np.array([-1.2, -0.07], np.float32), np.array([0.6, 0.07], np.float32)
        self.single_observation_space = spaces.Box(low, high, dtype=np.float32)
        self.single_action_space = spaces.Discrete(3)
        self._goal_velocity = goal_velocity
        self.state = np.zeros((2, num_envs))

    def draw(self, generator: np.random.Generator, count: int) -> Array:
        return generator.uniform(-0.6, -0.4, size=count)

    def begin(self, where: Array, drawn: Array) -> None:
        self.state[0, where] = drawn
        self.state[1, where] = 0.0

    def advance(self, actions: Array) -> tuple[Array, Array]:
        position, velocity = self.state
        velocity += (actions - 1) * 0.001 + np.cos(3 * position) * -0.0025
        np.clip(velocity, -0.07, 0.07, out=velocity)
        position += velocity
        np.clip(position, -1.2, 0.6, out=position)
        velocity[(position == -1.2) & (velocity < 0)] = 0.0
        terminated = (position >= 0.5) & (velocity >= self._goal_velocity)
        return np.full(self.num_envs, -1.0), terminated

    def observe(self) -> Array:
        obs = np.empty((self.num_envs, 2), np.float32)
        obs[:] = self.state.T
        return obs

    def draw_frame(self, index: int) -> Array:
        return drawing.mountain_car(float(self.state[0, index]), goal=0.5)


class MountainCarContinuous(NumpyVectorEnv):
    """MountainCarContinuous-v0: 100 at the flag, less a tenth of the squared push in every step."""

    state_names: ClassVar[tuple[str, ...]] = ("state", "start")

    def __init__(self, num_envs: int = 1, *, goal_velocity: float = 0, **kwargs: Any) -> None:
        super().__init__(num_envs, **kwargs)
        low, high = np.array([-1.2, -0.07], np.float32), np.array([0.6, 0.07], np.float32)
        self.single_observation_space = spaces.Box(low, high, dtype=np.float32)
        self.single_action_space = spaces.Box(-1.0, 1.0, shape=(1,), dtype=np.float32)
        self._goal_velocity = goal_velocity
        self.state = np.zeros((2, num_envs), np.float32)
        self.start = np.zeros(num_envs)  # where the episode began, in float64

    def draw(self, generator: np.random.Generator, count: int) -> Array:
        return generator.uniform(-0.6, -0.4, size=count)

    def begin(self, where: Array, drawn: Array) -> None:
        self.start[where] = drawn
        self.state[0, where] = drawn
        self.state[1, where] = 0.0

    def advance(self, actions: Array) -> tuple[Array, Array]:
        pushes = actions.reshape(self.num_envs).astype(np.float32)
        state, terminated = self._move(self.state, pushes)
        first = np.flatnonzero(self._statistics.lengths == 0)
        if first.size:
            precise = np.stack((self.start[first], np.zeros(first.size)))
            state[:, first], terminated[first] = self._move(precise, pushes[first])
        self.state = state
        reward = np.where(terminated, 100.0, 0.0) - np.square(pushes.astype(np.float64)) * 0.1
        return reward, terminated

    def _move(self, state: Array, pushes: Array) -> tuple[Array, Array]:
        """One step in the precision of ``state``."""
        exact = state.dtype.type
        slope = 0.0025 * np.cos((3 * state[0]).astype(np.float64))
        # A push within its bounds is a float32 in Gymnasium, one cut off at them a Python float.
        within = pushes * np.float32(0.0015) - slope.astype(np.float32)
        cut = (np.where(pushes > 0, 0.0015, -0.0015) - slope).astype(exact)
        velocity = state[1] + np.where(np.abs(pushes) > 1.0, cut, within)
        velocity = np.clip(velocity, exact(-0.07), exact(0.07))
        position = np.clip(state[0] + velocity, exact(-1.2), exact(0.6))
        velocity[(position == exact(-1.2)) & (velocity < 0)] = 0.0
        return np.stack((position, velocity)), (position >= exact(0.45)) & (velocity >= self._goal_velocity)

    def observe(self) -> Array:
        return np.array(self.state.T, order="C")  # a copy, also of a single row

    def draw_frame(self, index: int) -> Array:
        return drawing.mountain_car(float(self.state[0, index]), goal=0.45)


class Pendulum(NumpyVectorEnv):
    """Pendulum-v1: the cost is the squared angle from upright, plus a little for speed and torque; it never ends."""

    state_names: ClassVar[tuple[str, ...]] = ("state",)

    def __init__(self, num_envs: int = 1, *, g: float = 10.0, **kwargs: Any) -> None:
        super().__init__(num_envs, **kwargs)
        high = np.array([1.0, 1.0, 8.0], dtype=np.float32)
        self.single_observation_space = spaces.Box(-high, high, dtype=np.float32)
        self.single_action_space = spaces.Box(-2.0, 2.0, shape=(1,), dtype=np.float32)
        self._gravity = g
        self.state = np.zeros((2, num_envs))

    def draw(self, generator: np.random.Generator, count: int) -> Array:
        high = np.array([np.pi, 1.0])
        return generator.uniform(-high, high, size=(count, 2))

    def begin(self, where: Array, drawn: Array) -> None:
        self.state[:, where] = drawn.T

    def advance(self, actions: Array) -> tuple[Array, Array]:
        angle, speed = self.state
        torque = np.minimum(np.maximum(actions.reshape(self.num_envs).astype(np.float32), -2.0), 2.0)
        upright = ((angle + np.pi) % (2 * np.pi)) - np.pi
        cost = np.float_power(upright, 2.0) + 0.1 * np.float_power(speed, 2.0) + 0.001 * (torque * torque)
        speed = speed + (3 * self._gravity / 2.0 * np.sin(angle) + 3.0 * torque) * 0.05
        np.minimum(np.maximum(speed, -8.0), 8.0, out=speed)
        self.state = np.empty_like(self.state)
        self.state[0], self.state[1] = angle + speed * 0.05, speed
        return -cost, np.zeros(self.num_envs, np.bool_)

    def observe(self) -> Array:
        obs = np.empty((self.num_envs, 3), np.float32)
        obs[:, 0] = np.cos(self.state[0])
        obs[:, 1] = np.sin(self.state[0])
        obs[:, 2] = self.state[1]
        return obs

    def draw_frame(self, index: int) -> Array:
        return drawing.pendulum(float(self.state[0, index]))


CLASSICS: dict[str, tuple[type[NumpyVectorEnv], int]] = {
    "CartPole-v0": (CartPole, 200),
    "CartPole-v1": (CartPole, 500),
    "Acrobot-v1": (Acrobot, 500),
    "MountainCar-v0": (MountainCar, 200),
    "MountainCarContinuous-v0": (MountainCarContinuous, 999),
    "Pendulum-v1": (Pendulum, 200),
}
"""Gymnasium id -> our class and the number of steps after which an episode is truncated."""
