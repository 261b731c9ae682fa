"""What every environment looks like to a trainer: N copies that step together and reset themselves."""

from __future__ import annotations

from abc import ABC, abstractmethod
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

if TYPE_CHECKING:
    import gymnasium

Array = NDArray[Any]
Tree = Any
"""An array [N, ...], or a dict or tuple of trees."""


class Step(NamedTuple):
    """What one step of N environments gave.

    A finished environment has already begun its next episode: its row of ``obs`` is the first observation of that one,
    its row of ``final_obs`` the true last observation of the old one. So the observation that follows an action is
    always ``step.next_obs``, and the one to act on next is ``step.obs``. Both flags may be true at once (a pole falls
    on the last allowed step); then termination counts, and nothing is bootstrapped.
    """

    obs: Tree
    reward: Array  # [N] float64
    terminated: Array  # [N] bool: the task ended; the value of what follows is zero
    truncated: Array  # [N] bool: somebody stopped looking; the value of what follows is that of `final_obs`
    final_obs: Tree | None  # None when nothing finished; rows of environments that go on equal those of `obs`
    info: dict[str, Any]  # "episodes": Episodes, when some finished; "each": the environments' own dicts, if any
    final_mask: Array | None = None  # [N, A] bool beside `final_obs`: what was allowed there, where actions are masked

    @property
    def done(self) -> Array:
        return np.asarray(self.terminated | self.truncated)

    @property
    def next_obs(self) -> Tree:
        """The observation that truly followed the action, in every row."""
        return self.obs if self.final_obs is None else self.final_obs

    @property
    def episodes(self) -> Episodes | None:
        """Returns and lengths of the episodes that ended with this step."""
        return self.info.get("episodes")


class Episodes(NamedTuple):
    """Episodes that ended with one step: K of them."""

    env: Array  # [K] which environment
    returns: Array  # [K] undiscounted sum of rewards
    lengths: Array  # [K] number of steps


class EpisodeStatistics:
    """Running return and length of N episodes, without a loop over them."""

    def __init__(self, num_envs: int) -> None:
        self.returns = np.zeros(num_envs)
        self.lengths = np.zeros(num_envs, np.int64)

    def add(self, reward: Array) -> None:
        self.returns += reward
        self.lengths += 1

    def end(self, where: Array) -> Episodes:
        """Take out the episodes of the environments ``where`` (indices) and begin new ones there."""
        ended = Episodes(where, self.returns[where], self.lengths[where])
        self.returns[where] = 0.0
        self.lengths[where] = 0
        return ended

    def clear(self) -> None:
        self.returns[:] = 0.0
        self.lengths[:] = 0

    def save_state(self) -> dict[str, Array]:
        return {"returns": self.returns.copy(), "lengths": self.lengths.copy()}

    def load_state(self, state: dict[str, Array]) -> None:
        self.returns[:] = state["returns"]
        self.lengths[:] = state["lengths"]


class VectorEnv(ABC):
    """N environments of one kind. ``reset`` once, then ``step`` for ever: see :class:`Step` for the ends."""

    num_envs: int
    single_observation_space: gymnasium.Space[Any]
    single_action_space: gymnasium.Space[Any]

    name: str = ""
    max_episode_steps: int | None = None

    inexact_reason: str = ""
    """Why a saved state would not bring back these environments bit by bit; empty where it does."""

    @property
    def exact(self) -> bool:
        """Whether ``load_state(save_state())`` continues bit by bit as if nothing had happened."""
        return not self.inexact_reason

    @property
    def action_mask(self) -> Array | None:
        """[N, A] bool: what may be done now, or None where everything always may."""
        return None

    @property
    def advice(self) -> str:
        """What could be set better for these environments, as seen so far; empty where nothing could."""
        return ""

    @abstractmethod
    def reset(self, seed: int | None = None) -> Tree:
        """Begin N new episodes. Environment i gets ``seed + i``; without a seed its random numbers go on."""

    @abstractmethod
    def step(self, actions: Any) -> Step: ...

    @abstractmethod
    def render_frame(self, index: int = 0) -> Array:
        """A picture of one environment, [height, width, 3] uint8."""

    @abstractmethod
    def save_state(self) -> dict[str, Any]:
        """Everything needed to go on from here: nested dicts of arrays and plain JSON values."""

    @abstractmethod
    def load_state(self, state: dict[str, Any]) -> Tree:
        """Go on from a saved state; returns the observation to act on.

        Where ``exact`` is false, random numbers go on but the episodes in flight are lost: new ones are begun.
        """

    def close(self) -> None:  # noqa: B027 - most have nothing to release
        """Release windows and processes; more than once does no harm."""
