"""Checks of options that several searchers share; a mistake names the option."""

from __future__ import annotations

from typing import Any

from operant.errors import ConfigError, unknown


def whole_number(value: Any, key: str, least: int) -> int:
    if isinstance(value, bool) or not isinstance(value, int) or value < least:
        raise ConfigError(f"`{key}` must be a whole number from {least} on, not {value!r}", (key,))
    return value


def fraction(value: Any, key: str) -> float:
    if isinstance(value, bool) or not isinstance(value, (int, float)) or not 0 <= value <= 1:
        raise ConfigError(f"`{key}` must lie between 0 and 1, not {value!r}", (key,))
    return float(value)


def positive(value: Any, key: str) -> float:
    if isinstance(value, bool) or not isinstance(value, (int, float)) or not value > 0:
        raise ConfigError(f"`{key}` must be a number above 0, not {value!r}", (key,))
    return float(value)


def one_of(value: Any, key: str, known: tuple[str, ...]) -> str:
    if value not in known:
        raise ConfigError(unknown(key, value, known), (key,))
    return str(value)
