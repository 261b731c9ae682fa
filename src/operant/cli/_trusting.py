"""Asking whether code that somebody else's run names may run."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Callable, Collection
from typing import TypeVar

from operant._util.units import printable

__all__ = ["add_trust", "asking"]

T = TypeVar("T")


def add_trust(parser: argparse.ArgumentParser, where: str = "") -> None:
    """`--trust` and `--allow`."""
    parser.add_argument(
        "--trust", action="store_true", help=f"{where}run all code that the run names, whoever recorded it"
    )
    parser.add_argument(
        "--allow",
        action="append",
        default=[],
        metavar="NAME",
        help=f"{where}run this code (`module:name`) if the run names it; may be given again",
    )


def asking(args: argparse.Namespace, load: Callable[[bool | Collection[str]], T]) -> T:
    """What ``load(trust)`` gives; where it is refused for want of trust and there is a terminal, its user is asked."""
    from operant.training.trust import Untrusted

    allowed: list[str] = args.allow
    try:
        return load(args.trust or allowed)
    except Untrusted as error:
        allowed = [*allowed, *error.names]
        if not (sys.stdin.isatty() and sys.stdout.isatty()):
            raise
        print(printable(str(error)))
        if input("Run it? [y/N] ").strip().lower() not in ("y", "yes"):
            raise
    return load(allowed)
