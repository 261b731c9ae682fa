"""Watch searches and runs live in this terminal, and stop or pause them with a key."""

from __future__ import annotations

import argparse
import os
import shutil
import sys


def configure(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("-t", "--task", metavar="NAME", help="the search to watch (default: all that is under way)")
    parser.add_argument("--interval", type=float, default=0.5, metavar="S", help="seconds between two looks (0.5)")
    parser.add_argument("--once", action="store_true", help="print plain lines once, as without a terminal")
    parser.add_argument("--root", help="the .operant folder (default: the nearest one)")


def run(args: argparse.Namespace) -> int:
    from operant.cli.watching.scenes import AllScene, Scene, SearchScene
    from operant.cli.watching.screen import print_once, watch
    from operant.errors import UsageError
    from operant.schedulers.views.overview import find_search
    from operant.tracking.places import find_root

    if not 0.05 <= args.interval <= 3600:
        raise UsageError(f"--interval is a number of seconds from 0.05 to 3600, not {args.interval:g}")
    root = find_root(args.root)
    scene: Scene = AllScene(root) if args.task is None else SearchScene(find_search(root, args.task))
    if args.once or not sys.stdout.isatty() or os.environ.get("TERM") in (None, "", "dumb"):
        print_once(scene, shutil.get_terminal_size().columns)
    else:
        watch(scene, args.interval)
    return 0
