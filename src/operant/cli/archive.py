"""Write a search to an archive, or bring one back."""

from __future__ import annotations

import argparse
from pathlib import Path

from operant.tracking.places import find_root


def configure_export(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("-t", "--task", required=True, metavar="NAME", help="the search to export")
    parser.add_argument("--tar-path", type=Path, help="the archive to write (default: archive/<task>.<time>.tar.gz)")


def run_export(args: argparse.Namespace) -> int:
    from operant.schedulers.archive import export_search
    from operant.schedulers.overview import find_search

    target = export_search(find_search(find_root(), args.task), args.tar_path)
    print(f"Wrote {target}")
    return 0


def configure_import(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--tar-path", type=Path, required=True, help="the archive to read")
    parser.add_argument("-t", "--task", metavar="NAME", help="what to call it (default: its name in the archive)")
    parser.add_argument("--force", action="store_true", help="replace a search of that name")


def run_import(args: argparse.Namespace) -> int:
    from operant.schedulers.archive import import_search

    folder = import_search(args.tar_path, find_root() / "searches", args.task, force=args.force)
    print(f"Imported {folder.name}; `search-ctl show --task {folder.name}` shows it")
    return 0


configure, run = configure_import, run_import
