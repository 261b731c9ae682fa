"""Times and sizes as people write them."""

from __future__ import annotations

import math
import re
from typing import Any

from operant.errors import ConfigError, KeyPath

__all__ = ["format_seconds", "parse_bytes", "parse_duration"]

_UNITS = {"d": 86400.0, "h": 3600.0, "m": 60.0, "min": 60.0, "s": 1.0, "ms": 0.001}
_PART = re.compile(r"\s*([0-9]*\.?[0-9]+(?:e[-+]?[0-9]+)?)\s*(d|h|min|ms|m|s)", re.IGNORECASE)
_SIZES = {"": 1, "k": 1 << 10, "m": 1 << 20, "g": 1 << 30, "t": 1 << 40}
_SIZE = re.compile(r"\s*([0-9]*\.?[0-9]+)\s*([kmgt]?)i?b?\s*", re.IGNORECASE)


def parse_duration(value: Any, path: KeyPath, *, bare_unit: str) -> float | None:
    """Seconds of ``90s``, ``1h30m`` or a bare number, which counts ``bare_unit``; None for no limit (``inf``)."""
    if value is None:
        return None
    if isinstance(value, (int, float)) and not isinstance(value, bool):
        seconds = float(value) * _UNITS[bare_unit]
    else:
        seconds = _parse_text(value, path, bare_unit)
    if math.isnan(seconds) or seconds <= 0:
        raise ConfigError(f"a time must be above zero, not {value!r}", path)
    return None if math.isinf(seconds) else seconds


def _parse_text(value: Any, path: KeyPath, bare_unit: str) -> float:
    names = {"h": "hours", "s": "seconds"}[bare_unit]
    wrong = ConfigError(f"a time is a number of {names} or a text such as 1h, 30m or 90s, not {value!r}", path)
    if not isinstance(value, str):
        raise wrong
    try:
        return float(value) * _UNITS[bare_unit]
    except ValueError:
        pass
    seconds, at = 0.0, 0
    while at < len(value.rstrip()):
        part = _PART.match(value, at)
        if part is None:
            raise wrong
        seconds += float(part[1]) * _UNITS[part[2].lower()]
        at = part.end()
    if at == 0:
        raise wrong
    return seconds


def parse_bytes(value: Any, path: KeyPath) -> int:
    """Bytes of ``4GB``, ``512 MiB`` or a bare number; units count in steps of 1024."""
    if isinstance(value, (int, float)) and not isinstance(value, bool) and math.isfinite(value) and value > 0:
        return int(value)
    part = _SIZE.fullmatch(value) if isinstance(value, str) else None
    if part is None or float(part[1]) <= 0:
        raise ConfigError(f"a size is a number of bytes or a text such as 512MB or 4GB, not {value!r}", path)
    return int(float(part[1]) * _SIZES[part[2].lower()])


def format_seconds(seconds: float) -> str:
    """``2h 05m``, ``3m 20s``, ``12s``: two units are enough for a person."""
    whole = int(max(seconds, 0))
    if whole >= 86400:
        return f"{whole // 86400}d {whole % 86400 // 3600:02d}h"
    if whole >= 3600:
        return f"{whole // 3600}h {whole % 3600 // 60:02d}m"
    if whole >= 60:
        return f"{whole // 60}m {whole % 60:02d}s"
    return f"{whole}s"
