"""Make an .operant folder here: runs and searches below this folder are kept in it."""

from __future__ import annotations

import argparse
from pathlib import Path


def configure(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("folder", nargs="?", default=".", type=Path, help="where (default: the current folder)")


def run(args: argparse.Namespace) -> int:
    root = args.folder.absolute() / ".operant"
    existed = root.is_dir()
    for part in ("runs", "searches"):
        (root / part).mkdir(parents=True, exist_ok=True)
    ignore = root / ".gitignore"
    if not ignore.exists():
        ignore.write_text("*\n", encoding="ascii")  # runs are data: a repository around them should not take them in
    print(f"{'Already there' if existed else 'Made'}: {root}")
    return 0
