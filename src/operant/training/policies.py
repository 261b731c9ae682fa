"""Which agent has which policy, and what the policies of a config are."""

from __future__ import annotations

import inspect
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from fnmatch import fnmatchcase
from typing import Any

from operant.errors import UsageError, nearest
from operant.settings import fill, setting, to_mapping

SHARED, INDEPENDENT = "shared", "independent"
_NAME = re.compile(r"[A-Za-z0-9_][A-Za-z0-9_-]*")


@dataclass(frozen=True)
class PolicySettings:
    """One of several policies. What it does not say is as the config says it for all."""

    algorithm: dict[str, Any] = setting({}, "name of its algorithm and settings of it, where they differ")
    model: dict[str, Any] = setting({}, "how its networks look, where that differs")
    past_of: str = setting("", "plays as past selves of this policy instead of learning: self-play")
    every: int = setting(
        0, "self-play: environment steps between selves that are kept, 0: twenty over the training; fewer: more alike"
    )
    keep: int = setting(10, "self-play: newest selves that are played; more: older and more varied rivals")

    def __post_init__(self) -> None:
        if self.every < 0 or self.keep < 1:
            raise UsageError(f"policies: every is {self.every} and keep {self.keep}; at least 0 and 1 are needed")


def read_policies(given: Any) -> dict[str, PolicySettings]:
    """`policies` of a config: a list of names, or a mapping of names to settings."""
    if isinstance(given, (list, tuple)):
        given = dict.fromkeys(given)
    if not isinstance(given, Mapping):
        raise UsageError(f"policies is a list of names, or a mapping of names to settings; got {given!r:.100}")
    found = {}
    for name, settings in given.items():
        _check_name(name)
        if not isinstance(settings, Mapping | PolicySettings | None):
            raise UsageError(f"policies.{name} is a group of settings, got {settings!r:.100}")
        own = (
            settings
            if isinstance(settings, PolicySettings)
            else fill(PolicySettings, settings or {}, f"policies.{name}")
        )
        found[name] = own
    for name, own in found.items():
        if own.past_of and (own.past_of not in found or found[own.past_of].past_of or own.algorithm or own.model):
            raise UsageError(
                f"policies.{name}.past_of is {own.past_of!r}{nearest(own.past_of, found)}: it names a policy that "
                "learns, and its selves have the algorithm and model of that one"
            )
    if found and all(one.past_of for one in found.values()):
        raise UsageError("policies: every one of them plays past selves, so nobody learns")
    return found


def plain_policies(policies: Mapping[str, PolicySettings]) -> dict[str, Any]:
    """For a file."""
    return {name: to_mapping(one) for name, one in policies.items()}


def _check_name(name: Any) -> None:
    if not isinstance(name, str) or not _NAME.fullmatch(name):
        raise UsageError(f"a policy's name is made of letters, digits, _ and -; got {name!r:.80}")


def assign(
    mapping: Any, named: Mapping[str, PolicySettings], agents: Sequence[str], kinds: Mapping[str, Any]
) -> dict[str, tuple[str, ...]]:
    """The agents of each policy.

    :param mapping: ``shared``, ``independent``, names or patterns of agents -> policy, or a function of a name.
    :param kinds: what two agents must have alike to share a policy: their spaces.
    """
    policy_of = _policy_of(mapping, named, agents, kinds)
    found: dict[str, list[str]] = {name: [] for name in named}
    for agent in agents:
        policy = policy_of(agent)
        if named and policy not in named:
            raise UsageError(
                f"policy_mapping gives {agent} the policy {policy!r}{nearest(str(policy), named)}; "
                f"policies are {', '.join(named)}"
            )
        _check_name(policy)
        found.setdefault(policy, []).append(agent)
    unused = next((policy for policy, its in found.items() if not its), None)
    if unused is not None:
        raise UsageError(f"policies names {unused!r}, which policy_mapping gives to none of {', '.join(agents)}")
    for policy, its in found.items():
        other = next((agent for agent in its if kinds[agent] != kinds[its[0]]), None)
        if other is not None:
            raise UsageError(
                f"{its[0]} and {other} have different observations or actions, so they cannot share the policy "
                f"{policy!r}: give them one each by policy_mapping"
            )
    return {policy: tuple(its) for policy, its in found.items()}


