"""Import TensorBoard logs: every folder with event files becomes a run."""

from __future__ import annotations

import argparse
from pathlib import Path


def configure(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("folder", type=Path, help="a log folder, as for `tensorboard --logdir`")
    parser.add_argument("--root", type=Path, help="the .operant folder (default: the nearest one)")


def run(args: argparse.Namespace) -> int:
    from operant.tracking.exchange.import_tensorboard import import_tensorboard

    for name, run_id, points, notes in import_tensorboard(args.folder, args.root):
        print(f"{name} -> {run_id} ({points} points)", flush=True)
        for note in notes:
            print(f"  note: {note}")
    return 0
