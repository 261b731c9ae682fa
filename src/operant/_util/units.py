"""Times, sizes and text as people write and read them."""

from __future__ import annotations

import math
import re
import time
from typing import Any

from operant._util.checks import is_number
from operant.errors import ConfigError, KeyPath

_UNITS = {"d": 86400.0, "h": 3600.0, "m": 60.0, "min": 60.0, "s": 1.0, "ms": 0.001}
_PART = re.compile(r"\s*([0-9]*\.?[0-9]+(?:e[-+]?[0-9]+)?)\s*(d|h|min|ms|m|s)", re.IGNORECASE)
_COARSE = (("d", 86400.0), ("h", 3600.0), ("min", 60.0))
_FINE = (("s", 1.0), ("ms", 1e-3), ("µs", 1e-6))
_SIZES = {"": 1, "k": 1 << 10, "m": 1 << 20, "g": 1 << 30, "t": 1 << 40}
_SIZE = re.compile(r"\s*([0-9]*\.?[0-9]+)\s*([kmgt]?)i?b?\s*", re.IGNORECASE)


def parse_duration(value: Any, path: KeyPath, *, bare_unit: str) -> float | None:
    """Seconds of ``90s``, ``1h30m`` or a bare number, which counts ``bare_unit``; None for no limit (``inf``)."""
    if value is None:
        return None
    if is_number(value):
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
    if is_number(value) and math.isfinite(value) and value > 0:
        return int(value)
    part = _SIZE.fullmatch(value) if isinstance(value, str) else None
    if part is None or float(part[1]) <= 0:
        raise ConfigError(f"a size is a number of bytes or a text such as 512MB or 4GB, not {value!r}", path)
    return int(float(part[1]) * _SIZES[part[2].lower()])


def duration(seconds: float, *, fine: bool = False) -> str:
    """``2.1 h``, ``15 min``, ``3 s``: two digits are enough for a person; ``fine`` goes below a second: ``4.1 µs``."""
    for unit, size in _COARSE + _FINE if fine else _COARSE:
        if seconds >= size:
            return f"{seconds / size:.0f} {unit}" if seconds >= 10 * size else f"{seconds / size:.1f} {unit}"
    return f"{seconds:.0f} s"


def ago(wall: float | None) -> str:
    return "" if wall is None else f"{duration(max(0.0, time.time() - wall))} ago"


def printable(text: str) -> str:
    """Without control characters: the text of a job or the name of a run must not steer a terminal."""
    return text if text.isprintable() else "".join(char if char.isprintable() else "�" for char in text)
