"""How good a policy is: greedy episodes on environments and seeds of their own."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

import numpy as np

from operant.algorithms.base import count_rows
from operant.algorithms.contracts import Policy
from operant.data import tree_map
from operant.data.batches import replace_rows
from operant.envs.vector import Array, Step, VectorEnv
from operant.training.collecting import allowed_actions, initial_state
from operant.training.normalizing import Normalizer


@dataclass(frozen=True)
class Evaluation:
    """Returns and lengths of whole episodes."""

    returns: tuple[float, ...]
    lengths: tuple[int, ...]
    agents: dict[str, float] = field(default_factory=dict)
    """Where there are several agents, the mean return of each."""

    @property
    def mean(self) -> float:
        return float(np.mean(self.returns))

    @property
    def deviation(self) -> float:
        return float(np.std(self.returns))


def evaluate(
    policy: Policy,
    env: VectorEnv,
    episodes: int,
    seed: int,
    *,
    normalizer: Normalizer | None = None,
    explore: bool = False,
) -> Evaluation:
    """Play `episodes` episodes from starts that the seed decides.

    Every environment plays the same number (the first ones one more if it does not divide): taking whichever end
    first would favour short episodes.
    """
    player = Player(policy, env, normalizer, np.random.default_rng([seed, 2]) if explore else None)
    rows = env.num_envs
    quota = np.full(rows, episodes // rows)
    quota[: episodes % rows] += 1
    returns: list[list[float]] = [[] for _ in range(rows)]
    lengths: list[list[int]] = [[] for _ in range(rows)]
    by_agent: list[Array] = []
    obs = env.reset(seed)
    left = int(quota.sum())
    while left:
        step = player.step(obs)
        obs = step.obs
        ended = step.info.get("episodes")
        if ended is not None:
            for number, (row, value, length) in enumerate(zip(ended.env, ended.returns, ended.lengths, strict=True)):
                if len(returns[row]) < quota[row]:
                    returns[row].append(float(value))
                    lengths[row].append(int(length))
                    left -= 1
                    if "agent_returns" in step.info:
                        by_agent.append(step.info["agent_returns"][number])
    agents = dict(zip(env.agents, np.mean(by_agent, axis=0).tolist(), strict=True)) if by_agent else {}  # type: ignore[attr-defined]
    return Evaluation(
        tuple(value for one in returns for value in one), tuple(value for one in lengths for value in one), agents
    )


def film(
    policy: Policy, env: VectorEnv, seed: int, frames: int, *, normalizer: Normalizer | None = None
) -> list[Array]:
    """Pictures of the first episode that `evaluate` plays from this seed, at most ``frames``."""
    player = Player(policy, env, normalizer)
    obs = env.reset(seed)
    seen = [env.render_frame()]
    while len(seen) < frames:
        step = player.step(obs)
        if step.done[0]:
            break
        obs = step.obs
        seen.append(env.render_frame())
    return seen


class Player:
    """A policy that plays and does not learn: greedily, or sampled where there is a generator."""

    def __init__(
        self,
        policy: Policy,
        env: VectorEnv,
        normalizer: Normalizer | None = None,
        rng: np.random.Generator | None = None,
    ) -> None:
        self.policy = policy
        self.env = env
        self.normalizer = normalizer
        self.rng = rng
        self._remembers = "state" in policy.data.fields
        self._state: Any = initial_state(policy, env.num_envs) if self._remembers else None
        self.action: Any = None
        """What was done in the latest `step`."""

    def step(self, obs: Any) -> Step:
        """Act on these observations in the environments; memory of episodes that ended with it is lost."""
        self.action = self.act(obs, allowed_actions(self.env, self.policy, obs))
        step = self.env.step(self.action)
        if self._remembers and step.final_obs is not None:
            start = initial_state(self.policy, self.env.num_envs)
            self._state = replace_rows(self._state, start, step.done)
        return step

    def act(self, obs: Any, mask: Array | None = None) -> Array:
        """Actions for observations as environments give them."""
        action, self._state = self.act_from(obs, self._state, mask)
        return action

    def act_from(self, obs: Any, state: Any, mask: Array | None = None) -> tuple[Array, Any]:
        """Actions, and what the policy remembers then; it remembers nothing of episodes before those of `state`."""
        adapted = self.policy.adapter.adapt(obs)
        if self.normalizer is not None:
            adapted = self.normalizer.observe(adapted, learn=False)
        rows = count_rows(adapted)
        if state is None and self._remembers:
            state = initial_state(self.policy, rows)
        action, _, extras = self.policy.actor(self.rng, 1, rows)(adapted, mask, state)
        return tree_map(np.asarray, action), extras.get("state")
