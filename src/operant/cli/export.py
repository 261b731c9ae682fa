"""Write a run as CSV, JSON lines, Parquet or TensorBoard event files, or a search as an archive."""

from __future__ import annotations

import argparse
from pathlib import Path

from operant.errors import UsageError


def configure(parser: argparse.ArgumentParser) -> None:
    run_options = parser.add_argument_group("a run")
    run_options.add_argument("id", nargs="?", help="the run's id, the start of it, or `last`")
    run_options.add_argument("--to", metavar="FORMAT", help="csv, jsonl, parquet or tensorboard")
    run_options.add_argument("--out", type=Path, help="file or folder to write (default: named after the run, here)")
    run_options.add_argument("--root", help="the .operant folder (default: the nearest one)")
    configure_search(parser.add_argument_group("a search"))


def configure_search(parser: argparse._ActionsContainer) -> None:
    parser.add_argument("-t", "--task", metavar="NAME", help="the search to export")
    parser.add_argument("--tar-path", type=Path, help="the archive to write (default: archive/<task>.<time>.tar.gz)")


def run(args: argparse.Namespace) -> int:
    if (args.id is None) == (args.task is None):
        raise UsageError("say what to export: a run (`operant export ID --to csv`) or a search (`--task NAME`)")
    return run_search(args) if args.task is not None else _run_run(args)


def run_search(args: argparse.Namespace) -> int:
    from operant.schedulers.archive import export_search
    from operant.schedulers.overview import find_search
    from operant.tracking.places import find_root

    if args.task is None:
        raise UsageError("--task says which search to export")
    target = export_search(find_search(find_root(), args.task), args.tar_path)
    print(f"Wrote {target}")
    return 0


def _run_run(args: argparse.Namespace) -> int:
    from operant.tracking import Run
    from operant.tracking.exchange.export import FORMATS, export_run

    if args.to is None:
        raise UsageError(f"--to says as what: {', '.join(FORMATS)}")
    target = export_run(Run.open(args.id, args.root), args.to, args.out)
    print(f"Wrote {target}")
    if args.to == "tensorboard":
        print(f"Open it with: tensorboard --logdir {target}")
    return 0
