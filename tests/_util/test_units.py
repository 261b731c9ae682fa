"""Times, sizes and text as people write and read them."""

from __future__ import annotations

import math
from typing import Any

import pytest

from operant._util.units import duration, parse_bytes, parse_duration, printable
from operant.errors import ConfigError


@pytest.mark.parametrize(
    ("value", "unit", "seconds"),
    [
        (1, "h", 3600.0),
        (0.5, "h", 1800.0),
        ("1h", "h", 3600.0),
        ("30m", "s", 1800.0),
        ("90s", "h", 90.0),
        ("1h30m", "h", 5400.0),
        ("1d", "h", 86400.0),
        ("2", "h", 7200.0),
        (30, "s", 30.0),
        ("500ms", "s", 0.5),
        (math.inf, "h", None),
        (None, "h", None),
    ],
)
def test_durations(value: Any, unit: str, seconds: float | None) -> None:
    assert parse_duration(value, ("t",), bare_unit=unit) == seconds


@pytest.mark.parametrize("value", ["soon", "1x", "h", 0, -1, True, [], math.nan, ""])
def test_what_is_no_duration(value: Any) -> None:
    with pytest.raises(ConfigError):
        parse_duration(value, ("t",), bare_unit="h")


def test_sizes_and_shown_times() -> None:
    assert (parse_bytes("4GB", ()), parse_bytes("512 MiB", ()), parse_bytes(100, ())) == (4 << 30, 512 << 20, 100)
    for wrong in ("much", 0, -3, "0MB", None):
        with pytest.raises(ConfigError):
            parse_bytes(wrong, ())
    assert [duration(n) for n in (5, 200, 7500, 90000)] == ["5 s", "3.3 min", "2.1 h", "1.0 d"]
    assert [duration(n, fine=True) for n in (3.21, 0.04, 4.1e-6, 0)] == ["3.2 s", "40 ms", "4.1 µs", "0 s"]


def test_text_cannot_steer_a_terminal() -> None:
    assert printable("plain") == "plain" and printable("a\x1b[2Jb\n") == "a�[2Jb�"
