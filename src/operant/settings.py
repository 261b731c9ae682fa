"""Settings: frozen dataclasses whose fields carry their help, filled from any mapping, strict about what they get."""

from __future__ import annotations

import copy
import dataclasses
import types
import typing
from collections.abc import Mapping
from dataclasses import field
from typing import Any, TypeVar

from operant.errors import UsageError, nearest

__all__ = ["describe", "fill", "setting", "to_mapping"]

T = TypeVar("T")


def setting(default: Any, help: str) -> Any:
    """A dataclass field with its help text."""
    if isinstance(default, (dict, list)):
        return field(default_factory=lambda: copy.deepcopy(default), metadata={"help": help})
    if isinstance(default, type):
        return field(default_factory=default, metadata={"help": help})
    return field(default=default, metadata={"help": help})


def fill(cls: type[T], values: Mapping[str, Any], where: str = "") -> T:
    """An instance of a settings class; an unknown key names the nearest known one, a wrong type says what is right."""
    hints = typing.get_type_hints(cls)
    known = {one.name for one in dataclasses.fields(cls) if one.init}  # type: ignore[arg-type]
    filled = {}
    for key, value in values.items():
        place = f"{where}.{key}" if where else str(key)
        if key not in known:
            raise UsageError(
                f"there is no setting {place!r}{nearest(str(key), known)}; known: {', '.join(sorted(known))}"
            )
        filled[key] = _fit(hints[key], value, place)
    return cls(**filled)


def to_mapping(settings: Any) -> dict[str, Any]:
    """Settings as plain values, for a file."""
    return {one.name: _plain(getattr(settings, one.name)) for one in dataclasses.fields(settings) if one.init}


def describe(cls: type) -> list[tuple[str, Any, str]]:
    """Name, default and help of each setting."""
    rows = []
    for one in dataclasses.fields(cls):
        made = one.default_factory
        default = one.default if made is dataclasses.MISSING else made()
        rows.append((one.name, default, str(one.metadata.get("help", ""))))
    return rows


def _plain(value: Any) -> Any:
    if dataclasses.is_dataclass(value):
        return to_mapping(value)
    if isinstance(value, (tuple, list)):
        return [_plain(one) for one in value]
    if isinstance(value, Mapping):
        return {str(key): _plain(one) for key, one in value.items()}
    if isinstance(value, (str, int, float, bool)) or value is None:
        return value
    named = value if isinstance(value, (type, types.FunctionType)) else type(value)
    return f"{named.__module__}:{named.__qualname__}"


def _fit(hint: Any, value: Any, place: str) -> Any:
    if hint is Any:
        return value
    origin = typing.get_origin(hint)
    if origin in (typing.Union, types.UnionType):
        options = typing.get_args(hint)
        if value is None and type(None) in options:
            return None
        return _fit(next(one for one in options if one is not type(None)), value, place)
    if dataclasses.is_dataclass(hint) and isinstance(hint, type):
        if isinstance(value, hint):
            return value
        if not isinstance(value, Mapping):
            raise UsageError(f"{place!r} is a group of settings, got {value!r:.200}")
        return fill(hint, value, place)
    if origin is tuple:
        if isinstance(value, str) or not isinstance(value, (list, tuple)):
            raise UsageError(f"{place!r} is a list such as [64, 64], got {value!r:.200}")
        return tuple(_fit(typing.get_args(hint)[0], one, place) for one in value)
    if origin is dict:
        if not isinstance(value, Mapping):
            raise UsageError(f"{place!r} is a group of names and values, got {value!r:.200}")
        return dict(value)
    return _fit_number_or_text(hint, value, place)


def _fit_number_or_text(hint: Any, value: Any, place: str) -> Any:
    if hint is bool and isinstance(value, bool):
        return value
    if hint is str and isinstance(value, str):
        return value
    if hint in (int, float) and not isinstance(value, bool):
        # YAML 1.1 reads 1e-3 as text; whole numbers may be written as 1e6.
        try:
            number = float(value)
        except (TypeError, ValueError, OverflowError):
            number = None
        if number is not None and hint is float:
            return number
        if number is not None and number.is_integer():
            return int(number)
    names = {bool: "true or false", str: "text", int: "a whole number", float: "a number"}
    raise UsageError(f"{place!r} is {names.get(hint, hint)}, got {value!r:.200}")
