"""Machin's way to spell an algorithm (`frame_config`), in both directions; one table says which setting is which.

A rule holds for every algorithm that has the settings it names, so an algorithm that comes later needs nothing here.
Settings that Machin has no word for keep their own names.
"""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from operant.errors import UsageError, nearest
from operant.settings import fill

__all__ = ["PARTS", "from_machin", "machin_keys", "to_machin"]

Values = dict[str, Any]

# Keys that are no settings: objects and places, which `operant.auto` looks after. Value: what is written for none.
PARTS: Values = {
    "models": None,
    "model_args": None,
    "model_kwargs": None,
    "criterion_args": [],
    "criterion_kwargs": {},
    "lr_scheduler": None,
    "lr_scheduler_args": None,
    "lr_scheduler_kwargs": None,
    "replay_device": "cpu",
    "replay_buffer": None,
    "visualize": False,
    "visualize_dir": "",
}

# Words that name no setting of some algorithms and still have one right value there; `operant.auto` says which.
_LIMITS = {"criterion", "replay_size", "actor_update_times", "critic_update_times"}

# Machin plays an episode and then makes one update for each of its steps. Here rounds of this many steps do the same.
_LOOP = {"updates": 0, "train_every": 32}

_CRITERIA = {"squared": "MSELoss", "huber": "SmoothL1Loss"}
_OPTIMIZERS = {"adam": "Adam", "rmsprop": "RMSprop"}


@dataclass(frozen=True)
class Rule:
    """Some of Machin's keys and the settings they stand for."""

    theirs: tuple[str, ...]
    ours: tuple[str, ...]
    read: Callable[[Values], Values]
    """Settings from those of Machin's keys that were given."""
    write: Callable[[Values], Values]
    """Machin's keys from the settings."""
    only_with: tuple[str, ...] = ()
    """Settings that an algorithm must have beside its own for the rule to hold."""


def _same(theirs: str, ours: str, only_with: tuple[str, ...] = ()) -> Rule:
    return Rule(
        (theirs,), (ours,), lambda given: {ours: given[theirs]}, lambda settings: {theirs: settings[ours]}, only_with
    )


def _both(first: str, second: str, ours: str, only_with: tuple[str, ...] = ()) -> Rule:
    """Two keys of Machin's, for actor and critic, that are one setting here."""

    def read(given: Values) -> Values:
        if len(given) == 2 and given[first] != given[second]:
            raise UsageError(
                f"frame_config.{first} is {given[first]!r} and {second} is {given[second]!r}: actor and critic are "
                f"trained together here, so both must be the same"
            )
        return {ours: next(iter(given.values()))}

    return Rule(
        (first, second), (ours,), read, lambda settings: {first: settings[ours], second: settings[ours]}, only_with
    )


def _read_target(given: Values) -> Values:
    rate, steps = given.get("update_rate"), given.get("update_steps")
    if given.get("mode") == "vanilla":
        return {"target_every": 0, "target_rate": 1.0, "double": False}
    if given.get("mode", "double") not in ("double", "fixed_target"):
        raise UsageError(f"frame_config.mode is double, fixed_target or vanilla, not {given['mode']!r}")
    read: Values = {"double": given["mode"] == "double"} if "mode" in given else {}
    if "update_rate" not in given and "update_steps" not in given:
        return read
    if rate is None and steps is None:
        raise UsageError(
            "frame_config.update_rate and update_steps are both null: give a share (0.005, after each update) or a "
            "number of updates between copies; without a target network the mode is 'vanilla'"
        )
    read["target_every"] = 1 if steps is None else steps
    read["target_rate"] = 1.0 if rate is None else rate
    return read


def _write_target(settings: Values) -> Values:
    every, rate = settings["target_every"], settings["target_rate"]
    if every == 0:
        return {"mode": "vanilla", "update_rate": None, "update_steps": None}
    return {
        "mode": "double" if settings["double"] else "fixed_target",
        "update_rate": None if rate == 1.0 else rate,
        "update_steps": None if every == 1 and rate != 1.0 else every,
    }


def _read_epsilon(given: Values) -> Values:
    """ε is multiplied by this after each step: exp(−steps/decay) with decay = −1/ln ε_decay. It ends at a floor."""
    decay = given["epsilon_decay"]
    if decay is None:
        return {"exploration_decay": 0.0}
    if not isinstance(decay, (int, float)) or not 0.0 < decay < 1.0:
        raise UsageError(f"frame_config.epsilon_decay lies between 0 and 1, or is null; got {decay!r}")
    return {"exploration_decay": -1.0 / math.log(decay)}


def _write_epsilon(settings: Values) -> Values:
    decay = settings["exploration_decay"]
    return {"epsilon_decay": math.exp(-1.0 / decay) if decay > 0 else None}


