"""How others spell an algorithm's settings: tables that each settings class carries as `di_engine` and `machin`.

`operant.training.dialects` and `operant.training.machin` read configs by them. A settings class without `di_engine` is
not known to DI-engine; one without `machin` has the words that `COMMON_RULES` gives to settings of those names.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

from operant.errors import UsageError

Values = dict[str, Any]


@dataclass(frozen=True)
class DIEngine:
    """DI-engine's words for one algorithm; keys are dotted, as in ``policy.learn.batch_size``."""

    table: Mapping[str, str]
    """Their key -> ours, where the value is the same on both sides."""
    defaults: Mapping[str, Any]
    """What DI-engine takes where a config says nothing and we would take something else."""
    elsewhere: tuple[str, ...]
    """Keys that `read` looks at, or that say nothing that we need."""
    read: Callable[[Values], Values]
    """Of theirs, with defaults: those of ours that are counted or said differently."""
    write: Callable[[Values], Values]
    """The inverse."""
    steps_per_iteration: Callable[[Values], float]
    """Environment steps for each of DI-engine's training iterations, which are gradient steps."""


@dataclass(frozen=True)
class Rule:
    """Some of Machin's keys and the settings they stand for."""

    theirs: tuple[str, ...]
    ours: tuple[str, ...]
    read: Callable[[Values], Values]
    """Settings from those of Machin's keys that were given."""
    write: Callable[[Values], Values]
    """Machin's keys from the settings."""


@dataclass(frozen=True)
class Machin:
    """Machin's words for one algorithm. Settings that Machin has no word for keep their own names."""

    rules: tuple[Rule, ...]
    defaults: Mapping[str, Any] = field(default_factory=dict)
    """Settings that Machin's own loop implies where a config says nothing of them."""
    own: Mapping[str, Any] = field(default_factory=dict)
    """What Machin itself takes where a config says nothing, in its words; empty: that is not known."""


def same(theirs: str, ours: str) -> Rule:
    """Another name for the same."""
    return Rule((theirs,), (ours,), lambda given: {ours: given[theirs]}, lambda settings: {theirs: settings[ours]})


def both(first: str, second: str, ours: str) -> Rule:
    """Two keys of Machin's, for actor and critic, that are one setting here."""

    def read(given: Values) -> Values:
        if len(given) == 2 and given[first] != given[second]:
            raise UsageError(
                f"frame_config.{first} is {given[first]!r} and {second} is {given[second]!r}: actor and critic are "
                f"trained together here, so both must be the same"
            )
        return {ours: next(iter(given.values()))}

    return Rule((first, second), (ours,), read, lambda settings: {first: settings[ours], second: settings[ours]})


def named(theirs: str, ours: str, names: Mapping[str, str], also: Mapping[str, str] | None = None) -> Rule:
    """A torch class that Operant has a form of its own of; any other is a part, which `operant.auto` takes care of."""
    by_name = {name: mine for mine, name in names.items()} | dict(also or {})

    def read(given: Values) -> Values:
        name = given[theirs]
        return {ours: by_name[name]} if isinstance(name, str) and name in by_name else {}

    return Rule((theirs,), (ours,), read, lambda settings: {theirs: names[settings[ours]]})


COMMON_RULES = (
    same("discount", "gamma"),
    same("gradient_max", "max_gradient_norm"),
    same("batch_size", "batch"),
    same("learning_rate", "learning_rate"),
    named("optimizer", "optimizer", {"adam": "Adam", "rmsprop": "RMSprop"}),
)

MACHIN_OWN: Values = {"batch_size": 100, "discount": 0.99, "gradient_max": math.inf, "optimizer": "Adam"}
"""Machin's own values of what its frames have in common."""
