"""Bring a search back from an archive, or from an Optuna study."""

from __future__ import annotations

import argparse
import shlex
from pathlib import Path

from operant.errors import UsageError, unknown

_SOURCES = ("archive", "optuna")


def configure(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("file", nargs="?", type=Path, help="the archive, or the file with the study")
    parser.add_argument("--from", dest="source", default="archive", metavar="KIND", help="archive (default) or optuna")
    parser.add_argument("--tar-path", type=Path, help="the archive to read")
    parser.add_argument("-t", "--task", metavar="NAME", help="what to call it (default: the name it has there)")
    parser.add_argument("--study", metavar="NAME", help="which study, where a file holds several")
    parser.add_argument("--force", action="store_true", help="replace a search of that name")


def run(args: argparse.Namespace) -> int:
    from operant.tracking.places import find_root

    if args.source not in _SOURCES:
        raise UsageError(unknown("source", args.source, _SOURCES))
    if (args.file is None) == (args.tar_path is None):
        raise UsageError("say which file to import: `--tar-path FILE`, or `--from optuna FILE`")
    searches = find_root() / "searches"
    if args.source == "optuna":
        from operant.schedulers.exchange.from_optuna import import_from_optuna

        done = import_from_optuna(args.file or args.tar_path, searches, args.task, study=args.study, force=args.force)
        folder = done.folder
        left = f" ({done.left_out} had not ended and were left out)" if done.left_out else ""
        print(f"{done.trials} trials{left}")
    else:
        from operant.schedulers.archives.archive import import_search

        if args.study is not None:
            raise UsageError("--study goes with --from optuna")
        folder = import_search(args.file or args.tar_path, searches, args.task, force=args.force)
    print(f"Imported {folder.name}; `search-ctl show --task {shlex.quote(folder.name)}` shows it")
    return 0
