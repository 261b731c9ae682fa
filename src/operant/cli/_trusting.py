"""Asking whether code that somebody else's run names may run."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Callable
from typing import TypeVar

from operant._util.units import printable

__all__ = ["asking"]

T = TypeVar("T")


def asking(args: argparse.Namespace, load: Callable[[bool], T]) -> T:
    """What ``load(trust)`` gives; where it is refused for want of trust and there is a terminal, its user is asked."""
    from operant.training.trust import Untrusted

    try:
        return load(args.trust)
    except Untrusted as error:
        if not (sys.stdin.isatty() and sys.stdout.isatty()):
            raise
        print(printable(str(error)))
        if input("Run it? [y/N] ").strip().lower() not in ("y", "yes"):
            raise
    return load(True)
