"""Remove a search with all its files; what it found is written to summary.yaml first."""

from __future__ import annotations

import argparse
import secrets
import shlex
import time
from pathlib import Path

from operant.errors import UsageError
from operant.tracking.places import find_root


def configure(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("-t", "--task", required=True, metavar="NAME", help="the search to remove")
    parser.add_argument(
        "--trust", action="store_true", help="ask the site of a search that you did not begin here to end its jobs"
    )
    parser.add_argument(
        "--out", type=Path, default=Path("summary.yaml"), help="where its summary goes (default: summary.yaml)"
    )


def run(args: argparse.Namespace) -> int:
    from operant.schedulers.engine.state import read_state
    from operant.schedulers.views.overview import describe, find_search
    from operant.sites.code import remove_tree
    from operant.sites.local import end_leftovers
    from operant.tracking.journal import controller_is_alive
    from operant.tracking.reading.compares import leave_compares

    root = find_root()
    folder = find_search(root, args.task)
    if controller_is_alive(folder):
        raise UsageError(
            f"the search {args.task!r} is running; `search-ctl stop --task {shlex.quote(args.task)}` stops it"
        )
    state, _ = read_state(folder)
    if state.outlives_controller and (args.trust or state.is_own):
        from operant.schedulers.engine.detached import end_jobs

        end_jobs(folder, trust=True)
    elif state.outlives_controller:
        print(f"{args.task} was not begun by you on this machine: its site is not asked to end jobs (--trust asks it)")
    if args.out.exists():
        stamp = time.strftime("%Y%m%d%H%M%S", time.localtime(args.out.stat().st_mtime))
        args.out.rename(args.out.with_name(f"{args.out.stem}.{stamp}{args.out.suffix}"))
    from operant._util.plain_yaml import yaml_text

    args.out.write_text(yaml_text(describe(folder)), encoding="utf-8")
    end_leftovers(folder)
    # Renamed first: a removal that is interrupted leaves no half of a search behind.
    doomed = folder.with_name(f".removed-{secrets.token_hex(6)}")
    folder.rename(doomed)
    remove_tree(doomed)
    leave_compares(root, args.task)
    print(f"Removed {args.task}; its summary is in {args.out}")
    return 0
