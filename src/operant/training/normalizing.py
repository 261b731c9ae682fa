"""Observations and rewards brought to a common scale, by what has been seen so far."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt

from operant.algorithms.contracts import Policy
from operant.errors import UsageError

if TYPE_CHECKING:
    from operant.training.config import EnvSettings

Array = npt.NDArray[Any]
_LIMIT = 10.0


class RunningMoments:
    """Mean and variance of all rows so far (Chan et al. 1979, parallel update)."""

    def __init__(self, shape: tuple[int, ...]) -> None:
        self.mean = np.zeros(shape)
        self.variance = np.ones(shape)
        self.count = 1e-4

    def update(self, rows: Array) -> None:
        self._join(len(rows), rows.mean(axis=0), rows.var(axis=0))

    def merge(self, other: Mapping[str, Any]) -> None:
        """Count in what somebody else has seen: the `state_dict` of its moments."""
        if other["count"] > 0:
            self._join(other["count"], other["mean"], other["variance"])

    def _join(self, count: float, mean: Array, variance: Array) -> None:
        total = self.count + count
        delta = mean - self.mean
        self.variance = (
            np.asarray(self.variance * self.count + variance * count + np.square(delta) * (self.count * count / total))
            / total
        )
        self.mean = np.asarray(self.mean + delta * (count / total))
        self.count = total

    def state_dict(self) -> dict[str, Any]:
        return {"mean": np.array(self.mean), "variance": np.array(self.variance), "count": self.count}

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        mean, variance = np.array(state["mean"], float), np.array(state["variance"], float)
        if mean.shape != self.mean.shape or variance.shape != self.variance.shape:
            raise ValueError(
                f"scales of {mean.shape} and {variance.shape} do not fit observations of {self.mean.shape}"
            )
        self.mean, self.variance = mean, variance
        self.count = float(state["count"])


class Normalizer:
    """Scales rows of observations to mean 0 and deviation 1, rewards by the deviation of the discounted return."""

    def __init__(self, size: int, num_envs: int, gamma: float, *, obs: bool, reward: bool) -> None:
        self.obs_moments = RunningMoments((size,)) if obs else None
        self.return_moments = RunningMoments(()) if reward else None
        self._gamma = gamma
        self._returns = np.zeros(num_envs)
        self._unseen: list[RunningMoments | None] | None = None

    def defer(self) -> None:
        """From here on the scales stay as they are, and what is seen waits for `take_unseen`: for policies that must
        be compared on one scale, and for processes whose observations count elsewhere."""
        self._unseen = [_nothing_yet(one) for one in (self.obs_moments, self.return_moments)]

    def take_unseen(self) -> list[dict[str, Any] | None]:
        """What was seen since the last call, for `absorb`."""
        assert self._unseen is not None
        taken = [None if one is None else one.state_dict() for one in self._unseen]
        self.defer()
        return taken

    def absorb(self, unseen: list[dict[str, Any] | None]) -> None:
        for moments, news in zip((self.obs_moments, self.return_moments), unseen, strict=True):
            if moments is not None and news is not None:
                moments.merge(news)

    def scales(self) -> list[dict[str, Any] | None]:
        """The scales as they are, for `load_scales` of another one."""
        return [None if one is None else one.state_dict() for one in (self.obs_moments, self.return_moments)]

    def load_scales(self, scales: list[dict[str, Any] | None]) -> None:
        for moments, given in zip((self.obs_moments, self.return_moments), scales, strict=True):
            if moments is not None and given is not None:
                moments.load_state_dict(given)

    def observe(self, obs: Array, learn: bool = True) -> Array:
        """Scaled observations [N, size]; while learning they count."""
        if self.obs_moments is None:
            return obs
        if learn:
            seen = self.obs_moments if self._unseen is None else self._unseen[0]
            assert seen is not None
            seen.update(obs)
        scaled = (obs - self.obs_moments.mean) / np.sqrt(self.obs_moments.variance + 1e-8)
        return np.clip(scaled, -_LIMIT, _LIMIT).astype(np.float32)

    def reward(self, reward: Array, done: Array, present: Array | None = None) -> Array:
        """Scaled rewards [N]; where not all rows are there, `present` says whose count."""
        if self.return_moments is None:
            return reward
        self._returns = self._returns * self._gamma + reward
        seen = self.return_moments if self._unseen is None else self._unseen[1]
        assert seen is not None
        if present is None:
            seen.update(self._returns)
        elif present.any():
            seen.update(self._returns[present])
        scaled = np.clip(reward / np.sqrt(self.return_moments.variance + 1e-8), -_LIMIT, _LIMIT)
        self._returns[done] = 0.0
        return np.asarray(scaled)

    def state_dict(self) -> dict[str, Any]:
        return {
            "obs": None if self.obs_moments is None else self.obs_moments.state_dict(),
            "return": None if self.return_moments is None else self.return_moments.state_dict(),
            "returns": self._returns.copy(),
        }

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        if self.obs_moments is not None:
            self.obs_moments.load_state_dict(state["obs"])
        if self.return_moments is not None:
            self.return_moments.load_state_dict(state["return"])
            self._returns = state["returns"].copy()


def _nothing_yet(like: RunningMoments | None) -> RunningMoments | None:
    if like is None:
        return None
    empty = RunningMoments(like.mean.shape)
    empty.count = 0.0
    return empty


def make_normalizer(env: EnvSettings, policy: Policy, num_envs: int) -> Any:
    """What the settings of the environments ask for: a `Normalizer`, of several agents one for each policy; None:
    observations and rewards stay as they are."""
    if not (env.normalize_obs or env.normalize_reward):
        return None
    if policy.adapter.kind == "team":
        from operant.training.agents.scaling import TeamNormalizer
        from operant.training.agents.team import Team

        team: Any = policy
        assert isinstance(team, Team)  # what learns all agents together is refused before
        return TeamNormalizer(team, num_envs, obs=env.normalize_obs, reward=env.normalize_reward)
    if env.normalize_obs and not policy.adapter.is_flat:
        raise UsageError("env.normalize_obs works on observations that are rows of numbers, not on pictures or dicts")
    size = max(1, policy.adapter.size)
    return Normalizer(size, num_envs, policy.data.gamma, obs=env.normalize_obs, reward=env.normalize_reward)
