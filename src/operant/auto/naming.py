"""From what a config names to the object: a class, a torch name, ``package.module.Class``, a name of the caller's."""

from __future__ import annotations

import importlib
import sys
from collections.abc import Mapping
from typing import Any

from operant.errors import UsageError, nearest

# Where torch keeps its own, by the key of the config; models have no such place.
_TORCH = {
    "optimizer": "torch.optim",
    "lr_scheduler": "torch.optim.lr_scheduler",
    "criterion": "torch.nn",
    "replay_buffer": "operant.data",
}


def resolve(key: str, given: Any, names: Mapping[str, Any] | None = None) -> Any:
    """The object behind ``given``; anything but a string is taken as it is.

    A dotted name is imported. A plain one is looked for in torch's package for the key (not for models), then among
    ``names``: those of the module that called `launch`. Other modules of the call stack are not searched.
    """
    if not isinstance(given, str):
        return given
    if "." in given or ":" in given:
        return _imported(key, given)
    tried = []
    place = _TORCH.get(key)
    if place is not None:
        module = importlib.import_module(place)
        if hasattr(module, given):
            return getattr(module, given)
        tried.append(f"{place}.{given}{nearest(given, [name for name in dir(module) if name[:1].isupper()])}")
    if names is not None:
        if given in names:
            return names[given]
        tried.append(f"{given!r} in the calling module {names.get('__name__', '?')!r}")
    hint = "write it as 'module.Name' (the file lies beside the config or in the current folder)"
    looked = f"tried {' and '.join(tried)}; " if tried else ""
    raise UsageError(f"frame_config.{key}: {given!r} was not found: {looked}{hint}")


def resolve_class(key: str, given: Any, names: Mapping[str, Any] | None = None) -> Any:
    """The class behind ``given``, of the kind that the key of a `frame_config` takes."""
    found = resolve(key, given, names)
    kinds = {"optimizer": "torch.optim.Optimizer", "criterion": "torch.nn.Module"}
    kind = kinds.get(key)
    base = _imported(key, kind) if kind else object
    if not isinstance(found, type) or not issubclass(found, base):
        raise UsageError(f"frame_config.{key} is a class{f' of {kind}' if kind else ''} or its name, got {given!r}")
    return found


def assert_and_get_valid_optimizer(optimizer: Any) -> Any:
    """The class of an optimizer: a class, a name of `torch.optim` or of the calling module, or an import path."""
    return resolve_class("optimizer", optimizer, sys._getframe(1).f_globals)


def assert_and_get_valid_lr_scheduler(lr_scheduler: Any) -> Any:
    """The class of a schedule, found as an optimizer's is, in `torch.optim.lr_scheduler`."""
    return resolve_class("lr_scheduler", lr_scheduler, sys._getframe(1).f_globals)


def assert_and_get_valid_criterion(criterion: Any) -> Any:
    """The class of a loss, found as an optimizer's is, in `torch.nn`."""
    return resolve_class("criterion", criterion, sys._getframe(1).f_globals)


def _imported(key: str, name: str) -> Any:
    from operant.models.loading import import_name

    try:
        return import_name(name)
    except UsageError as error:
        raise UsageError(f"frame_config.{key}: tried to import {name!r}: {error}") from None
