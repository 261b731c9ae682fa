"""Make ended runs smaller and quicker to read; nothing is lost."""

from __future__ import annotations

import argparse

from operant.status import RECORDING


def configure(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("id", nargs="*", help="runs to compact (default: all that have ended)")
    parser.add_argument("--root", help="the .operant folder (default: the nearest one)")


def run(args: argparse.Namespace) -> int:
    from operant.errors import UsageError
    from operant.tracking.exchange.compaction import compact_run
    from operant.tracking.places import check_run_id, find_root, resolve_run_dir
    from operant.tracking.reading.index import Index

    root = find_root(args.root)
    chosen = args.id or [row.id for row in Index(root).rows() if row.status not in RECORDING]
    failed = 0
    for name in chosen:
        run_id, folder = resolve_run_dir(root, check_run_id(name))
        try:
            before, after = compact_run(folder)
        except UsageError as error:
            failed += 1
            print(f"{run_id}: {error}", flush=True)
        else:
            print(f"{run_id}: {before:,} -> {after:,} bytes", flush=True)
    return 1 if failed and args.id else 0
