"""Help a training that began on another machine: run workers for it here, until it is done."""

from __future__ import annotations

import argparse
import sys


def configure(parser: argparse.ArgumentParser) -> None:
    parser.description = (
        "Run on each further machine of a training with num_nodes; `operant train … num_nodes=2` prints this command. "
        "OPERANT_SECRET must be the same on all of them."
    )
    parser.add_argument("address", metavar="tcp://HOST:PORT", help="where the machine that learns listens")
    parser.add_argument("--quiet", action="store_true", help="print nothing")


def run(args: argparse.Namespace) -> int:
    from operant.training.machines import join_run

    return join_run(args.address, (lambda _: None) if args.quiet else say)


def say(sentence: str) -> None:
    """To whoever looks on; what a program makes of the output of `operant train` stays apart."""
    print(sentence, file=sys.stderr, flush=True)
