"""Scales of what several agents see and gain: those of one policy share theirs."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from operant.algorithms.contracts import Array
from operant.errors import UsageError
from operant.training.agents.team import Member, Team
from operant.training.normalizing import Normalizer


class TeamNormalizer:
    """A `Normalizer` for each policy that learns; past selves see by the scales of who they were. Agents that are not
    there do not count."""

    obs_moments = return_moments = None

    def __init__(self, team: Team, num_envs: int, *, obs: bool, reward: bool) -> None:
        self._team = team
        self._of: dict[str, Normalizer] = {}
        for one in team.learning:
            adapter = one.policy.adapter
            if obs and not adapter.is_flat:
                raise UsageError(
                    f"env.normalize_obs works on observations that are rows of numbers; {one.agents[0]} sees others"
                )
            rows = num_envs * len(one.agents)
            self._of[one.name] = Normalizer(max(1, adapter.size), rows, one.policy.data.gamma, obs=obs, reward=reward)

    def observe(self, adapted: Any, learn: bool = True) -> Any:
        """Scaled observations of all policies; while learning they count."""
        scaled = {}
        for name, seen in adapted["policies"].items():
            member = self._team.members[name]
            scales = self._of[member.past_of or name]
            if learn and not member.past_of:
                there = member.rows(adapted["present"])
                if there.any():
                    scales.observe(seen["obs"][there])
            scaled[name] = {**seen, "obs": scales.observe(seen["obs"], learn=False)}
        return {**adapted, "policies": scaled}

    def reward(self, reward: Array, done: Array) -> Array:
        """The reward of all together stays as it is: what is learned from are those of `rewards`."""
        return reward

    def rewards(self, member: Member, reward: Array, ended: Array, present: Array) -> Array:
        """Scaled rewards of a policy's agents, as rows."""
        return self._of[member.name].reward(reward, ended | ~present, present)

    def state_dict(self) -> dict[str, Any]:
        return {name: one.state_dict() for name, one in self._of.items()}

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        for name, one in self._of.items():
            one.load_state_dict(state[name])
