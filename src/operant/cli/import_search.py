"""Bring a search back from an archive."""

from __future__ import annotations

import argparse
from pathlib import Path


def configure(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--tar-path", type=Path, required=True, help="the archive to read")
    parser.add_argument("-t", "--task", metavar="NAME", help="what to call it (default: its name in the archive)")
    parser.add_argument("--force", action="store_true", help="replace a search of that name")


def run(args: argparse.Namespace) -> int:
    from operant.schedulers.archive import import_search
    from operant.tracking.places import find_root

    folder = import_search(args.tar_path, find_root() / "searches", args.task, force=args.force)
    print(f"Imported {folder.name}; `search-ctl show --task {folder.name}` shows it")
    return 0
