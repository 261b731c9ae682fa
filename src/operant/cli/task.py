"""Run a training loop in several processes, here or on every machine of a cluster."""

from __future__ import annotations

import argparse
import importlib
import math
import os
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any


def configure(parser: argparse.ArgumentParser) -> None:
    parser.description = (
        "Run main in every worker. Under Slurm, or with OPERANT_NODES (and OPERANT_RANK) set, every machine "
        "runs this same command, and the workers of all of them are linked; OPERANT_SECRET must be the same."
    )
    parser.add_argument("-m", "--main", required=True, metavar="PACKAGE.MODULE:FUNCTION", help="what each worker runs")
    parser.add_argument(
        "-p",
        "--package",
        default=".",
        metavar="FOLDER",
        help="where to import it from (default: this folder)",
    )
    parser.add_argument("--parallel-workers", type=int, default=1, metavar="N", help="workers on this machine")
    parser.add_argument(
        "--topology", choices=("mesh", "star", "alone"), default="mesh", help="who is linked (default: mesh)"
    )
    parser.add_argument("--labels", default="", metavar="A,B", help="labels of all workers of this machine")
    parser.add_argument("--node-ids", type=int, metavar="N", help="number of the first worker")
    parser.add_argument("--protocol", choices=("ipc", "tcp"), default="ipc", help="tcp: listen for others too")
    parser.add_argument("--address", help="where to listen with tcp (default: 127.0.0.1)")
    parser.add_argument("--ports", type=int, metavar="N", help="port of the first worker with tcp")
    parser.add_argument(
        "--attach-to", action="append", default=[], metavar="tcp://HOST:PORT", help="a worker to link to"
    )
    parser.add_argument("--engine", choices=("local", "ray"), default="local", help="who starts the workers")
    parser.add_argument("--auto-recover", action="store_true", help="restart a worker that failed")
    parser.add_argument("--max-retries", type=int, metavar="N", help="at most so often (default: no limit)")
    parser.add_argument("--stall-timeout", type=float, metavar="S", help="a worker without a pass is hung")
    parser.add_argument("--lockstep", action="store_true", help="one worker at a time, exactly repeatable")


def run(args: argparse.Namespace) -> int:
    from operant.framework import Parallel, WorkerDied

    try:
        main = find_main(args.main, args.package)
        runner = Parallel.runner(args.parallel_workers, **runner_settings(args, dict(os.environ)))
    except (ValueError, ImportError) as error:
        print(f"operant task: {error}", file=sys.stderr)
        return 2
    try:
        runner(main)
    except WorkerDied as error:
        print(f"operant task: {error}", file=sys.stderr)
        return 1
    return 0


def runner_settings(args: argparse.Namespace, environment: dict[str, str]) -> dict[str, Any]:
    """The settings of the runner: what the cluster says, and over it what was given by hand."""
    from operant.framework.parallel.cluster import find_place

    settings: dict[str, Any] = {
        "topology": args.topology,
        "engine": args.engine,
        "labels": args.labels,
        "protocol": args.protocol,
        "attach_to": args.attach_to,
        "auto_recover": args.auto_recover,
        "max_retries": math.inf if args.max_retries is None else args.max_retries,
        "stall_timeout": args.stall_timeout,
        "schedule": "lockstep" if args.lockstep else "free",
    }
    place = find_place(environment) if args.engine == "local" and not args.attach_to else None
    if place is not None and len(place.hosts) > 1:
        settings |= place.runner_settings(args.parallel_workers, args.topology)
    by_hand = {"node_ids": args.node_ids, "address": args.address, "ports": args.ports}
    return settings | {name: value for name, value in by_hand.items() if value is not None}


def find_main(name: str, folder: str) -> Callable[..., Any]:
    """The function that ``package.module:function`` names."""
    module_name, colon, function_name = name.partition(":")
    if not colon:
        module_name, _, function_name = name.rpartition(".")
    if not module_name or not function_name:
        raise ValueError(f"--main is package.module:function; got {name!r}")
    path = str(Path(folder).resolve())
    if path not in sys.path:
        sys.path.insert(0, path)
    try:
        module = importlib.import_module(module_name)
    except ModuleNotFoundError as error:
        if error.name is None or not module_name.startswith(error.name):
            raise
        raise ImportError(f"there is no module {module_name!r} in {path} or among the installed ones") from error
    function = getattr(module, function_name, None)
    if not callable(function):
        known = ", ".join(sorted(n for n, v in vars(module).items() if callable(v) and not n.startswith("_")))
        raise ValueError(f"{module_name} has no function {function_name!r}; it has: {known or 'none'}")
    found: Callable[..., Any] = function
    return found
