"""Checks of settings; a mistake names the setting."""

from __future__ import annotations

import sys
from typing import Any, TypeGuard

from operant.errors import ConfigError, KeyPath, unknown


def is_whole(value: object, least: int | None = None) -> TypeGuard[int]:
    """Whether it is an integer, from ``least`` on; True and False are none."""
    return isinstance(value, int) and not isinstance(value, bool) and (least is None or value >= least)


def is_number(value: object) -> TypeGuard[float]:
    """Whether it is one of Python's numbers; True and False are none."""
    return isinstance(value, (int, float)) and not isinstance(value, bool)


def from_text(value: Any) -> Any:
    """A number that came as text: YAML 1.1, as PyYAML reads it, has neither ``1e-5`` nor ``inf``."""
    try:
        return float(value) if isinstance(value, str) else value
    except ValueError:
        return value


def whole_number(value: Any, key: str, least: int, path: KeyPath | None = None, most: int | None = None) -> int:
    if not is_whole(value, least) or (most is not None and value > most):
        to = "on" if most is None else f"to {most:,}"
        raise ConfigError(f"`{key}` must be a whole number from {least} {to}, not {value!r}", path or (key,))
    return value


def fraction(value: Any, key: str) -> float:
    if not is_number(value) or not 0 <= value <= 1:
        raise ConfigError(f"`{key}` must lie between 0 and 1, not {value!r}", (key,))
    return float(value)


def positive(value: Any, key: str) -> float:
    if not is_number(value) or not 0 < value <= sys.float_info.max:
        raise ConfigError(f"`{key}` must be a number above 0, not {value!r}", (key,))
    return float(value)


def flag(value: Any, key: str) -> bool:
    if not isinstance(value, bool):
        raise ConfigError(f"`{key}` is true or false, not {value!r}", (key,))
    return value


def one_of(value: Any, key: str, known: tuple[str, ...]) -> str:
    if value not in known:
        raise ConfigError(unknown(key, value, known), (key,))
    return str(value)
