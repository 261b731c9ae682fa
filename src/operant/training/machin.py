"""Machin's way to spell an algorithm (`frame_config`), in both directions; each algorithm's settings say how.

Settings that Machin has no word for keep their own names.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from typing import Any

from operant.algorithms.dialects import COMMON_RULES, Machin, Rule, Values
from operant.errors import UsageError, nearest
from operant.settings import fill

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


def from_machin(settings_class: type, frame_config: Mapping[str, Any]) -> tuple[Any, Values]:
    """The settings in a `frame_config`, checked, and what of it is no setting (see `PARTS`)."""
    words = _words_of(settings_class)
    rules = words.rules
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
    values: Values = dict(words.defaults)
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
    values = {one.name: getattr(settings, one.name) for one in dataclasses.fields(settings)}
    written: Values = {}
    for rule in _words_of(type(settings)).rules:
        written |= rule.write(values)
    silent, _ = from_machin(type(settings), written)
    written |= {key: value for key, value in values.items() if getattr(silent, key) != value and key not in written}
    return written


def _words_of(settings_class: type) -> Machin:
    words = getattr(settings_class, "machin", None)
    if words is not None:
        return words  # type: ignore[no-any-return]
    fields = {one.name for one in dataclasses.fields(settings_class)}
    return Machin(tuple(rule for rule in COMMON_RULES if fields.issuperset(rule.ours)))


def _is_own(rules: tuple[Rule, ...], key: str, frame_config: Mapping[str, Any]) -> bool:
    """Whether a criterion or optimizer is one that Operant has of its own; with arguments of its own it is torch's."""
    if frame_config.get(f"{key}_args") or frame_config.get(f"{key}_kwargs"):
        return False
    return any(rule.theirs == (key,) and rule.read({key: frame_config[key]}) for rule in rules)