def _policy_of(
    mapping: Any, named: Mapping[str, PolicySettings], agents: Sequence[str], kinds: Mapping[str, Any]
) -> Callable[[str], str]:
    if mapping == INDEPENDENT:
        return _as_name
    if mapping == SHARED:
        if len(named) == 1:
            return lambda agent: next(iter(named))
        if named and not set(agents) <= set(named):
            raise UsageError(
                f"policies are {', '.join(named)}: policy_mapping says which agent has which, "
                f"such as {{{agents[0]}: {next(iter(named))}}}"
            )
        return (lambda agent: agent) if named else _by_kind(agents, kinds)
    if isinstance(mapping, Mapping):
        table = {str(pattern): policy for pattern, policy in mapping.items()}
        for pattern in table:
            if not any(fnmatchcase(agent, pattern) for agent in agents):
                raise UsageError(
                    f"policy_mapping has {pattern!r}{nearest(pattern, agents)}; agents are {', '.join(agents)}"
                )
        return lambda agent: _by_table(agent, table)
    if isinstance(mapping, str) and mapping in named:
        return lambda agent: mapping
    if isinstance(mapping, str) and (":" in mapping or "." in mapping):
        from operant.models.loading import import_name  # which loads torch

        return _called(import_name(mapping))
    if callable(mapping):
        return _called(mapping)
    raise UsageError(
        f"policy_mapping is {SHARED}, {INDEPENDENT}, a table of agents and policies, or the importable name of a "
        f"function; got {mapping!r:.100}{nearest(str(mapping), (SHARED, INDEPENDENT, *named))}"
    )


def _called(function: Callable[..., Any]) -> Callable[[str], str]:
    """A function of an agent's name; RLlib's have an episode behind it."""
    needed = [
        one
        for one in inspect.signature(function).parameters.values()
        if one.default is one.empty and one.kind in (one.POSITIONAL_ONLY, one.POSITIONAL_OR_KEYWORD)
    ]

    def policy_of(agent: str) -> str:
        return str(function(agent, None) if len(needed) > 1 else function(agent))

    return policy_of


def _by_table(agent: str, table: Mapping[str, str]) -> str:
    if agent in table:
        return table[agent]
    fitting = [policy for pattern, policy in table.items() if fnmatchcase(agent, pattern)]
    if not fitting:
        raise UsageError(f"policy_mapping says nothing of the agent {agent}; it has {', '.join(table)}")
    return fitting[0]


def _as_name(agent: str) -> str:
    return re.sub(r"[^A-Za-z0-9_-]", "_", agent) or "_"


def _common_beginning(names: Sequence[str]) -> str:
    first, last = min(names), max(names)
    same = next((n for n, (one, other) in enumerate(zip(first, last, strict=False)) if one != other), len(first))
    return first[:same]


def _by_kind(agents: Sequence[str], kinds: Mapping[str, Any]) -> Callable[[str], str]:
    """Agents with the same spaces share a policy, named by what their names begin with."""
    groups: list[list[str]] = []
    for agent in agents:
        group = next((one for one in groups if kinds[one[0]] == kinds[agent]), None)
        if group is None:
            groups.append([agent])
        else:
            group.append(agent)
    stems = [_as_name(_common_beginning(group).rstrip("0123456789_- ")) for group in groups]
    if len(groups) == 1:
        stems = ["shared"]
    names: dict[str, str] = {}
    for number, (group, stem) in enumerate(zip(groups, stems, strict=True)):
        plain = stem != "_" and stems.count(stem) == 1
        names |= dict.fromkeys(group, stem if plain else f"policy_{number}")
    return lambda agent: names[agent]
