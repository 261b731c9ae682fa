"""Write a run as CSV, JSON lines, Parquet or TensorBoard event files."""

from __future__ import annotations

import argparse
from pathlib import Path


def configure(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("id", help="the run's id, the start of it, or `last`")
    parser.add_argument("--to", required=True, metavar="FORMAT", help="csv, jsonl, parquet or tensorboard")
    parser.add_argument("--out", type=Path, help="file or folder to write (default: named after the run, here)")
    parser.add_argument("--root", help="the .operant folder (default: the nearest one)")


def run(args: argparse.Namespace) -> int:
    from operant.tracking import Run
    from operant.tracking.exchange.export import export_run

    target = export_run(Run.open(args.id, args.root), args.to, args.out)
    print(f"Wrote {target}")
    if args.to == "tensorboard":
        print(f"Open it with: tensorboard --logdir {target}")
    return 0