def _named(theirs: str, ours: str, names: Mapping[str, str]) -> Rule:
    """A torch class that Operant has of its own; any other is a part, which `operant.auto` takes care of."""
    by_name = {name: mine for mine, name in names.items()}
    if theirs == "criterion":
        by_name["HuberLoss"] = "huber"

    def read(given: Values) -> Values:
        name = given[theirs]
        return {ours: by_name[name]} if isinstance(name, str) and name in by_name else {}

    return Rule((theirs,), (ours,), read, lambda settings: {theirs: names[settings[ours]]})


_CRITIC = ("value_weight",)
_RULES = (
    _same("batch_size", "batch"),
    _same("batch_size", "minibatch"),
    _same("batch_size", "rollout"),  # A2C learns from a whole rollout at once
    _same("discount", "gamma"),
    _same("gradient_max", "max_gradient_norm"),
    _same("replay_size", "buffer"),
    _both("actor_learning_rate", "critic_learning_rate", "learning_rate", _CRITIC),
    _same("learning_rate", "learning_rate"),
    _both("actor_update_times", "critic_update_times", "epochs", _CRITIC),
    _same("value_weight", "value_weight"),
    _same("gae_lambda", "gae_lambda"),
    _same("normalize_advantage", "normalize_advantage"),
    _same("surrogate_loss_clip", "clip"),
    # Machin adds weight times entropy to the loss; here the weight is that of a bonus.
    Rule(
        ("entropy_weight",),
        ("entropy_weight",),
        lambda given: {"entropy_weight": 0.0 if given["entropy_weight"] is None else -given["entropy_weight"]},
        lambda settings: {"entropy_weight": -settings["entropy_weight"] if settings["entropy_weight"] else None},
    ),
    Rule(
        ("update_rate", "update_steps", "mode"), ("target_every", "target_rate", "double"), _read_target, _write_target
    ),
    Rule(("epsilon_decay",), ("exploration_decay",), _read_epsilon, _write_epsilon),
    _named("criterion", "loss", _CRITERIA),
    _named("optimizer", "optimizer", _OPTIMIZERS),
)


def from_machin(settings_class: type, frame_config: Mapping[str, Any]) -> tuple[Any, Values]:
    """The settings in a `frame_config`, checked, and what of it is no setting (see `PARTS`)."""
    rules = _rules_for(settings_class)
    own = {one.name for one in dataclasses.fields(settings_class)}
    theirs = {key for rule in rules for key in rule.theirs}
    # A word of Machin's that is a setting's name too means what Machin means by it.
    plain = own - theirs
    known = theirs | plain | PARTS.keys() | _LIMITS
    for key in frame_config:
        if key not in known:
            raise UsageError(
                f"there is no key 'frame_config.{key}'{nearest(str(key), known)}; known: {', '.join(sorted(known))}"
            )
    values: Values = {key: value for key, value in _LOOP.items() if key in own}
    parts: Values = {key: value for key, value in frame_config.items() if key in PARTS or key in _LIMITS - theirs}
    for key in ("criterion", "optimizer"):
        if key in frame_config and not _is_own(rules, key, frame_config):
            parts[key] = frame_config[key]
    for rule in rules:
        given = {key: frame_config[key] for key in rule.theirs if key in frame_config and key not in parts}
        if given:
            values |= rule.read(given)
    values |= {key: value for key, value in frame_config.items() if key in plain}
    return fill(settings_class, values, "frame_config"), parts


def to_machin(settings: Any) -> Values:
    """A `frame_config` that means these settings; what Machin has no word for only where it differs from the usual."""
    rules = _rules_for(type(settings))
    values = {one.name: getattr(settings, one.name) for one in dataclasses.fields(settings)}
    written: Values = {}
    for rule in rules:
        written |= rule.write(values)
    if "criterion" not in written and "value_weight" in values:
        written["criterion"] = "MSELoss"  # of the value; it is not to be chosen
    silent, _ = from_machin(type(settings), written)
    written |= {key: value for key, value in values.items() if getattr(silent, key) != value and key not in written}
    return written


def machin_keys(settings_class: type) -> set[str]:
    """Machin's words for the settings of an algorithm."""
    return {key for rule in _rules_for(settings_class) for key in rule.theirs}


def _rules_for(settings_class: type) -> list[Rule]:
    fields = {one.name for one in dataclasses.fields(settings_class)}
    taken: set[str] = set()
    used: set[str] = set()
    rules = []
    for rule in _RULES:
        fits = fields.issuperset(rule.ours) and fields.issuperset(rule.only_with)
        if fits and taken.isdisjoint(rule.theirs) and used.isdisjoint(rule.ours):
            rules.append(rule)
            taken.update(rule.theirs)
            used.update(rule.ours)
    return rules


def _is_own(rules: list[Rule], key: str, frame_config: Mapping[str, Any]) -> bool:
    """Whether a criterion or optimizer is one that Operant has of its own; with arguments of its own it is torch's."""
    if frame_config.get(f"{key}_args") or frame_config.get(f"{key}_kwargs"):
        return False
    return any(rule.theirs == (key,) and rule.read({key: frame_config[key]}) for rule in rules)
