"""Modules of the user's own: an instance, a class, or a name to import."""

from __future__ import annotations

import copy
import importlib
from collections.abc import Mapping
from operator import attrgetter
from typing import Any

from torch import nn

from operant.errors import UsageError
from operant.importing import modules_from_here


def load_module(given: Any, arguments: Mapping[str, Any]) -> nn.Module:
    """An `nn.Module` from an instance, a class or an importable name such as ``qnet.QNet`` or ``__main__.QNet``.

    ``{"class": …, "args": […], "kwargs": {…}}`` is a class or name with arguments of its own.
    """
    if isinstance(given, Mapping):
        return _make(given)
    found = import_name(given) if isinstance(given, str) else given
    if isinstance(found, nn.Module):
        return found
    if isinstance(found, type) and issubclass(found, nn.Module):
        try:
            return found(**arguments)
        except TypeError as error:
            raise UsageError(
                f"{found.__name__} could not be made with model.arguments {dict(arguments)}: {error}"
            ) from None
    raise UsageError(f"a model is an nn.Module, a class of it, or the name of one; got {given!r}")


def load_module_apart(given: Any, arguments: Mapping[str, Any]) -> nn.Module:
    """As `load_module`, of an instance (also one that is named) a copy: for algorithms that have several alike."""
    found = import_name(given) if isinstance(given, str) else given
    module = load_module(found, arguments)
    return copy.deepcopy(module) if module is found else module


def _make(given: Mapping[str, Any]) -> nn.Module:
    if "class" not in given or not given.keys() <= {"class", "args", "kwargs"}:
        raise UsageError(f"a model as a mapping has `class`, and maybe `args` and `kwargs`; got {sorted(given)}")
    kind = import_name(given["class"]) if isinstance(given["class"], str) else given["class"]
    if not (isinstance(kind, type) and issubclass(kind, nn.Module)):
        raise UsageError(f"a model is a class of nn.Module or the name of one; got {given['class']!r}")
    try:
        return kind(*given.get("args", ()), **given.get("kwargs", {}))
    except TypeError as error:
        raise UsageError(
            f"{kind.__name__} could not be made with args {list(given.get('args', ()))} and kwargs "
            f"{dict(given.get('kwargs', {}))}: {error}"
        ) from None


def import_name(name: str) -> Any:
    """The object behind ``package.module.Name`` (or ``package.module:Name``); the current folder is searched too."""
    module_name, _, attribute = name.partition(":") if ":" in name else name.rpartition(".")
    if not module_name:
        raise UsageError(f"{name!r} names no module: write it as `module.Name`")
    try:
        with modules_from_here():
            module = importlib.import_module(module_name)
    except ModuleNotFoundError as error:
        raise UsageError(f"{name!r} cannot be imported: {error}") from None
    try:
        return attrgetter(attribute)(module)
    except AttributeError:
        raise UsageError(f"module {module_name!r} has no {attribute!r}") from None
