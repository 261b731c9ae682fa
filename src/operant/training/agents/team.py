"""The policies of all agents as one: what collects, evaluates and plays needs to know no more than a policy.

A policy sees its agents as rows: row n·A + k is the k-th of its A agents in environment n.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from operant.algorithms import find_algorithm
from operant.algorithms.agents import AgentsAdapter
from operant.algorithms.base import Acting
from operant.algorithms.contracts import Actor, Array, DataSpec
from operant.data import tree_map
from operant.data.batches import replace_rows
from operant.envs.parallel import ParallelVectorEnv
from operant.errors import UsageError
from operant.training.config import TrainConfig
from operant.training.policies import PolicySettings, assign


@dataclass(frozen=True)
class Member:
    """A policy and the agents that follow it."""

    name: str
    agents: tuple[str, ...]
    columns: Array
    """Their places among all agents."""
    policy: Any
    settings: PolicySettings = field(default_factory=PolicySettings)

    @property
    def past_of(self) -> str:
        """The policy whose past selves it plays; empty: it learns."""
        return self.settings.past_of

    def rows(self, values: Array) -> Array:
        """What these agents have of an array [N, A, …] of all, as rows."""
        return values[:, self.columns].reshape(-1, *values.shape[2:])


class Team(Acting):
    """Acts for all agents. With algorithms as policies it is what `TeamSource` trains."""

    takes_scaled = True
    joint = False
    optimizer = None
    network = None
    entropy_limit: float | None = None

    def __init__(self, agents: Sequence[str], members: Sequence[Member]) -> None:
        self.members = {one.name: one for one in members}
        self.adapter = AgentsAdapter(agents, {one.name: (one.agents, one.policy.adapter) for one in members})
        self.measure = True
        self._remembering = {one.name for one in members if "state" in one.policy.data.fields}
        first = members[0].policy
        self.data = DataSpec("step", "fresh", ("state",) if self._remembering else (), gamma=first.data.gamma)
        self.settings, self.model, self.device = first.settings, first.model, first.device
        if len(self.learning) == 1:
            self.entropy_limit = getattr(self.learning[0].policy, "entropy_limit", None)

    @property
    def learning(self) -> list[Member]:
        """Those that learn."""
        return [one for one in self.members.values() if not one.past_of]

    @property
    def path(self) -> str:
        return ", ".join(dict.fromkeys(one.policy.path for one in self.members.values()))

    def set_progress(self, steps: int, total_steps: int) -> None:
        for one in self.members.values():
            one.policy.set_progress(steps, total_steps)

    def actor(self, rng: np.random.Generator | None, steps: int, rows: int, *, epsilon: float | None = None) -> Actor:
        actors = [
            (one, one.policy.actor(rng, steps, rows * len(one.agents), epsilon=epsilon))
            for one in self.members.values()
        ]

        def act(obs: Any, _mask: Array | None, state: Any) -> tuple[Any, Any, dict[str, Any]]:
            for_env: dict[str, Any] = {}
            stored: dict[str, Any] = {}
            extras: dict[str, Any] = {}
            after: dict[str, Any] = {}
            for one, choose in actors:
                seen = obs["policies"][one.name]
                before = None if state is None or one.name not in self._remembering else _flat(state[one.name])
                action, stored[one.name], told = choose(seen["obs"], seen.get("mask"), before)
                if "state" in told:
                    told = dict(told)
                    left = told.pop("state")
                    there = one.rows(obs["present"])
                    if not there.all():  # who comes back has forgotten
                        left = replace_rows(left, one.policy.initial_state(len(there)), ~there)
                    after[one.name] = _shaped(left, rows)
                extras[one.name] = told
                shaped = action.reshape(rows, len(one.agents), *action.shape[1:])
                for_env |= {agent: shaped[:, number] for number, agent in enumerate(one.agents)}
            return for_env, stored, {"policies": extras, **({"state": after} if after else {})}

        return act

    def initial_state(self, rows: int) -> Any:
        """What the policies remember at the beginning of episodes, [rows, agents, …] each."""
        return {
            name: _shaped(one.policy.initial_state(rows * len(one.agents)), rows)
            for name, one in self.members.items()
            if name in self._remembering
        }

    # -- saving ------------------------------------------------------------------------------------------------------
    def weights(self) -> dict[str, Array]:
        """Weights of all policies, each name after that of its policy."""
        return {
            f"{name}.{key}": value for name, one in self.members.items() for key, value in one.policy.weights().items()
        }

    def load_weights(self, weights: Mapping[str, Array]) -> None:
        for name, one in self.members.items():
            one.policy.load_weights(
                {key.removeprefix(f"{name}."): value for key, value in weights.items() if key.startswith(f"{name}.")}
            )

    def state_dict(self) -> dict[str, Any]:
        return {name: _state(one) for name, one in self.members.items()}

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        for name, one in self.members.items():
            if one.past_of:
                one.policy.load_weights(state[name]["weights"])
            else:
                one.policy.load_state_dict(state[name])


def _state(member: Member) -> Any:
    return {"weights": member.policy.weights()} if member.past_of else member.policy.state_dict()


def make_team(env: ParallelVectorEnv, config: TrainConfig, *, learn: bool) -> Team:
    """The policies of a config for the agents of an environment; `learn`: with what learns."""
    kinds = {agent: (env.observation_spaces[agent], env.action_spaces[agent]) for agent in env.agents}
    members = []
    for number, (name, agents) in enumerate(assign(config.policy_mapping, config.policies, env.agents, kinds).items()):
        own = config.policies.get(name, PolicySettings())
        algorithm, settings, model = config.policy(own.past_of or name)
        kind, _ = find_algorithm(algorithm)
        if getattr(kind, "joint", False):
            raise UsageError(f"{algorithm} learns all agents together: it is the algorithm of the whole config")
        make = kind if learn and not own.past_of else kind.make_policy
        policy = make(*kinds[agents[0]], settings, model, config.seed + 1009 * number)
        columns = np.array([env.agents.index(agent) for agent in agents])
        members.append(Member(name, agents, columns, policy, own))
    return Team(env.agents, members)


def _flat(tree: Any) -> Any:
    return tree_map(lambda part: part.reshape(-1, *part.shape[2:]), tree)


def _shaped(tree: Any, rows: int) -> Any:
    return tree_map(lambda part: part.reshape(rows, -1, *part.shape[1:]), tree)
