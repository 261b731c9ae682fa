"""Objects that a tree describes by `_target_` and `_partial_`, made where they are used."""

from __future__ import annotations

from collections.abc import Mapping
from inspect import signature
from typing import Any

import gymnasium

from operant.envs.making import environment_maker
from operant.errors import UsageError
from operant.models.loading import import_name

HERE = "operant.harness.objects:make_environment"


def described(value: Any) -> bool:
    """Whether there is a `_target_` somewhere in a value."""
    if isinstance(value, Mapping):
        return "_target_" in value or any(described(one) for one in value.values())
    return isinstance(value, list) and any(described(one) for one in value)


def made(value: Any, path: str) -> Any:
    """A value with the objects that it describes, as Hydra makes them."""
    if not described(value):
        return value
    from hydra.errors import InstantiationException
    from hydra.utils import instantiate

    try:
        return instantiate(value, _convert_="all")
    except InstantiationException as error:
        raise UsageError(f"{path}: {' '.join(str(error).split())}") from None


def named(name: str, path: str) -> Any:
    """What a dotted path names."""
    try:
        return import_name(name)
    except UsageError as error:
        raise UsageError(f"{path}: {error}") from None


def make_environment(env: str, arguments: Mapping[str, Any]) -> Any:
    """An environment whose arguments may be described objects; so a saved config holds plain values only."""
    make, given = environment_maker(env), dict(made(dict(arguments), "environment.env_config"))
    if env in gymnasium.registry or "render_mode" in signature(make).parameters:
        given.setdefault("render_mode", "rgb_array")
    return make(**given)
